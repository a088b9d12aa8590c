/* api_value.c -- karakuri.h: making and reading values. */
#include <stdlib.h>
#include "lisp/api.h"
#include "lisp/number.h"

/* ---- making values ---- */

struct made {
    const void *data;
    size_t n;
    double d;
    int64_t i;
};

static kr_value made(kr_context *ctx, kri_protected *f, struct made m, const char *function)
{
    if (kri_is_checking())
        kri_check_context(ctx, function);
    kr_value v;
    return kri_protected_call(ctx, f, &m, &v) == KR_OK ? v : KRI_NIL;
}

static kr_value make_integer(struct kri_worker *w, void *arg) { return kri_integer(w, ((struct made *)arg)->i); }
static kr_value make_real(struct kri_worker *w, void *arg) { return kri_float(w, ((struct made *)arg)->d); }
static kr_value make_bytes(struct kri_worker *w, void *arg) { return kri_string_n(w, ((struct made *)arg)->data, ((struct made *)arg)->n); }
static kr_value make_reals(struct kri_worker *w, void *arg)
{
    const struct made *m = arg;
    kr_value v = kri_make_fvector(w, m->n);
    if (m->data)
        memcpy(kri_fvector_of(v)->at, m->data, m->n * sizeof(double));
    return v;
}
static kr_value make_list(struct kri_worker *w, void *arg) { return kri_list_from(w, ((struct made *)arg)->data, ((struct made *)arg)->n); }
static kr_value make_symbol(struct kri_worker *w, void *arg) { return kri_symbol_named(w, ((struct made *)arg)->data, false); }

kr_value kr_nil(void) { return KRI_NIL; }
bool kr_is_nil(kr_value v) { return kri_is_nil(v); }
kr_value kr_boolean(kr_context *ctx, bool b) { return b ? ctx->vm->sym.t : KRI_NIL; }
kr_value kr_integer(kr_context *ctx, int64_t n)
{
    return kri_fits_fixnum(n) ? kri_fixnum(n) : made(ctx, make_integer, (struct made){.i = n}, __func__);
}
kr_value kr_real(kr_context *ctx, double d)
{
    kr_value v = kri_flonum_try(d);
    return kri_is_flonum(v) ? v : made(ctx, make_real, (struct made){.d = d}, __func__);
}
kr_value kr_string(kr_context *ctx, const char *text)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, text, 2);
    return kr_bytes(ctx, text, strlen(text));
}
kr_value kr_bytes(kr_context *ctx, const void *bytes, size_t n) { return made(ctx, make_bytes, (struct made){.data = bytes, .n = n}, __func__); }
kr_value kr_float_vector(kr_context *ctx, const double *elements, size_t n)
{
    return made(ctx, make_reals, (struct made){.data = elements, .n = n}, __func__);
}
kr_value kr_list(kr_context *ctx, int n, const kr_value *elements)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_ARGUMENTS(ctx, n, elements);
    return made(ctx, make_list, (struct made){.data = elements, .n = n < 0 ? 0 : (size_t)n}, __func__);
}

static kr_value make_cons(struct kri_worker *w, void *arg)
{
    const kr_value *pair = ((struct made *)arg)->data;
    return kri_cons(w, pair[0], pair[1]);
}

static kr_value make_vector(struct kri_worker *w, void *arg)
{
    const struct made *m = arg;
    kr_value v = kri_make_vector(w, m->n);
    if (m->data)
        memcpy(kri_vector_of(v)->at, m->data, m->n * sizeof(kr_value)); /* fresh */
    return v;
}

static kr_value make_integers(struct kri_worker *w, void *arg)
{
    const struct made *m = arg;
    kr_value v = kri_make_ivector(w, m->n);
    if (m->data)
        memcpy(kri_ivector_of(v)->at, m->data, m->n * sizeof(int64_t));
    return v;
}

static kr_value make_big(struct kri_worker *w, void *arg)
{
    const char *text = ((struct made *)arg)->data;
    kr_value v = kri_parse_number(w, text, strlen(text), 10);
    if (!kri_is_integer(v))
        kri_error(w, KRI_E_NO_INTEGER, kri_string(w, text), NULL);
    return v;
}

