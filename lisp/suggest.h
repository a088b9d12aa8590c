/* suggest.h -- names near a misspelt one, for messages. */
#ifndef KRI_LISP_SUGGEST_H
#define KRI_LISP_SUGGEST_H

#include "lisp/vm.h"

/* At most three symbols that may have been meant where CONDITION says that a name does not exist, nearest first; else NIL. */
kr_value kri_near_names(struct kri_worker *w, kr_value condition);

#endif
