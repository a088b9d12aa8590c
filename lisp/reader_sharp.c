/* reader_sharp.c -- what # introduces: vectors and arrays, numbers of other bases, characters, features, instances. */
#include <math.h>
#include <stdlib.h>
#include "lisp/reader_private.h"

/* ---- vectors and arrays ---- */

static kr_value list_after(struct reader *r, int code)
{
    int c = kri_reader_skip_space(r);
    if (c < 0)
        kri_reader_end_error(r, "end of input after #", 0);
    if (c != '(')
        kri_reader_error(r, code, kri_fixnum(c), "( expected");
    return kri_reader_list(r, ')');
}

static size_t list_length(kr_value l)
{
    size_t n = 0;
    for (; kri_is_cons(l); l = kri_cdr(l))
        n++;
    return n;
}

kr_value kri_read_vector(struct reader *r, int n)
{
    kr_value l = kri_reader_list(r, ')'), last = KRI_NIL;
    size_t given = list_length(l), length = n <= 0 ? given : (size_t)n;
    if (r->suppress)
        return KRI_NIL;
    if (given > length)
        kri_reader_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(n), "more elements than #n( says");
    kr_value v = kri_make_vector(r->w, length);
    for (size_t i = 0; i < length; i++) {
        if (kri_is_cons(l)) {
            last = kri_car(l);
            l = kri_cdr(l);
        }
        kri_store(r->w, kri_ptr(v), &kri_vector_of(v)->at[i], last);
    }
    return v;
}

