/* native_module.h -- shared objects of native code. */
#ifndef KRI_LISP_NATIVE_MODULE_H
#define KRI_LISP_NATIVE_MODULE_H

#include "lisp/native.h"

/* The module in shared object PATH; raises if it is none or of another version. It stays loaded. */
const struct kri_native_module *kri_native_open(struct kri_worker *w, const char *path);
/* The end of VM. */
void kri_native_finish(struct kr_vm *vm);

#endif
