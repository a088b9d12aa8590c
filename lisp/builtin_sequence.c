/* builtin_sequence.c -- functions on lists and vectors alike, as far as they do not call back into Lisp.
 *
 * A sequence is a list, a vector of any type, or an array of rank one (its part before the fill pointer). The functions with
 * :test and :key do the plain cases here and go on as Lisp functions of lib/core/sequence.l otherwise. */
#include "lisp/direct.h"
#include "lisp/sequence.h"

/* ---- vectors as such ---- */

bool kri_span_of(struct kr_vm *vm, kr_value v, struct kri_span *s)
{
    if (kri_is_vector(vm, v)) {
        *s = (struct kri_span){v, 0, kri_length(v)};
        return true;
    }
    if (!kri_is_pointer(v) || (kri_ptr(v)->cls != KRI_CLASS_ARRAY && !kri_derivedp(vm, v, vm->classes[KRI_CLASS_ARRAY].object)))
        return false;
    struct kri_array *a = (struct kri_array *)v.w;
    kr_value entity = kri_slot(&a->entity), fill = kri_slot(&a->fill_pointer), offset = kri_slot(&a->offset);
    if (!kri_eq(kri_slot(&a->rank), kri_fixnum(1)) || !kri_is_vector(vm, entity))
        return false;
    kr_value dim = kri_is_fixnum(fill) ? fill : kri_slot(&a->dim[0]);
    intptr_t at = kri_is_fixnum(offset) ? kri_fixnum_value(offset) : 0;
    intptr_t n = kri_is_fixnum(dim) ? kri_fixnum_value(dim) : 0, room = (intptr_t)kri_length(entity) - at;
    if (at < 0 || room < 0 || n < 0) /* its slots were set by hand */
        return false;
    *s = (struct kri_span){entity, (size_t)at, (size_t)(n < room ? n : room)};
    return true;
}

static struct kri_span span_arg(struct kri_worker *w, const kr_value *argv, int i)
{
    struct kri_span s;
    if (!kri_span_of(w->vm, argv[i], &s))
        kri_argument_error(w, i, argv[i], KRI_E_NO_SEQUENCE);
    return s;
}

size_t kri_sequence_length(struct kri_worker *w, const kr_value *argv, int i)
{
    return kri_is_list(argv[i]) ? kri_list_length(w, argv[i]) : span_arg(w, argv, i).length;
}

static bool given(kr_value v) { return !kri_is_nil(v) && !kri_eq(v, KRI_ABSENT); }

void kri_bounds(struct kri_worker *w, kr_value start, kr_value end, size_t length, size_t *from, size_t *to)
{
    intptr_t n = (intptr_t)length, a = 0, b = n;
    if (given(start)) {
        if (!kri_is_fixnum(start))
            kri_error(w, KRI_E_NO_INTEGER, start, "as start of a sequence: %V", start);
        a = kri_fixnum_value(start);
    }
    if (given(end)) {
        if (!kri_is_fixnum(end))
            kri_error(w, KRI_E_NO_INTEGER, end, "as end of a sequence: %V", end);
        b = kri_fixnum_value(end);
        b = b > n ? n : b;
    }
    if (a < 0 || a > b)
        kri_error(w, KRI_E_START_END, given(start) ? start : end, "%ld to %ld of %ld elements", (long)a, (long)b, (long)n);
    *from = (size_t)a;
    *to = (size_t)b;
}

/* The plain class for elements of a kind: what a part of a vector of fixed length, or of a foreign string, becomes. */
static unsigned plain_class(enum kri_element e)
{
    switch (e) {
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
    case KRI_ELEMENT_FOREIGN:
        return KRI_CLASS_STRING;
    case KRI_ELEMENT_BIT:
        return KRI_CLASS_BIT_VECTOR;
    case KRI_ELEMENT_FLOAT:
        return KRI_CLASS_FLOAT_VECTOR;
    case KRI_ELEMENT_INTEGER:
        return KRI_CLASS_INTEGER_VECTOR;
    default:
        return KRI_CLASS_VECTOR;
    }
}

kr_value kri_make_vector_of(struct kri_worker *w, unsigned cls, size_t length)
{
    const struct kri_class *c = &w->vm->classes[cls];
    enum kri_element e = (enum kri_element)c->element;
    size_t words = length;
    if (e == KRI_ELEMENT_FOREIGN || (c->fixed_size >= 0 && (size_t)c->fixed_size != length))
        cls = plain_class(e);
    if (length >= UINT32_MAX)
        kri_error_memory(w, length);
    if (e == KRI_ELEMENT_CHAR || e == KRI_ELEMENT_BYTE || e == KRI_ELEMENT_FOREIGN)
        words = length / KRI_WORD + 1; /* room for the zero byte behind the last */
    else if (e == KRI_ELEMENT_BIT)
        words = (length + 63) / 64;
    return kri_value_of(kri_make(w, cls, (uint32_t)length, words));
}

unsigned char *kri_vector_bytes(struct kr_vm *vm, kr_value v)
{
    return kri_element(vm, v) == KRI_ELEMENT_FOREIGN ? ((struct kri_foreign *)v.w)->address : kri_string_of(v)->byte;
}

static bool is_bytes(enum kri_element e)
{
    return e == KRI_ELEMENT_CHAR || e == KRI_ELEMENT_BYTE || e == KRI_ELEMENT_FOREIGN;
}