/* An element of #f: a number, or a symbol that spells what the printer writes for NaN and infinities. */
static double float_element(struct reader *r, kr_value e)
{
    if (kri_is_number(e))
        return kri_to_double(r->w, e);
    if (kri_is_symbol(e)) {
        struct kri_string *s = kri_string_of(kri_symbol_of(r->vm, e)->pname);
        static const char *const names[] = {"NAN", "-NAN", "+NAN", "INF", "+INF", "-INF"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (s->head.length == strlen(names[i]) && memcmp(s->byte, names[i], s->head.length) == 0)
                return i < 3 ? NAN : i == 5 ? -INFINITY : INFINITY;
    }
    kri_reader_error(r, KRI_E_READ_FVECTOR, e, "a number expected in #f");
}

static void set_element(struct reader *r, kr_value v, enum kri_element element, size_t i, kr_value e)
{
    if (element == KRI_ELEMENT_FLOAT)
        kri_fvector_of(v)->at[i] = float_element(r, e);
    else if (element == KRI_ELEMENT_INTEGER) {
        if (!kri_is_integer(e))
            kri_reader_error(r, KRI_E_NO_INTEGER, e, "an element of #i");
        kri_vector_set(r->w, v, i, e);
    } else
        kri_store(r->w, kri_ptr(v), &kri_vector_of(v)->at[i], e);
}

static kr_value make_elements(struct reader *r, enum kri_element element, size_t n)
{
    if (element == KRI_ELEMENT_FLOAT)
        return kri_make_fvector(r->w, n);
    if (element == KRI_ELEMENT_INTEGER)
        return kri_make_ivector(r->w, n);
    kr_value v = kri_make_vector(r->w, n);
    for (size_t i = 0; i < n; i++)
        kri_vector_of(v)->at[i] = kri_fixnum(0);
    return v;
}

static size_t row_length(struct reader *r, kr_value x)
{
    if (kri_is_list(x))
        return list_length(x);
    if (kri_is_vector(r->vm, x))
        return kri_length(x);
    return 0;
}

static kr_value row_element(struct reader *r, kr_value *rest, kr_value row, size_t i)
{
    if (kri_is_vector(r->vm, row))
        return kri_vector_ref(r->w, row, i);
    kr_value e = kri_car(*rest);
    *rest = kri_cdr(*rest);
    return e;
}

/* Fill FROM.. of ENTITY with the contents X of one axis and those below it. */
static void fill_axis(struct reader *r, kr_value entity, enum kri_element element, const size_t *dim, int rank, size_t from, kr_value x)
{
    size_t stride = 1, n = row_length(r, x);
    for (int i = 1; i < rank; i++)
        stride *= dim[i];
    if (!kri_is_list(x) && !kri_is_vector(r->vm, x))
        kri_reader_error(r, KRI_E_NO_SEQUENCE, x, "a row of an array");
    if (n > dim[0])
        kri_reader_error(r, KRI_E_ARRAY_INDEX, x, "a row longer than the first");
    kr_value rest = x;
    for (size_t i = 0; i < n; i++) {
        kr_value e = row_element(r, &rest, x, i);
        if (rank == 1)
            set_element(r, entity, element, from + i, e);
        else
            fill_axis(r, entity, element, dim + 1, rank - 1, from + i * stride, e);
    }
}

kr_value kri_read_array(struct reader *r, int rank, enum kri_element element)
{
    size_t dim[7], total = 1;
    kr_value contents = list_after(r, KRI_E_NO_SEQUENCE), x = contents;
    if (r->suppress)
        return KRI_NIL;
    if (rank < 0) { /* #f( and #i( are vectors; #a( a vector of rank 1 */
        size_t n = list_length(contents);
        kr_value v = make_elements(r, element, n);
        for (size_t i = 0; i < n; i++, contents = kri_cdr(contents))
            set_element(r, v, element, i, kri_car(contents));
        return v;
    }
    if (rank < 1 || rank > 7)
        kri_reader_error(r, KRI_E_ARRAY_DIMENSION, kri_fixnum(rank), "the rank of an array");
    for (int i = 0; i < rank; i++) {
        dim[i] = row_length(r, x);
        if (__builtin_mul_overflow(total, dim[i], &total) || total > UINT32_MAX)
            kri_reader_error(r, KRI_E_ARRAY_SIZE, kri_fixnum(rank), "an array");
        kr_value rest = x;
        x = dim[i] ? row_element(r, &rest, x, 0) : KRI_NIL;
    }
    kr_value entity = make_elements(r, element, total);
    struct kri_array *a = (struct kri_array *)kri_make(r->w, KRI_CLASS_ARRAY, 0, 12);
    a->entity = entity;
    a->rank = kri_fixnum(rank);
    a->offset = kri_fixnum(0);
    for (int i = 0; i < rank; i++)
        a->dim[i] = kri_fixnum((intptr_t)dim[i]);
    fill_axis(r, entity, element, dim, rank, 0, contents);
    return kri_value_of(a);
}

kr_value kri_read_bits(struct reader *r)
{
    struct kri_text *text = &r->text;
    text->n = 0;
    for (int c; (c = kri_reader_peek(r)) == '0' || c == '1'; kri_reader_get(r))
        kri_text_putc(r->w, text, (char)c);
    kr_value v = kri_instantiate(r->w, r->vm->classes[KRI_CLASS_BIT_VECTOR].object, (intptr_t)text->n);
    for (size_t i = 0; i < text->n; i++)
        if (text->p[i] == '1')
            kri_string_of(v)->byte[i / 8] |= (unsigned char)(1u << i % 8);
    return v;
}

/* ---- numbers of other bases, angles, characters ---- */

static int digit_value(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

kr_value kri_read_based(struct reader *r, int base)
{
    struct kri_text *text = &r->text;
    text->n = 0;
    int sign = kri_reader_peek(r);
    if (sign == '-' || sign == '+') {
        kri_reader_get(r);
        if (digit_value(kri_reader_peek(r)) >= base) {
            kri_reader_unget(r, sign);
            return kri_fixnum(0);
        }
        kri_text_putc(r->w, text, (char)sign);
    }
    for (int c; (c = kri_reader_peek(r)) >= 0 && digit_value(c) < base; kri_reader_get(r))
        kri_text_putc(r->w, text, (char)c);
    return text->n ? kri_parse_number(r->w, text->p, text->n, base) : kri_fixnum(0);
}

kr_value kri_read_angle(struct reader *r, double factor)
{
    kr_value v = kri_reader_object(r);
    if (r->suppress)
        return KRI_NIL;
    if (!kri_is_number(v))
        kri_reader_error(r, KRI_E_NO_NUMBER, v, "an angle");
    return kri_float(r->w, kri_to_double(r->w, v) * factor);
}

kr_value kri_read_character(struct reader *r)
{
    static const struct {
        const char *name;
        int code;
    } names[] = {{"SPACE", 32}, {"NEWLINE", 10}, {"TAB", 9}, {"RETURN", 13}, {"LINEFEED", 10}, {"PAGE", 12}, {"BACKSPACE", 8},
                 {"RUBOUT", 127}, {"LPAREN", 40}, {"RPAREN", 41}, {"NULL", 0}, {"NUL", 0}, {"ESC", 27}, {"ESCAPE", 27}, {"BELL", 7}, {"DELETE", 127}, {"FORMFEED", 12}};
    struct kri_text *text = &r->text;
    int c = kri_reader_get(r);
    if (c < 0)
        kri_reader_end_error(r, "end of input in a character", 0);
    text->n = 0;
    kri_text_putc(r->w, text, (char)c);
    for (int d; (d = kri_reader_peek(r)) >= 0 && (r->syntax[d] == CONSTITUENT || r->syntax[d] == NONTERMINATING); kri_reader_get(r))
        kri_text_putc(r->w, text, (char)d);
    if (text->n == 1)
        return kri_fixnum(c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t j = 0;
        while (j < text->n && names[i].name[j] == (text->p[j] >= 'a' && text->p[j] <= 'z' ? text->p[j] - 32 : text->p[j]))
            j++;
        if (j == text->n && names[i].name[j] == 0)
            return kri_fixnum(names[i].code);
    }
    if (r->suppress)
        return KRI_NIL;
    kri_reader_error(r, KRI_E_SHARP_MACRO, kri_text_string(r->w, text), "no character of that name");
}

void kri_skip_block_comment(struct reader *r)
{
    unsigned line = r->line;
    for (int depth = 1, before = 0, c; depth > 0; before = c) {
        if ((c = kri_reader_get(r)) < 0)
            kri_reader_end_error(r, "end of input in a comment that began here", line);
        if (before == '|' && c == '#')
            depth--, c = 0;
        else if (before == '#' && c == '|')
            depth++, c = 0;
    }
}

/* ---- features, evaluation, instances ---- */

static bool feature_holds(struct reader *r, kr_value f)
{
    struct kr_vm *vm = r->vm;
    kri_reader_check_depth(r);
    if (kri_is_cons(f)) {
        kr_value head = kri_car(f), rest = kri_cdr(f);
        struct kri_string *s = kri_is_symbol(head) ? kri_string_of(kri_symbol_of(vm, head)->pname) : NULL;
        if (s && strcmp((char *)s->byte, "NOT") == 0)
            return !feature_holds(r, kri_is_cons(rest) ? kri_car(rest) : KRI_NIL);
        bool is_and = s && strcmp((char *)s->byte, "AND") == 0;
        if (!is_and && !(s && strcmp((char *)s->byte, "OR") == 0))
            kri_reader_error(r, KRI_E_SHARP_MACRO, f, "a feature expression");
        for (; kri_is_cons(rest); rest = kri_cdr(rest), kri_poll(r->w)) /* it may be circular */
            if (feature_holds(r, kri_car(rest)) != is_and)
                return !is_and;
        return is_and;
    }
    for (kr_value l = kri_special(r->w, vm->sym.features); kri_is_cons(l); l = kri_cdr(l), kri_poll(r->w))
        if (kri_eq(kri_car(l), f))
            return true;
    return false;
}

kr_value kri_read_feature(struct reader *r, bool wanted)
{
    bool suppressed = r->suppress;
    r->suppress = false;
    bool holds = feature_holds(r, kri_reader_object(r));
    r->suppress = suppressed;
    if (holds == wanted)
        return kri_reader_object(r);
    r->suppress = true;
    kri_reader_object(r);
    r->suppress = suppressed;
    return NO_ITEM;
}

void kri_reader_load_readtable(struct reader *r);

kr_value kri_read_eval(struct reader *r)
{
    kr_value form = kri_reader_object(r);
    if (r->suppress)
        return KRI_NIL;
    kri_reader_sync_user(r);
    kr_value v = kri_eval(r->w, form);
    kri_reader_load_readtable(r);
    return v;
}

/* May the reader make instances of class INDEX and fill their slots? Not of classes whose slots C code relies on. */
static bool may_instantiate(struct kr_vm *vm, unsigned index)
{
    while (index >= KRI_CLASS_BUILTIN_COUNT)
        index = vm->classes[index].super;
    return index == KRI_CLASS_OBJECT || index == KRI_CLASS_PROPERTIED_OBJECT || index == KRI_CLASS_CONS || index == KRI_CLASS_ARRAY ||
           index == KRI_CLASS_PATHNAME || index == KRI_CLASS_COMPLEX;
}

static void check_array(struct reader *r, kr_value v)
{
    struct kri_array *a = (struct kri_array *)kri_ptr(v);
    bool good = kri_is_vector(r->vm, a->entity) && kri_is_fixnum(a->rank) && kri_fixnum_value(a->rank) >= 1 &&
                kri_fixnum_value(a->rank) <= 7 && kri_is_fixnum(a->offset) && kri_fixnum_value(a->offset) >= 0;
    size_t total = 1;
    for (int i = 0; good && i < (int)kri_fixnum_value(a->rank); i++)
        good = kri_is_fixnum(a->dim[i]) && kri_fixnum_value(a->dim[i]) >= 0 &&
               !__builtin_mul_overflow(total, (size_t)kri_fixnum_value(a->dim[i]), &total);
    if (!good || total > kri_length(a->entity) || (size_t)kri_fixnum_value(a->offset) > kri_length(a->entity) - total)
        kri_reader_error(r, KRI_E_READ_OBJECT, KRI_NIL, "an array's slots");
}

kr_value kri_read_instance(struct reader *r, bool named)
{
    struct kri_worker *w = r->w;
    struct kr_vm *vm = r->vm;
    kr_value l = list_after(r, KRI_E_READ_OBJECT);
    if (r->suppress)
        return KRI_NIL;
    kr_value name = kri_is_cons(l) ? kri_car(l) : KRI_NIL, cls = kri_is_symbol(name) ? kri_special(w, name) : name;
    if (!kri_is_class(vm, cls))
        kri_reader_error(r, KRI_E_NO_CLASS, name, "the class of an instance");
    unsigned index = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix));
    if (vm->classes[index].element != KRI_ELEMENT_NONE || !may_instantiate(vm, index))
        kri_reader_error(r, KRI_E_READ_OBJECT, name, "no instance of this class can be read");
    kr_value instance = kri_instantiate(w, cls, -1), vars = kri_slot(&kri_metaclass_of(cls)->vars);
    struct kri_cell *c = kri_ptr(instance);
    size_t slots = vm->classes[c->cls].slots, i = 0;
    for (l = kri_cdr(l); kri_is_cons(l); l = kri_cdr(l)) {
        if (!named) {
            if (i >= slots)
                kri_reader_error(r, KRI_E_READ_OBJECT, name, "more values than slots");
            kri_store(w, c, &c->slot[i++], kri_car(l));
            continue;
        }
        kr_value slot = kri_car(l);
        l = kri_cdr(l);
        if (!kri_is_cons(l) || !kri_is_symbol(slot))
            kri_reader_error(r, KRI_E_READ_OBJECT, slot, "slot names and values expected");
        if (kri_eq(kri_symbol_of(vm, slot)->homepkg, vm->pkg_keyword))
            continue;
        struct kri_string *s = kri_string_of(kri_symbol_of(vm, slot)->pname);
        for (i = 0; i < slots && i < kri_length(vars); i++) {
            kr_value var = kri_vector_of(vars)->at[i];
            struct kri_string *v = kri_is_symbol(var) ? kri_string_of(kri_symbol_of(vm, var)->pname) : NULL;
            if (v && v->head.length == s->head.length && memcmp(v->byte, s->byte, s->head.length) == 0)
                break;
        }
        if (i >= slots)
            kri_reader_error(r, KRI_E_NO_SLOT, slot, "a slot of an instance");
        kri_store(w, c, &c->slot[i], kri_car(l));
    }
    if (c->cls == KRI_CLASS_ARRAY || kri_derivedp(vm, instance, vm->classes[KRI_CLASS_ARRAY].object))
        check_array(r, instance);
    return instance;
}