kr_value kr_cons(kr_context *ctx, kr_value car, kr_value cdr)
{
    const kr_value pair[2] = {car, cdr};
    KRI_CHECK_VALUE(ctx, car, 2);
    KRI_CHECK_VALUE(ctx, cdr, 3);
    return made(ctx, make_cons, (struct made){.data = pair}, __func__);
}
kr_value kr_vector(kr_context *ctx, const kr_value *elements, size_t n)
{
    KRI_CHECK_CONTEXT(ctx);
    for (size_t i = 0; kri_is_checking() && elements && i < n; i++)
        kri_check_value(ctx, elements[i], __func__, -1 - (int)i);
    return made(ctx, make_vector, (struct made){.data = elements, .n = n}, __func__);
}
kr_value kr_integer_vector(kr_context *ctx, const int64_t *elements, size_t n)
{
    return made(ctx, make_integers, (struct made){.data = elements, .n = n}, __func__);
}
kr_value kr_big_integer(kr_context *ctx, const char *text) { return made(ctx, make_big, (struct made){.data = text}, __func__); }
kr_value kr_symbol(kr_context *ctx, const char *name)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, name, 2);
    return made(ctx, make_symbol, (struct made){.data = name}, __func__);
}

/* ---- reading values ---- */

kr_status kr_to_integer(kr_context *ctx, kr_value v, int64_t *n)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    return kri_is_integer(v) && kri_int_to_i64(v, n) ? KR_OK : KR_BAD_TYPE;
}

struct ratio {
    kr_value v;
    double d;
};

static kr_value ratio_value(struct kri_worker *w, void *arg)
{
    struct ratio *r = arg;
    r->d = kri_to_double(w, r->v);
    return KRI_NIL;
}

static kr_status ratio_to_real(kr_context *ctx, kr_value v, double *d)
{
    struct ratio r = {.v = v};
    kr_status status = kri_protected_call(ctx, ratio_value, &r, NULL);
    *d = r.d;
    return status == KR_OK ? KR_OK : KR_NO_MEMORY;
}

kr_status kr_to_real(kr_context *ctx, kr_value v, double *d)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    switch (kri_number_kind(v)) {
    case KRI_NUMBER_FIXNUM:
        *d = (double)kri_fixnum_value(v);
        return KR_OK;
    case KRI_NUMBER_FLOAT:
        *d = kri_float_value(v);
        return KR_OK;
    case KRI_NUMBER_BIGNUM:
        *d = kri_int_to_double(v);
        return KR_OK;
    case KRI_NUMBER_RATIO:
        return ratio_to_real(ctx, v, d);
    default:
        return KR_BAD_TYPE;
    }
}

/* What a value of one type holds, in place. */
#define IN_PLACE(name, element, is_right, elements)                                            \
    kr_status name(kr_context *ctx, kr_value v, element **at, size_t *n)                       \
    {                                                                                          \
        KRI_CHECK_CONTEXT(ctx);                                                                \
        KRI_CHECK_VALUE(ctx, v, 2);                                                            \
        if (!(is_right))                                                                       \
            return KR_BAD_TYPE;                                                                \
        *at = elements;                                                                        \
        *n = kri_length(v);                                                                    \
        return KR_OK;                                                                          \
    }
IN_PLACE(kr_to_bytes, char, kri_is_string(ctx->vm, v), (char *)kri_string_of(v)->byte)
IN_PLACE(kr_to_reals, double, kri_is_fvector(ctx->vm, v), kri_fvector_of(v)->at)
IN_PLACE(kr_to_integers, int64_t, kri_is_ivector(ctx->vm, v), kri_ivector_of(v)->at)
IN_PLACE(kr_to_bits, unsigned char, kri_element(ctx->vm, v) == KRI_ELEMENT_BIT, kri_string_of(v)->byte)

kr_status kr_symbol_name(kr_context *ctx, kr_value v, const char **name, size_t *n)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (!kri_is_symbol(v))
        return KR_BAD_TYPE;
    kr_value text = kri_slot(&kri_symbol_of(ctx->vm, v)->pname);
    *name = (const char *)kri_string_of(text)->byte;
    *n = kri_length(text);
    return KR_OK;
}

kr_status kr_car(kr_context *ctx, kr_value v, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (!kri_is_list(v))
        return KR_BAD_TYPE;
    return kri_hand_out(ctx, kri_car(v), out) ? KR_OK : KR_NO_MEMORY;
}

kr_status kr_cdr(kr_context *ctx, kr_value v, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (!kri_is_list(v))
        return KR_BAD_TYPE;
    return kri_hand_out(ctx, kri_cdr(v), out) ? KR_OK : KR_NO_MEMORY;
}

/* A circular list has none. */
static kr_status list_length(kr_value v, size_t *n)
{
    kr_value slow = v;
    for (*n = 0; kri_is_cons(v); ++*n) {
        v = kri_cdr(v);
        if (*n & 1) {
            slow = kri_cdr(slow);
            if (kri_eq(slow, v))
                return KR_BAD_TYPE;
        }
    }
    return kri_is_nil(v) ? KR_OK : KR_BAD_TYPE;
}

