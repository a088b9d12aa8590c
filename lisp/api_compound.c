/* api_compound.c -- karakuri.h: ratios and complex numbers, matrices, bit-vectors, hash tables. */
#include <complex.h>
#include "lisp/api.h"
#include "lisp/number.h"
#include "lisp/sequence.h"

static kr_value value_or_nil(kr_context *ctx, kri_protected *f, void *arg)
{
    kr_value v;
    return kri_protected_call(ctx, f, arg, &v) == KR_OK ? v : KRI_NIL;
}

/* ---- numbers of two parts ---- */

static kr_value make_ratio(struct kri_worker *w, void *arg)
{
    const kr_value *part = arg;
    for (int i = 0; i < 2; i++)
        if (!kri_is_integer(part[i]))
            kri_error(w, KRI_E_NO_INTEGER, part[i], "of a ratio");
    return kri_make_ratio(w, part[0], part[1]);
}

kr_value kr_ratio(kr_context *ctx, kr_value numerator, kr_value denominator)
{
    kr_value part[2] = {numerator, denominator};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, numerator, 2);
    KRI_CHECK_VALUE(ctx, denominator, 3);
    return value_or_nil(ctx, make_ratio, part);
}

static kr_value make_complex(struct kri_worker *w, void *arg)
{
    const double *part = arg;
    return kri_make_complex(w, kri_float(w, part[0]), kri_float(w, part[1]));
}

kr_value kr_complex(kr_context *ctx, double real, double imaginary)
{
    double part[2] = {real, imaginary};
    KRI_CHECK_CONTEXT(ctx);
    return value_or_nil(ctx, make_complex, part);
}

kr_status kr_to_ratio(kr_context *ctx, kr_value v, kr_value *numerator, kr_value *denominator)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (kri_is_integer(v)) {
        *numerator = v;
        *denominator = kri_fixnum(1);
        return KR_OK;
    }
    if (!kri_is_ratio(v))
        return KR_BAD_TYPE;
    const struct kri_ratio *r = (const struct kri_ratio *)v.w;
    return kri_hand_out(ctx, r->numerator, numerator) && kri_hand_out(ctx, r->denominator, denominator) ? KR_OK : KR_NO_MEMORY;
}

struct parts {
    kr_value v;
    double complex z;
};

static kr_value complex_value(struct kri_worker *w, void *arg)
{
    struct parts *p = arg;
    p->z = kri_complex_value(w, p->v);
    return KRI_NIL;
}

kr_status kr_to_complex(kr_context *ctx, kr_value v, double *real, double *imaginary)
{
    struct parts p = {.v = v};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    if (!kri_is_number(v))
        return KR_BAD_TYPE;
    if (kri_protected_call(ctx, complex_value, &p, NULL) != KR_OK)
        return KR_NO_MEMORY;
    *real = creal(p.z);
    *imaginary = cimag(p.z);
    return KR_OK;
}

/* ---- arrays ---- */

struct array {
    const void *data;
    size_t rows, columns; /* or so many bits */
};

static kr_value make_matrix(struct kri_worker *w, void *arg)
{
    const struct array *a = arg;
    double *at;
    kr_value m = kri_make_matrix(w, a->rows, a->columns, &at);
    if (a->data)
        memcpy(at, a->data, a->rows * a->columns * sizeof *at);
    return m;
}

kr_value kr_matrix(kr_context *ctx, const double *elements, size_t rows, size_t columns)
{
    struct array a = {elements, rows, columns};
    KRI_CHECK_CONTEXT(ctx);
    return value_or_nil(ctx, make_matrix, &a);
}

kr_status kr_to_matrix(kr_context *ctx, kr_value v, double **elements, size_t *rows, size_t *columns)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    return kri_look_matrix(ctx->vm, v, elements, rows, columns) ? KR_OK : KR_BAD_TYPE;
}