void kri_vector_copy(struct kri_worker *w, kr_value to, size_t at, kr_value from, size_t start, size_t n)
{
    enum kri_element a = kri_element(w->vm, to), b = kri_element(w->vm, from);
    size_t ticks = 0;
    if (n == 0)
        return;
    if (a == KRI_ELEMENT_T && b == KRI_ELEMENT_T) {
        kri_store_move(w, kri_ptr(to), kri_vector_of(to)->at + at, kri_vector_of(from)->at + start, n);
    } else if (is_bytes(a) && is_bytes(b)) {
        memmove(kri_vector_bytes(w->vm, to) + at, kri_vector_bytes(w->vm, from) + start, n);
    } else if (a == b && (a == KRI_ELEMENT_FLOAT || a == KRI_ELEMENT_INTEGER)) {
        memmove(kri_ivector_of(to)->at + at, kri_ivector_of(from)->at + start, n * sizeof(int64_t));
    } else if (a == KRI_ELEMENT_FLOAT && b == KRI_ELEMENT_INTEGER) {
        for (size_t i = 0; i < n; i++)
            kri_fvector_of(to)->at[at + i] = (double)kri_ivector_of(from)->at[start + i];
    } else if (kri_eq(to, from) && at > start) {
        for (size_t i = n; i-- > 0; kri_tick(w, &ticks))
            kri_vector_set(w, to, at + i, kri_vector_ref(w, from, start + i));
    } else {
        for (size_t i = 0; i < n; i++, kri_tick(w, &ticks))
            kri_vector_set(w, to, at + i, kri_vector_ref(w, from, start + i));
    }
}

/* ---- length, elements ---- */

KR_BUILTIN(length, "length", "(sequence)",
           "Return the number of elements of SEQUENCE: of an array of rank one those before its fill pointer, of a list its conses.")
{
    return kri_fixnum((intptr_t)kri_sequence_length(w, argv, 0));
}

KR_BUILTIN(list_length, "list-length", "(list)", "Return the number of elements of LIST, or of another sequence.")
{
    return kri_fixnum((intptr_t)kri_sequence_length(w, argv, 0));
}

_Noreturn void kri_index_error(struct kri_worker *w, int i, kr_value index, int code, size_t length)
{
    kri_error(w, code, index, "argument %d of %V is %V, of %ld elements", i + 1, kri_is_function(w->callee) ? kri_code_of(w->callee)->name : KRI_NIL, index,
              (long)length);
}

/* The cons of LIST at index argument I, or the error SEQUENCE_INDEX. */
static struct kri_cons *list_at(struct kri_worker *w, kr_value list, const kr_value *argv, int i)
{
    intptr_t n = kri_arg_fixnum(w, argv, i);
    size_t ticks = 0;
    if (n < 0)
        kri_argument_error(w, i, argv[i], KRI_E_SEQUENCE_INDEX);
    kr_value whole = list;
    for (; n > 0 && kri_is_cons(list); n--, list = kri_cdr(list))
        kri_tick(w, &ticks);
    if (!kri_is_cons(list))
        kri_index_error(w, i, argv[i], KRI_E_SEQUENCE_INDEX, kri_list_length(w, whole));
    return kri_cons_of(list);
}

/* The whole of argument 0 for elt: an array's elements behind the fill pointer can be reached, as by aref. */
static size_t vector_at(struct kri_worker *w, const kr_value *argv, struct kri_span *s)
{
    *s = span_arg(w, argv, 0);
    intptr_t n = kri_arg_fixnum(w, argv, 1);
    size_t limit = s->length;
    if (!kri_is_vector(w->vm, argv[0])) {
        kr_value dim = kri_slot(&((struct kri_array *)argv[0].w)->dim[0]);
        size_t room = kri_length(s->vector) - s->start;
        limit = kri_is_fixnum(dim) && kri_fixnum_value(dim) >= 0 ? (size_t)kri_fixnum_value(dim) : 0;
        limit = limit < room ? limit : room;
    }
    if (n < 0 || (size_t)n >= limit)
        kri_index_error(w, 1, argv[1], KRI_E_ARRAY_INDEX, limit);
    return s->start + (size_t)n;
}

KR_BUILTIN(elt, "elt", "(sequence index)", "Return the element of SEQUENCE at INDEX (from 0). An index out of range is an error.")
{
    struct kri_span s;
    if (kri_has_class(argv[0], KRI_CLASS_VECTOR) && kri_is_fixnum(argv[1]) && (uintptr_t)kri_fixnum_value(argv[1]) < kri_length(argv[0]))
        return kri_slot(&kri_vector_of(argv[0])->at[kri_fixnum_value(argv[1])]);
    if (kri_is_cons(argv[0]))
        return kri_slot(&list_at(w, argv[0], argv, 1)->car);
    size_t i = vector_at(w, argv, &s);
    return kri_vector_ref(w, s.vector, i);
}

KR_BUILTIN(setelt, "setelt", "(sequence index value)", "Make VALUE the element of SEQUENCE at INDEX; return VALUE.")
{
    struct kri_span s;
    if (kri_is_cons(argv[0])) {
        struct kri_cons *c = list_at(w, argv[0], argv, 1);
        kri_store(w, &c->head, &c->car, argv[2]);
        return argv[2];
    }
    size_t i = vector_at(w, argv, &s);
    kri_vector_set(w, s.vector, i, argv[2]);
    return argv[2];
}

/* ---- copies and parts ---- */

static kr_value copy_list(struct kri_worker *w, kr_value l, bool keep_tail)
{
    if (!kri_is_cons(l))
        return KRI_NIL;
    kr_value head = kri_cons(w, kri_car(l), KRI_NIL);
    struct kri_cons *tail = kri_cons_of(head);
    size_t ticks = 0;
    for (l = kri_slot(&kri_cons_of(l)->cdr); kri_is_cons(l); l = kri_slot(&kri_cons_of(l)->cdr), kri_tick(w, &ticks)) {
        kr_value c = kri_cons(w, kri_slot(&kri_cons_of(l)->car), KRI_NIL);
        kri_store(w, &tail->head, &tail->cdr, c);
        tail = kri_cons_of(c);
        if (KRI_UNLIKELY(ticks == KRI_LONG_LIST))
            kri_list_length(w, l); /* not circular */
    }
    if (keep_tail && !kri_is_nil(l))
        kri_store(w, &tail->head, &tail->cdr, l);
    return head;
}

