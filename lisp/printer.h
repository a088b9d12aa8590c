/* printer.h -- the printer's offers beyond vm.h. */
#ifndef KRI_LISP_PRINTER_H
#define KRI_LISP_PRINTER_H

#include "lisp/stream.h"

void kri_printer_init(struct kri_worker *w);
/* Append V as printed to T. May-gc, may run Lisp (:prin1 methods). */
void kri_print_text(struct kri_worker *w, struct kri_text *t, kr_value v, bool escape);
/* V as by prin1, cut after MOST bytes, whatever it is: circular, huge, or with a :prin1 method that fails. Raises only if
 * there is no memory. */
kr_value kri_print_cut(struct kri_worker *w, kr_value v, size_t most);
/* #<class #Xaddress name extra ..>, the extras by princ. */
void kri_print_unreadable(struct kri_worker *w, kr_value v, kr_value stream, int extras, const kr_value *extra);

#endif
