/* finalize.c -- cells that want a last word. The table lies outside the heap and holds its cells weakly: a cell that dies
 * moves to the ready list, lives on, and kri_next_finalizable hands it out. It is registered no more then. */
#include "runtime/mark.h"

#include <assert.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

void kri_finalizers_init(struct kri_finalizers *f)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
}

void kri_finalizers_free(struct kri_finalizers *f)
{
    free(f->waiting);
    free(f->ready);
    pthread_mutex_destroy(&f->lock);
}

static struct kri_cell **ready_at(struct kri_finalizers *f, size_t i)
{
    return &f->ready[(f->ready_first + i) % f->capacity];
}

/* Room for twice as many in both arrays: so reviving, which must not fail, needs no memory. */
static bool grow_locked(struct kri_finalizers *f)
{
    size_t capacity = f->capacity ? 2 * f->capacity : FIRST_CAPACITY;
    struct kri_cell **ready = malloc(capacity * sizeof *ready);
    struct kri_cell **waiting = ready ? realloc(f->waiting, capacity * sizeof *waiting) : NULL;
    if (!waiting) {
        free(ready);
        return false;
    }
    for (size_t i = 0; i < f->ready_count; i++)
        ready[i] = *ready_at(f, i);
    free(f->ready);
    f->ready = ready;
    f->ready_first = 0;
    f->waiting = waiting;
    f->capacity = capacity;
    return true;
}

bool kri_finalize(struct kri_worker *w, kr_value v)
{
    struct kri_finalizers *f = kri_mark_finalizers(w->heap);
    struct kri_cell *c = kri_ptr(v);
    bool ok = true;
    assert(kri_is_pointer(v));
    pthread_mutex_lock(&f->lock);
    if (!(kri_load_byte(&c->flags) & KRI_FLAG_FINALIZE)) {
        ok = f->waiting_count + f->ready_count < f->capacity || grow_locked(f);
        if (ok) {
            f->waiting[f->waiting_count++] = c;
            kri_change_flags(c, 0, KRI_FLAG_FINALIZE);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return ok;
}

kr_value kri_next_finalizable(struct kri_worker *w)
{
    struct kri_finalizers *f = kri_mark_finalizers(w->heap);
    kr_value v = KRI_NIL;
    pthread_mutex_lock(&f->lock);
    if (f->ready_count) {
        v = kri_value_of(*ready_at(f, 0));
        f->ready_first = (f->ready_first + 1) % f->capacity;
        f->ready_count--;
    }
    pthread_mutex_unlock(&f->lock);
    return v;
}

void kri_finalizers_mark_ready(struct kri_finalizers *f, struct kri_marker *m)
{
    for (size_t i = 0; i < f->ready_count; i++)
        kri_mark_value(m, kri_value_of(*ready_at(f, i)));
}

bool kri_finalizers_revive(struct kri_finalizers *f, struct kri_marker *m)
{
    size_t kept = 0, dead = 0;
    /* Nothing is marked before all are judged: a dead cell that another dead one refers to gets its last word as well. */
    for (size_t i = 0; i < f->waiting_count; i++) {
        struct kri_cell *c = f->waiting[i];
        if (kri_marked(c)) {
            f->waiting[kept++] = c;
        } else {
            kri_store_byte(&c->flags, c->flags & ~KRI_FLAG_FINALIZE);
            *ready_at(f, f->ready_count + dead++) = c;
        }
    }
    f->waiting_count = kept;
    for (size_t i = 0; i < dead; i++)
        kri_mark_value(m, kri_value_of(*ready_at(f, f->ready_count + i)));
    f->ready_count += dead;
    return dead > 0;
}