struct search {
    struct kri_worker *w;
    uintptr_t address;
    bool found;
};

static void match_cell(struct kri_cell *c, void *arg)
{
    struct search *s = arg;
    if ((uintptr_t)c == s->address)
        s->found = s->w->vm->classes[c->cls].depth > 0 || c->cls == KRI_CLASS_OBJECT || c->cls == KRI_CLASS_CONS;
}
static void search_heap(struct kri_worker *w, void *arg) { kri_heap_walk(w, match_cell, arg); }

/* "#<class #Xaddress anything>": the live object there, after a look through the heap. */
kr_value kri_read_live(struct reader *r)
{
    struct search s = {.w = r->w};
    int before = 0, depth = 1, digits = -1;
    unsigned line = r->line;
    bool in_string = false;
    while (depth > 0) {
        int c = kri_reader_get(r);
        if (c < 0)
            kri_reader_end_error(r, "end of input in #<", line);
        if (in_string) {
            if (c == '\\')
                kri_reader_get(r);
            in_string = c != '"';
            continue;
        }
        if (digits >= 0 && digits < 16 && digit_value(c) < 16) {
            s.address = s.address << 4 | (uintptr_t)digit_value(c);
            digits++;
        } else if (digits > 0) {
            digits = 16;
        }
        if (before == '#' && (c == 'X' || c == 'x') && digits < 0)
            digits = 0;
        in_string = c == '"';
        depth += (before == '#' && c == '<') - (c == '>');
        before = c;
    }
    if (r->suppress)
        return KRI_NIL;
    if (s.address && s.address % 8 == 0)
        kri_with_world_stopped(r->w, search_heap, &s);
    if (!s.found)
        kri_reader_error(r, KRI_E_LISP_FORM, KRI_NIL, "no live object at that address");
    return (kr_value){s.address};
}
