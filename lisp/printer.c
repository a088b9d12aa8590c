/* printer.c -- from objects to characters.
 *
 * A struct printer holds the print variables as they were when printing began and appends to a text; a text bound for a stream
 * is handed over in large pieces, so that what one call prints comes out in one piece among several threads, unless it is long
 * or a :prin1 method writes to the stream in its midst. Lists are walked in a loop, everything else recurses under a check of
 * the native stack. */
#include "lisp/number.h"
#include "lisp/printer.h"
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include "lisp/address_table.h"
#include "lisp/package.h"
#include "lisp/reader.h"

enum { HAND_OVER = 4000, CUT_LENGTH = 30, CUT_LEVEL = 8 };

struct printer {
    struct kri_worker *w;
    struct kr_vm *vm;
    struct kri_text *out;
    kr_value stream;            /* NIL: the text is all that is wanted */
    bool escape, upcase, shortest, as_object, as_structure, circle;
    intptr_t length, level;     /* limits; -1: none */
    intptr_t depth;
    int base;
    kr_value package;
    struct kri_address_table seen; /* *print-circle*: 1 met once, -n met again: its label is n, n > 1: label n - 1 was printed */
    intptr_t labels;
    size_t most;                /* bytes after which nothing more is wanted; 0: all is */
    jmp_buf shallow; /* where printing that goes too deep returns to: a handler needs the stack it used */
};

static void print(struct printer *p, kr_value v);

static void put(struct printer *p, char c) { kri_text_putc(p->w, p->out, c); }
static void put_n(struct printer *p, const char *s, size_t n) { kri_text_write(p->w, p->out, s, n); }
static void puts_(struct printer *p, const char *s) { kri_text_puts(p->w, p->out, s); }

static void hand_over(struct printer *p)
{
    if (kri_is_nil(p->stream) || p->out->n == 0)
        return;
    kri_stream_write(p->w, p->stream, p->out->p, p->out->n);
    p->out->n = 0;
}

static bool is_a(struct printer *p, kr_value v, unsigned cls)
{
    return kri_is_pointer(v) && (kri_ptr(v)->cls == cls || kri_derivedp(p->vm, v, p->vm->classes[cls].object));
}

/* ---- symbols ---- */

/* Characters that force bars round a name; lower-case letters are tested apart. */
static bool is_delimiter(int c) { return c <= ' ' || c == 127 || strchr("()[]\"';`,|\\:#", c) != NULL; }

static bool needs_bars(struct printer *p, const char *s, size_t n, bool keyword)
{
    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c >= 'a' && c <= 'z') || (c < 128 && is_delimiter(c)))
            return true;
    }
    if (keyword)
        return false;
    bool digits = false;
    for (size_t i = 0; i < n; i++)
        digits = digits || (s[i] >= '0' && s[i] <= '9');
    return (digits || p->base > 10) && !kri_eq(kri_parse_number(p->w, s, n, p->base), KRI_UNBOUND);
}

static void put_lowered(struct printer *p, const char *s, size_t n)
{
    kri_text_reserve(p->w, p->out, n);
    for (size_t i = 0; i < n; i++)
        p->out->p[p->out->n++] = s[i] >= 'A' && s[i] <= 'Z' && !p->upcase ? (char)(s[i] + 32) : s[i];
}

static void put_name(struct printer *p, kr_value pname, bool keyword)
{
    const char *s = (const char *)kri_string_of(pname)->byte;
    size_t n = kri_length(pname);
    if (!p->escape || !needs_bars(p, s, n, keyword)) {
        put_lowered(p, s, n);
        return;
    }
    put(p, '|');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '|' || s[i] == '\\')
            put(p, '\\');
        put(p, s[i]);
    }
    put(p, '|');
}

static void print_symbol(struct printer *p, kr_value v)
{
    struct kri_symbol *s = kri_symbol_of(p->vm, v);
    kr_value home = kri_slot(&s->homepkg), pname = s->pname;
    struct kri_string *name = kri_string_of(pname);
    if (kri_eq(home, p->vm->pkg_keyword)) {
        put(p, ':');
        put_name(p, pname, true);
        return;
    }
    if (kri_is_nil(home)) {
        puts_(p, "#:");
    } else if (!kri_eq(home, p->package)) {
        bool external, found;
        kr_value there = kri_find_symbol(p->w, (char *)name->byte, name->head.length, p->package, &external, &found);
        if (!found || !kri_eq(there, v)) {
            kr_value names = kri_slot(&kri_package_of(home)->names);
            there = kri_find_present(p->w, (char *)name->byte, name->head.length, home, true, &found);
            if (kri_is_cons(names))
                put_name(p, kri_car(names), true);
            puts_(p, found && kri_eq(there, v) ? ":" : "::");
        }
    }
    put_name(p, pname, false);
}

