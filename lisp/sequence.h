/* sequence.h -- what the builtins on lists, vectors, strings and tables share. */
#ifndef KRI_LISP_SEQUENCE_H
#define KRI_LISP_SEQUENCE_H

#include "lisp/vm.h"

/* A vector, or the part of a vector that an array of rank one shows. */
struct kri_span {
    kr_value vector;
    size_t start, length;
};
/* True and *S filled if V is a vector or an array of rank one; the span lies inside the vector. */
bool kri_span_of(struct kr_vm *vm, kr_value v, struct kri_span *s);
/* Conses of LIST before its end; a dotted tail does not count. Raises CIRCULAR. */
size_t kri_list_length(struct kri_worker *w, kr_value list);
/* A list that has this many elements is looked at for being circular before it is copied further. */
enum { KRI_LONG_LIST = 1 << 20 };
/* The error CODE of argument I, an INDEX into LENGTH elements. */
_Noreturn void kri_index_error(struct kri_worker *w, int i, kr_value index, int code, size_t length);
/* Elements of argument I, a sequence, or the error NO_SEQUENCE. */
size_t kri_sequence_length(struct kri_worker *w, const kr_value *argv, int i);
/* The :start and :end of a sequence of LENGTH elements, given as values (NIL or KRI_ABSENT: not given). An end beyond the
 * sequence is cut; a start beyond the end raises START_END. */
void kri_bounds(struct kri_worker *w, kr_value start, kr_value end, size_t length, size_t *from, size_t *to);

/* A fresh vector of vector class index CLS with LENGTH elements (NIL or zero). */
kr_value kri_make_vector_of(struct kri_worker *w, unsigned cls, size_t length);
/* The class index of vector class CLASS (a class object, argument I) or its error. */
unsigned kri_arg_vector_class(struct kri_worker *w, const kr_value *argv, int i);
/* The bytes of a string, byte vector or foreign string. */
unsigned char *kri_vector_bytes(struct kr_vm *vm, kr_value v);
/* Copy elements between vectors of any types, converting; overlapping allowed. Caller has checked the ranges. */
void kri_vector_copy(struct kri_worker *w, kr_value to, size_t at, kr_value from, size_t start, size_t n);
/* The string named by V: a string itself, or a symbol's name; NIL-safe. False: V is neither. */
bool kri_string_designator(struct kr_vm *vm, kr_value v, const unsigned char **bytes, size_t *length);

/* A fresh matrix of zeros, and where its elements are, row by row (lisp/builtin_fvector.c). */
kr_value kri_make_matrix(struct kri_worker *w, size_t rows, size_t columns, double **at);
/* Is V a matrix of reals? Then where its elements are. */
bool kri_look_matrix(struct kr_vm *vm, kr_value v, double **at, size_t *rows, size_t *columns);

/* What a :test argument asks for. */
enum kri_test { KRI_TEST_EQL, KRI_TEST_EQUAL, KRI_TEST_STRING, KRI_TEST_OTHER };
/* EQ and EQL are one test: identity, and equal numbers of one type. Absent or NIL: EQL. */
enum kri_test kri_test_of(struct kr_vm *vm, kr_value test);
/* Is FN the function that this C function implements? */
bool kri_is_builtin(kr_value fn, kri_builtin_fn code);
/* Is FN (a function or a symbol) Karakuri's own builtin NAME? */
bool kri_is_builtin_named(struct kr_vm *vm, kr_value fn, const char *name);
kri_builtin_fn kri_builtin_string_equal(void); /* string= (lisp/builtin_string.c) */
/* The test or hash function of TABLE, a hash table, has been replaced. */
void kri_hash_table_renew(struct kri_worker *w, kr_value table);
/* kri_heap_hooks' weak_trace and weak_clear: Note [weak tables]. */
bool kri_hash_table_trace(struct kri_heap *heap, struct kri_marker *m, struct kri_cell *table, bool forward);
void kri_hash_table_clear_dead(struct kri_heap *heap, struct kri_cell *table);
/* Must identity do for comparing V by EQL? False for numbers that live in cells. */
static inline bool kri_eq_suffices(kr_value v)
{
    if (!kri_is_pointer(v))
        return true;
    unsigned c = kri_ptr(v)->cls;
    return c != KRI_CLASS_FLOAT_BOX && c != KRI_CLASS_BIGNUM && c != KRI_CLASS_RATIO && c != KRI_CLASS_COMPLEX;
}
static inline bool kri_same(struct kri_worker *w, kr_value a, kr_value b, enum kri_test test)
{
    return kri_eq(a, b) || (test == KRI_TEST_EQL ? !kri_eq_suffices(a) && kri_eql(a, b) : kri_equal(w, a, b));
}
/* Go on as the Lisp function that SYMBOL names, with the first ARGC words of argv; no C frame stays. */
static inline kr_value kri_tail_call_symbol(struct kri_worker *w, kr_value symbol, int argc)
{
    return kri_tail_call(w, kri_symbol_function(w->vm, symbol), argc);
}

/* Builds a list from the front. Lives on the C stack; its cells are reachable from it. */
struct kri_lister {
    kr_value head;
    struct kri_cons *tail;
};
static inline void kri_lister_add(struct kri_worker *w, struct kri_lister *l, kr_value v)
{
    kr_value c = kri_cons(w, v, KRI_NIL);
    if (l->tail)
        kri_store(w, &l->tail->head, &l->tail->cdr, c);
    else
        l->head = c;
    l->tail = kri_cons_of(c);
}
/* A poll every few thousand turns of a long loop. */
static inline void kri_tick(struct kri_worker *w, size_t *n)
{
    if (KRI_UNLIKELY((++*n & 4095) == 0))
        kri_poll(w);
}

#endif
