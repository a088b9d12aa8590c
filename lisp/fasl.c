/* fasl.c -- compiled forms as bytes: the core library, compiled at build time, is linked in this way.
 *
 * A file is "KRFASL1\n", then items. Every item begins with a tag byte; numbers are LEB128. Symbols, and uninterned ones with
 * their identity, are numbered as they come and named by number afterwards. A top-level form is a code object of no
 * arguments, which the loader turns into a function and calls before it reads on: later forms see what earlier ones did.
 * Code objects that are native functions too (lisp/native_module.c) are numbered as they end; the core's sections share one numbering. In the image
 * of a module what a form refers to twice is one object, and sources are kept.
 * The bytes are trusted as far as the build is: a magic number and an opcode count guard against another version's. */
#include <stdio.h>
#include <stdlib.h>
#include "lisp/fasl.h"
#include "lisp/native.h"
#include "lisp/opcode.h"

static const char magic[8] = "KRFASL1\n";

enum tag {
    TAG_END, TAG_NIL, TAG_FIXNUM, TAG_FLOAT, TAG_STRING, TAG_SYMBOL, TAG_UNINTERNED, TAG_REFERENCE, TAG_LIST, TAG_DOTTED, TAG_VECTOR,
    TAG_FLOAT_VECTOR, TAG_INTEGER_VECTOR, TAG_BIGNUM, TAG_RATIO, TAG_CODE, TAG_CLASS, TAG_FUNCTION, TAG_IMMEDIATE, TAG_BYTES, TAG_FORM, TAG_SHARED,
    TAG_OBJECT, TAG_PACKAGE, TAG_RAW
};

/* ---- writing; an error raises, so the buffer is a Lisp string that grows ---- */

static void put(struct kri_fasl *o, const void *bytes, size_t n)
{
    if (o->n + n > kri_length(o->buffer)) {
        kr_value bigger = kri_make_string(o->w, 2 * (o->n + n));
        memcpy(kri_string_of(bigger)->byte, kri_string_of(o->buffer)->byte, o->n);
        o->buffer = bigger;
    }
    memcpy(kri_string_of(o->buffer)->byte + o->n, bytes, n);
    o->n += n;
}

static void put_byte(struct kri_fasl *o, unsigned b)
{
    unsigned char c = (unsigned char)b;
    put(o, &c, 1);
}

static void put_number(struct kri_fasl *o, uint64_t n)
{
    while (n >= 128) {
        put_byte(o, (unsigned)(n & 127) | 128);
        n >>= 7;
    }
    put_byte(o, (unsigned)n);
}

static void put_bytes(struct kri_fasl *o, const void *bytes, size_t n)
{
    put_number(o, n);
    put(o, bytes, n);
}

static void put_value(struct kri_fasl *o, kr_value v);

/* ---- what a form refers to twice; o->shared is a hash table of (object, number) ---- */

static size_t shared_place(const struct kri_fasl *o, kr_value v)
{
    size_t mask = kri_length(o->shared) / 2 - 1, i = (v.w * 0x9e3779b97f4a7c15u >> 32) & mask;
    const kr_value *at = kri_vector_of(o->shared)->at;
    while (!kri_is_nil(at[2 * i]) && !kri_eq(at[2 * i], v))
        i = (i + 1) & mask;
    return 2 * i;
}

static void shared_add(struct kri_fasl *o, kr_value v, kr_value number)
{
    size_t i = shared_place(o, v);
    kri_store(o->w, kri_ptr(o->shared), &kri_vector_of(o->shared)->at[i], v);
    kri_store(o->w, kri_ptr(o->shared), &kri_vector_of(o->shared)->at[i + 1], number);
}

