/* foreign_type.c -- C types and their values: names, conversion both ways, memory seen as C sees it (sys:peek, sys:poke). */
#include "lisp/foreign.h"
#include "lisp/number.h"

/* The first name of a kind is the one that messages use. */
static const struct {
    const char *name;
    enum kri_c_kind kind;
} type_names[] = {
    {"VOID", KRI_C_VOID},
    {"INT8", KRI_C_INT8}, {"SCHAR", KRI_C_INT8},
    {"UINT8", KRI_C_UINT8}, {"BYTE", KRI_C_UINT8}, {"CHAR", KRI_C_UINT8}, {"CHARACTER", KRI_C_UINT8}, {"UCHAR", KRI_C_UINT8},
    {"INT16", KRI_C_INT16}, {"SHORT", KRI_C_INT16},
    {"UINT16", KRI_C_UINT16}, {"USHORT", KRI_C_UINT16}, {"WORD", KRI_C_UINT16},
    {"INT32", KRI_C_INT32}, {"INT", KRI_C_INT32}, {"INTEGER", KRI_C_INT32},
    {"UINT32", KRI_C_UINT32}, {"UINT", KRI_C_UINT32},
    {"INT64", KRI_C_INT64}, {"LONG", KRI_C_INT64}, {"LONG-LONG", KRI_C_INT64}, {"SSIZE", KRI_C_INT64}, {"INTPTR", KRI_C_INT64},
    {"UINT64", KRI_C_UINT64}, {"ULONG", KRI_C_UINT64}, {"ULONG-LONG", KRI_C_UINT64}, {"SIZE", KRI_C_UINT64}, {"UINTPTR", KRI_C_UINT64},
    {"BOOL", KRI_C_BOOL},
    {"FLOAT", KRI_C_FLOAT}, {"FLOAT32", KRI_C_FLOAT},
    {"DOUBLE", KRI_C_DOUBLE}, {"FLOAT64", KRI_C_DOUBLE},
    {"POINTER", KRI_C_POINTER},
    {"STRING", KRI_C_STRING},
    {"BUFFER", KRI_C_BUFFER},
    {"ANY", KRI_C_ANY},
    {"STRUCT", KRI_C_STRUCT},
    {"RECORD", KRI_C_RECORD},
};
enum { TYPE_NAMES = sizeof type_names / sizeof *type_names };

const char *kri_c_kind_name(unsigned kind)
{
    for (int i = 0; i < TYPE_NAMES; i++)
        if (type_names[i].kind == kind)
            return type_names[i].name;
    return "?";
}

/* The keywords of the table, in its order: a vector among the VM's roots. */
static const kr_value *type_keywords(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    /* Acquire: pairs with the release below; who finds the vector finds it filled. */
    const kr_value *known = (const kr_value *)kri_load_acquire(&vm->c_type_names);
    if (KRI_LIKELY(known != NULL))
        return known;
    kr_value v = kri_make_vector(w, TYPE_NAMES), roots = kri_cons(w, v, KRI_NIL);
    for (int i = 0; i < TYPE_NAMES; i++) {
        kr_value keyword = kri_keyword(w, type_names[i].name);
        kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[i], keyword);
    }
    kri_lock(w, &vm->lock);
    kri_store(w, kri_ptr(roots), &kri_cons_of(roots)->cdr, vm->roots);
    vm->roots = roots;
    kri_unlock(&vm->lock);
    kri_store_release(&vm->c_type_names, (size_t)kri_vector_of(v)->at);
    return kri_vector_of(v)->at;
}

static int kind_named(struct kri_worker *w, kr_value name)
{
    const kr_value *keyword = type_keywords(w);
    for (int i = 0; i < TYPE_NAMES; i++)
        if (kri_eq(keyword[i], name))
            return (int)type_names[i].kind;
    return -1;
}

static _Noreturn void no_type(struct kri_worker *w, kr_value name)
{
    kri_error(w, KRI_E_TYPE_MISMATCH, name, "%V is no foreign type; such are :int :long :double :pointer :string", name);
}

static uint32_t size_in(struct kri_worker *w, kr_value name, kr_value rest)
{
    kr_value n = kri_is_cons(rest) ? kri_car(rest) : KRI_NIL;
    if (!kri_is_fixnum(n) || kri_fixnum_value(n) < 0 || kri_fixnum_value(n) > INT32_MAX)
        no_type(w, name);
    return (uint32_t)kri_fixnum_value(n);
}