static kr_value part(struct kri_worker *w, struct kri_span s, size_t from, size_t to)
{
    kr_value v = kri_make_vector_of(w, kri_ptr(s.vector)->cls, to - from);
    kri_vector_copy(w, v, 0, s.vector, s.start + from, to - from);
    return v;
}

KR_BUILTIN(copy_seq, "copy-seq", "(sequence)", "Return a copy of SEQUENCE; its elements are shared.")
{
    if (kri_is_list(argv[0]))
        return copy_list(w, argv[0], false);
    struct kri_span s = span_arg(w, argv, 0);
    return part(w, s, 0, s.length);
}

KR_BUILTIN(copy_list_, "copy-list", "(list)", "Return a copy of LIST with the same elements and dotted tail. Vectors are copied too.")
{
    if (kri_is_list(argv[0]))
        return copy_list(w, argv[0], true);
    struct kri_span s = span_arg(w, argv, 0);
    return part(w, s, 0, s.length);
}

KR_BUILTIN(subseq, "subseq", "(sequence start &optional end)",
           "Return a copy of SEQUENCE from START up to END (its end, also if END lies behind it). START behind the end is an error.")
{
    kr_value end = kri_arg_optional(argc, argv, 2, KRI_NIL);
    size_t from, to, ticks = 0;
    if (!kri_is_list(argv[0])) {
        struct kri_span s = span_arg(w, argv, 0);
        kri_bounds(w, argv[1], end, s.length, &from, &to);
        return part(w, s, from, to);
    }
    kri_bounds(w, argv[1], end, kri_list_length(w, argv[0]), &from, &to);
    struct kri_lister l = {KRI_NIL, NULL};
    kr_value a = argv[0];
    for (size_t i = 0; i < to && kri_is_cons(a); i++, a = kri_cdr(a), kri_tick(w, &ticks))
        if (i >= from)
            kri_lister_add(w, &l, kri_car(a));
    return l.head;
}

/* Walk to element N of the list. */
static kr_value list_skip(struct kri_worker *w, kr_value l, size_t n)
{
    size_t ticks = 0;
    for (; n > 0 && kri_is_cons(l); n--, l = kri_cdr(l))
        kri_tick(w, &ticks);
    return l;
}

static void replace_list(struct kri_worker *w, kr_value to, kr_value from, size_t n)
{
    size_t ticks = 0;
    for (; n > 0 && kri_is_cons(to) && kri_is_cons(from); n--) {
        struct kri_cons *t = kri_cons_of(to), *f = kri_cons_of(from);
        kri_store(w, &t->head, &t->car, kri_slot(&f->car));
        to = kri_slot(&t->cdr);
        from = kri_slot(&f->cdr);
        kri_tick(w, &ticks);
    }
}

/* Put N elements of FROM, beginning at START, into TO, beginning at AT. All are sequences; the ranges are checked. */
static void replace(struct kri_worker *w, kr_value to, size_t at, kr_value from, size_t start, size_t n)
{
    struct kri_span a, b;
    size_t ticks = 0;
    bool to_vector = kri_span_of(w->vm, to, &a), from_vector = kri_span_of(w->vm, from, &b);
    if (to_vector && from_vector) {
        kri_vector_copy(w, a.vector, a.start + at, b.vector, b.start + start, n);
    } else if (to_vector) {
        from = list_skip(w, from, start);
        for (size_t i = 0; i < n && kri_is_cons(from); i++, from = kri_cdr(from), kri_tick(w, &ticks))
            kri_vector_set(w, a.vector, a.start + at + i, kri_car(from));
    } else if (from_vector) {
        to = list_skip(w, to, at);
        for (size_t i = 0; i < n && kri_is_cons(to); i++, to = kri_cdr(to), kri_tick(w, &ticks))
            kri_store(w, kri_ptr(to), &kri_cons_of(to)->car, kri_vector_ref(w, b.vector, b.start + start + i));
    } else {
        /* A list into itself, upwards: take the elements first. */
        if (kri_eq(to, from) && at > start)
            from = copy_list(w, from, false);
        replace_list(w, list_skip(w, to, at), list_skip(w, from, start), n);
    }
}

KR_BUILTIN(replace_, "replace", "(dest source &key start1 end1 start2 end2)",
           "Copy elements of SOURCE from START2 up to END2 over those of DEST from START1 up to END1, as many as both have; return DEST.")
{
    size_t from1, to1, from2, to2;
    if (argc == 2 && kri_is_cons(argv[0]) && kri_is_cons(argv[1])) {
        replace_list(w, argv[0], argv[1], SIZE_MAX);
        return argv[0];
    }
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_start1, s->k_end1, s->k_start2, s->k_end2};
    kri_check_keys(w, argc, argv, 2, allowed, 4);
    kri_bounds(w, kri_arg_key(argc, argv, 2, s->k_start1, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end1, KRI_NIL),
               kri_sequence_length(w, argv, 0), &from1, &to1);
    kri_bounds(w, kri_arg_key(argc, argv, 2, s->k_start2, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end2, KRI_NIL),
               kri_sequence_length(w, argv, 1), &from2, &to2);
    size_t n = to1 - from1 < to2 - from2 ? to1 - from1 : to2 - from2;
    replace(w, argv[0], from1, argv[1], from2, n);
    return argv[0];
}

