/* profile.h -- where the time goes and where memory is allocated, by samples. */
#ifndef KRI_LISP_PROFILE_H
#define KRI_LISP_PROFILE_H

#include "lisp/vm.h"

/* The heap's hooks (runtime/heap.h). */
void kri_profile_sample(struct kri_worker *w);
void kri_profile_allocated(struct kri_worker *w, size_t bytes);
/* World stopped: mark the functions that the profile names. */
void kri_profile_mark(struct kr_vm *vm, struct kri_marker *m);
/* The VM ends: stop the thread that asks for samples. */
void kri_profile_end(struct kri_worker *w);
/* In the child that thread is not there, and the lock may be held for ever: begin anew. */
void kri_profile_after_fork(struct kr_vm *vm);
/* No worker is left. */
void kri_profile_free(struct kr_vm *vm);

#endif