static kr_value make_bits(struct kri_worker *w, void *arg)
{
    const struct array *a = arg;
    size_t n = a->columns;
    kr_value v = kri_make_vector_of(w, KRI_CLASS_BIT_VECTOR, n);
    unsigned char *byte = kri_string_of(v)->byte;
    if (a->data) {
        memcpy(byte, a->data, (n + 7) / 8);
        if (n % 8) /* what is beyond the last bit is nothing, and stays zero */
            byte[n / 8] &= (unsigned char)((1u << n % 8) - 1);
    }
    return v;
}

kr_value kr_bit_vector(kr_context *ctx, const unsigned char *bits, size_t n)
{
    struct array a = {bits, 1, n};
    KRI_CHECK_CONTEXT(ctx);
    return value_or_nil(ctx, make_bits, &a);
}

/* ---- hash tables ---- */

struct entry {
    kr_value table, key, value;
    const char *test;
};

static kr_value lisp_call(struct kri_worker *w, const char *name, int argc, const kr_value *argv)
{
    return kri_call(w, kri_symbol_function(w->vm, kri_intern(w, name, strlen(name), w->vm->pkg_lisp)), argc, argv);
}

static kr_value make_table(struct kri_worker *w, void *arg)
{
    const kr_value argv[] = {kri_keyword(w, "TEST"), kri_coerce_function(w, kri_symbol_remembered(w, ((struct entry *)arg)->test))};
    return lisp_call(w, "MAKE-HASH-TABLE", 2, argv);
}

kr_value kr_hash_table(kr_context *ctx, const char *test)
{
    struct entry e = {.test = test};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, test, 2);
    return value_or_nil(ctx, make_table, &e);
}

static kr_value get_entry(struct kri_worker *w, void *arg)
{
    const struct entry *e = arg;
    return lisp_call(w, "GETHASH", 2, (const kr_value[]){e->key, e->table});
}
static kr_value set_entry(struct kri_worker *w, void *arg)
{
    const struct entry *e = arg;
    return lisp_call(w, "SETHASH", 3, (const kr_value[]){e->key, e->table, e->value});
}
static kr_value remove_entry(struct kri_worker *w, void *arg)
{
    const struct entry *e = arg;
    return lisp_call(w, "REMHASH", 2, (const kr_value[]){e->key, e->table});
}
static kr_value list_entries(struct kri_worker *w, void *arg)
{
    kr_value v = lisp_call(w, "%HASH-ENTRIES", 1, &((struct entry *)arg)->table), list = KRI_NIL;
    for (size_t i = kri_length(v); i >= 2; i -= 2) {
        kr_value key = kri_vector_ref(w, v, i - 2), value = kri_vector_ref(w, v, i - 1);
        list = kri_cons(w, kri_cons(w, key, value), list);
    }
    return list;
}

static kr_status with_table(kr_context *ctx, kri_protected *f, struct entry e, kr_value *out, const char *function)
{
    if (kri_is_checking()) {
        kri_check_context(ctx, function);
        kri_check_value(ctx, e.table, function, 2);
        kri_check_value(ctx, e.key, function, 3);
        kri_check_value(ctx, e.value, function, 4);
    }
    if (!kri_has_class(e.table, KRI_CLASS_HASH_TABLE))
        return KR_BAD_TYPE;
    return kri_protected_call(ctx, f, &e, out);
}

kr_status kr_table_get(kr_context *ctx, kr_value table, kr_value key, kr_value *out)
{
    return with_table(ctx, get_entry, (struct entry){.table = table, .key = key}, out, __func__);
}
kr_status kr_table_set(kr_context *ctx, kr_value table, kr_value key, kr_value v)
{
    return with_table(ctx, set_entry, (struct entry){.table = table, .key = key, .value = v}, NULL, __func__);
}
kr_status kr_table_remove(kr_context *ctx, kr_value table, kr_value key)
{
    return with_table(ctx, remove_entry, (struct entry){.table = table, .key = key}, NULL, __func__);
}
kr_status kr_table_entries(kr_context *ctx, kr_value table, kr_value *out)
{
    return with_table(ctx, list_entries, (struct entry){.table = table}, out, __func__);
}