/* True: V was written before in this form, and is now named. */
static bool put_shared(struct kri_fasl *o, kr_value v)
{
    if (!o->module)
        return false;
    size_t i = shared_place(o, v);
    if (!kri_is_nil(kri_vector_of(o->shared)->at[i])) {
        put_byte(o, TAG_SHARED);
        put_number(o, (uint64_t)kri_fixnum_value(kri_vector_of(o->shared)->at[i + 1]));
        return true;
    }
    if (o->shared_count * 4 > kri_length(o->shared)) {
        kr_value old = o->shared;
        o->shared = kri_make_vector(o->w, 2 * kri_length(old));
        for (size_t j = 0; j < kri_length(old); j += 2)
            if (!kri_is_nil(kri_vector_of(old)->at[j]))
                shared_add(o, kri_vector_of(old)->at[j], kri_vector_of(old)->at[j + 1]);
    }
    shared_add(o, v, kri_fixnum((intptr_t)o->shared_count++));
    return false;
}

static void put_symbol(struct kri_fasl *o, kr_value v)
{
    struct kri_vector *known = kri_vector_of(o->symbols);
    for (size_t i = o->symbol_count; i-- > 0;)
        if (kri_eq(known->at[i], v)) {
            put_byte(o, TAG_REFERENCE);
            put_number(o, i);
            return;
        }
    if (o->symbol_count == kri_length(o->symbols)) {
        kr_value bigger = kri_make_vector(o->w, 2 * o->symbol_count);
        memcpy(kri_vector_of(bigger)->at, known->at, o->symbol_count * sizeof(kr_value));
        o->symbols = bigger;
        known = kri_vector_of(bigger);
    }
    kri_store(o->w, &known->head, &known->at[o->symbol_count++], v);
    const struct kri_symbol *s = kri_symbol_of(o->w->vm, v);
    bool interned = !kri_is_nil(s->homepkg);
    put_byte(o, interned ? TAG_SYMBOL : TAG_UNINTERNED);
    if (interned) {
        kr_value name = kri_car(kri_package_of(s->homepkg)->names);
        put_bytes(o, kri_string_of(name)->byte, kri_length(name));
    }
    put_bytes(o, kri_string_of(s->pname)->byte, kri_length(s->pname));
}

static bool is_instance(struct kr_vm *vm, const struct kri_cell *c)
{
    const struct kri_class *info = &vm->classes[c->cls];
    switch (c->cls) {
    case KRI_CLASS_ARRAY:
    case KRI_CLASS_PATHNAME:
    case KRI_CLASS_COMPLEX:
        return true;
    default:
        return c->cls >= KRI_CLASS_BUILTIN_COUNT && info->element == KRI_ELEMENT_NONE && !kri_is_class(vm, kri_value_of(c));
    }
}

/* Can V be written? Sources may hold anything. */
static bool can_put(struct kri_fasl *o, kr_value v, int depth)
{
    struct kr_vm *vm = o->w->vm;
    size_t n = 0;
    for (; kri_is_cons(v); v = kri_cdr(v))
        if (depth > 200 || ++n > 100000 || !can_put(o, kri_car(v), depth + 1))
            return false;
    if (!kri_is_pointer(v) || kri_is_class(vm, v))
        return true;
    switch (kri_ptr(v)->cls) {
    case KRI_CLASS_SYMBOL:
    case KRI_CLASS_STRING:
    case KRI_CLASS_BYTES:
    case KRI_CLASS_FLOAT_VECTOR:
    case KRI_CLASS_INTEGER_VECTOR:
    case KRI_CLASS_BIGNUM:
    case KRI_CLASS_RATIO:
    case KRI_CLASS_FLOAT_BOX:
        return true;
    case KRI_CLASS_VECTOR:
        for (size_t i = 0; i < kri_length(v); i++)
            if (depth > 200 || !can_put(o, kri_vector_of(v)->at[i], depth + 1))
                return false;
        return true;
    default:
        return false;
    }
}