/* ---- numbers, strings ---- */

static void print_fixnum(struct printer *p, intptr_t n)
{
    char digits[24], *at = digits + sizeof digits;
    uintptr_t u = n < 0 ? -(uintptr_t)n : (uintptr_t)n;
    do
        *--at = (char)('0' + u % 10);
    while (u /= 10);
    if (n < 0)
        *--at = '-';
    put_n(p, at, (size_t)(digits + sizeof digits - at));
}

static void print_integer(struct printer *p, kr_value v)
{
    if (kri_is_fixnum(v) && p->base == 10) {
        print_fixnum(p, kri_fixnum_value(v));
        return;
    }
    kr_value s = kri_integer_to_string(p->w, v, p->base);
    put_n(p, (char *)kri_string_of(s)->byte, kri_length(s));
}

static void print_float(struct printer *p, double d)
{
    char buffer[64];
    put_n(p, buffer, kri_print_float(p->vm, d, p->shortest, buffer));
}

static void stop_if_enough(struct printer *p)
{
    if (p->most && p->out->n > p->most)
        longjmp(p->shallow, 1);
}

static void print_string(struct printer *p, const unsigned char *s, size_t n)
{
    if (p->most && n > p->most)
        n = p->most + 1;
    if (!p->escape) {
        put_n(p, (const char *)s, n);
        return;
    }
    kri_text_reserve(p->w, p->out, n + 2);
    put(p, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            put(p, '\\');
        put(p, (char)s[i]);
    }
    put(p, '"');
}

static void print_address(struct printer *p, kr_value v)
{
    char text[32];
    snprintf(text, sizeof text, " #X%lx", (unsigned long)v.w);
    puts_(p, text);
}

/* ---- vectors and arrays ---- */

static void print_element(struct printer *p, kr_value v, enum kri_element element, size_t i)
{
    if (element == KRI_ELEMENT_FLOAT)
        print_float(p, kri_fvector_of(v)->at[i]);
    else if (element == KRI_ELEMENT_INTEGER && p->base == 10)
        print_fixnum(p, kri_ivector_of(v)->at[i]);
    else if (element == KRI_ELEMENT_T)
        print(p, kri_slot(&kri_vector_of(v)->at[i]));
    else
        print(p, kri_vector_ref(p->w, v, i));
}

static void print_elements(struct printer *p, kr_value v, enum kri_element element, size_t from, size_t n)
{
    put(p, '(');
    p->depth++;
    for (size_t i = 0; i < n; i++) {
        if (i)
            put(p, ' ');
        if (p->out->n > HAND_OVER)
            hand_over(p);
        if (from + i >= kri_length(v)) /* it shrank: it was an array's entity and is another vector now */
            break;
        stop_if_enough(p);
        print_element(p, v, element, from + i);
    }
    p->depth--;
    put(p, ')');
}

static void print_vector(struct printer *p, kr_value v, enum kri_element element)
{
    size_t n = kri_length(v);
    switch (element) {
    case KRI_ELEMENT_CHAR: print_string(p, kri_string_of(v)->byte, n); return;
    case KRI_ELEMENT_FOREIGN:
        puts_(p, p->escape ? "#u" : "");
        print_string(p, ((struct kri_foreign *)kri_ptr(v))->address, n);
        return;
    case KRI_ELEMENT_BIT:
        puts_(p, "#*");
        for (size_t i = 0; i < n; i++)
            put(p, kri_string_of(v)->byte[i / 8] >> i % 8 & 1 ? '1' : '0');
        return;
    case KRI_ELEMENT_BYTE:
        print_string(p, kri_string_of(v)->byte, n);
        return;
    default:
        puts_(p, element == KRI_ELEMENT_FLOAT ? "#f" : element == KRI_ELEMENT_INTEGER ? "#i" : "#");
        print_elements(p, v, element, 0, n);
    }
}

static void print_axis(struct printer *p, kr_value entity, enum kri_element element, const size_t *dim, int rank, size_t from)
{
    size_t stride = 1;
    if (rank == 1) {
        print_elements(p, entity, element, from, dim[0]);
        return;
    }
    for (int i = 1; i < rank; i++)
        stride *= dim[i];
    put(p, '(');
    p->depth++;
    for (size_t i = 0; i < dim[0]; i++) {
        if (i)
            put(p, ' ');
        print_axis(p, entity, element, dim + 1, rank - 1, from + i * stride);
    }
    p->depth--;
    put(p, ')');
}