struct kri_c_type kri_c_type_of(struct kri_worker *w, kr_value name)
{
    struct kri_c_type t = {0};
    int kind = kind_named(w, kri_is_cons(name) ? kri_car(name) : name);
    if (kind < 0)
        no_type(w, name);
    t.kind = (uint8_t)kind;
    bool sized = kind == KRI_C_STRUCT || kind == KRI_C_RECORD;
    if (!kri_is_cons(name)) {
        if (sized)
            no_type(w, name);
        return t;
    }
    kr_value rest = kri_cdr(name);
    if (!sized && kind != KRI_C_STRING && kind != KRI_C_POINTER)
        no_type(w, name);
    if (sized || kri_is_cons(rest))
        t.size = size_in(w, name, rest);
    if (kind == KRI_C_STRUCT) {
        uint32_t align = size_in(w, name, kri_cdr(rest));
        if (t.size == 0 || align == 0 || align > 16 || (align & (align - 1)))
            no_type(w, name);
        t.align = (uint8_t)align;
    }
    return t;
}

/* ---- vectors as memory ---- */

struct bytes {
    unsigned char *at;
    size_t n;
};

/* The elements of a vector as bytes; of a vector of Lisp values none: C may not touch them. */
static struct bytes vector_bytes(struct kr_vm *vm, kr_value v)
{
    size_t n = kri_length(v);
    switch (kri_element(vm, v)) {
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
        return (struct bytes){kri_string_of(v)->byte, n};
    case KRI_ELEMENT_BIT:
        return (struct bytes){kri_string_of(v)->byte, (n + 7) / 8};
    case KRI_ELEMENT_FLOAT:
    case KRI_ELEMENT_INTEGER:
        return (struct bytes){kri_string_of(v)->byte, n * 8};
    case KRI_ELEMENT_FOREIGN:
        return (struct bytes){((struct kri_foreign *)v.w)->address, n};
    default:
        return (struct bytes){NULL, 0};
    }
}

/* The same of an array of numbers, from its displacement on. */
static struct bytes object_bytes(struct kr_vm *vm, kr_value v)
{
    if (!kri_is_pointer(v))
        return (struct bytes){NULL, 0};
    if (!kri_derivedp(vm, v, vm->classes[KRI_CLASS_ARRAY].object))
        return vector_bytes(vm, v);
    const struct kri_array *a = (const struct kri_array *)v.w;
    kr_value entity = kri_slot(&a->entity), offset = kri_slot(&a->offset);
    enum kri_element e = kri_element(vm, entity);
    struct bytes b = e == KRI_ELEMENT_NONE || e == KRI_ELEMENT_BIT ? (struct bytes){NULL, 0} : vector_bytes(vm, entity);
    if (b.at && kri_is_fixnum(offset) && kri_fixnum_value(offset) > 0) {
        size_t skip = (size_t)kri_fixnum_value(offset) * (e == KRI_ELEMENT_FLOAT || e == KRI_ELEMENT_INTEGER ? 8 : 1);
        skip = skip <= b.n ? skip : b.n;
        b.at += skip;
        b.n -= skip;
    }
    return b;
}

/* ---- Lisp to C ---- */

static unsigned kind_bits(unsigned kind)
{
    switch (kind) {
    case KRI_C_INT8:
    case KRI_C_UINT8: return 8;
    case KRI_C_INT16:
    case KRI_C_UINT16: return 16;
    case KRI_C_INT32:
    case KRI_C_UINT32: return 32;
    default: return 64;
    }
}

/* N, of which the low bits count, as a value of KIND. */
static int64_t narrow(unsigned kind, int64_t n)
{
    switch (kind) {
    case KRI_C_INT8: return (int8_t)n;
    case KRI_C_UINT8: return (uint8_t)n;
    case KRI_C_INT16: return (int16_t)n;
    case KRI_C_UINT16: return (uint16_t)n;
    case KRI_C_INT32: return (int32_t)n;
    case KRI_C_UINT32: return (uint32_t)n;
    default: return n;
    }
}

static _Noreturn void out_of_range(struct kri_worker *w, kr_value v, unsigned kind)
{
    kri_error(w, KRI_E_RANGE, v, "%V does not fit into %u bits (:%s)", v, kind_bits(kind), kri_c_kind_name(kind));
}

static _Noreturn void bad_argument(struct kri_worker *w, kr_value v, int i, int code)
{
    if (i >= 0)
        kri_argument_error(w, i, v, code);
    kri_error(w, code, v, "%V", v);
}