kr_status kr_length(kr_context *ctx, kr_value v, size_t *n)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (kri_is_list(v))
        return list_length(v, n);
    if (!kri_is_vector(ctx->vm, v))
        return KR_BAD_TYPE;
    *n = kri_length(v);
    return KR_OK;
}

kr_status kr_vector_ref(kr_context *ctx, kr_value v, size_t i, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (kri_element(ctx->vm, v) != KRI_ELEMENT_T || i >= kri_length(v))
        return KR_BAD_TYPE;
    return kri_hand_out(ctx, kri_slot(&kri_vector_of(v)->at[i]), out) ? KR_OK : KR_NO_MEMORY;
}

kr_status kr_vector_set(kr_context *ctx, kr_value v, size_t i, kr_value element)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    KRI_CHECK_VALUE(ctx, element, 4);
    if (kri_element(ctx->vm, v) != KRI_ELEMENT_T || i >= kri_length(v))
        return KR_BAD_TYPE;
    struct kri_visit visit = kri_visit_begin(ctx);
    kri_store(ctx->worker, kri_ptr(v), &kri_vector_of(v)->at[i], element);
    kri_visit_end(ctx, visit);
    return KR_OK;
}

/* ---- slots ---- */

struct slot {
    kr_value object, value;
    const char *name;
};

static kr_value *slot_place(struct kri_worker *w, const struct slot *s)
{
    kr_value cls = kri_class_of(w->vm, s->object);
    if (!kri_is_pointer(s->object) || kri_is_nil(cls))
        kri_error(w, KRI_E_NO_OBJECT, s->object, "it has no instance variables");
    kr_value name = kri_symbol_remembered(w, s->name);
    intptr_t i = kri_slot_index(w->vm, cls, name);
    /* An instance of a class that was redefined since may be smaller. */
    if (i < 0 || i >= w->vm->classes[kri_ptr(s->object)->cls].slots || kri_heap_layouts(w->vm->heap)[kri_ptr(s->object)->cls].kind != KRI_LAYOUT_SLOTS)
        kri_error(w, KRI_E_NO_SLOT, name, "of %V", s->object);
    return &kri_ptr(s->object)->slot[i];
}

static kr_value get_slot(struct kri_worker *w, void *arg) { return kri_slot(slot_place(w, arg)); }

static kr_value set_slot(struct kri_worker *w, void *arg)
{
    const struct slot *s = arg;
    kri_store(w, kri_ptr(s->object), slot_place(w, s), s->value);
    return s->value;
}

kr_status kr_slot(kr_context *ctx, kr_value object, const char *name, kr_value *out)
{
    struct slot s = {.object = object, .name = name};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, object, 2);
    return kri_protected_call(ctx, get_slot, &s, out);
}

kr_status kr_set_slot(kr_context *ctx, kr_value object, const char *name, kr_value v)
{
    struct slot s = {.object = object, .name = name, .value = v};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, object, 2);
    KRI_CHECK_VALUE(ctx, v, 4);
    return kri_protected_call(ctx, set_slot, &s, NULL);
}

/* ---- types ---- */

static kr_type vector_type(enum kri_element element)
{
    switch (element) {
    case KRI_ELEMENT_T: return KR_VECTOR;
    case KRI_ELEMENT_CHAR: return KR_STRING;
    case KRI_ELEMENT_FLOAT: return KR_FLOAT_VECTOR;
    case KRI_ELEMENT_INTEGER: return KR_INTEGER_VECTOR;
    case KRI_ELEMENT_BIT: return KR_BIT_VECTOR;
    default: return KR_OTHER;
    }
}

static kr_type object_type(struct kr_vm *vm, kr_value v)
{
    static const struct {
        unsigned cls;
        kr_type type;
    } kinds[] = {{KRI_CLASS_ARRAY, KR_ARRAY}, {KRI_CLASS_HASH_TABLE, KR_HASH_TABLE}, {KRI_CLASS_STREAM, KR_STREAM},
                 {KRI_CLASS_IO_STREAM, KR_STREAM}, {KRI_CLASS_METACLASS, KR_CLASS}, {KRI_CLASS_CONDITION, KR_CONDITION}, {KRI_CLASS_OBJECT, KR_OBJECT}};
    if (kri_is_nil(vm->classes[kri_ptr(v)->cls].object))
        return KR_OTHER;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kri_derivedp(vm, v, vm->classes[kinds[i].cls].object))
            return kinds[i].type;
    return KR_OTHER;
}