static bool print_array(struct printer *p, kr_value v)
{
    struct kri_array *a = (struct kri_array *)kri_ptr(v);
    kr_value entity = kri_slot(&a->entity);
    enum kri_element element = kri_element(p->vm, entity);
    size_t dim[7], total = 1;
    intptr_t rank = kri_is_fixnum(a->rank) ? kri_fixnum_value(a->rank) : 0;
    intptr_t offset = kri_is_fixnum(a->offset) ? kri_fixnum_value(a->offset) : 0;
    if (element == KRI_ELEMENT_NONE || rank < 1 || rank > 7 || offset < 0)
        return false;
    for (int i = 0; i < rank; i++) {
        if (!kri_is_fixnum(a->dim[i]) || kri_fixnum_value(a->dim[i]) < 0)
            return false;
        dim[i] = (size_t)kri_fixnum_value(a->dim[i]);
        if (__builtin_mul_overflow(total, dim[i], &total))
            return false;
    }
    if (total > kri_length(entity) || (size_t)offset > kri_length(entity) - total)
        return false;
    if (rank == 1 && kri_is_fixnum(a->fill_pointer) && kri_fixnum_value(a->fill_pointer) >= 0 &&
        (size_t)kri_fixnum_value(a->fill_pointer) < dim[0])
        dim[0] = (size_t)kri_fixnum_value(a->fill_pointer);
    put(p, '#');
    put(p, (char)('0' + rank));
    put(p, element == KRI_ELEMENT_FLOAT ? 'f' : element == KRI_ELEMENT_INTEGER ? 'i' : 'a');
    print_axis(p, entity, element, dim, (int)rank, (size_t)offset);
    return true;
}

/* ---- lists ---- */

static bool labelled(struct printer *p, kr_value v)
{
    struct kri_address_entry *e = p->circle ? kri_address_find(&p->seen, v) : NULL;
    return e && e->number != 1;
}

static void print_list(struct printer *p, kr_value v)
{
    struct kr_vm *vm = p->vm;
    kr_value head = kri_car(v), rest = kri_cdr(v);
    bool abbreviable = kri_is_cons(rest) && kri_is_nil(kri_cdr(rest)) && !labelled(p, rest);
    if (abbreviable && (kri_eq(head, vm->sym.quote) || kri_eq(head, vm->sym.function))) {
        puts_(p, kri_eq(head, vm->sym.quote) ? "'" : "#'");
        print(p, kri_car(rest));
        return;
    }
    put(p, '(');
    p->depth++;
    for (intptr_t n = 1;; n++) {
        print(p, kri_car(v));
        v = kri_cdr(v);
        if (kri_is_nil(v))
            break;
        if (!kri_is_cons(v) || labelled(p, v)) {
            puts_(p, " . ");
            print(p, v);
            break;
        }
        put(p, ' ');
        if (p->length >= 0 && n >= p->length) {
            puts_(p, "...");
            break;
        }
        if (p->out->n > HAND_OVER)
            hand_over(p);
        if ((n & 1023) == 0)
            kri_poll(p->w); /* a circular list is printed for ever, but it can be interrupted */
    }
    p->depth--;
    put(p, ')');
}

/* ---- instances ---- */

static void open_unreadable(struct printer *p, kr_value v)
{
    kr_value cls = kri_class_of(p->vm, v);
    puts_(p, "#<");
    if (kri_is_nil(cls))
        puts_(p, "%cell");
    else if (kri_is_symbol(kri_slot(&kri_metaclass_of(cls)->name)))
        print_symbol(p, kri_slot(&kri_metaclass_of(cls)->name));
    print_address(p, v);
}

static kr_value slot_names(struct printer *p, kr_value v) { return kri_slot(&kri_metaclass_of(kri_class_of(p->vm, v))->vars); }

/* *print-object*: #J(class value ..); *print-structure*: #s(class slot value ..). */
static void print_slots(struct printer *p, kr_value v)
{
    struct kri_cell *c = kri_ptr(v);
    kr_value names = slot_names(p, v);
    size_t n = p->vm->classes[c->cls].slots;
    puts_(p, p->as_object ? "#J(" : "#s(");
    p->depth++;
    print_symbol(p, kri_slot(&kri_metaclass_of(kri_class_of(p->vm, v))->name));
    for (size_t i = 0; i < n; i++) {
        if (!p->as_object) {
            put(p, ' ');
            kr_value name = kri_is_vector(p->vm, names) && i < kri_length(names) ? kri_vector_of(names)->at[i] : KRI_NIL;
            if (kri_is_symbol(name))
                put_name(p, kri_symbol_of(p->vm, name)->pname, false);
        }
        put(p, ' ');
        print(p, kri_slot(&c->slot[i]));
    }
    p->depth--;
    put(p, ')');
}