/* As the masks that C programs write have it, both ways to read the bits are taken: -1 and #xff are the same byte. */
static int64_t integer_in(struct kri_worker *w, kr_value v, unsigned kind, int i)
{
    unsigned bits = kind_bits(kind);
    int64_t n;
    if (!kri_is_integer(v))
        bad_argument(w, v, i, KRI_E_NO_INTEGER);
    if (bits == 64) {
        if (!kri_int_to_i64(v, &n)) {
            if (kri_int_sign(v) < 0 || kri_int_length(v) > 64)
                out_of_range(w, v, kind);
            n = kri_int_low64(v);
        }
        return n;
    }
    if (!kri_int_to_i64(v, &n) || n < -((int64_t)1 << (bits - 1)) || n >= (int64_t)1 << bits)
        out_of_range(w, v, kind);
    return narrow(kind, n);
}

/* What stands for an address: an object that knows one (a callback), asked by message. */
static void *address_of_object(struct kri_worker *w, kr_value v, int i)
{
    kr_value selector = kri_keyword(w, "FOREIGN-ADDRESS");
    struct kri_cell *cell = kri_cell(w->vm, v);
    if (!cell || kri_is_nil(kri_find_method(w, cell->cls, selector, NULL)))
        bad_argument(w, v, i, KRI_E_NO_VECTOR);
    kr_value address = kri_send(w, v, selector, 0, NULL);
    return (void *)(uintptr_t)integer_in(w, address, KRI_C_UINT64, i);
}

static void *pointer_in(struct kri_worker *w, kr_value v, struct kri_c_type type, int i)
{
    if (kri_is_nil(v))
        return NULL;
    if (kri_is_integer(v))
        return (void *)(uintptr_t)integer_in(w, v, KRI_C_UINT64, i);
    struct bytes b = object_bytes(w->vm, v);
    if (!b.at)
        return address_of_object(w, v, i);
    if (b.n < type.size)
        kri_error(w, KRI_E_RANGE, v, "%u bytes expected, not %zu", (unsigned)type.size, b.n);
    return b.at;
}

static void *buffer_in(struct kri_worker *w, kr_value v, int i)
{
    struct bytes b = object_bytes(w->vm, v);
    if (kri_is_nil(v))
        return NULL;
    if (!b.at)
        bad_argument(w, v, i, KRI_E_NO_STRING);
    return b.at;
}

static void *string_in(struct kri_worker *w, kr_value v, int i)
{
    if (kri_is_nil(v))
        return NULL;
    if (!kri_is_string(w->vm, v) && kri_element(w->vm, v) != KRI_ELEMENT_FOREIGN)
        bad_argument(w, v, i, KRI_E_NO_STRING);
    return vector_bytes(w->vm, v).at;
}

static void *record_in(struct kri_worker *w, kr_value v, struct kri_c_type type, int i)
{
    enum kri_element e = kri_element(w->vm, v);
    if (e != KRI_ELEMENT_BYTE && e != KRI_ELEMENT_CHAR && e != KRI_ELEMENT_FOREIGN)
        bad_argument(w, v, i, KRI_E_TYPE_MISMATCH);
    struct bytes b = vector_bytes(w->vm, v);
    if (b.n < type.size || !b.at)
        kri_error(w, KRI_E_RANGE, v, "a struct of %u bytes expected, not %zu bytes", (unsigned)type.size, b.n);
    return b.at;
}

union kri_c_value kri_to_c(struct kri_worker *w, kr_value v, struct kri_c_type type, int i)
{
    union kri_c_value c = {0};
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_INT8 ... KRI_C_UINT64:
        c.i = integer_in(w, v, type.kind, i);
        break;
    case KRI_C_BOOL:
        c.i = !kri_is_nil(v);
        break;
    case KRI_C_FLOAT:
    case KRI_C_DOUBLE:
        if (!kri_is_number(v) || kri_is_complex(v))
            bad_argument(w, v, i, KRI_E_NO_NUMBER);
        if (type.kind == KRI_C_FLOAT)
            c.f = (float)kri_to_double(w, v);
        else
            c.d = kri_to_double(w, v);
        break;
    case KRI_C_POINTER:
        c.p = pointer_in(w, v, type, i);
        break;
    case KRI_C_STRING:
        c.p = string_in(w, v, i);
        break;
    case KRI_C_BUFFER:
        c.p = buffer_in(w, v, i);
        break;
    case KRI_C_STRUCT:
    case KRI_C_RECORD:
        c.p = record_in(w, v, type, i);
        break;
    case KRI_C_VOID:
    case KRI_C_ANY:
        break;
    }
    return c;
}