static void put_code(struct kri_fasl *o, const struct kri_code *c)
{
    if (kri_is_builtin_code(c))
        kri_error(o->w, KRI_E_UNSUPPORTED, c->name, "a builtin as a constant of compiled code");
    put_byte(o, TAG_CODE);
    put_value(o, c->name);
    put_value(o, c->constants);
    put_value(o, c->lambda_list);
    /* The core's functions keep no source: their file and line say where it is. */
    put_value(o, o->module && can_put(o, c->source, 0) ? c->source : KRI_NIL);
    put_value(o, c->documentation);
    put_value(o, c->file);
    put_value(o, c->lines);
    put_value(o, c->keywords);
    if (o->module)
        put_value(o, can_put(o, c->debug, 0) ? c->debug : KRI_NIL);
    bool native = o->native && kri_native_can_compile(c);
    const uint64_t numbers[] = {c->nreq, c->nopt, c->nkey, c->flags, c->frame, (uint64_t)(c->max + 1), c->line, c->captures, c->head.length, native};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(o, numbers[i]);
    put(o, c->instr, c->head.length * sizeof *c->instr);
    if (native) {
        o->codes = kri_cons(o->w, kri_value_of(c), o->codes);
        o->code_count++;
    }
}

static void put_list(struct kri_fasl *o, kr_value v)
{
    size_t n = 0, limit = 1;
    kr_value l = v, mark = v;
    for (; kri_is_cons(l); l = kri_cdr(l)) {
        if (n > 0 && kri_eq(l, mark)) { /* Brent: a circle is written cons by cons */
            if (!o->module)
                kri_error(o->w, KRI_E_CIRCULAR, KRI_NIL, "as a constant of compiled code");
            put_byte(o, TAG_DOTTED);
            put_number(o, 1);
            put_value(o, kri_car(v));
            put_value(o, kri_cdr(v));
            return;
        }
        if (++n == limit) {
            mark = l;
            limit *= 2;
        }
    }
    put_byte(o, kri_is_nil(l) ? TAG_LIST : TAG_DOTTED);
    put_number(o, n);
    for (; kri_is_cons(v); v = kri_cdr(v))
        put_value(o, kri_car(v));
    if (!kri_is_nil(l))
        put_value(o, l);
}

static void put_value(struct kri_fasl *o, kr_value v)
{
    struct kr_vm *vm = o->w->vm;
    if (kri_native_exhausted(o->w))
        kri_error(o->w, KRI_E_STACK, KRI_NIL, "a constant is nested too deeply");
    if (kri_is_nil(v)) {
        put_byte(o, TAG_NIL);
    } else if (kri_is_fixnum(v)) {
        intptr_t n = kri_fixnum_value(v);
        put_byte(o, TAG_FIXNUM);
        put_number(o, (uint64_t)n << 1 ^ (uint64_t)(n >> 63));
    } else if (kri_is_float(v)) {
        double d = kri_float_value(v);
        put_byte(o, TAG_FLOAT);
        put(o, &d, sizeof d);
    } else if (!kri_is_pointer(v)) {
        put_byte(o, TAG_IMMEDIATE);
        put_number(o, v.w);
    } else {
        const struct kri_cell *c = kri_ptr(v);
        if (c->cls == KRI_CLASS_SYMBOL) {
            put_symbol(o, v);
            return;
        }
        if (put_shared(o, v))
            return;
        switch (c->cls) {
        case KRI_CLASS_CONS:
            put_list(o, v);
            break;
        case KRI_CLASS_STRING:
        case KRI_CLASS_BYTES:
            put_byte(o, c->cls == KRI_CLASS_STRING ? TAG_STRING : TAG_BYTES);
            put_bytes(o, kri_string_of(v)->byte, c->length);
            break;
        case KRI_CLASS_VECTOR:
            put_byte(o, TAG_VECTOR);
            put_number(o, c->length);
            for (size_t i = 0; i < c->length; i++)
                put_value(o, c->slot[i]);
            break;
        case KRI_CLASS_FLOAT_VECTOR:
        case KRI_CLASS_INTEGER_VECTOR:
            put_byte(o, c->cls == KRI_CLASS_FLOAT_VECTOR ? TAG_FLOAT_VECTOR : TAG_INTEGER_VECTOR);
            put_bytes(o, c->slot, (size_t)c->length * 8);
            break;
        case KRI_CLASS_BIGNUM:
            put_byte(o, TAG_BIGNUM);
            put_bytes(o, c->slot, ((size_t)c->length + 1) * 8);
            break;
        case KRI_CLASS_RATIO:
            put_byte(o, TAG_RATIO);
            put_value(o, c->slot[0]);
            put_value(o, c->slot[1]);
            break;
        case KRI_CLASS_CODE:
            put_code(o, (const struct kri_code *)c);
            break;
        case KRI_CLASS_COMPILED_CODE:
            if (!kri_is_builtin_code(kri_code_of(v))) {
                put_byte(o, TAG_FUNCTION);
                put_code(o, kri_code_of(v));
                break;
            }
            /* fallthrough */
        case KRI_CLASS_BIT_VECTOR:
            put_byte(o, TAG_RAW);
            put_value(o, kri_metaclass_of(vm->classes[c->cls].object)->name);
            put_number(o, c->length);
            put_bytes(o, c->slot, ((size_t)c->length + 7) / 8);
            break;
        case KRI_CLASS_PACKAGE:
            put_byte(o, TAG_PACKAGE);
            put_value(o, kri_car(kri_package_of(v)->names));
            break;
        default:
            if (is_instance(vm, c)) {
                put_byte(o, TAG_OBJECT);
                put_value(o, kri_metaclass_of(vm->classes[c->cls].object)->name);
                put_number(o, vm->classes[c->cls].slots);
                for (unsigned i = 0; i < vm->classes[c->cls].slots; i++)
                    put_value(o, kri_slot(&c->slot[i]));
                break;
            }
            if (!kri_is_class(vm, v))
                kri_error(o->w, KRI_E_UNSUPPORTED, v, "a constant of this kind in compiled code");
            put_byte(o, TAG_CLASS);
            put_value(o, kri_slot(&kri_metaclass_of(v)->name));
        }
    }
}