static void print_princ(struct printer *p, kr_value v)
{
    bool escape = p->escape;
    p->escape = false;
    print(p, v);
    p->escape = escape;
}

static kr_value send_name(struct kri_worker *w, void *arg) { return kri_send(w, *(kr_value *)arg, kri_keyword(w, "NAME"), 0, NULL); }

/* The name of a propertied object: what it answers to :name, if its class has such a method that answers, or its property. */
static kr_value name_of(struct printer *p, kr_value v)
{
    kr_value owner = KRI_NIL, selector = kri_keyword(p->w, "NAME"), name;
    kr_value method = kri_find_method(p->w, kri_ptr(v)->cls, selector, &owner);
    if (kri_is_nil(method) || kri_eq(owner, p->vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object))
        return kri_get(p->w, v, selector);
    hand_over(p);
    return kri_protect(p->w, send_name, &v, &name) ? name : KRI_NIL;
}

/* The part of #<...> behind the address that the built-in classes have. */
static void print_particulars(struct printer *p, kr_value v)
{
    struct kr_vm *vm = p->vm;
    struct kri_cell *c = kri_ptr(v);
    if (kri_is_function(v)) {
        struct kri_code *code = kri_has_class(kri_function_of(v)->code, KRI_CLASS_CODE) ? kri_code_of(v) : NULL;
        if (code && !kri_is_nil(code->name)) {
            put(p, ' ');
            print(p, code->name);
        }
    } else if (is_a(p, v, KRI_CLASS_METACLASS)) {
        put(p, ' ');
        print_symbol(p, kri_slot(&kri_metaclass_of(v)->name));
    } else if (kri_is_package(v)) {
        put(p, ' ');
        kr_value names = kri_package_of(v)->names;
        if (kri_is_cons(names) && kri_is_string(vm, kri_car(names)))
            put_n(p, (char *)kri_string_of(kri_car(names))->byte, kri_length(kri_car(names)));
    } else if (is_a(p, v, KRI_CLASS_HASH_TABLE)) {
        put(p, ' ');
        print(p, kri_slot(&c->slot[3]));
        put(p, '/');
        print(p, kri_slot(&c->slot[2]));
    } else if (is_a(p, v, KRI_CLASS_FILE_STREAM)) {
        struct kri_stream_cell *s = (struct kri_stream_cell *)c;
        struct kri_stream *st = kri_stream_state(vm, v);
        bool escape = p->escape;
        p->escape = true;
        put(p, ' ');
        print(p, kri_slot(&s->fname));
        put(p, ' ');
        print(p, kri_slot(&s->direction));
        p->escape = escape;
        if (st) {
            put(p, ' ');
            print_fixnum(p, st->nominal);
        }
    } else if (is_a(p, v, KRI_CLASS_CONDITION)) {
        kr_value message = kri_slot(&((struct kri_condition *)c)->message);
        if (kri_is_string(vm, message) && kri_length(message)) {
            put(p, ' ');
            print_princ(p, message);
        }
    } else if (kri_derivedp(vm, v, vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object)) {
        kr_value name = name_of(p, v);
        if (!kri_is_nil(name)) {
            put(p, ' ');
            print_princ(p, name);
        }
    }
}

static void print_native(struct printer *p, kr_value v)
{
    struct kri_cell *c = kri_ptr(v);
    if (is_a(p, v, KRI_CLASS_ARRAY) && !p->as_object && print_array(p, v))
        return;
    if (is_a(p, v, KRI_CLASS_PATHNAME)) {
        kr_value name = kri_namestring(p->w, v);
        puts_(p, p->escape ? "#P" : "");
        print_string(p, kri_string_of(name)->byte, kri_length(name));
        return;
    }
    if ((p->as_object || p->as_structure) && (c->cls >= KRI_CLASS_BUILTIN_COUNT || c->cls == KRI_CLASS_ARRAY || c->cls == KRI_CLASS_PROPERTIED_OBJECT) &&
        p->vm->classes[c->cls].element == KRI_ELEMENT_NONE) {
        print_slots(p, v);
        return;
    }
    open_unreadable(p, v);
    if (!kri_is_nil(kri_class_of(p->vm, v)))
        print_particulars(p, v);
    put(p, '>');
}

