/* unit.h -- what the tests of the runtime share: expectations in inner loops, this thread as a worker. */
#ifndef KARAKURI_TEST_UNIT_H
#define KARAKURI_TEST_UNIT_H

#include <check.h>
#include <pthread.h>

#include "runtime/heap_private.h"

/* For inner loops: each ck_assert, also a true one, tells the parent process by a system call. */
#define EXPECT(x) do { if (!(x)) ck_abort_msg("%s", #x); } while (0)

/* The calling thread as a worker. It has no Lisp stack: its limit is one that only a request poisons. */
static inline struct kri_worker *attach(struct kri_heap *heap)
{
    pthread_attr_t a;
    void *low;
    size_t size;
    pthread_getattr_np(pthread_self(), &a);
    pthread_attr_getstack(&a, &low, &size);
    pthread_attr_destroy(&a);
    struct kri_worker *w = kri_worker_new(heap, (char *)low + size, (char *)low + 4096);
    EXPECT(w != NULL);
    kri_set_lisp_limit(w, (void *)UINTPTR_MAX);
    return w;
}

#endif