KR_BUILTIN(fill, "fill", "(sequence item &key (start 0) end)", "Make ITEM every element of SEQUENCE from START up to END; return SEQUENCE.")
{
    const struct kri_symbols *sym = &w->vm->sym;
    const kr_value allowed[] = {sym->k_start, sym->k_end};
    size_t from, to, ticks = 0;
    kri_check_keys(w, argc, argv, 2, allowed, 2);
    kri_bounds(w, kri_arg_key(argc, argv, 2, sym->k_start, KRI_NIL), kri_arg_key(argc, argv, 2, sym->k_end, KRI_NIL),
               kri_sequence_length(w, argv, 0), &from, &to);
    if (kri_is_list(argv[0])) {
        kr_value l = list_skip(w, argv[0], from);
        for (size_t n = to - from; n > 0 && kri_is_cons(l); n--, l = kri_cdr(l), kri_tick(w, &ticks))
            kri_store(w, kri_ptr(l), &kri_cons_of(l)->car, argv[1]);
        return argv[0];
    }
    struct kri_span s = span_arg(w, argv, 0);
    if (from == to)
        return argv[0];
    if (kri_element(w->vm, s.vector) == KRI_ELEMENT_T) {
        kri_store_fill(w, kri_ptr(s.vector), kri_vector_of(s.vector)->at + s.start + from, argv[1], to - from);
        return argv[0];
    }
    for (; from < to; from++, kri_tick(w, &ticks))
        kri_vector_set(w, s.vector, s.start + from, argv[1]);
    return argv[0];
}

/* ---- making sequences of a class ---- */

unsigned kri_arg_vector_class(struct kri_worker *w, const kr_value *argv, int i)
{
    kr_value c = kri_arg_class(w, argv, i), cix = kri_slot(&kri_metaclass_of(c)->cix);
    unsigned n = kri_is_fixnum(cix) ? (unsigned)kri_fixnum_value(cix) : 0;
    if (n >= kri_load_acquire(&w->vm->class_count) || w->vm->classes[n].element == KRI_ELEMENT_NONE)
        kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
    return n;
}

/* Does argument I name the class of lists? EusLisp programs write cons; the symbol LIST is taken too. */
static bool list_class(struct kri_worker *w, const kr_value *argv, int i)
{
    return kri_eq(argv[i], w->vm->classes[KRI_CLASS_CONS].object) || kri_eq(argv[i], w->vm->sym.list);
}

static kr_value to_list(struct kri_worker *w, const kr_value *argv, int i, struct kri_lister *l)
{
    size_t ticks = 0;
    if (kri_is_list(argv[i])) {
        for (kr_value a = argv[i]; kri_is_cons(a); a = kri_cdr(a), kri_tick(w, &ticks))
            kri_lister_add(w, l, kri_car(a));
    } else {
        struct kri_span s = span_arg(w, argv, i);
        for (size_t k = 0; k < s.length; k++, kri_tick(w, &ticks))
            kri_lister_add(w, l, kri_vector_ref(w, s.vector, s.start + k));
    }
    return l->head;
}

KR_BUILTIN(concatenate, "concatenate", "(class &rest sequences)",
           "Return a sequence of CLASS (cons, or a vector class) with the elements of all SEQUENCES in order.")
{
    if (list_class(w, argv, 0)) {
        struct kri_lister l = {KRI_NIL, NULL};
        for (int i = 1; i < argc; i++)
            to_list(w, argv, i, &l);
        return l.head;
    }
    unsigned cls = kri_arg_vector_class(w, argv, 0);
    size_t n = 0, at = 0;
    for (int i = 1; i < argc; i++)
        n += kri_sequence_length(w, argv, i);
    kr_value v = kri_make_vector_of(w, cls, n);
    for (int i = 1; i < argc; i++) {
        size_t k = kri_sequence_length(w, argv, i); /* again: another thread may have changed it */
        k = k < n - at ? k : n - at;
        replace(w, v, at, argv[i], 0, k);
        at += k;
    }
    return v;
}

KR_BUILTIN(coerce, "coerce", "(object class)",
           "Return OBJECT as an instance of CLASS: a sequence as cons (a list) or a vector class. OBJECT itself if it is one with such elements.\n"
           "The symbols FLOAT, INTEGER and LIST are understood as well.")
{
    const struct kri_symbols *sym = &w->vm->sym;
    if (list_class(w, argv, 1)) {
        struct kri_lister l = {KRI_NIL, NULL};
        return kri_is_list(argv[0]) ? argv[0] : to_list(w, argv, 0, &l);
    }
    if (kri_eq(argv[1], sym->float_) || kri_eq(argv[1], sym->k_float))
        return kri_float(w, kri_arg_double(w, argv, 0));
    if (kri_eq(argv[1], sym->integer) || kri_eq(argv[1], sym->k_integer)) {
        if (!kri_is_integer(argv[0]))
            kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
        return argv[0];
    }
    unsigned cls = kri_arg_vector_class(w, argv, 1);
    if (kri_derivedp(w->vm, argv[0], argv[1]) && kri_element(w->vm, argv[0]) == w->vm->classes[cls].element)
        return argv[0];
    size_t n = kri_sequence_length(w, argv, 0);
    kr_value v = kri_make_vector_of(w, cls, n);
    replace(w, v, 0, argv[0], 0, n);
    return v;
}