struct kri_c_type kri_c_type_suggested(struct kri_worker *w, kr_value v, int i)
{
    if (kri_is_integer(v))
        return (struct kri_c_type){.kind = kri_is_bignum(v) && kri_int_sign(v) > 0 ? KRI_C_UINT64 : KRI_C_INT64};
    if (kri_is_number(v))
        return (struct kri_c_type){.kind = KRI_C_DOUBLE};
    if (!kri_is_nil(v) && !kri_is_pointer(v))
        bad_argument(w, v, i, KRI_E_NO_OBJECT);
    return (struct kri_c_type){.kind = KRI_C_POINTER};
}

/* ---- C to Lisp ---- */

/* Can ADDRESS be mapped? Not below the first page, where a null pointer and an offset lie, nor where no process has memory. */
static bool possible_address(uint64_t address) { return address >= 4096 && address < (uint64_t)1 << 56; }

static kr_value unsigned_integer(struct kri_worker *w, uint64_t n)
{
    return n <= (uint64_t)KRI_FIXNUM_MAX ? kri_fixnum((intptr_t)n) : kri_int_from_u64(w, n, false);
}

/* The length of the text at P, at most N bytes. */
static kr_value string_out(struct kri_worker *w, const char *p, size_t n)
{
    if (!p)
        return KRI_NIL;
    if (!possible_address((uintptr_t)p))
        kri_error(w, KRI_E_RANGE, unsigned_integer(w, (uintptr_t)p), "no string is at address %zu", (size_t)(uintptr_t)p);
    return n ? kri_string_n(w, p, n) : kri_string(w, p);
}

kr_value kri_from_c(struct kri_worker *w, struct kri_c_type type, const union kri_c_value *c)
{
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_INT8 ... KRI_C_UINT32:
        return kri_fixnum((intptr_t)narrow(type.kind, c->i));
    case KRI_C_INT64:
    case KRI_C_ANY:
        return kri_integer(w, (intptr_t)c->i);
    case KRI_C_BOOL:
        return kri_bool(w, (uint8_t)c->i != 0);
    case KRI_C_FLOAT:
        return kri_float(w, (double)c->f);
    case KRI_C_DOUBLE:
        return kri_float(w, c->d);
    case KRI_C_UINT64:
    case KRI_C_POINTER:
    case KRI_C_BUFFER:
    case KRI_C_RECORD:
    case KRI_C_STRUCT:
        return unsigned_integer(w, (uint64_t)c->i);
    case KRI_C_STRING:
        return string_out(w, c->p, type.size);
    case KRI_C_VOID:
        break;
    }
    return KRI_NIL;
}

/* ---- memory ---- */

static size_t kind_bytes(struct kri_worker *w, unsigned kind, kr_value name)
{
    switch (kind) {
    case KRI_C_BOOL: return 1;
    case KRI_C_FLOAT: return 4;
    case KRI_C_DOUBLE:
    case KRI_C_POINTER:
    case KRI_C_STRING: return 8;
    case KRI_C_VOID:
    case KRI_C_BUFFER:
    case KRI_C_STRUCT:
    case KRI_C_RECORD:
    case KRI_C_ANY: kri_error(w, KRI_E_TYPE_MISMATCH, name, "%V has no size in memory", name);
    default: return kind_bits(kind) / 8;
    }
}

struct place {
    unsigned char *at;
    struct kri_c_type type;
    size_t bytes;
};