void kri_fasl_form(struct kri_fasl *o, kr_value thunk)
{
    put_byte(o, TAG_FORM);
    if (o->module) {
        o->shared = kri_make_vector(o->w, 64);
        o->shared_count = 0;
    }
    put_code(o, kri_code_of(thunk));
}

void kri_fasl_begin(struct kri_worker *w, struct kri_fasl *o, bool module, const struct kri_fasl *before)
{
    *o = (struct kri_fasl){.w = w, .buffer = kri_make_string(w, 1 << 16), .symbols = kri_make_vector(w, 256), .codes = KRI_NIL, .module = module,
                           .native = true};
    if (before) {
        o->codes = before->codes;
        o->code_count = before->code_count;
    }
    put(o, magic, sizeof magic);
    put_number(o, KRI_OP_COUNT);
    put_byte(o, module);
    put_number(o, o->code_count);
}

void kri_fasl_add(struct kri_fasl *o, kr_value stream)
{
    struct kri_worker *w = o->w;
    for (;;) {
        kri_positions_begin(w);
        kr_value form = kri_read(w, stream, false, KRI_IMMEDIATE(KRI_IMM_EOF));
        if (form.w == KRI_IMM_EOF)
            break;
        kr_value thunk = kri_compile_form(w, form);
        kri_positions_end(w);
        kri_fasl_form(o, thunk);
        kri_call(w, thunk, 0, NULL);
    }
    kri_positions_end(w);
}

kr_value kri_fasl_codes(const struct kri_fasl *o, size_t *count)
{
    kr_value v = kri_make_vector(o->w, o->code_count), list = o->codes;
    *count = o->code_count;
    for (size_t i = o->code_count; i-- > 0; list = kri_cdr(list))
        kri_vector_of(v)->at[i] = kri_car(list);
    return v;
}

void kri_fasl_end(struct kri_fasl *o)
{
    do
        put_byte(o, TAG_END);
    while (o->n & 7);
}

bool kri_fasl_write(struct kri_fasl *o, const char *name, FILE *file)
{
    struct kri_section s = {.name = ""};
    kri_fasl_end(o);
    snprintf(s.name, sizeof s.name, "%s", name);
    s.length = o->n;
    return fwrite(&s, sizeof s, 1, file) == 1 && fwrite(kri_string_of(o->buffer)->byte, 1, o->n, file) == o->n;
}