KR_BUILTIN(make_sequence, "make-sequence", "(class size &key initial-element)",
           "Return a sequence of CLASS with SIZE elements, each INITIAL-ELEMENT (NIL, or zero for typed vectors).")
{
    kr_value key = w->vm->sym.k_initial_element;
    intptr_t n = kri_arg_natural(w, argv, 1);
    size_t ticks = 0;
    kri_check_keys(w, argc, argv, 2, &key, 1);
    kr_value item = kri_arg_key(argc, argv, 2, key, KRI_ABSENT), v = KRI_NIL;
    if (list_class(w, argv, 0)) {
        item = kri_eq(item, KRI_ABSENT) ? KRI_NIL : item;
        for (; n > 0; n--, kri_tick(w, &ticks))
            v = kri_cons(w, item, v);
        return v;
    }
    v = kri_make_vector_of(w, kri_arg_vector_class(w, argv, 0), (size_t)n);
    if (!kri_eq(item, KRI_ABSENT))
        for (size_t i = 0; i < (size_t)n; i++, kri_tick(w, &ticks))
            kri_vector_set(w, v, i, item);
    return v;
}

/* ---- what the Lisp half needs ---- */

KR_BUILTIN(sequence_vector, "lisp::%sequence-vector", "(sequence)", "Return a fresh general vector of the elements of SEQUENCE.")
{
    size_t n = kri_sequence_length(w, argv, 0);
    kr_value v = kri_make_vector(w, n);
    replace(w, v, 0, argv[0], 0, n);
    return v;
}

KR_BUILTIN(make_like, "lisp::%make-like", "(sequence list)",
           "Return a sequence of the elements of LIST, of the type of SEQUENCE: LIST itself if that is a list.")
{
    if (kri_is_list(argv[0]))
        return argv[1];
    struct kri_span s = span_arg(w, argv, 0);
    size_t n = kri_list_length(w, argv[1]);
    kr_value v = kri_make_vector_of(w, kri_ptr(s.vector)->cls, n);
    replace(w, v, 0, argv[1], 0, n);
    return v;
}

KR_BUILTIN(make_class, "lisp::%make-of-class", "(class list)", "Return a sequence of CLASS with the elements of LIST.")
{
    if (kri_is_nil(argv[0]))
        return KRI_NIL;
    if (list_class(w, argv, 0))
        return argv[1];
    size_t n = kri_list_length(w, argv[1]);
    kr_value v = kri_make_vector_of(w, kri_arg_vector_class(w, argv, 0), n);
    replace(w, v, 0, argv[1], 0, n);
    return v;
}

KR_BUILTIN(vector_end, "lisp::sequence-end", "(sequence start end)",
           "Return the end of a walk over SEQUENCE from START to END (NIL: its length), cut to its length; START behind it is an error.")
{
    struct kri_span s;
    size_t from, to;
    if (!kri_is_list(argv[0]) && !kri_span_of(w->vm, argv[0], &s)) /* the functions that ask here are what the program called */
        kri_error(w, KRI_E_NO_SEQUENCE, argv[0], NULL);
    kri_bounds(w, argv[1], argv[2], kri_sequence_length(w, argv, 0), &from, &to);
    return kri_fixnum((intptr_t)to);
}

/* ---- searching: the plain cases ---- */

struct query {
    enum kri_test test;
    size_t from, to;
    intptr_t count; /* how many at most; -1: all */
    kr_value key;
    kri_builtin_fn key_code; /* not NULL: KEY is a builtin, called between here and query_end */
    struct kri_direct direct;
};

/* Reads argv[at..argc) for sequence argument AT - 1. OTHER in q->test: a function must be called. */
static struct query query(struct kri_worker *w, int argc, const kr_value *argv, int at)
{
    const struct kri_symbols *s = &w->vm->sym;
    struct query q = {KRI_TEST_EQL, 0, 0, -1, KRI_NIL, NULL, {0}};
    kr_value start = KRI_NIL, end = KRI_NIL;
    if (argc > at) {
        const kr_value allowed[] = {s->k_start, s->k_end, s->k_test, s->k_test_not, s->k_key, s->k_count};
        kri_check_keys(w, argc, argv, at, allowed, 6);
        q.key = kri_arg_key(argc, argv, at, s->k_key, KRI_NIL);
        kr_value test_not = kri_arg_key(argc, argv, at, s->k_test_not, KRI_NIL);
        kr_value count = kri_arg_key(argc, argv, at, s->k_count, KRI_NIL);
        q.test = kri_test_of(w->vm, kri_arg_key(argc, argv, at, s->k_test, KRI_NIL));
        if (!kri_is_nil(test_not) || q.test == KRI_TEST_STRING || !kri_direct(w, &q.key, 1, &q.key_code))
            q.test = KRI_TEST_OTHER;
        if (q.test == KRI_TEST_OTHER)
            return q;
        start = kri_arg_key(argc, argv, at, s->k_start, KRI_NIL);
        end = kri_arg_key(argc, argv, at, s->k_end, KRI_NIL);
        if (!kri_is_nil(count)) {
            if (!kri_is_fixnum(count))
                kri_error(w, KRI_E_NO_INTEGER, count, "as :count: %V", count);
            q.count = kri_fixnum_value(count) > 0 ? kri_fixnum_value(count) : 0;
        }
    }
    kri_bounds(w, start, end, kri_sequence_length(w, argv, at - 1), &q.from, &q.to);
    if (q.key_code)
        kri_direct_begin(w, &q.direct);
    return q;
}

static void query_end(struct kri_worker *w, const struct query *q)
{
    if (q->key_code)
        kri_direct_end(w, &q->direct);
}

/* Does ITEM match ELEMENT? */
static inline bool matches(struct kri_worker *w, const struct query *q, kr_value item, kr_value element)
{
    return kri_same(w, item, q->key_code ? kri_direct_call1(w, &q->direct, q->key, q->key_code, element) : element, q->test);
}