/* The class's own :prin1, not the ones every object inherits. */
static bool has_prin1(struct printer *p, kr_value v)
{
    struct kr_vm *vm = p->vm;
    unsigned cls = kri_ptr(v)->cls;
    kr_value owner = KRI_NIL;
    if (kri_is_nil(vm->classes[cls].object) || kri_is_nil(kri_find_method(p->w, cls, vm->sym.k_prin1, &owner)))
        return false;
    return !kri_eq(owner, vm->classes[KRI_CLASS_OBJECT].object) && !kri_eq(owner, vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object);
}

struct prin1_call {
    kr_value object, stream;
};

static kr_value send_prin1(struct kri_worker *w, void *arg)
{
    struct prin1_call *call = arg;
    return kri_send(w, call->object, w->vm->sym.k_prin1, 1, &call->stream);
}

/* Methods see in *print-escape* whether the object is printed as by princ. */
static void send_escaped(struct printer *p, struct prin1_call *call)
{
    struct kri_worker *w = p->w;
    kr_value escape = kri_bool(w, p->escape);
    if (kri_eq(kri_special(w, w->vm->sym.print_escape), escape))
        send_prin1(w, call);
    else
        kri_with_binding(w, w->vm->sym.print_escape, escape, send_prin1, call);
}

static void print_instance(struct printer *p, kr_value v)
{
    if (p->as_object || p->as_structure || !has_prin1(p, v)) {
        print_native(p, v);
        return;
    }
    struct prin1_call call = {.object = v, .stream = p->stream};
    if (kri_is_nil(p->stream)) {
        call.stream = kri_make_string_output(p->w);
        send_escaped(p, &call);
        kr_value text = kri_get_output_string(p->w, call.stream);
        put_n(p, (char *)kri_string_of(text)->byte, kri_length(text));
    } else {
        hand_over(p);
        send_escaped(p, &call);
    }
}

static void print_immediate(struct printer *p, kr_value v)
{
    char text[40];
    if (kri_is_float(v)) {
        print_float(p, kri_float_value(v));
        return;
    }
    snprintf(text, sizeof text, "#<%s>", kri_eq(v, KRI_UNBOUND) ? "unbound" : kri_eq(v, KRI_ABSENT) ? "absent" : "marker");
    puts_(p, text);
}

static bool is_real(kr_value v) { return kri_is_number(v) && !kri_has_class(v, KRI_CLASS_COMPLEX); }

static void print(struct printer *p, kr_value v)
{
    stop_if_enough(p);
    if (p->level >= 0 && p->depth >= p->level) {
        put(p, '#');
        return;
    }
    if (kri_is_fixnum(v)) {
        print_integer(p, v);
        return;
    }
    if (!kri_is_pointer(v) && !kri_is_nil(v)) {
        print_immediate(p, v);
        return;
    }
    if (kri_native_exhausted(p->w))
        longjmp(p->shallow, 1); /* past frames of this file only, which hold nothing */
    if (p->circle && !kri_is_nil(v)) {
        struct kri_address_entry *e = kri_address_find(&p->seen, v);
        if (e && e->number != 1) {
            bool first = e->number < 0;
            if (first)
                e->number = 1 - e->number;
            put(p, '#');
            print_fixnum(p, e->number - 1);
            put(p, first ? '=' : '#');
            if (!first)
                return;
        }
    }
    if (kri_is_symbol(v)) {
        print_symbol(p, v);
        return;
    }
    struct kri_cell *c = kri_ptr(v);
    enum kri_element element;
    switch (c->cls) {
    case KRI_CLASS_CONS: print_list(p, v); return;
    case KRI_CLASS_FLOAT_BOX: print_float(p, kri_float_value(v)); return;
    case KRI_CLASS_BIGNUM: print_integer(p, v); return;
    case KRI_CLASS_RATIO:
        print_integer(p, ((struct kri_ratio *)c)->numerator);
        put(p, '/');
        print_integer(p, ((struct kri_ratio *)c)->denominator);
        return;
    case KRI_CLASS_COMPLEX: {
        const struct kri_complex *z = (const struct kri_complex *)c;
        if (!is_real(z->real) || !is_real(z->imaginary))
            break; /* made by instantiate */
        puts_(p, "#c(");
        print(p, z->real);
        put(p, ' ');
        print(p, z->imaginary);
        put(p, ')');
        return;
    }
    case KRI_CLASS_CODE: case KRI_CLASS_BOX: case KRI_CLASS_BYTES: case KRI_CLASS_RECORD:
        print_native(p, v);
        return;
    }
    if ((element = kri_element(p->vm, v)) != KRI_ELEMENT_NONE && (c->cls < KRI_CLASS_BUILTIN_COUNT || !has_prin1(p, v)))
        print_vector(p, v, element);
    else
        print_instance(p, v);
}