kr_type kr_type_of(kr_context *ctx, kr_value v)
{
    struct kr_vm *vm = ctx->vm;
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (kri_is_nil(v))
        return KR_NIL;
    if (kri_is_integer(v))
        return KR_INTEGER;
    if (kri_is_float(v))
        return KR_REAL;
    if (!kri_is_pointer(v))
        return KR_OTHER;
    switch (kri_ptr(v)->cls) {
    case KRI_CLASS_CONS: return KR_CONS;
    case KRI_CLASS_SYMBOL: return KR_SYMBOL;
    case KRI_CLASS_RATIO: return KR_RATIO;
    case KRI_CLASS_COMPLEX: return KR_COMPLEX;
    default: break;
    }
    if (kri_is_function(v))
        return KR_FUNCTION;
    return kri_is_vector(vm, v) ? vector_type(kri_element(vm, v)) : object_type(vm, v);
}

static kr_value equal_values(struct kri_worker *w, void *arg)
{
    const kr_value *pair = arg;
    return kri_bool(w, kri_equal(w, pair[0], pair[1]));
}

bool kr_equal(kr_context *ctx, kr_value a, kr_value b)
{
    kr_value pair[2] = {a, b}, v;
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, a, 2);
    KRI_CHECK_VALUE(ctx, b, 3);
    return kri_protected_call(ctx, equal_values, pair, &v) == KR_OK && !kri_is_nil(v);
}

static kr_value instance_of(struct kri_worker *w, void *arg)
{
    const struct slot *s = arg;
    return kri_bool(w, kri_derivedp(w->vm, s->object, kri_class_named(w, s->name)));
}

bool kr_is_a(kr_context *ctx, kr_value v, const char *name)
{
    struct slot s = {.object = v, .name = name};
    kr_value answer;
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    return kri_protected_call(ctx, instance_of, &s, &answer) == KR_OK && !kri_is_nil(answer);
}

/* ---- texts ---- */

static size_t copy_text(kr_context *ctx, kri_protected *f, kr_value v, char *buffer, size_t size)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    kr_value s;
    size_t scope = kr_scope_begin(ctx), n = 0;
    if (kri_protected_call(ctx, f, &v, &s) == KR_OK && kri_is_string(ctx->vm, s)) {
        n = kri_length(s);
        if (size > 0) {
            size_t most = n < size - 1 ? n : size - 1;
            memcpy(buffer, kri_string_of(s)->byte, most);
            buffer[most] = '\0';
        }
    } else if (size > 0) {
        buffer[0] = '\0';
    }
    kr_scope_end(ctx, scope);
    return n;
}

static kr_value print_text(struct kri_worker *w, void *arg) { return kri_print_to_string(w, *(kr_value *)arg, true); }
static kr_value message_text(struct kri_worker *w, void *arg) { return kri_condition_text(w, *(kr_value *)arg); }
static kr_value frames_text(struct kri_worker *w, void *arg) { return kri_backtrace_text(w, *(kr_value *)arg); }

/* The text of error codes is there even when there is no memory to put more together. */
static size_t plain_message(kr_context *ctx, kr_value c, char *buffer, size_t size)
{
    struct kr_vm *vm = ctx->vm;
    if (!kri_is_pointer(c) || !kri_derivedp(vm, c, vm->classes[KRI_CLASS_CONDITION].object))
        return 0;
    kr_value message = kri_slot(&((struct kri_condition *)c.w)->message);
    if (!kri_is_string(vm, message) || size == 0)
        return 0;
    size_t n = kri_length(message), most = n < size - 1 ? n : size - 1;
    memcpy(buffer, kri_string_of(message)->byte, most);
    buffer[most] = '\0';
    return n;
}

size_t kr_print(kr_context *ctx, kr_value v, char *buffer, size_t size) { return copy_text(ctx, print_text, v, buffer, size); }
size_t kr_error_message(kr_context *ctx, kr_value c, char *buffer, size_t size) 
{
    size_t n = copy_text(ctx, message_text, c, buffer, size);
    return n > 0 ? n : plain_message(ctx, c, buffer, size);
}
size_t kr_error_backtrace(kr_context *ctx, kr_value c, char *buffer, size_t size) { return copy_text(ctx, frames_text, c, buffer, size); }


int kr_error_code(kr_context *ctx, kr_value v)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (!kri_is_pointer(v) || !kri_derivedp(ctx->vm, v, ctx->vm->classes[KRI_CLASS_CONDITION].object))
        return -1;
    kr_value code = kri_slot(&((struct kri_condition *)v.w)->code);
    return kri_is_fixnum(code) ? (int)kri_fixnum_value(code) : 0;
}