/* Where ITEM is for the N-th time (from 1): its index, or -1; *FOUND is the element. */
static intptr_t search_item(struct kri_worker *w, kr_value item, kr_value sequence, const struct query *q, intptr_t n, kr_value *found)
{
    size_t ticks = 0;
    struct kri_span s;
    if (!kri_span_of(w->vm, sequence, &s)) {
        kr_value l = list_skip(w, sequence, q->from);
        for (size_t i = q->from; i < q->to && kri_is_cons(l); i++, l = kri_cdr(l), kri_tick(w, &ticks))
            if (matches(w, q, item, *found = kri_car(l)) && --n <= 0)
                return (intptr_t)i;
        return -1;
    }
    for (size_t i = q->from; i < q->to; i++, kri_tick(w, &ticks))
        if (matches(w, q, item, *found = kri_vector_ref(w, s.vector, s.start + i)) && --n <= 0)
            return (intptr_t)i;
    return -1;
}

KR_BUILTIN(find, "find", "(item sequence &key (start 0) end test test-not key)",
           "Return the first element of SEQUENCE from START up to END that matches ITEM, or NIL. The test (EQL) gets ITEM and what KEY\n"
           "returns for the element.")
{
    kr_value v;
    struct query q = query(w, argc, argv, 2);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_find, argc);
    intptr_t i = search_item(w, argv[0], argv[1], &q, q.count, &v);
    query_end(w, &q);
    return i < 0 ? KRI_NIL : v;
}

KR_BUILTIN(position, "position", "(item sequence &key (start 0) end test test-not key (count 1))",
           "Return the index of the COUNT-th element of SEQUENCE from START up to END that matches ITEM, or NIL.")
{
    kr_value v;
    struct query q = query(w, argc, argv, 2);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_position, argc);
    intptr_t i = search_item(w, argv[0], argv[1], &q, q.count, &v);
    query_end(w, &q);
    return i < 0 ? KRI_NIL : kri_fixnum(i);
}

KR_BUILTIN(count, "count", "(item sequence &key (start 0) end test test-not key)",
           "Return how many elements of SEQUENCE from START up to END match ITEM.")
{
    struct query q = query(w, argc, argv, 2);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_count, argc);
    intptr_t n = 0;
    size_t ticks = 0;
    struct kri_span s;
    if (kri_span_of(w->vm, argv[1], &s)) {
        for (size_t i = q.from; i < q.to; i++, kri_tick(w, &ticks))
            n += matches(w, &q, argv[0], kri_vector_ref(w, s.vector, s.start + i));
    } else {
        kr_value l = list_skip(w, argv[1], q.from);
        for (size_t i = q.from; i < q.to && kri_is_cons(l); i++, l = kri_cdr(l), kri_tick(w, &ticks))
            n += matches(w, &q, argv[0], kri_car(l));
    }
    query_end(w, &q);
    return kri_fixnum(n);
}

/* The elements of argument I as a list, without those that Q finds. */
static kr_value without(struct kri_worker *w, kr_value item, kr_value sequence, struct query q)
{
    struct kri_lister l = {KRI_NIL, NULL};
    struct kri_span s;
    bool vector = kri_span_of(w->vm, sequence, &s);
    size_t ticks = 0;
    for (size_t i = 0; vector ? i < s.length : kri_is_cons(sequence); i++, kri_tick(w, &ticks)) {
        kr_value v = vector ? kri_vector_ref(w, s.vector, s.start + i) : kri_car(sequence);
        if (i >= q.from && i < q.to && q.count != 0 && matches(w, &q, item, v))
            q.count -= q.count > 0;
        else
            kri_lister_add(w, &l, v);
        if (!vector)
            sequence = kri_cdr(sequence);
    }
    query_end(w, &q);
    return l.head;
}

static kr_value vector_from(struct kri_worker *w, kr_value like, kr_value list)
{
    struct kri_span s;
    if (!kri_span_of(w->vm, like, &s))
        return list;
    size_t n = kri_list_length(w, list);
    kr_value v = kri_make_vector_of(w, kri_ptr(s.vector)->cls, n);
    replace(w, v, 0, list, 0, n);
    return v;
}

KR_BUILTIN(remove_, "remove", "(item sequence &key (start 0) end test test-not key count)",
           "Return a copy of SEQUENCE without the elements from START up to END that match ITEM, the first COUNT of them if given.")
{
    struct query q = query(w, argc, argv, 2);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_remove, argc);
    return vector_from(w, argv[1], without(w, argv[0], argv[1], q));
}

KR_BUILTIN(delete_, "delete", "(item sequence &key (start 0) end test test-not key count)",
           "Return SEQUENCE without the elements from START up to END that match ITEM, the first COUNT of them if given. A list is\n"
           "changed in place; of a vector a shorter one is made.")
{
    struct query q = query(w, argc, argv, 2);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_delete, argc);
    if (!kri_is_list(argv[1]))
        return vector_from(w, argv[1], without(w, argv[0], argv[1], q));
    kr_value head = argv[1], before = KRI_NIL, l = head;
    size_t ticks = 0;
    for (size_t i = 0; i < q.to && q.count != 0 && kri_is_cons(l); i++, l = kri_cdr(l), kri_tick(w, &ticks)) {
        if (i < q.from || !matches(w, &q, argv[0], kri_car(l))) {
            before = l;
            continue;
        }
        q.count -= q.count > 0;
        if (kri_is_nil(before))
            head = kri_cdr(l);
        else
            kri_store(w, kri_ptr(before), &kri_cons_of(before)->cdr, kri_cdr(l));
    }
    query_end(w, &q);
    return head;
}