/* ---- circles: a first walk counts what is met twice ---- */

static bool may_share(struct printer *p, kr_value v)
{
    if (!kri_is_pointer(v))
        return false;
    unsigned cls = kri_ptr(v)->cls;
    if (cls == KRI_CLASS_SYMBOL)
        return kri_is_nil(((struct kri_symbol *)kri_ptr(v))->homepkg);
    return cls == KRI_CLASS_CONS || cls == KRI_CLASS_ARRAY || kri_element(p->vm, v) != KRI_ELEMENT_NONE ||
           ((p->as_object || p->as_structure) && cls >= KRI_CLASS_BUILTIN_COUNT);
}

static void find_shared(struct printer *p, kr_value root)
{
    struct kri_worker *w = p->w;
    kr_value todo = kri_cons(w, root, KRI_NIL);
    while (kri_is_cons(todo)) {
        kr_value v = kri_car(todo);
        todo = kri_cdr(todo);
        if (!may_share(p, v))
            continue;
        struct kri_address_entry *e = kri_address_enter(w, &p->seen, v);
        if (e->number != 0) { /* labels are numbered in the order of these second meetings, as EusLisp numbers them */
            if (e->number == 1)
                e->number = -++p->labels;
            continue;
        }
        e->number = 1;
        struct kri_cell *c = kri_ptr(v);
        if (c->cls == KRI_CLASS_CONS) {
            todo = kri_cons(w, kri_car(v), kri_cons(w, kri_cdr(v), todo));
        } else if (c->cls == KRI_CLASS_ARRAY) {
            kr_value entity = ((struct kri_array *)c)->entity;
            for (size_t i = kri_element(p->vm, entity) == KRI_ELEMENT_T ? kri_length(entity) : 0; i-- > 0;)
                todo = kri_cons(w, kri_slot(&kri_vector_of(entity)->at[i]), todo);
        } else if (kri_element(p->vm, v) == KRI_ELEMENT_T) {
            for (size_t i = c->length; i-- > 0;)
                if (kri_is_pointer(kri_slot(&kri_vector_of(v)->at[i])))
                    todo = kri_cons(w, kri_slot(&kri_vector_of(v)->at[i]), todo);
        } else if (c->cls >= KRI_CLASS_BUILTIN_COUNT && kri_element(p->vm, v) == KRI_ELEMENT_NONE) {
            for (size_t i = p->vm->classes[c->cls].slots; i-- > 0;)
                todo = kri_cons(w, kri_slot(&c->slot[i]), todo);
        }
    }
}

/* ---- entries ---- */

static intptr_t limit(struct kri_worker *w, kr_value symbol)
{
    kr_value v = kri_special(w, symbol);
    return kri_is_fixnum(v) && kri_fixnum_value(v) >= 0 ? kri_fixnum_value(v) : -1;
}
static bool flag(struct kri_worker *w, kr_value symbol)
{
    kr_value v = kri_special(w, symbol);
    return !kri_is_nil(v) && !kri_eq(v, KRI_UNBOUND);
}

static void setup(struct printer *p, struct kri_worker *w, struct kri_text *out, kr_value stream, bool escape)
{
    const struct kri_symbols *sym = &w->vm->sym;
    memset(p, 0, sizeof *p);
    p->w = w;
    p->vm = w->vm;
    p->out = out;
    p->stream = stream;
    p->escape = escape;
    kr_value letter_case = kri_special(w, sym->print_case), base = kri_special(w, sym->print_base);
    p->upcase = kri_is_pointer(letter_case) && !kri_eq(letter_case, sym->k_downcase) && !kri_eq(letter_case, KRI_UNBOUND);
    p->base = kri_is_fixnum(base) && kri_fixnum_value(base) >= 2 && kri_fixnum_value(base) <= 36 ? (int)kri_fixnum_value(base) : 10;
    p->shortest = flag(w, sym->print_float_shortest);
    p->as_object = flag(w, sym->print_object);
    p->as_structure = flag(w, sym->print_structure);
    p->circle = flag(w, sym->print_circle);
    p->length = limit(w, sym->print_length);
    p->level = limit(w, sym->print_level);
    p->package = kri_special(w, sym->package);
    if (!kri_is_package(p->package))
        p->package = w->vm->pkg_user;
}

