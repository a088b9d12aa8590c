/* sort.c -- sort and stable-sort. Numbers and what a builtin compares are sorted here; for predicates written in Lisp, and keys,
 * lib/core/sequence.l does it, so that no C frame waits for Lisp. */
#include "lisp/sequence.h"

/* ---- numbers by < or > ---- */

/* Stable merge sort, bottom up, of N doubles or integers in buffer A with B to help; the buffers are Lisp vectors, for
 * polls in between may collect. Returns the one that holds the result. */
#define DEFINE_MERGE(name, type, vector, before)                                                                          \
    static kr_value name(struct kri_worker *w, kr_value a, kr_value b, size_t n, bool down)                                      \
    {                                                                                                                            \
        size_t ticks = 0;                                                                                                        \
        for (size_t width = 1; width < n; width *= 2) {                                                                          \
            const type *from = ((struct vector *)a.w)->at;                                                                       \
            type *to = ((struct vector *)b.w)->at;                                                                               \
            for (size_t lo = 0; lo < n; lo += 2 * width) {                                                                       \
                size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;                      \
                size_t i = lo, j = mid;                                                                                          \
                for (size_t k = lo; k < hi; k++) {                                                                               \
                    bool right = i >= mid || (j < hi && (down ? before(from[i], from[j]) : before(from[j], from[i])));           \
                    to[k] = from[right ? j++ : i++];                                                                             \
                }                                                                                                                \
                ticks += hi - lo;                                                                                                \
                if (ticks > 65536) {                                                                                             \
                    ticks = 0;                                                                                                   \
                    kri_poll(w);                                                                                                 \
                }                                                                                                                \
            }                                                                                                                    \
            kr_value t = a;                                                                                                      \
            a = b;                                                                                                               \
            b = t;                                                                                                               \
        }                                                                                                                        \
        return a;                                                                                                                \
    }
#define LESS(x, y) ((x) < (y))
DEFINE_MERGE(merge_integers, int64_t, kri_ivector, LESS)
DEFINE_MERGE(merge_floats, double, kri_fvector, LESS)

/* Sort numbers in place if all are fixnums or all are floats; false: they are not, nothing was done. */
static bool sort_numbers(struct kri_worker *w, kr_value *argv, bool down)
{
    size_t n = kri_sequence_length(w, argv, 0), ints = 0, floats = 0, ticks = 0;
    struct kri_span s;
    bool vector = kri_span_of(w->vm, argv[0], &s);
    kr_value a = kri_make_ivector(w, n), l = argv[0];
    for (size_t i = 0; i < n; i++, kri_tick(w, &ticks)) {
        if (!vector && !kri_is_cons(l))
            return false;
        kr_value v = vector ? kri_vector_ref(w, s.vector, s.start + i) : kri_car(l);
        if (kri_is_fixnum(v)) {
            kri_ivector_of(a)->at[i] = kri_fixnum_value(v);
            ints++;
        } else if (kri_is_float(v)) {
            double d = kri_float_value(v);
            memcpy(&kri_ivector_of(a)->at[i], &d, sizeof d);
            floats++;
        }
        if (ints != i + 1 && floats != i + 1)
            return false;
        if (!vector)
            l = kri_cdr(l);
    }
    kr_value b = kri_make_ivector(w, n), r = ints ? merge_integers(w, a, b, n, down) : merge_floats(w, a, b, n, down);
    l = argv[0];
    for (size_t i = 0; i < n; i++, kri_tick(w, &ticks)) {
        double d;
        memcpy(&d, &kri_ivector_of(r)->at[i], sizeof d);
        kr_value v = ints ? kri_fixnum((intptr_t)kri_ivector_of(r)->at[i]) : kri_float(w, d);
        if (vector) {
            kri_vector_set(w, s.vector, s.start + i, v);
        } else if (kri_is_cons(l)) {
            kri_store(w, kri_ptr(l), &kri_cons_of(l)->car, v);
            l = kri_cdr(l);
        }
    }
    return true;
}

/* ---- anything by a predicate of Karakuri's own ---- */

/* Does X come before Y by PREDICATE, a builtin? Strings by string< are compared here. */
static bool before(struct kri_worker *w, kr_value predicate, bool strings, kr_value x, kr_value y)
{
    if (!strings)
        return !kri_is_nil(kri_call2(w, predicate, x, y));
    const struct kri_string *a = kri_string_of(x), *b = kri_string_of(y);
    size_t n = a->head.length < b->head.length ? a->head.length : b->head.length;
    int d = n ? memcmp(a->byte, b->byte, n) : 0;
    return d < 0 || (d == 0 && a->head.length < b->head.length);
}

static bool all_strings(kr_value vector, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!kri_has_class(kri_vector_of(vector)->at[i], KRI_CLASS_STRING))
            return false;
    return true;
}