/* ---- reading ---- */

struct reader {
    struct kri_worker *w;
    const unsigned char *p, *end;
    kr_value symbols;
    size_t symbol_count;
    const unsigned char *package_name; /* the package found last */
    size_t package_length;
    kr_value package;
    struct kri_native_instance *instance; /* of the module that this is the image of, or NULL */
    bool module;                          /* see struct kri_fasl */
    uint64_t functions;                   /* the number of the next code object */
    kr_value shared;                      /* vector of the form's objects, by number */
    size_t shared_count;
};

static _Noreturn void corrupt(struct reader *r) { kri_error(r->w, KRI_E_EOF, KRI_NIL, "a compiled file is damaged or of another version"); }

static const unsigned char *get(struct reader *r, size_t n)
{
    if ((size_t)(r->end - r->p) < n)
        corrupt(r);
    r->p += n;
    return r->p - n;
}

static uint64_t get_number(struct reader *r)
{
    uint64_t n = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned char b = *get(r, 1);
        n |= (uint64_t)(b & 127) << shift;
        if (b < 128)
            return n;
    }
    corrupt(r);
}

static kr_value get_value(struct reader *r);

/* The number of an object that begins. */
static size_t share(struct reader *r)
{
    if (!r->module)
        return 0;
    if (r->shared_count == kri_length(r->shared)) {
        kr_value bigger = kri_make_vector(r->w, 2 * r->shared_count);
        memcpy(kri_vector_of(bigger)->at, kri_vector_of(r->shared)->at, r->shared_count * sizeof(kr_value));
        r->shared = bigger;
    }
    return r->shared_count++;
}

/* Object NUMBER is V. */
static kr_value shared(struct reader *r, size_t number, kr_value v)
{
    if (r->module)
        kri_store(r->w, kri_ptr(r->shared), &kri_vector_of(r->shared)->at[number], v);
    return v;
}

static void remember(struct reader *r, kr_value symbol)
{
    if (r->symbol_count == kri_length(r->symbols)) {
        kr_value bigger = kri_make_vector(r->w, 2 * r->symbol_count);
        memcpy(kri_vector_of(bigger)->at, kri_vector_of(r->symbols)->at, r->symbol_count * sizeof(kr_value));
        r->symbols = bigger;
    }
    kri_store(r->w, kri_ptr(r->symbols), &kri_vector_of(r->symbols)->at[r->symbol_count++], symbol);
}

static kr_value get_symbol(struct reader *r, bool interned)
{
    struct kri_worker *w = r->w;
    kr_value v;
    if (interned) {
        size_t n = get_number(r);
        const unsigned char *name = get(r, n);
        if (n != r->package_length || memcmp(name, r->package_name, n) != 0) {
            r->package = kri_find_package(w, kri_string_n(w, (const char *)name, n));
            r->package_name = name;
            r->package_length = n;
            if (kri_is_nil(r->package))
                kri_error(w, KRI_E_NO_PACKAGE, kri_string_n(w, (const char *)name, n), "that compiled code refers to");
        }
        n = get_number(r);
        v = kri_intern(w, (const char *)get(r, n), n, r->package);
    } else {
        size_t n = get_number(r);
        v = kri_make_symbol(w, kri_string_n(w, (const char *)get(r, n), n));
    }
    remember(r, v);
    return v;
}