_Noreturn static void too_deep(struct printer *p)
{
    kri_error(p->w, KRI_E_STACK, KRI_NIL, "printing an object nested too deeply");
}

static void print_root(struct printer *p, kr_value v)
{
    if (setjmp(p->shallow))
        too_deep(p);
    if (p->circle)
        find_shared(p, v);
    print(p, v);
}

void kri_print_text(struct kri_worker *w, struct kri_text *t, kr_value v, bool escape)
{
    struct printer p;
    setup(&p, w, t, KRI_NIL, escape);
    print_root(&p, v);
}

void kri_print(struct kri_worker *w, kr_value v, kr_value stream, bool escape)
{
    struct printer p;
    struct kri_text out;
    kri_text_init(&out);
    setup(&p, w, &out, kri_output_stream(w, stream), escape);
    print_root(&p, v);
    hand_over(&p);
}

kr_value kri_print_to_string(struct kri_worker *w, kr_value v, bool escape)
{
    struct kri_text out;
    kri_text_init(&out);
    kri_print_text(w, &out, v, escape);
    return kri_text_string(w, &out);
}

/* ---- the beginning of a text, for messages: the value may be circular or huge ---- */

struct cut {
    kr_value value, text;
    size_t most;
};

static kr_value print_beginning(struct kri_worker *w, void *arg)
{
    struct cut *cut = arg;
    struct printer p;
    struct kri_text out;
    kri_text_init(&out);
    setup(&p, w, &out, KRI_NIL, true);
    p.circle = false;
    p.most = cut->most;
    if (setjmp(p.shallow) == 0)
        print(&p, cut->value);
    if (out.n > cut->most) {
        out.n = cut->most;
        kri_text_puts(w, &out, "...");
    }
    return cut->text = kri_text_string(w, &out);
}

static kr_value print_shallow(struct kri_worker *w, void *arg)
{
    kr_value level = kri_special(w, w->vm->sym.print_level);
    return kri_with_binding(w, w->vm->sym.print_level, kri_is_fixnum(level) ? level : kri_fixnum(CUT_LEVEL), print_beginning, arg);
}

static kr_value print_short(struct kri_worker *w, void *arg)
{
    kr_value length = kri_special(w, w->vm->sym.print_length);
    return kri_with_binding(w, w->vm->sym.print_length, kri_is_fixnum(length) ? length : kri_fixnum(CUT_LENGTH), print_shallow, arg);
}

/* The bindings are for what :prin1 methods print; this printer stops by itself. A value that cannot be printed has a broken method. */
kr_value kri_print_cut(struct kri_worker *w, kr_value v, size_t most)
{
    struct cut cut = {.value = v, .most = most};
    kr_value s;
    if (!kri_protect(w, print_short, &cut, &s) || !kri_is_string(w->vm, s))
        return kri_string(w, "#<unprintable>");
    return s;
}

void kri_print_unreadable(struct kri_worker *w, kr_value v, kr_value stream, int extras, const kr_value *extra)
{
    struct printer p;
    struct kri_text out;
    kri_text_init(&out);
    setup(&p, w, &out, kri_output_stream(w, stream), true);
    struct kri_cell *c = kri_cell(w->vm, v);
    if (setjmp(p.shallow))
        too_deep(&p);
    if (!c) {
        print(&p, v);
    } else if (extras == 0 && kri_is_pointer(v) && !kri_is_symbol(v)) {
        print_native(&p, v);
    } else {
        open_unreadable(&p, kri_value_of(c));
        if (kri_is_pointer(v))
            print_particulars(&p, v);
        for (int i = 0; i < extras; i++) {
            put(&p, ' ');
            print_princ(&p, extra[i]);
        }
        put(&p, '>');
    }
    hand_over(&p);
}

void kri_printer_init(struct kri_worker *w)
{
    const struct kri_symbols *sym = &w->vm->sym;
    kri_set_special(w, sym->print_case, sym->k_downcase);
    kri_set_special(w, sym->print_base, kri_fixnum(10));
    kri_set_special(w, sym->print_escape, sym->t);
    kr_value off[] = {sym->print_circle, sym->print_object, sym->print_structure, sym->print_length, sym->print_level, sym->print_pretty,
                      sym->print_float_shortest};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        kri_set_special(w, off[i], KRI_NIL);
}

/* ---- builtins ---- */

static kr_value stream_arg(int argc, kr_value *argv, int i) { return kri_arg_optional(argc, argv, i, KRI_NIL); }

