/* api_foreign.c -- karakuri.h: data of the host behind Lisp objects.
 *
 * An instance of a subclass of foreign-data refers to a hidden cell of class %foreign, which holds the pointer, its type and who
 * finalizes it. Lisp may copy instances and move the cell about, but cannot make one or look into it: a pointer is never taken for
 * one of another type, and is finalized once, when its cell dies. */
#include <stdlib.h>
#include "lisp/api.h"

struct foreign {
    struct kri_cell head;
    const kr_foreign_type *type; /* NULL: released */
    void *data;
};

struct foreign_data {
    struct kri_cell head;
    kr_value plist, data;
};

struct foreign_class {
    const kr_foreign_type *type;
    const char *slots, *doc;
};

kr_status kr_foreign_class(kr_context *ctx, const kr_foreign_type *type, const char *slots, const char *doc)
{
    return kr_define_class(ctx, type->name, "lisp:foreign-data", slots, doc);
}

struct making {
    const kr_foreign_type *type;
    void *data;
};

static kr_value make_foreign(struct kri_worker *w, void *arg)
{
    const struct making *m = arg;
    kr_value cls = kri_class_named(w, m->type->name);
    if (!kri_subclassp(w->vm, cls, w->vm->classes[KRI_CLASS_FOREIGN_DATA].object))
        kri_error(w, KRI_E_NO_CLASS, cls, "a subclass of foreign-data");
    kr_value v = kri_instantiate(w, cls, -1);
    struct foreign_data *object = (struct foreign_data *)v.w;
    struct foreign *cell = (struct foreign *)kri_make(w, KRI_CLASS_FOREIGN, 16, 2);
    if (m->type->finalize && !kri_finalize(w, kri_value_of(cell)))
        kri_error_memory(w, sizeof *cell);
    kri_fetch_add(&w->vm->host->foreign_count, 1);
    cell->data = m->data;
    cell->type = m->type; /* last: nothing fails any more, and it is the cell's */
    kri_store(w, &object->head, &object->data, kri_value_of(cell));
    return v;
}

kr_value kr_foreign(kr_context *ctx, const kr_foreign_type *type, void *data)
{
    struct making m = {type, data};
    kr_value v;
    KRI_CHECK_CONTEXT(ctx);
    return kri_protected_call(ctx, make_foreign, &m, &v) == KR_OK ? v : KRI_NIL;
}

static struct foreign *foreign_of(struct kr_vm *vm, kr_value v, const kr_foreign_type *type)
{
    if (!kri_is_pointer(v) || !kri_derivedp(vm, v, vm->classes[KRI_CLASS_FOREIGN_DATA].object))
        return NULL;
    kr_value cell = kri_slot(&((struct foreign_data *)v.w)->data);
    if (!kri_has_class(cell, KRI_CLASS_FOREIGN))
        return NULL;
    struct foreign *f = (struct foreign *)cell.w;
    return f->type == type && type ? f : NULL;
}

kr_status kr_to_foreign(kr_context *ctx, kr_value v, const kr_foreign_type *type, void **data)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    const struct foreign *f = foreign_of(ctx->vm, v, type);
    *data = f ? f->data : NULL;
    return f ? KR_OK : KR_BAD_TYPE;
}

/* Take the data off F: the type that is to finalize it, or NULL if somebody did. */
static const kr_foreign_type *take(struct kri_worker *w, struct foreign *f, void **data)
{
    kri_lock(w, &w->vm->lock);
    const kr_foreign_type *type = f->type;
    *data = f->data;
    f->type = NULL;
    f->data = NULL;
    kri_unlock(&w->vm->lock);
    if (type)
        kri_fetch_add(&w->vm->host->foreign_count, (size_t)-1);
    return type;
}

void kri_foreign_finalize(struct kri_worker *w, kr_value cell)
{
    void *data;
    const kr_foreign_type *type = take(w, (struct foreign *)cell.w, &data);
    if (type && type->finalize)
        type->finalize(w->ctx, data);
}

static kr_value release(struct kri_worker *w, void *arg)
{
    kri_foreign_finalize(w, kri_value_of(arg));
    return KRI_NIL;
}

kr_status kr_foreign_release(kr_context *ctx, kr_value v, const kr_foreign_type *type)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    struct foreign *f = foreign_of(ctx->vm, v, type);
    return f ? kri_protected_call(ctx, release, f, NULL) : KR_BAD_TYPE;
}

/* ---- the end of a VM ---- */

struct gathering {
    kr_value *cell;
    size_t n, size;
};

static void gather(struct kri_cell *c, void *arg)
{
    struct gathering *g = arg;
    if (c->cls == KRI_CLASS_FOREIGN && ((struct foreign *)c)->type && g->n < g->size)
        g->cell[g->n++] = kri_value_of(c);
}

static void gather_all(struct kri_worker *w, void *arg) { kri_heap_walk(w, gather, arg); }

/* The last context is left; what a finalizer makes is not finalized. */
static kr_value finalize_all(struct kri_worker *w, void *arg)
{
    size_t n = kri_load_acquire(&w->vm->host->foreign_count);
    kr_value found = kri_make_vector(w, n);
    struct gathering g = {kri_vector_of(found)->at, 0, n};
    (void)arg;
    kri_with_world_stopped(w, gather_all, &g);
    for (size_t i = 0; i < g.n; i++)
        kri_foreign_finalize(w, g.cell[i]);
    return KRI_NIL;
}

void kri_foreign_finalize_all(struct kri_worker *w)
{
    kr_value ignored;
    /* A finalizer that raises against the rules leaves the others to the next turn. */
    for (size_t before = 0, left; (left = kri_load_acquire(&w->vm->host->foreign_count)) > 0 && left != before;) {
        before = left;
        kri_protect(w, finalize_all, NULL, &ignored);
    }
}