static kr_value get_code(struct reader *r)
{
    kr_value part[9] = {KRI_NIL};
    uint64_t number[10];
    for (int i = 0; i < (r->module ? 9 : 8); i++)
        part[i] = get_value(r);
    for (int i = 0; i < 10; i++)
        number[i] = get_number(r);
    size_t n = number[8];
    const unsigned char *instr = get(r, n * sizeof(kri_instruction));
    struct kri_code *c = (struct kri_code *)kri_make(r->w, KRI_CLASS_CODE, (uint32_t)n, (sizeof *c - 8) / 8 + n);
    memcpy(&c->name, part, sizeof part);
    c->nreq = (uint16_t)number[0];
    c->nopt = (uint16_t)number[1];
    c->nkey = (uint16_t)number[2];
    c->flags = (uint16_t)number[3];
    c->frame = (uint16_t)number[4];
    c->max = (int32_t)number[5] - 1;
    c->line = (uint32_t)number[6];
    c->captures = (uint32_t)number[7];
    c->k = kri_is_nil(c->constants) ? NULL : kri_vector_of(c->constants)->at;
    memcpy(c->instr, instr, n * sizeof(kri_instruction));
    if (r->instance && number[9] && r->functions >= r->instance->module->functions)
        corrupt(r);
    if (r->instance && number[9])
        kri_native_attach(r->w, r->instance, (unsigned)r->functions++, kri_value_of(c));
    return kri_value_of(c);
}

static kr_value function_from(struct kri_worker *w, kr_value code)
{
    const struct kri_code *c = (const struct kri_code *)code.w;
    if (c->native)
        return c->native->object;
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_COMPILED_CODE, kri_signature(c), 1);
    f->code = code;
    return kri_value_of(f);
}