KR_BUILTIN(prin1, "prin1", "(obj &optional stream)", "Print OBJ on STREAM so that it can be read back, and return it.")
{
    kri_print(w, argv[0], stream_arg(argc, argv, 1), true);
    return argv[0];
}

KR_BUILTIN(princ, "princ", "(obj &optional stream)", "Print OBJ on STREAM for people, without quotes and bars, and return it.")
{
    kri_print(w, argv[0], stream_arg(argc, argv, 1), false);
    return argv[0];
}

KR_BUILTIN(print, "print", "(obj &optional stream)", "Print OBJ on STREAM as prin1 does, then a newline, and return it.")
{
    struct printer p;
    struct kri_text out;
    kri_text_init(&out);
    setup(&p, w, &out, kri_output_stream(w, stream_arg(argc, argv, 1)), true);
    print_root(&p, argv[0]);
    put(&p, '\n');
    hand_over(&p);
    return argv[0];
}

KR_BUILTIN(write_, "write", "(obj &key stream escape length level circle base case pretty)",
           "Print OBJ on STREAM; :escape, :length, :level, :circle, :base and :case stand in for the variables *print-..*. Returns OBJ.")
{
    struct printer p;
    struct kri_text out;
    kr_value keys[] = {kri_keyword(w, "STREAM"), kri_keyword(w, "ESCAPE"), kri_keyword(w, "LENGTH"), kri_keyword(w, "LEVEL"),
                       kri_keyword(w, "CIRCLE"), kri_keyword(w, "BASE"), kri_keyword(w, "CASE"), kri_keyword(w, "PRETTY")};
    kri_check_keys(w, argc, argv, 1, keys, 8);
    kri_text_init(&out);
    setup(&p, w, &out, kri_output_stream(w, kri_arg_key(argc, argv, 1, keys[0], KRI_NIL)),
          !kri_is_nil(kri_arg_key(argc, argv, 1, keys[1], w->vm->sym.t)));
    kr_value length = kri_arg_key(argc, argv, 1, keys[2], kri_fixnum(p.length));
    kr_value level = kri_arg_key(argc, argv, 1, keys[3], kri_fixnum(p.level));
    kr_value base = kri_arg_key(argc, argv, 1, keys[5], kri_fixnum(p.base));
    p.length = kri_is_fixnum(length) ? kri_fixnum_value(length) : -1;
    p.level = kri_is_fixnum(level) ? kri_fixnum_value(level) : -1;
    p.circle = !kri_is_nil(kri_arg_key(argc, argv, 1, keys[4], kri_bool(w, p.circle)));
    if (!kri_is_fixnum(base) || kri_fixnum_value(base) < 2 || kri_fixnum_value(base) > 36)
        kri_error(w, KRI_E_RANGE, base, ":base must be 2 to 36");
    p.base = (int)kri_fixnum_value(base);
    kr_value letter_case = kri_arg_key(argc, argv, 1, keys[6], KRI_NIL);
    if (!kri_is_nil(letter_case))
        p.upcase = !kri_eq(letter_case, w->vm->sym.k_downcase);
    print_root(&p, argv[0]);
    hand_over(&p);
    return argv[0];
}

KR_BUILTIN(prin1_to_string, "prin1-to-string", "(obj &optional size)", "The string that prin1 would print for OBJ. SIZE is ignored.")
{
    return kri_print_to_string(w, argv[0], true);
}

KR_BUILTIN(princ_to_string, "princ-to-string", "(obj &optional size)", "The string that princ would print for OBJ. SIZE is ignored.")
{
    return kri_print_to_string(w, argv[0], false);
}

KR_BUILTIN(print_cut, "lisp::%print-cut", "(object bytes)",
           "The string that prin1 would print for OBJECT, cut after BYTES, and to a few levels and elements: for messages.")
{
    return kri_print_cut(w, argv[0], (size_t)kri_arg_natural(w, argv, 1));
}

KR_BUILTIN(print_unreadable, "lisp::%prin1-object", "(object &optional stream &rest items)",
           "Print OBJECT as #<class #Xaddress name items>, the ITEMS as princ does: what :prin1 of class object does. Returns OBJECT.")
{
    kri_print_unreadable(w, argv[0], stream_arg(argc, argv, 1), argc > 2 ? argc - 2 : 0, argv + 2);
    return argv[0];
}

const struct kri_builtin *const kri_builtins_printer[] = {
    &prin1_def, &princ_def, &print_def, &write__def, &prin1_to_string_def, &princ_to_string_def, &print_cut_def, &print_unreadable_def, NULL,
};