/* Arguments [vector] address [type], from argv[FROM] on. */
static struct place find_place(struct kri_worker *w, int argc, kr_value *argv, int from)
{
    struct place p = {.type = {.kind = KRI_C_INT64}, .bytes = 8};
    int n = argc - from;
    bool vector = !kri_is_integer(argv[from]);
    if (n > (vector ? 2 : 1)) {
        p.type = kri_c_type_of(w, argv[argc - 1]);
        p.bytes = kind_bytes(w, p.type.kind, argv[argc - 1]);
        n--;
    }
    if (n != (vector ? 2 : 1))
        kri_error(w, KRI_E_ARGC, KRI_NIL, vector ? "a vector, an offset and a type expected" : "an address and a type expected");
    if (!vector) {
        uint64_t address = (uint64_t)integer_in(w, argv[from], KRI_C_UINT64, from);
        if (!possible_address(address))
            kri_error(w, KRI_E_RANGE, argv[from], "%V is no address", argv[from]);
        p.at = (unsigned char *)(uintptr_t)address;
        return p;
    }
    struct bytes b = object_bytes(w->vm, argv[from]);
    size_t offset = (size_t)kri_arg_natural(w, argv, from + 1);
    if (!b.at)
        kri_argument_error(w, from, argv[from], KRI_E_NO_STRING);
    if (offset > b.n || b.n - offset < p.bytes)
        kri_error(w, KRI_E_ARRAY_INDEX, argv[from + 1], "%zu bytes at offset %zu of %zu", p.bytes, offset, b.n);
    p.at = b.at + offset;
    return p;
}

KR_BUILTIN(peek, "sys:peek", "(vector-or-address &optional offset-or-type type)",
           "(sys:peek address type), (sys:peek vector offset type): the value of foreign TYPE (:byte :short :integer :long :float :double "
           ":pointer and others, see doc/foreign.md; by default :long) at ADDRESS, or OFFSET bytes into a string or a vector of numbers or bits. "
           "Error: beyond the vector's end; an address that can be none. An address that is not mapped crashes, as in C.")
{
    struct place p = find_place(w, argc, argv, 0);
    union kri_c_value c = {0};
    memcpy(&c, p.at, p.bytes); /* little endian; kri_from_c narrows */
    return kri_from_c(w, p.type, &c);
}

KR_BUILTIN(poke, "sys:poke", "(value vector-or-address &optional offset-or-type type)",
           "(sys:poke value address type), (sys:poke value vector offset type): store VALUE as foreign TYPE at ADDRESS, or OFFSET bytes "
           "into a string or a vector of numbers or bits. Returns VALUE. Error: as sys:peek; VALUE does not fit.")
{
    if (argc < 2)
        kri_error(w, KRI_E_ARGC, KRI_NIL, NULL);
    struct place p = find_place(w, argc, argv, 1);
    if (p.type.kind == KRI_C_STRING)
        kri_argument_error(w, argc - 1, argv[argc - 1], KRI_E_TYPE_MISMATCH);
    union kri_c_value c = kri_to_c(w, argv[0], p.type, 0);
    memcpy(p.at, &c, p.bytes);
    return argv[0];
}

KR_BUILTIN(make_foreign_string, "make-foreign-string", "(address length)",
           "A foreign-string: LENGTH bytes of memory at ADDRESS, an integer, seen as a vector of bytes. The memory is the program's business: it "
           "must stay as long as the foreign-string is used. Error: an address that can be none.")
{
    uint64_t address = (uint64_t)integer_in(w, argv[0], KRI_C_UINT64, 0);
    intptr_t length = kri_arg_natural(w, argv, 1);
    if (!possible_address(address) || !possible_address(address + (uint64_t)length))
        kri_error(w, KRI_E_RANGE, argv[0], "%V is no address", argv[0]);
    if (length > INT32_MAX)
        kri_error(w, KRI_E_ARRAY_SIZE, argv[1], NULL);
    struct kri_foreign *f = (struct kri_foreign *)kri_make(w, KRI_CLASS_FOREIGN_STRING, 0, 1);
    f->address = (unsigned char *)(uintptr_t)address;
    f->head.length = (uint32_t)length;
    return kri_value_of(f);
}

KR_BUILTIN(foreign_size, "foreign-size", "(type)", "How many bytes a value of foreign TYPE, a keyword such as :int or :double, takes in memory.")
{
    return kri_fixnum((intptr_t)kind_bytes(w, kri_c_type_of(w, argv[0]).kind, argv[0]));
}

KR_BUILTIN(foreign_address, "foreign-address", "(vector)",
           "The address of the first element of VECTOR (a string, a vector or array of numbers or bits, a foreign-string, a struct), or of a "
           "callback's code, as an integer. It never changes; the memory lives as long as VECTOR. Error: VECTOR is something else.")
{
    union kri_c_value c = {.p = pointer_in(w, argv[0], (struct kri_c_type){.kind = KRI_C_POINTER}, 0)};
    return unsigned_integer(w, (uint64_t)c.i);
}

const struct kri_builtin *const kri_builtins_foreign_type[] = {&peek_def, &poke_def, &make_foreign_string_def, &foreign_size_def,
                                                              &foreign_address_def, NULL};