static kr_value get_list(struct reader *r, bool dotted)
{
    struct kri_worker *w = r->w;
    size_t n = get_number(r);
    if (n == 0)
        corrupt(r);
    kr_value head = kri_cons(w, KRI_NIL, KRI_NIL), tail = head;
    shared(r, share(r), head);
    kri_store(w, kri_ptr(head), &kri_cons_of(head)->car, get_value(r));
    for (; n > 1; n--) {
        kr_value cell = kri_cons(w, get_value(r), KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    if (dotted)
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, get_value(r));
    return head;
}

static kr_value get_object(struct reader *r)
{
    struct kri_worker *w = r->w;
    size_t number = share(r);
    kr_value name = get_value(r), cls = kri_special(w, name);
    size_t n = get_number(r);
    if (!kri_is_class(w->vm, cls))
        kri_error(w, KRI_E_NO_CLASS, name, "compiled code refers to it");
    kr_value v = shared(r, number, kri_instantiate(w, cls, -1));
    if (w->vm->classes[kri_ptr(v)->cls].slots != n)
        kri_error(w, KRI_E_NO_CLASS, name, "compiled code refers to an instance of it that has other slots");
    for (size_t i = 0; i < n; i++)
        kri_store(w, kri_ptr(v), &kri_ptr(v)->slot[i], get_value(r));
    return v;
}

static kr_value get_value(struct reader *r)
{
    struct kri_worker *w = r->w;
    if (kri_native_exhausted(w))
        kri_error(w, KRI_E_STACK, KRI_NIL, NULL);
    switch (*get(r, 1)) {
    case TAG_NIL:
        return KRI_NIL;
    case TAG_FIXNUM: {
        uint64_t n = get_number(r);
        return kri_fixnum((intptr_t)(n >> 1 ^ -(n & 1)));
    }
    case TAG_FLOAT: {
        double d;
        memcpy(&d, get(r, sizeof d), sizeof d);
        return kri_float(w, d);
    }
    case TAG_IMMEDIATE:
        return KRI_IMMEDIATE(get_number(r));
    case TAG_STRING: {
        size_t n = get_number(r);
        return shared(r, share(r), kri_string_n(w, (const char *)get(r, n), n));
    }
    case TAG_BYTES: {
        size_t n = get_number(r);
        kr_value v = kri_value_of(kri_make(w, KRI_CLASS_BYTES, (uint32_t)n, n / 8 + 1));
        memcpy(kri_string_of(v)->byte, get(r, n), n);
        return shared(r, share(r), v);
    }
    case TAG_SYMBOL:
        return get_symbol(r, true);
    case TAG_UNINTERNED:
        return get_symbol(r, false);
    case TAG_REFERENCE: {
        size_t i = get_number(r);
        if (i >= r->symbol_count)
            corrupt(r);
        return kri_vector_of(r->symbols)->at[i];
    }
    case TAG_LIST:
        return get_list(r, false);
    case TAG_DOTTED:
        return get_list(r, true);
    case TAG_VECTOR: {
        size_t n = get_number(r);
        kr_value v = shared(r, share(r), kri_make_vector(w, n));
        for (size_t i = 0; i < n; i++)
            kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[i], get_value(r));
        return v;
    }
    case TAG_FLOAT_VECTOR: {
        size_t n = get_number(r);
        kr_value v = kri_make_fvector(w, n / 8);
        memcpy(kri_fvector_of(v)->at, get(r, n), n);
        return shared(r, share(r), v);
    }
    case TAG_INTEGER_VECTOR: {
        size_t n = get_number(r);
        kr_value v = kri_make_ivector(w, n / 8);
        memcpy(kri_ivector_of(v)->at, get(r, n), n);
        return shared(r, share(r), v);
    }
    case TAG_BIGNUM: {
        size_t n = get_number(r);
        struct kri_cell *c = kri_make(w, KRI_CLASS_BIGNUM, (uint32_t)(n / 8 - 1), n / 8);
        memcpy(c->slot, get(r, n), n);
        return shared(r, share(r), kri_value_of(c));
    }
    case TAG_RATIO: {
        size_t place = share(r);
        kr_value numerator = get_value(r), denominator = get_value(r);
        struct kri_cell *c = kri_make(w, KRI_CLASS_RATIO, 0, 2);
        c->slot[0] = numerator;
        c->slot[1] = denominator;
        return shared(r, place, kri_value_of(c));
    }
    case TAG_CODE: {
        size_t place = share(r);
        return shared(r, place, get_code(r));
    }
    case TAG_FUNCTION: {
        size_t place = share(r);
        get(r, 1);
        return shared(r, place, function_from(w, get_code(r)));
    }
    case TAG_SHARED: {
        size_t i = get_number(r);
        if (i >= r->shared_count)
            corrupt(r);
        return kri_vector_of(r->shared)->at[i];
    }
    case TAG_OBJECT:
        return get_object(r);
    case TAG_RAW: {
        size_t place = share(r);
        kr_value name = get_value(r), cls = kri_special(w, name);
        size_t length = get_number(r), n = get_number(r);
        if (!kri_is_class(w->vm, cls))
            kri_error(w, KRI_E_NO_CLASS, name, "compiled code refers to it");
        kr_value v = shared(r, place, kri_instantiate(w, cls, (intptr_t)length));
        memcpy(kri_ptr(v)->slot, get(r, n), n);
        return v;
    }
    case TAG_PACKAGE: {
        size_t place = share(r);
        kr_value name = get_value(r), package = kri_find_package(w, name);
        if (kri_is_nil(package))
            kri_error(w, KRI_E_NO_PACKAGE, name, "that compiled code refers to");
        return shared(r, place, package);
    }
    case TAG_CLASS: {
        size_t place = share(r);
        kr_value name = get_value(r), cls = kri_special(w, name);
        if (!kri_is_class(w->vm, cls))
            kri_error(w, KRI_E_NO_CLASS, name, "compiled code refers to it");
        return shared(r, place, cls);
    }
    }
    corrupt(r);
}

void kri_fasl_load(struct kri_worker *w, const unsigned char *bytes, size_t n, struct kri_native_instance *instance)
{
    struct reader r = {.w = w, .p = bytes, .end = bytes + n, .symbols = kri_make_vector(w, 1024), .instance = instance};
    if (memcmp(get(&r, sizeof magic), magic, sizeof magic) != 0 || get_number(&r) != KRI_OP_COUNT)
        corrupt(&r);
    r.module = *get(&r, 1);
    r.functions = get_number(&r);
    for (;;) {
        unsigned tag = *get(&r, 1);
        if (tag == TAG_END)
            return;
        if (tag != TAG_FORM || *get(&r, 1) != TAG_CODE)
            corrupt(&r);
        if (r.module)
            r.shared = kri_make_vector(w, 64);
        r.shared_count = 0;
        kri_call(w, function_from(w, get_code(&r)), 0, NULL);
    }
}