/* Put NEW for each element that Q finds, in SEQUENCE itself. */
static void substitute(struct kri_worker *w, kr_value new, kr_value old, kr_value sequence, struct query q)
{
    struct kri_span s;
    size_t ticks = 0;
    if (kri_span_of(w->vm, sequence, &s)) {
        for (size_t i = q.from; i < q.to && q.count != 0; i++, kri_tick(w, &ticks))
            if (matches(w, &q, old, kri_vector_ref(w, s.vector, s.start + i))) {
                kri_vector_set(w, s.vector, s.start + i, new);
                q.count -= q.count > 0;
            }
        query_end(w, &q);
        return;
    }
    kr_value l = list_skip(w, sequence, q.from);
    for (size_t i = q.from; i < q.to && q.count != 0 && kri_is_cons(l); i++, l = kri_cdr(l), kri_tick(w, &ticks))
        if (matches(w, &q, old, kri_car(l))) {
            kri_store(w, kri_ptr(l), &kri_cons_of(l)->car, new);
            q.count -= q.count > 0;
        }
    query_end(w, &q);
}

KR_BUILTIN(substitute_, "substitute", "(newitem olditem sequence &key (start 0) end test test-not key count)",
           "Return a copy of SEQUENCE with NEWITEM for the elements from START up to END that match OLDITEM, the first COUNT if given.")
{
    struct query q = query(w, argc, argv, 3);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_substitute, argc);
    kr_value copy;
    struct kri_span s;
    if (kri_span_of(w->vm, argv[2], &s))
        copy = part(w, s, 0, s.length);
    else
        copy = copy_list(w, argv[2], false);
    substitute(w, argv[0], argv[1], copy, q);
    return copy;
}

KR_BUILTIN(nsubstitute, "nsubstitute", "(newitem olditem sequence &key (start 0) end test test-not key count)",
           "Put NEWITEM for the elements of SEQUENCE itself from START up to END that match OLDITEM; return SEQUENCE.")
{
    struct query q = query(w, argc, argv, 3);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_nsubstitute, argc);
    substitute(w, argv[0], argv[1], argv[2], q);
    return argv[2];
}

KR_BUILTIN(remove_duplicates, "remove-duplicates", "(sequence &key (start 0) end test test-not key)",
           "Return SEQUENCE without the elements, from START up to END, that a later one there matches: of equals the last stays.")
{
    struct query q = query(w, argc, argv, 1);
    if (q.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_remove_duplicates, argc);
    struct kri_span s;
    struct kri_lister all = {KRI_NIL, NULL}, l = {KRI_NIL, NULL};
    kr_value rest = kri_span_of(w->vm, argv[0], &s) ? to_list(w, argv, 0, &all) : argv[0];
    size_t ticks = 0;
    for (size_t i = 0; kri_is_cons(rest); i++, rest = kri_cdr(rest)) {
        kr_value v = kri_car(rest), later = kri_cdr(rest);
        bool again = false;
        if (i >= q.from)
            for (size_t k = i + 1; k < q.to && kri_is_cons(later) && !again; k++, later = kri_cdr(later), kri_tick(w, &ticks))
                again = matches(w, &q, q.key_code ? kri_direct_call1(w, &q.direct, q.key, q.key_code, v) : v, kri_car(later));
        if (!again)
            kri_lister_add(w, &l, v);
    }
    query_end(w, &q);
    return vector_from(w, argv[0], l.head);
}

/* ---- search and mismatch: the plain cases ---- */

static kr_value element(struct kri_worker *w, kr_value sequence, const struct kri_span *s, size_t i)
{
    return s->vector.w ? kri_vector_ref(w, s->vector, s->start + i) : kri_car(list_skip(w, sequence, i));
}

/* Two sequences with :start1 .. :end2, :test; test OTHER: a function must be called. Lists become vectors. */
struct pair {
    enum kri_test test;
    kr_value a, b;
    struct kri_span s, t;
    size_t from1, to1, from2, to2;
};

static struct pair pair(struct kri_worker *w, int argc, kr_value *argv)
{
    const struct kri_symbols *s = &w->vm->sym;
    struct pair p = {.test = KRI_TEST_EQL};
    const kr_value allowed[] = {s->k_start1, s->k_end1, s->k_start2, s->k_end2, s->k_test, s->k_test_not, s->k_key, s->k_from_end};
    kri_check_keys(w, argc, argv, 2, allowed, 8);
    p.test = kri_test_of(w->vm, kri_arg_key(argc, argv, 2, s->k_test, KRI_NIL));
    if (!kri_is_nil(kri_arg_key(argc, argv, 2, s->k_from_end, KRI_NIL)) || p.test == KRI_TEST_STRING || !kri_is_nil(kri_arg_key(argc, argv, 2, s->k_test_not, KRI_NIL)) ||
        !kri_is_nil(kri_arg_key(argc, argv, 2, s->k_key, KRI_NIL)))
        p.test = KRI_TEST_OTHER;
    kr_value v[2] = {argv[0], argv[1]};
    for (int i = 0; i < 2; i++)
        if (kri_is_list(v[i])) {
            size_t n = kri_sequence_length(w, argv, i);
            v[i] = kri_make_vector(w, n);
            replace(w, v[i], 0, argv[i], 0, n);
        }
    p.a = v[0];
    p.b = v[1];
    p.s = span_arg(w, v, 0);
    p.t = span_arg(w, v, 1);
    kri_bounds(w, kri_arg_key(argc, argv, 2, s->k_start1, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end1, KRI_NIL), p.s.length, &p.from1, &p.to1);
    kri_bounds(w, kri_arg_key(argc, argv, 2, s->k_start2, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end2, KRI_NIL), p.t.length, &p.from2, &p.to2);
    return p;
}