/* Stable merge sort, bottom up, of the first N elements of vector A with B to help. Returns the one that holds the result. Others
 * see neither; so the stores need no order among themselves, but a collection may come at every call. */
static kr_value merge_values(struct kri_worker *w, kr_value a, kr_value b, size_t n, kr_value predicate)
{
    bool strings = kri_is_builtin_named(w->vm, predicate, "STRING<") && all_strings(a, n);
    size_t ticks = 0;
    for (size_t width = 1; width < n; width *= 2) {
        kr_value *from = kri_vector_of(a)->at, *to = kri_vector_of(b)->at;
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n, i = lo, j = mid;
            bool sorted = mid == hi || !before(w, predicate, strings, from[mid], from[mid - 1]);
            for (size_t k = lo; k < hi; k++, kri_tick(w, &ticks)) {
                bool second = !sorted && i < mid && j < hi && before(w, predicate, strings, from[j], from[i]);
                kri_store(w, kri_ptr(b), &to[k], second || i == mid ? from[j++] : from[i++]);
            }
        }
        kr_value t = a;
        a = b;
        b = t;
    }
    return a;
}

/* Sort by a builtin, without a key. The elements are taken out, sorted, and put back where they were. */
static kr_value sort_by_builtin(struct kri_worker *w, kr_value *argv)
{
    size_t n = kri_sequence_length(w, argv, 0), count = 0, ticks = 0;
    struct kri_span s;
    bool vector = kri_span_of(w->vm, argv[0], &s);
    kr_value a = kri_make_vector(w, n), b = kri_make_vector(w, n), l = argv[0];
    for (; count < n && (vector || kri_is_cons(l)); count++, kri_tick(w, &ticks)) {
        kri_store(w, kri_ptr(a), &kri_vector_of(a)->at[count], vector ? kri_vector_ref(w, s.vector, s.start + count) : kri_car(l));
        if (!vector)
            l = kri_cdr(l);
    }
    a = merge_values(w, a, b, count, argv[1]);
    l = argv[0];
    for (size_t i = 0; i < count; i++, kri_tick(w, &ticks)) {
        kr_value v = kri_vector_of(a)->at[i];
        if (vector) {
            kri_vector_set(w, s.vector, s.start + i, v);
        } else if (kri_is_cons(l)) {
            kri_store(w, kri_ptr(l), &kri_cons_of(l)->car, v);
            l = kri_cdr(l);
        }
    }
    return argv[0];
}

#define SORT_DOC                                                                                                                 \
    "Sort SEQUENCE in place, stably, and return it: PREDICATE of two elements (of what the function KEY returns for them) says\n"    \
    "that the first comes before the second. The elements of a list move among its cells, so the list still begins at the same cons."

static kr_value sort(struct kri_worker *w, int argc, kr_value *argv)
{
    bool down = false;
    if (argc == 4) /* Common Lisp's form: (sort sequence predicate :key function) */
        kri_check_keys(w, argc, argv, 2, &w->vm->sym.k_key, 1), argv[2] = argv[3], argc = 3;
    if (kri_is_nil(argv[0]))
        return KRI_NIL;
    kri_sequence_length(w, argv, 0); /* a sequence, and not circular */
    if ((argc == 2 || kri_is_nil(argv[2])) && (kri_is_builtin_named(w->vm, argv[1], "<") || (down = kri_is_builtin_named(w->vm, argv[1], ">"))) &&
        sort_numbers(w, argv, down))
        return argv[0];
    if ((argc == 2 || kri_is_nil(argv[2])) && !kri_is_cons(argv[1])) {
        kr_value predicate = kri_coerce_function(w, argv[1]);
        if (kri_is_builtin_code(kri_code_of(predicate)) && !(kri_code_of(predicate)->flags & (KRI_CODE_SPECIAL | KRI_CODE_MACRO))) {
            argv[1] = predicate;
            return sort_by_builtin(w, argv);
        }
    }
    return kri_tail_call_symbol(w, w->vm->sym.seq_sort, argc);
}

KR_BUILTIN(sort_, "sort", "(sequence predicate &optional key &rest common-lisp-key)", SORT_DOC)
{
    if (argc > 4)
        kri_error(w, KRI_E_ARGC, KRI_NIL, "sort takes a sequence, a predicate and a key");
    return sort(w, argc, argv);
}

KR_BUILTIN(stable_sort, "stable-sort", "(sequence predicate &optional key &rest common-lisp-key)", SORT_DOC)
{
    if (argc > 4)
        kri_error(w, KRI_E_ARGC, KRI_NIL, "stable-sort takes a sequence, a predicate and a key");
    return sort(w, argc, argv);
}

const struct kri_builtin *const kri_builtins_sort[] = {&sort__def, &stable_sort_def, NULL};