KR_BUILTIN(search_, "search", "(part sequence &key from-end start1 end1 start2 end2 test test-not key)",
           "Return the index at which PART (from START1 up to END1) first occurs in SEQUENCE (from START2 up to END2), with FROM-END last, or NIL.")
{
    struct pair p = pair(w, argc, argv);
    size_t n = p.to1 - p.from1, ticks = 0;
    if (p.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_search, argc);
    for (size_t i = p.from2; i + n <= p.to2; i++, kri_tick(w, &ticks)) {
        size_t k = 0;
        while (k < n && kri_same(w, element(w, p.a, &p.s, p.from1 + k), element(w, p.b, &p.t, i + k), p.test))
            k++;
        if (k == n)
            return kri_fixnum((intptr_t)i);
    }
    return KRI_NIL;
}

KR_BUILTIN(mismatch, "mismatch", "(sequence1 sequence2 &key from-end start1 end1 start2 end2 test test-not key)",
           "Return the index in SEQUENCE1 at which it first differs from SEQUENCE2 (the end of the shorter counts), or NIL. With FROM-END the ends are "
           "compared first, and the result is 1 + the index of the last difference.")
{
    struct pair p = pair(w, argc, argv);
    size_t n = p.to1 - p.from1, m = p.to2 - p.from2, ticks = 0;
    if (p.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_mismatch, argc);
    for (size_t k = 0; k < n || k < m; k++, kri_tick(w, &ticks))
        if (k >= n || k >= m || !kri_same(w, element(w, p.a, &p.s, p.from1 + k), element(w, p.b, &p.t, p.from2 + k), p.test))
            return kri_fixnum((intptr_t)(p.from1 + k));
    return KRI_NIL;
}

/* ---- superequal ---- */

/* Pairs known or supposed to be equal: a table of two words each, in a vector. */
struct supposed {
    kr_value table;
    size_t count;
};

static bool suppose(struct kri_worker *w, struct supposed *s, kr_value a, kr_value b)
{
    size_t size = kri_length(s->table) / 2;
    if (s->count * 2 >= size) {
        struct supposed bigger = {kri_make_vector(w, size * 4), 0};
        for (size_t i = 0; i < size; i++)
            if (!kri_is_nil(kri_vector_of(s->table)->at[2 * i]))
                suppose(w, &bigger, kri_vector_of(s->table)->at[2 * i], kri_vector_of(s->table)->at[2 * i + 1]);
        *s = bigger;
        size *= 2;
    }
    kr_value *at = kri_vector_of(s->table)->at;
    size_t i = ((a.w >> 3) * 0x9E3779B97F4A7C15u ^ (b.w >> 3) * 0xC2B2AE3D27D4EB4Fu) >> 20;
    for (i %= size; !kri_is_nil(at[2 * i]); i = (i + 1) % size)
        if (kri_eq(at[2 * i], a) && kri_eq(at[2 * i + 1], b))
            return false;
    kri_store(w, kri_ptr(s->table), &at[2 * i], a);
    kri_store(w, kri_ptr(s->table), &at[2 * i + 1], b);
    s->count++;
    return true;
}

KR_BUILTIN(superequal, "superequal", "(obj1 obj2)",
           "EQUAL for structures that may be circular: T if no path through cars, cdrs, elements and slots leads to a difference.")
{
    struct supposed s = {kri_make_vector(w, 64), 0};
    kr_value work = kri_cons(w, argv[0], argv[1]); /* (a . b) first, then (c . d) ... as a list behind it */
    work = kri_cons(w, work, KRI_NIL);
    size_t ticks = 0;
    while (kri_is_cons(work)) {
        kr_value a = kri_car(kri_car(work)), b = kri_cdr(kri_car(work));
        work = kri_cdr(work);
        kri_tick(w, &ticks);
        if (kri_eq(a, b))
            continue;
        if (!kri_is_pointer(a) || !kri_is_pointer(b) || kri_ptr(a)->cls != kri_ptr(b)->cls)
            return KRI_NIL;
        unsigned cls = kri_ptr(a)->cls;
        size_t n = 0;
        if (kri_element(w->vm, a) == KRI_ELEMENT_T) {
            n = kri_length(a);
            if (n != kri_length(b))
                return KRI_NIL;
        } else if (kri_is_cons(a)) {
            n = 2;
        } else if (cls == KRI_CLASS_SYMBOL || kri_is_function(a) || kri_is_class(w->vm, a) || cls == KRI_CLASS_PACKAGE ||
                   kri_element(w->vm, a) != KRI_ELEMENT_NONE || kri_heap_layouts(w->heap)[cls].kind != KRI_LAYOUT_SLOTS || kri_is_number(a)) {
            if (!kri_equal(w, a, b))
                return KRI_NIL;
            continue;
        } else {
            n = kri_heap_layouts(w->heap)[cls].slots;
        }
        if (!suppose(w, &s, a, b))
            continue;
        for (size_t i = 0; i < n; i++, kri_tick(w, &ticks)) {
            kr_value x = kri_slot(&kri_ptr(a)->slot[i]), y = kri_slot(&kri_ptr(b)->slot[i]);
            if (!kri_eq(x, y))
                work = kri_cons(w, kri_cons(w, x, y), work);
        }
    }
    return w->vm->sym.t;
}

const struct kri_builtin *const kri_builtins_sequence[] = {
    &length_def, &list_length_def, &elt_def, &setelt_def, &copy_seq_def, &copy_list__def, &subseq_def, &replace__def, &fill_def,
    &concatenate_def, &coerce_def, &make_sequence_def, &sequence_vector_def, &make_like_def, &make_class_def, &vector_end_def,
    &find_def, &position_def, &count_def, &remove__def, &delete__def, &substitute__def, &nsubstitute_def, &remove_duplicates_def,
    &search__def, &mismatch_def, &superequal_def, NULL,
};
