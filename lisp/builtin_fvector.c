/* builtin_fvector.c -- vectors of floats and integers, and matrices (arrays of rank 2 over a float-vector).
 *
 * Most functions take a last optional argument, a vector or matrix of the right type and size that receives the result,
 * so that control loops need not allocate; it may be one of the operands. Integer arithmetic on vectors wraps at 64 bits. */
#include <math.h>

#include "lisp/number.h"

/* ---- vectors: arguments and results ---- */

static bool absent(int argc, const kr_value *argv, int i) { return i >= argc || kri_is_nil(argv[i]); }

static bool is_numeric(enum kri_element e) { return e == KRI_ELEMENT_FLOAT || e == KRI_ELEMENT_INTEGER; }

/* Is argument I a float-vector (true) or an integer-vector (false)? Else its error. */
static bool float_operand(struct kri_worker *w, const kr_value *argv, int i)
{
    enum kri_element e = kri_element(w->vm, argv[i]);
    if (KRI_UNLIKELY(!is_numeric(e)))
        kri_argument_error(w, i, argv[i], KRI_E_NO_FLOAT_VECTOR);
    return e == KRI_ELEMENT_FLOAT;
}

/* The same for arguments I and J, which must have one type and length. */
static bool float_operands(struct kri_worker *w, const kr_value *argv, int i, int j)
{
    enum kri_element a = kri_element(w->vm, argv[i]), b = kri_element(w->vm, argv[j]);
    if (KRI_UNLIKELY(a != b || !is_numeric(a)))
        kri_argument_error(w, is_numeric(a) ? j : i, argv[is_numeric(a) ? j : i], KRI_E_TYPE_MISMATCH);
    if (KRI_UNLIKELY(kri_length(argv[i]) != kri_length(argv[j])))
        kri_argument_error(w, j, argv[j], KRI_E_VECTOR_DIMENSION);
    return a == KRI_ELEMENT_FLOAT;
}

/* Argument I as the vector for a result, or a fresh one; the caller fills it. */
static kr_value vector_result(struct kri_worker *w, int argc, const kr_value *argv, int i, bool floats, size_t n)
{
    if (absent(argc, argv, i))
        return floats ? kri_make_fvector_raw(w, n) : kri_make_ivector(w, n);
    if (KRI_UNLIKELY(kri_element(w->vm, argv[i]) != (floats ? KRI_ELEMENT_FLOAT : KRI_ELEMENT_INTEGER)))
        kri_argument_error(w, i, argv[i], floats ? KRI_E_NO_FLOAT_VECTOR : KRI_E_NO_INTEGER_VECTOR);
    if (KRI_UNLIKELY(kri_length(argv[i]) != n))
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return argv[i];
}

static double *doubles(kr_value v) { return kri_fvector_of(v)->at; }
static int64_t *integers(kr_value v) { return kri_ivector_of(v)->at; }

/* D cut to an integer; the nearest there is when it lies beyond, 0 for NaN. */
static int64_t cut(double d)
{
    return d >= 0x1p63 ? INT64_MAX : d <= -0x1p63 ? INT64_MIN : isnan(d) ? 0 : (int64_t)d;
}

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* ---- making vectors ---- */

static kr_value float_vector_of(struct kri_worker *w, int argc, const kr_value *argv)
{
    kr_value v = kri_make_fvector_raw(w, (size_t)argc);
    for (int i = 0; i < argc; i++)
        doubles(v)[i] = kri_is_flonum(argv[i]) ? kri_flonum_value(argv[i]) : kri_arg_double(w, argv, i);
    return v;
}

KR_BUILTIN(float_vector, "float-vector", "(&rest numbers)", "Return a fresh float-vector of NUMBERS. Error 32 for what is no real number.") { return float_vector_of(w, argc, argv); }
KR_BUILTIN(floatvector, "floatvector", "(&rest numbers)", "Return a fresh float-vector of NUMBERS.") { return float_vector_of(w, argc, argv); }

KR_BUILTIN(integer_vector, "integer-vector", "(&rest integers)", "Return a fresh integer-vector of INTEGERS, each cut to 64 bits. Error 28 for what is no integer.")
{
    kr_value v = kri_make_ivector(w, (size_t)argc);
    for (int i = 0; i < argc; i++) {
        if (!kri_is_integer(argv[i]))
            kri_argument_error(w, i, argv[i], KRI_E_NO_INTEGER);
        integers(v)[i] = kri_int_low64(argv[i]);
    }
    return v;
}

KR_BUILTIN(float_vector_p, "float-vector-p", "(object)", "Return T if OBJECT is a float-vector.") { return kri_bool(w, kri_is_fvector(w->vm, argv[0])); }
KR_BUILTIN(integer_vector_p, "integer-vector-p", "(object)", "Return T if OBJECT is an integer-vector.") { return kri_bool(w, kri_is_ivector(w->vm, argv[0])); }

static kr_value component(struct kri_worker *w, const kr_value *argv, size_t i)
{
    bool floats = float_operand(w, argv, 0);
    if (i >= kri_length(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_INDEX);
    return floats ? kri_float(w, doubles(argv[0])[i]) : kri_integer(w, integers(argv[0])[i]);
}

KR_BUILTIN(vector_x, "vector-x", "(vector)", "Return element 0 of VECTOR, a float-vector or integer-vector.") { return component(w, argv, 0); }
KR_BUILTIN(vector_y, "vector-y", "(vector)", "Return element 1 of VECTOR, a float-vector or integer-vector.") { return component(w, argv, 1); }
KR_BUILTIN(vector_z, "vector-z", "(vector)", "Return element 2 of VECTOR, a float-vector or integer-vector.") { return component(w, argv, 2); }

/* ---- element by element ---- */

#define ELEMENTWISE(R, A, B, FLOAT, INTEGER)                                                                                     \
    if (floats) {                                                                                                                \
        double *r = doubles(R);                                                                                                  \
        const double *a = doubles(A), *b = doubles(B);                                                                           \
        (void)a;                                                                                                                 \
        for (size_t k = 0; k < n; k++)                                                                                           \
            r[k] = FLOAT;                                                                                                        \
    } else {                                                                                                                     \
        int64_t *r = integers(R);                                                                                                \
        const int64_t *a = integers(A), *b = integers(B);                                                                        \
        (void)a;                                                                                                                 \
        for (size_t k = 0; k < n; k++)                                                                                           \
            r[k] = INTEGER;                                                                                                      \
    }

KR_BUILTIN(vector_add, "v+", "(vector1 vector2 &optional result)", "Return the sum of two float-vectors or integer-vectors of one length, in RESULT if given.")
{
    bool floats = float_operands(w, argv, 0, 1);
    size_t n = kri_length(argv[0]);
    kr_value result = vector_result(w, argc, argv, 2, floats, n);
    ELEMENTWISE(result, argv[0], argv[1], a[k] + b[k], wrap_add(a[k], b[k]))
    return result;
}

KR_BUILTIN(vector_subtract, "v-", "(vector1 &optional vector2 result)",
           "Return VECTOR1 less VECTOR2, float-vectors or integer-vectors of one length, in RESULT if given. With one argument return its negative.")
{
    if (argc == 1) {
        bool floats = float_operand(w, argv, 0);
        size_t n = kri_length(argv[0]);
        kr_value result = vector_result(w, argc, argv, 2, floats, n);
        ELEMENTWISE(result, argv[0], argv[0], -b[k], wrap_sub(0, b[k]))
        return result;
    }
    bool floats = float_operands(w, argv, 0, 1);
    size_t n = kri_length(argv[0]);
    kr_value result = vector_result(w, argc, argv, 2, floats, n);
    ELEMENTWISE(result, argv[0], argv[1], a[k] - b[k], wrap_sub(a[k], b[k]))
    return result;
}

KR_BUILTIN(vector_distances, "v-abs", "(vector1 vector2 &optional result)", "Return the absolute differences of the elements of two vectors of one type and length.")
{
    bool floats = float_operands(w, argv, 0, 1);
    size_t n = kri_length(argv[0]);
    kr_value result = vector_result(w, argc, argv, 2, floats, n);
    ELEMENTWISE(result, argv[0], argv[1], fabs(a[k] - b[k]), a[k] < b[k] ? wrap_sub(b[k], a[k]) : wrap_sub(a[k], b[k]))
    return result;
}

/* A fresh copy of the first of several vectors of one type and length. */
static kr_value first_of(struct kri_worker *w, int argc, const kr_value *argv, bool *floats)
{
    *floats = float_operand(w, argv, 0);
    for (int i = 1; i < argc; i++)
        float_operands(w, argv, 0, i);
    size_t n = kri_length(argv[0]);
    kr_value result = *floats ? kri_make_fvector_raw(w, n) : kri_make_ivector(w, n);
    memcpy(kri_ptr(result)->slot, kri_ptr(argv[0])->slot, n * 8);
    return result;
}

#define FOLD(id, name, text, FLOAT, INTEGER)                                                                                     \
    KR_BUILTIN(id, name, "(vector &rest more-vectors)", text " of the arguments, float-vectors or integer-vectors of one length.") \
    {                                                                                                                            \
        bool floats;                                                                                                             \
        kr_value result = first_of(w, argc, argv, &floats);                                                                      \
        size_t n = kri_length(result);                                                                                           \
        for (int i = 1; i < argc; i++) {                                                                                         \
            ELEMENTWISE(result, result, argv[i], FLOAT, INTEGER)                                                                 \
        }                                                                                                                        \
        return result;                                                                                                           \
    }
FOLD(vector_sum, "v++", "Return a fresh vector, the sum", a[k] + b[k], wrap_add(a[k], b[k]))
FOLD(vector_min, "vmin", "Return a fresh vector of the least elements at each place", b[k] < a[k] ? b[k] : a[k], b[k] < a[k] ? b[k] : a[k])
FOLD(vector_max, "vmax", "Return a fresh vector of the greatest elements at each place", b[k] > a[k] ? b[k] : a[k], b[k] > a[k] ? b[k] : a[k])

#define EVERY(id, name, text, CONTRADICTION)                                                                                     \
    KR_BUILTIN(id, name, "(vector1 vector2)", text)                                                                              \
    {                                                                                                                            \
        bool floats = float_operands(w, argv, 0, 1);                                                                             \
        size_t n = kri_length(argv[0]);                                                                                          \
        if (floats) {                                                                                                            \
            const double *a = doubles(argv[0]), *b = doubles(argv[1]);                                                           \
            for (size_t k = 0; k < n; k++)                                                                                       \
                if (CONTRADICTION)                                                                                               \
                    return KRI_NIL;                                                                                              \
        } else {                                                                                                                 \
            const int64_t *a = integers(argv[0]), *b = integers(argv[1]);                                                        \
            for (size_t k = 0; k < n; k++)                                                                                       \
                if (CONTRADICTION)                                                                                               \
                    return KRI_NIL;                                                                                              \
        }                                                                                                                        \
        return w->vm->sym.t;                                                                                                     \
    }
EVERY(vector_less, "v<", "Return T if no element of VECTOR1 is greater than its partner in VECTOR2.", a[k] > b[k])
EVERY(vector_greater, "v>", "Return T if no element of VECTOR1 is less than its partner in VECTOR2.", a[k] < b[k])
EVERY(vector_equal, "v=", "Return T if the elements of VECTOR1 and VECTOR2 are equal numbers.", a[k] != b[k])

KR_BUILTIN(scale, "scale", "(number vector &optional result)", "Return VECTOR with all elements multiplied by NUMBER, in RESULT if given. Integer elements are cut to integers.")
{
    double s = kri_arg_double(w, argv, 0);
    bool floats = float_operand(w, argv, 1);
    size_t n = kri_length(argv[1]);
    kr_value result = vector_result(w, argc, argv, 2, floats, n);
    if (!floats && kri_is_fixnum(argv[0])) {
        int64_t whole = kri_fixnum_value(argv[0]);
        for (size_t k = 0; k < n; k++)
            integers(result)[k] = wrap_mul(whole, integers(argv[1])[k]);
        return result;
    }
    ELEMENTWISE(result, argv[1], argv[1], s * b[k], cut(s * (double)b[k]))
    return result;
}

KR_BUILTIN(midpoint, "midpoint", "(ratio vector1 vector2 &optional result)",
           "Return the point at RATIO of the way from VECTOR1 (0.0) to VECTOR2 (1.0), in RESULT if given. Integer elements are cut to integers.")
{
    double p = kri_arg_double(w, argv, 0), q = 1 - p;
    bool floats = float_operands(w, argv, 1, 2);
    size_t n = kri_length(argv[1]);
    kr_value result = vector_result(w, argc, argv, 3, floats, n);
    ELEMENTWISE(result, argv[1], argv[2], q * a[k] + p * b[k], cut(q * (double)a[k] + p * (double)b[k]))
    return result;
}

/* ---- products, lengths ---- */

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}

static kr_value integer_dot(struct kri_worker *w, kr_value va, kr_value vb)
{
    const int64_t *a = integers(va), *b = integers(vb);
    size_t n = kri_length(va);
    int64_t sum = 0, product;
    for (size_t k = 0; k < n; k++)
        if (__builtin_mul_overflow(a[k], b[k], &product) || __builtin_add_overflow(sum, product, &sum)) {
            kr_value big = kri_fixnum(0);
            for (k = 0; k < n; k++)
                big = kri_int_add(w, big, kri_int_mul(w, kri_integer(w, a[k]), kri_integer(w, b[k])));
            return big;
        }
    return kri_integer(w, sum);
}

KR_BUILTIN(inner_product, "v.", "(vector1 vector2)", "Return the inner product of two float-vectors, or integer-vectors, of one length.")
{
    if (!float_operands(w, argv, 0, 1))
        return integer_dot(w, argv[0], argv[1]);
    return kri_float(w, dot(doubles(argv[0]), doubles(argv[1]), kri_length(argv[0])));
}

static const double *three(struct kri_worker *w, const kr_value *argv, int i)
{
    if (!kri_is_fvector(w->vm, argv[i]))
        kri_argument_error(w, i, argv[i], KRI_E_NO_FLOAT_VECTOR);
    if (kri_length(argv[i]) != 3)
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return doubles(argv[i]);
}

KR_BUILTIN(outer_product, "v*", "(vector1 vector2 &optional result)", "Return the outer product of two float-vectors of three elements, in RESULT if given.")
{
    const double *a = three(w, argv, 0), *b = three(w, argv, 1);
    kr_value result = vector_result(w, argc, argv, 2, true, 3);
    double x = a[1] * b[2] - a[2] * b[1], y = a[2] * b[0] - a[0] * b[2], z = a[0] * b[1] - a[1] * b[0];
    doubles(result)[0] = x;
    doubles(result)[1] = y;
    doubles(result)[2] = z;
    return result;
}

KR_BUILTIN(triple_product, "v.*", "(vector1 vector2 vector3)", "Return the inner product of VECTOR1 and the outer product of VECTOR2 and VECTOR3, float-vectors of three elements.")
{
    const double *a = three(w, argv, 0), *b = three(w, argv, 1), *c = three(w, argv, 2);
    return kri_float(w, a[0] * (b[1] * c[2] - b[2] * c[1]) + a[1] * (b[2] * c[0] - b[0] * c[2]) + a[2] * (b[0] * c[1] - b[1] * c[0]));
}

static double square_length(struct kri_worker *w, const kr_value *argv)
{
    bool floats = float_operand(w, argv, 0);
    size_t n = kri_length(argv[0]);
    if (floats)
        return dot(doubles(argv[0]), doubles(argv[0]), n);
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += (double)integers(argv[0])[k] * (double)integers(argv[0])[k];
    return sum;
}

static double square_distance(struct kri_worker *w, const kr_value *argv)
{
    bool floats = float_operands(w, argv, 0, 1);
    size_t n = kri_length(argv[0]);
    double sum = 0;
    for (size_t k = 0; k < n; k++) {
        double d = floats ? doubles(argv[0])[k] - doubles(argv[1])[k] : (double)integers(argv[0])[k] - (double)integers(argv[1])[k];
        sum += d * d;
    }
    return sum;
}

KR_BUILTIN(norm, "norm", "(vector)", "Return the length of VECTOR in space, a float.") { return kri_float(w, sqrt(square_length(w, argv))); }
KR_BUILTIN(norm2, "norm2", "(vector)", "Return the square of the length of VECTOR, a float.") { return kri_float(w, square_length(w, argv)); }
KR_BUILTIN(distance, "distance", "(vector1 vector2)", "Return the distance of two points, a float.") { return kri_float(w, sqrt(square_distance(w, argv))); }
KR_BUILTIN(distance2, "distance2", "(vector1 vector2)", "Return the square of the distance of two points, a float.") { return kri_float(w, square_distance(w, argv)); }

KR_BUILTIN(normalize_vector, "normalize-vector", "(float-vector &optional result)", "Return FLOAT-VECTOR scaled to length 1, in RESULT if given. The null vector gives NaNs.")
{
    struct kri_fvector *v = kri_arg_fvector(w, argv, 0);
    size_t n = v->head.length;
    kr_value result = vector_result(w, argc, argv, 1, true, n);
    double length = sqrt(dot(v->at, v->at, n));
    for (size_t k = 0; k < n; k++)
        doubles(result)[k] = v->at[k] / length;
    return result;
}

KR_BUILTIN(direction, "direction", "(from to &optional result)", "Return the vector of length 1 that points from the point FROM to the point TO, float-vectors; in RESULT if given.")
{
    if (!float_operands(w, argv, 0, 1))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_FLOAT_VECTOR);
    size_t n = kri_length(argv[0]);
    kr_value result = vector_result(w, argc, argv, 2, true, n);
    double length = sqrt(square_distance(w, argv));
    for (size_t k = 0; k < n; k++)
        doubles(result)[k] = (doubles(argv[1])[k] - doubles(argv[0])[k]) / length;
    return result;
}

KR_BUILTIN(minimal_box, "minimal-box", "(points minimum maximum &optional error)",
           "Store the corners of the smallest box around POINTS, a list of vectors, in the float-vectors MINIMUM and MAXIMUM; ERROR is the part "
           "of the box's diagonal that it is widened by on each side. Return the diagonal's length.")
{
    struct kri_fvector *low = kri_arg_fvector(w, argv, 1), *high = kri_arg_fvector(w, argv, 2);
    double margin = absent(argc, argv, 3) ? 0 : kri_arg_double(w, argv, 3), sum = 0;
    size_t n = low->head.length;
    kr_value l = kri_arg_cons(w, argv, 0);
    if (high->head.length != n)
        kri_argument_error(w, 2, argv[2], KRI_E_VECTOR_DIMENSION);
    for (bool first = true; kri_is_cons(l); l = kri_cdr(l), first = false) {
        kr_value point = kri_car(l);
        if (!is_numeric(kri_element(w->vm, point)))
            kri_error(w, KRI_E_NO_FLOAT_VECTOR, point, "a point");
        if (kri_length(point) != n)
            kri_error(w, KRI_E_VECTOR_DIMENSION, point, "a point of %zu coordinates", n);
        bool floats = kri_is_fvector(w->vm, point);
        for (size_t k = 0; k < n; k++) {
            double x = floats ? doubles(point)[k] : (double)integers(point)[k];
            if (first || x < low->at[k])
                low->at[k] = x;
            if (first || x > high->at[k])
                high->at[k] = x;
        }
        kri_poll(w);
    }
    for (size_t k = 0; k < n; k++)
        sum += (high->at[k] - low->at[k]) * (high->at[k] - low->at[k]);
    double diagonal = sqrt(sum);
    for (size_t k = 0; margin != 0 && k < n; k++) {
        low->at[k] -= margin * diagonal;
        high->at[k] += margin * diagonal;
    }
    return kri_float(w, diagonal);
}

/* ---- matrices ---- */

struct matrix {
    double *at;     /* row-major, inside ENTITY */
    size_t rows, columns;
    kr_value array, entity;
};

static bool is_array(struct kr_vm *vm, kr_value v)
{
    if (!kri_is_pointer(v))
        return false;
    unsigned cls = kri_ptr(v)->cls;
    while (cls >= KRI_CLASS_BUILTIN_COUNT)
        cls = vm->classes[cls].super;
    return cls == KRI_CLASS_ARRAY;
}

static bool natural(kr_value v, size_t *n)
{
    *n = (size_t)kri_fixnum_value(v);
    return kri_is_fixnum(v) && kri_fixnum_value(v) >= 0;
}

/* A look at V as an array of rank 2 whose entity has elements of type ELEMENT (NONE: any). Programs can write all slots of
 * an array, so nothing is taken on trust. AT is only good for floats. */
static bool look_array(struct kr_vm *vm, kr_value v, enum kri_element element, struct matrix *m, size_t *offset)
{
    if (!is_array(vm, v))
        return false;
    const struct kri_array *a = (const struct kri_array *)v.w;
    kr_value shift = kri_slot(&a->offset);
    size_t size;
    m->array = v;
    m->entity = kri_slot(&a->entity);
    *offset = 0;
    if (!kri_eq(kri_slot(&a->rank), kri_fixnum(2)) || !natural(kri_slot(&a->dim[0]), &m->rows) || !natural(kri_slot(&a->dim[1]), &m->columns) ||
        (!kri_is_nil(shift) && !natural(shift, offset)) || !kri_is_vector(vm, m->entity))
        return false;
    if (element != KRI_ELEMENT_NONE && kri_element(vm, m->entity) != element)
        return false;
    if (__builtin_mul_overflow(m->rows, m->columns, &size) || __builtin_add_overflow(size, *offset, &size) || size > kri_length(m->entity))
        return false;
    m->at = doubles(m->entity) + *offset;
    return true;
}

static bool look_matrix(struct kr_vm *vm, kr_value v, struct matrix *m)
{
    size_t offset;
    return look_array(vm, v, KRI_ELEMENT_FLOAT, m, &offset);
}

bool kri_look_matrix(struct kr_vm *vm, kr_value v, double **at, size_t *rows, size_t *columns)
{
    struct matrix m;
    if (!kri_is_pointer(v) || !look_matrix(vm, v, &m))
        return false;
    *at = m.at;
    *rows = m.rows;
    *columns = m.columns;
    return true;
}

static struct matrix arg_matrix(struct kri_worker *w, const kr_value *argv, int i)
{
    struct matrix m;
    if (KRI_UNLIKELY(!look_matrix(w->vm, argv[i], &m)))
        kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
    return m;
}

static struct matrix arg_square(struct kri_worker *w, const kr_value *argv, int i)
{
    struct matrix m = arg_matrix(w, argv, i);
    if (KRI_UNLIKELY(m.rows != m.columns))
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return m;
}

/* Argument I as a matrix of 3 by 3 (DIMENSION 3), or 2 by 2. */
static struct matrix arg_rotation(struct kri_worker *w, const kr_value *argv, int i, size_t dimension)
{
    struct matrix m = arg_square(w, argv, i);
    if (KRI_UNLIKELY(m.rows != dimension))
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return m;
}

/* A fresh matrix of zeros. */
static struct matrix new_matrix(struct kri_worker *w, size_t rows, size_t columns)
{
    size_t size;
    if (__builtin_mul_overflow(rows, columns, &size) || size > UINT32_MAX / 2)
        kri_error(w, KRI_E_ARRAY_SIZE, KRI_NIL, "a matrix of %zu by %zu", rows, columns);
    struct matrix m = {.rows = rows, .columns = columns};
    m.entity = kri_make_fvector(w, size);
    m.at = doubles(m.entity);
    struct kri_array *a = (struct kri_array *)kri_make(w, KRI_CLASS_ARRAY, 0, sizeof *a / sizeof(kr_value) - 1);
    a->entity = m.entity;
    a->rank = kri_fixnum(2);
    a->offset = kri_fixnum(0);
    a->dim[0] = kri_fixnum((intptr_t)rows);
    a->dim[1] = kri_fixnum((intptr_t)columns);
    m.array = kri_value_of(a);
    return m;
}

kr_value kri_make_matrix(struct kri_worker *w, size_t rows, size_t columns, double **at)
{
    struct matrix m = new_matrix(w, rows, columns);
    *at = m.at;
    return m.array;
}

/* Argument I as the matrix for a result, or a fresh one. */
static struct matrix matrix_result(struct kri_worker *w, int argc, const kr_value *argv, int i, size_t rows, size_t columns)
{
    if (absent(argc, argv, i))
        return new_matrix(w, rows, columns);
    struct matrix m = arg_matrix(w, argv, i);
    if (KRI_UNLIKELY(m.rows != rows || m.columns != columns))
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return m;
}

static void copy_elements(struct matrix *to, const struct matrix *from) { memmove(to->at, from->at, to->rows * to->columns * sizeof(double)); }

/* Any sequence of numbers as at most N doubles at TO, STEP apart; how many elements it has. */
static size_t spread(struct kri_worker *w, kr_value sequence, double *to, size_t n, size_t step)
{
    size_t i = 0;
    if (kri_is_list(sequence)) {
        for (; kri_is_cons(sequence); sequence = kri_cdr(sequence), i++) {
            double d = kri_to_double(w, kri_car(sequence));
            if (i >= n)
                return i + 1;
            to[i * step] = d;
        }
        return i;
    }
    if (!kri_is_vector(w->vm, sequence))
        kri_error(w, KRI_E_NO_SEQUENCE, sequence, "numbers for a row or column");
    size_t length = kri_length(sequence);
    for (; i < length && i < n; i++)
        to[i * step] = kri_is_fvector(w->vm, sequence) ? doubles(sequence)[i] : kri_to_double(w, kri_vector_ref(w, sequence, i));
    return length;
}

KR_BUILTIN(make_matrix, "make-matrix", "(rows columns &optional contents)",
           "Return a fresh matrix. CONTENTS is a sequence of ROWS sequences of numbers; a short row is filled up with 0.0, a long one is an "
           "error. Without CONTENTS all elements are 0.0.")
{
    intptr_t rows = kri_arg_fixnum(w, argv, 0), columns = kri_arg_fixnum(w, argv, 1);
    if (rows < 0 || columns < 0)
        kri_argument_error(w, rows < 0 ? 0 : 1, argv[rows < 0 ? 0 : 1], KRI_E_ARRAY_SIZE);
    struct matrix m = new_matrix(w, (size_t)rows, (size_t)columns);
    if (absent(argc, argv, 2))
        return m.array;
    kr_value contents = argv[2];
    bool list = kri_is_cons(contents);
    if (!list && kri_element(w->vm, contents) != KRI_ELEMENT_T)
        kri_argument_error(w, 2, contents, KRI_E_NO_SEQUENCE);
    for (size_t i = 0; i < m.rows; i++) {
        if (list ? !kri_is_cons(contents) : i >= kri_length(contents))
            kri_argument_error(w, 2, argv[2], KRI_E_SEQUENCE_INDEX);
        kr_value row = list ? kri_car(contents) : kri_vector_ref(w, contents, i);
        if (spread(w, row, m.at + i * m.columns, m.columns, 1) > m.columns)
            kri_error(w, KRI_E_ARRAY_DIMENSION, row, "a row of %zu columns", m.columns);
        contents = list ? kri_cdr(contents) : contents;
        kri_poll(w);
    }
    if (list ? kri_is_cons(contents) : kri_length(contents) > m.rows)
        kri_argument_error(w, 2, argv[2], KRI_E_ARRAY_DIMENSION);
    return m.array;
}

KR_BUILTIN(matrix, "matrix", "(row &rest more-rows)", "Return a fresh matrix of the rows given, sequences of numbers; short ones are filled up with 0.0.")
{
    size_t columns = 0;
    for (int i = 0; i < argc; i++) {
        size_t n = 0;
        if (kri_is_vector(w->vm, argv[i]))
            n = kri_length(argv[i]);
        else
            for (kr_value l = kri_arg_list(w, argv, i); kri_is_cons(l); l = kri_cdr(l), n++)
                kri_poll(w);
        columns = n > columns ? n : columns;
    }
    struct matrix m = new_matrix(w, (size_t)argc, columns);
    for (int i = 0; i < argc; i++)
        spread(w, argv[i], m.at + (size_t)i * columns, columns, 1);
    return m.array;
}

KR_BUILTIN(unit_matrix, "unit-matrix", "(&optional (dimension 3))", "Return a fresh unit matrix.")
{
    size_t n = argc > 0 ? (size_t)kri_arg_natural(w, argv, 0) : 3;
    struct matrix m = new_matrix(w, n, n);
    for (size_t i = 0; i < n; i++)
        m.at[i * n + i] = 1;
    return m.array;
}

KR_BUILTIN(matrixp, "matrixp", "(object)", "Return T if OBJECT is a matrix: an array of rank 2 of floats.")
{
    struct matrix m;
    return kri_bool(w, look_matrix(w->vm, argv[0], &m));
}

KR_BUILTIN(copy_matrix, "copy-matrix", "(matrix)", "Return a fresh copy of MATRIX.")
{
    struct matrix a = arg_matrix(w, argv, 0), m = new_matrix(w, a.rows, a.columns);
    copy_elements(&m, &a);
    return m.array;
}

KR_BUILTIN(replace_matrix, "replace-matrix", "(destination source)", "Copy the elements of the matrix SOURCE to DESTINATION, a matrix of the same size; return DESTINATION.")
{
    struct matrix to = arg_matrix(w, argv, 0), from = arg_matrix(w, argv, 1);
    if (to.rows != from.rows || to.columns != from.columns)
        kri_argument_error(w, 1, argv[1], KRI_E_VECTOR_DIMENSION);
    copy_elements(&to, &from);
    return argv[0];
}

KR_BUILTIN(scale_matrix, "scale-matrix", "(number matrix &optional result)", "Return MATRIX with all elements multiplied by NUMBER, in RESULT if given.")
{
    double s = kri_arg_double(w, argv, 0);
    struct matrix a = arg_matrix(w, argv, 1), r = matrix_result(w, argc, argv, 2, a.rows, a.columns);
    for (size_t k = 0; k < a.rows * a.columns; k++)
        r.at[k] = s * a.at[k];
    return r.array;
}

KR_BUILTIN(transpose, "transpose", "(matrix &optional result)", "Return MATRIX with rows and columns exchanged, in RESULT if given, which may be MATRIX.")
{
    struct matrix a = arg_matrix(w, argv, 0), r = matrix_result(w, argc, argv, 1, a.columns, a.rows);
    if (kri_eq(a.entity, r.entity)) {
        struct matrix copy = new_matrix(w, a.rows, a.columns);
        copy_elements(&copy, &a);
        a = copy;
    }
    for (size_t i = 0; i < a.rows; i++)
        for (size_t j = 0; j < a.columns; j++)
            r.at[j * a.rows + i] = a.at[i * a.columns + j];
    return r.array;
}

static kr_value part(struct kri_worker *w, const kr_value *argv, bool row)
{
    struct matrix m;
    size_t offset;
    if (!look_array(w->vm, argv[0], KRI_ELEMENT_NONE, &m, &offset))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_ARRAY);
    size_t index = (size_t)kri_arg_natural(w, argv, 1);
    if (index >= (row ? m.rows : m.columns))
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_INDEX);
    size_t n = row ? m.columns : m.rows, step = row ? 1 : m.columns, from = row ? index * m.columns : index;
    if (kri_is_fvector(w->vm, m.entity)) {
        kr_value v = kri_make_fvector(w, n);
        for (size_t k = 0; k < n; k++)
            doubles(v)[k] = m.at[from + k * step];
        return v;
    }
    kr_value v = kri_is_ivector(w->vm, m.entity) ? kri_make_ivector(w, n) : kri_make_vector(w, n);
    for (size_t k = 0; k < n; k++)
        kri_vector_set(w, v, k, kri_vector_ref(w, m.entity, offset + from + k * step));
    return v;
}

KR_BUILTIN(matrix_row, "matrix-row", "(matrix row)", "Return a fresh vector of the elements of row ROW, from 0, of MATRIX.") { return part(w, argv, true); }
KR_BUILTIN(matrix_column, "matrix-column", "(matrix column)", "Return a fresh vector of the elements of column COLUMN, from 0, of MATRIX.") { return part(w, argv, false); }

KR_BUILTIN(set_matrix_row, "set-matrix-row", "(matrix row values)", "Store the numbers of the sequence VALUES in row ROW of MATRIX, as many as fit; return MATRIX.")
{
    struct matrix m = arg_matrix(w, argv, 0);
    size_t row = (size_t)kri_arg_natural(w, argv, 1);
    if (row >= m.rows)
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_INDEX);
    spread(w, argv[2], m.at + row * m.columns, m.columns, 1);
    return argv[0];
}

KR_BUILTIN(set_matrix_column, "set-matrix-column", "(matrix column values)", "Store the numbers of the sequence VALUES in column COLUMN of MATRIX, as many as fit; return MATRIX.")
{
    struct matrix m = arg_matrix(w, argv, 0);
    size_t column = (size_t)kri_arg_natural(w, argv, 1);
    if (column >= m.columns)
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_INDEX);
    spread(w, argv[2], m.at + column, m.rows, m.columns);
    return argv[0];
}

/* ---- matrix products ---- */

static void multiply(struct kri_worker *w, double *r, const struct matrix *a, const struct matrix *b)
{
    size_t n = b->columns;
    for (size_t i = 0; i < a->rows; i++) {
        double *row = r + i * n;
        for (size_t j = 0; j < n; j++)
            row[j] = 0;
        for (size_t k = 0; k < a->columns; k++) {
            double x = a->at[i * a->columns + k];
            const double *from = b->at + k * n;
            for (size_t j = 0; j < n; j++)
                row[j] += x * from[j];
        }
        kri_poll(w);
    }
}

static kr_value product(struct kri_worker *w, const struct matrix *a, const struct matrix *b, struct matrix *r)
{
    enum { SMALL = 16 };
    size_t size = r->rows * r->columns;
    if (!kri_eq(r->entity, a->entity) && !kri_eq(r->entity, b->entity)) {
        multiply(w, r->at, a, b);
    } else if (size <= SMALL) {
        double scratch[SMALL];
        multiply(w, scratch, a, b);
        memcpy(r->at, scratch, size * sizeof(double));
    } else {
        kr_value scratch = kri_make_fvector(w, size);
        multiply(w, doubles(scratch), a, b);
        memcpy(r->at, doubles(scratch), size * sizeof(double));
    }
    return r->array;
}

KR_BUILTIN(matrix_product, "m*", "(matrix1 matrix2 &optional result)", "Return the product of two matrices, in RESULT if given, which may be one of them.")
{
    struct matrix a = arg_matrix(w, argv, 0), b = arg_matrix(w, argv, 1);
    if (a.columns != b.rows)
        kri_argument_error(w, 1, argv[1], KRI_E_VECTOR_DIMENSION);
    struct matrix r = matrix_result(w, argc, argv, 2, a.rows, b.columns);
    return product(w, &a, &b, &r);
}

KR_BUILTIN(matrix_products, "m**", "(matrix1 matrix2 &rest more-matrices)", "Return the product of all the matrices, from left to right.")
{
    struct matrix a = arg_matrix(w, argv, 0);
    for (int i = 1; i < argc; i++) {
        struct matrix b = arg_matrix(w, argv, i);
        if (a.columns != b.rows)
            kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
        struct matrix r = new_matrix(w, a.rows, b.columns);
        product(w, &a, &b, &r);
        a = r;
    }
    return a.array;
}

KR_BUILTIN(transform, "transform", "(matrix vector &optional result)",
           "Return the product of a matrix and a float-vector, or of a float-vector and a matrix, whichever comes first; in RESULT if given, which "
           "may be the vector.")
{
    bool column = !kri_is_fvector(w->vm, argv[0]);
    struct matrix m = arg_matrix(w, argv, column ? 0 : 1);
    kr_value v = argv[column ? 1 : 0];
    if (!kri_is_fvector(w->vm, v))
        kri_argument_error(w, 1, v, KRI_E_NO_VECTOR);
    if (kri_length(v) != (column ? m.columns : m.rows))
        kri_argument_error(w, 1, argv[1], KRI_E_VECTOR_DIMENSION);
    size_t n = column ? m.rows : m.columns;
    kr_value result = vector_result(w, argc, argv, 2, true, n);
    double small[16], *r = doubles(result);
    if (kri_eq(result, v) || kri_eq(result, m.entity))
        r = n <= 16 ? small : doubles(kri_make_fvector(w, n));
    const double *x = doubles(v);
    if (column) {
        for (size_t i = 0; i < n; i++)
            r[i] = dot(m.at + i * m.columns, x, m.columns);
    } else {
        for (size_t j = 0; j < n; j++)
            r[j] = 0;
        for (size_t i = 0; i < m.rows; i++)
            for (size_t j = 0; j < n; j++)
                r[j] += x[i] * m.at[i * n + j];
    }
    if (r != doubles(result))
        memcpy(doubles(result), r, n * sizeof *r);
    return result;
}

/* ---- linear equations ----
 * lu-decompose keeps the rows in place and gives their order as a vector P: row P[i] of the result holds row i of L below the
 * diagonal (whose own diagonal is all ones) and of U from it on, with the reciprocals of U's diagonal. */

static const double SINGULAR = 1e-10; /* EusLisp's bound: a pivot within it counts as zero */

/* Decompose M in place; ORDER has M's size. False if it is singular. SIGN becomes -1 when the order is an odd one. */
static bool decompose(struct kri_worker *w, struct matrix *m, int64_t *order, double *sign)
{
    size_t n = m->rows;
    *sign = 1;
    for (size_t i = 0; i < n; i++)
        order[i] = (int64_t)i;
    for (size_t k = 0; k < n; k++) {
        size_t best = k;
        for (size_t i = k + 1; i < n; i++)
            if (fabs(m->at[(size_t)order[i] * n + k]) > fabs(m->at[(size_t)order[best] * n + k]))
                best = i;
        if (best != k) {
            int64_t t = order[k];
            order[k] = order[best];
            order[best] = t;
            *sign = -*sign;
        }
        double *pivot = m->at + (size_t)order[k] * n;
        if (!(fabs(pivot[k]) > SINGULAR))
            return false;
        pivot[k] = 1 / pivot[k];
        for (size_t i = k + 1; i < n; i++) {
            double *row = m->at + (size_t)order[i] * n, f = row[k] *= pivot[k];
            for (size_t j = k + 1; j < n; j++)
                row[j] -= f * pivot[j];
        }
        kri_poll(w);
    }
    return true;
}

/* Solve for X (not B). STRIDE between X's elements. */
static void solve(const struct matrix *m, const int64_t *order, const double *b, double *x, size_t stride)
{
    size_t n = m->rows;
    for (size_t i = 0; i < n; i++) {
        const double *row = m->at + (size_t)order[i] * n;
        double sum = b[order[i]];
        for (size_t j = 0; j < i; j++)
            sum -= row[j] * x[j * stride];
        x[i * stride] = sum;
    }
    for (size_t i = n; i-- > 0;) {
        const double *row = m->at + (size_t)order[i] * n;
        double sum = x[i * stride];
        for (size_t j = i + 1; j < n; j++)
            sum -= row[j] * x[j * stride];
        x[i * stride] = sum * row[i];
    }
}

static struct matrix decomposed_copy(struct kri_worker *w, const kr_value *argv, int i, kr_value *order, bool *regular)
{
    struct matrix a = arg_square(w, argv, i), lu = new_matrix(w, a.rows, a.rows);
    double sign;
    copy_elements(&lu, &a);
    *order = kri_make_ivector(w, a.rows);
    *regular = decompose(w, &lu, integers(*order), &sign);
    return lu;
}

KR_BUILTIN(lu_decompose, "lu-decompose", "(matrix &optional result)",
           "Decompose the square MATRIX into triangular ones for LU-SOLVE and LU-DETERMINANT, in RESULT or else in MATRIX itself. Return the order of "
           "the rows, a vector of integers, or NIL if MATRIX is singular.")
{
    struct matrix a = arg_square(w, argv, 0), r = absent(argc, argv, 1) ? a : matrix_result(w, argc, argv, 1, a.rows, a.columns);
    double sign;
    copy_elements(&r, &a);
    kr_value order = kri_make_ivector(w, a.rows);
    if (!decompose(w, &r, integers(order), &sign))
        return KRI_NIL;
    kr_value v = kri_make_vector(w, a.rows);
    for (size_t i = 0; i < a.rows; i++)
        kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[i], kri_fixnum(integers(order)[i]));
    return v;
}

/* Argument I, the order of N rows, as a checked copy; SIGN as by decompose. */
static kr_value arg_order(struct kri_worker *w, const kr_value *argv, int i, size_t n, double *sign)
{
    enum kri_element e = kri_element(w->vm, argv[i]);
    if ((e != KRI_ELEMENT_T && e != KRI_ELEMENT_INTEGER))
        kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
    if (kri_length(argv[i]) != n)
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    kr_value order = kri_make_ivector(w, n), seen = kri_make_ivector(w, n);
    for (size_t k = 0; k < n; k++) {
        kr_value v = kri_vector_ref(w, argv[i], k);
        if (!kri_is_fixnum(v) || kri_fixnum_value(v) < 0 || (size_t)kri_fixnum_value(v) >= n || integers(seen)[kri_fixnum_value(v)]++)
            kri_error(w, KRI_E_ARRAY_INDEX, v, "an order of %zu rows", n);
        integers(order)[k] = kri_fixnum_value(v);
    }
    /* A cycle of even length is an odd permutation. */
    *sign = 1;
    for (size_t k = 0; k < n; k++)
        for (size_t at = k, next; integers(seen)[at]; at = next) {
            next = (size_t)integers(order)[at];
            integers(seen)[at] = 0;
            if (next != k)
                *sign = -*sign;
        }
    return order;
}

KR_BUILTIN(lu_solve, "lu-solve", "(lu-matrix order vector &optional result)", "Return the X with A X = VECTOR, a float-vector, where LU-DECOMPOSE of A gave LU-MATRIX and ORDER; in RESULT if given.")
{
    struct matrix m = arg_square(w, argv, 0);
    double sign;
    kr_value order = arg_order(w, argv, 1, m.rows, &sign);
    struct kri_fvector *b = kri_arg_fvector(w, argv, 2);
    if (b->head.length != m.rows)
        kri_argument_error(w, 2, argv[2], KRI_E_VECTOR_DIMENSION);
    kr_value x = kri_make_fvector(w, m.rows);
    kr_value result = absent(argc, argv, 3) ? x : vector_result(w, argc, argv, 3, true, m.rows);
    solve(&m, integers(order), b->at, doubles(x), 1);
    if (!kri_eq(result, x))
        memcpy(doubles(result), doubles(x), m.rows * sizeof(double));
    return result;
}

KR_BUILTIN(lu_determinant, "lu-determinant", "(lu-matrix order)", "Return the determinant of the matrix for which LU-DECOMPOSE gave LU-MATRIX and ORDER.")
{
    struct matrix m = arg_square(w, argv, 0);
    double d;
    kr_value order = arg_order(w, argv, 1, m.rows, &d);
    for (size_t i = 0; i < m.rows; i++)
        d /= m.at[(size_t)integers(order)[i] * m.rows + i];
    return kri_float(w, d);
}

KR_BUILTIN(simultaneous_equation, "simultaneous-equation", "(matrix vector)", "Return the X with MATRIX X = VECTOR, a float-vector; NIL if MATRIX is singular.")
{
    kr_value order;
    bool regular;
    struct matrix lu = decomposed_copy(w, argv, 0, &order, &regular);
    struct kri_fvector *b = kri_arg_fvector(w, argv, 1);
    if (b->head.length != lu.rows)
        kri_argument_error(w, 1, argv[1], KRI_E_VECTOR_DIMENSION);
    if (!regular)
        return KRI_NIL;
    kr_value x = kri_make_fvector(w, lu.rows);
    solve(&lu, integers(order), b->at, doubles(x), 1);
    return x;
}

KR_BUILTIN(inverse_matrix, "inverse-matrix", "(matrix)", "Return the inverse of the square MATRIX, or the symbol LISP::DEGENERATED if it is singular.")
{
    kr_value order;
    bool regular;
    struct matrix lu = decomposed_copy(w, argv, 0, &order, &regular);
    if (!regular)
        return kri_intern(w, "DEGENERATED", 11, w->vm->pkg_lisp);
    size_t n = lu.rows;
    struct matrix r = new_matrix(w, n, n);
    kr_value unit = kri_make_fvector(w, n);
    for (size_t j = 0; j < n; j++) {
        doubles(unit)[j] = 1;
        solve(&lu, integers(order), doubles(unit), r.at + j, n);
        doubles(unit)[j] = 0;
        kri_poll(w);
    }
    return r.array;
}

/* ---- rotations ---- */

enum axis { AXIS_X, AXIS_Y, AXIS_Z, AXIS_PLANE, AXIS_VECTOR, AXIS_BAD };

/* Argument I names an axis; *SIGN becomes -1 for the negative ones. */
static enum axis axis_of(struct kri_worker *w, kr_value v, double *sign)
{
    const struct kri_symbols *s = &w->vm->sym;
    *sign = 1;
    if (kri_is_nil(v))
        return AXIS_PLANE;
    if (kri_eq(v, s->k_x) || kri_eq(v, kri_fixnum(0)))
        return AXIS_X;
    if (kri_eq(v, s->k_y) || kri_eq(v, kri_fixnum(1)))
        return AXIS_Y;
    if (kri_eq(v, s->k_z) || kri_eq(v, kri_fixnum(2)))
        return AXIS_Z;
    *sign = -1;
    if (kri_eq(v, s->k_minus_x))
        return AXIS_X;
    if (kri_eq(v, s->k_minus_y))
        return AXIS_Y;
    if (kri_eq(v, s->k_minus_z))
        return AXIS_Z;
    return kri_is_fvector(w->vm, v) ? AXIS_VECTOR : AXIS_BAD;
}

/* The rotation by THETA around axis argument I in R, 9 elements or 4; its dimension, or 0 for a null vector. */
static size_t rotation(struct kri_worker *w, double theta, const kr_value *argv, int argc, int i, double r[9])
{
    double sign;
    enum axis axis = axis_of(w, i < argc ? argv[i] : KRI_NIL, &sign);
    double c = cos(theta), s = sign * sin(theta);
    switch (axis) {
    case AXIS_PLANE:
        r[0] = c, r[1] = -s, r[2] = s, r[3] = c;
        return 2;
    case AXIS_X: case AXIS_Y: case AXIS_Z: {
        size_t k = (size_t)axis, a = (k + 1) % 3, b = (k + 2) % 3;
        memset(r, 0, 9 * sizeof *r);
        r[k * 3 + k] = 1;
        r[a * 3 + a] = r[b * 3 + b] = c;
        r[a * 3 + b] = -s;
        r[b * 3 + a] = s;
        return 3;
    }
    case AXIS_VECTOR: {
        const double *u = three(w, argv, i);
        double n = sqrt(dot(u, u, 3));
        s = sin(theta);
        if (n == 0)
            return 0;
        double x = u[0] / n, y = u[1] / n, z = u[2] / n, v = 1 - c;
        double all[9] = {x * x * v + c, x * y * v - z * s, x * z * v + y * s, x * y * v + z * s, y * y * v + c, y * z * v - x * s,
                         x * z * v - y * s, y * z * v + x * s, z * z * v + c};
        memcpy(r, all, sizeof all);
        return 3;
    }
    default:
        kri_argument_error(w, i, argv[i], KRI_E_ROTATION_AXIS);
    }
}

#define AXIS_TEXT "An axis is :x :y :z :-x :-y :-z, 0 1 2, a float-vector of three elements, or NIL for rotation in the plane."

KR_BUILTIN(rotation_matrix, "rotation-matrix", "(theta &optional axis result)",
           "Return the matrix that rotates by THETA radians around AXIS, in RESULT if given; NIL for a null vector. " AXIS_TEXT)
{
    double r[9];
    size_t n = rotation(w, kri_arg_double(w, argv, 0), argv, argc, 1, r);
    if (n == 0)
        return KRI_NIL;
    struct matrix m = matrix_result(w, argc, argv, 2, n, n);
    memcpy(m.at, r, n * n * sizeof *r);
    return m.array;
}

/* The rotation around argument AXIS as fits objects of DIMENSION 2 (any axis means the plane) or 3. */
static void fitting_rotation(struct kri_worker *w, double theta, const kr_value *argv, int axis, size_t dimension, double r[9])
{
    if (dimension == 2) {
        r[0] = r[3] = cos(theta);
        r[2] = sin(theta);
        r[1] = -r[2];
    } else if (rotation(w, theta, argv, axis + 1, axis, r) != 3) {
        kri_argument_error(w, axis, argv[axis], KRI_E_ROTATION_AXIS);
    }
}

KR_BUILTIN(rotate_matrix, "rotate-matrix", "(matrix theta axis &optional world-p result)",
           "Return MATRIX, 3 by 3 or 2 by 2, rotated by THETA radians around AXIS of the frame it describes, or of the world with WORLD-P; in RESULT if "
           "given, which may be MATRIX. " AXIS_TEXT)
{
    struct matrix a = arg_square(w, argv, 0);
    double theta = kri_arg_double(w, argv, 1), r[9];
    if (a.rows != 2 && a.rows != 3)
        kri_argument_error(w, 0, argv[0], KRI_E_VECTOR_DIMENSION);
    fitting_rotation(w, theta, argv, 2, a.rows, r);
    struct matrix turn = {.at = r, .rows = a.rows, .columns = a.rows, .entity = KRI_UNBOUND}, result = matrix_result(w, argc, argv, 4, a.rows, a.rows);
    return absent(argc, argv, 3) ? product(w, &a, &turn, &result) : product(w, &turn, &a, &result);
}

KR_BUILTIN(rotate_vector, "rotate-vector", "(float-vector theta axis &optional result)",
           "Return FLOAT-VECTOR, of three or two elements, rotated by THETA radians around AXIS, in RESULT if given. " AXIS_TEXT)
{
    struct kri_fvector *v = kri_arg_fvector(w, argv, 0);
    double theta = kri_arg_double(w, argv, 1), r[9], x[3];
    size_t n = v->head.length;
    if (n != 2 && n != 3)
        kri_argument_error(w, 0, argv[0], KRI_E_VECTOR_DIMENSION);
    fitting_rotation(w, theta, argv, 2, n, r);
    kr_value result = vector_result(w, argc, argv, 3, true, n);
    for (size_t i = 0; i < n; i++)
        x[i] = dot(r + i * n, v->at, n);
    memcpy(doubles(result), x, n * sizeof *x);
    return result;
}

KR_BUILTIN(rotation_angle, "rotation-angle", "(matrix)",
           "Return a list of the angle, from 0 to pi, and the axis, a float-vector of length 1, of the rotation MATRIX, 3 by 3; NIL if it does not "
           "rotate. Of a matrix of 2 by 2 return the angle.")
{
    struct matrix m = arg_square(w, argv, 0);
    const double *a = m.at;
    if (m.rows == 2)
        return kri_float(w, atan2(a[2], a[0]));
    if (m.rows != 3)
        kri_argument_error(w, 0, argv[0], KRI_E_VECTOR_DIMENSION);
    /* As a quaternion, from its largest component: exact for small angles and near pi alike. */
    double q[4], t[4] = {a[0] + a[4] + a[8], a[0] - a[4] - a[8], a[4] - a[0] - a[8], a[8] - a[0] - a[4]};
    size_t big = 0;
    for (size_t i = 1; i < 4; i++)
        if (t[i] > t[big])
            big = i;
    double products[4][4] = {{t[0] + 1, a[7] - a[5], a[2] - a[6], a[3] - a[1]},
                             {a[7] - a[5], t[1] + 1, a[1] + a[3], a[2] + a[6]},
                             {a[2] - a[6], a[1] + a[3], t[2] + 1, a[5] + a[7]},
                             {a[3] - a[1], a[2] + a[6], a[5] + a[7], t[3] + 1}};
    for (size_t i = 0; i < 4; i++)
        q[i] = products[big][i] / (2 * sqrt(t[big] + 1));
    double n = sqrt(q[1] * q[1] + q[2] * q[2] + q[3] * q[3]), angle = 2 * atan2(n, fabs(q[0]));
    if (angle < 1.0001e-5)
        return KRI_NIL;
    kr_value axis = kri_make_fvector_raw(w, 3);
    for (size_t i = 0; i < 3; i++)
        doubles(axis)[i] = (signbit(q[0]) ? -q[i + 1] : q[i + 1]) / n;
    return kri_list(w, 2, kri_float(w, angle), axis);
}

KR_BUILTIN(rpy_matrix, "rpy-matrix", "(yaw pitch roll)", "Return the matrix that rotates by ROLL around x, then PITCH around y, then YAW around z, axes of the world.")
{
    double sz = sin(kri_arg_double(w, argv, 0)), cz = cos(kri_arg_double(w, argv, 0)), sy = sin(kri_arg_double(w, argv, 1)),
           cy = cos(kri_arg_double(w, argv, 1)), sx = sin(kri_arg_double(w, argv, 2)), cx = cos(kri_arg_double(w, argv, 2));
    double all[9] = {cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx, sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx,
                     -sy, cy * sx, cy * cx};
    struct matrix m = new_matrix(w, 3, 3);
    memcpy(m.at, all, sizeof all);
    return m.array;
}

KR_BUILTIN(euler_matrix, "euler-matrix", "(angle-z angle-y angle-z2)", "Return the matrix that rotates by ANGLE-Z around z, then ANGLE-Y around the new y, then ANGLE-Z2 around the new z.")
{
    double sa = sin(kri_arg_double(w, argv, 0)), ca = cos(kri_arg_double(w, argv, 0)), sb = sin(kri_arg_double(w, argv, 1)),
           cb = cos(kri_arg_double(w, argv, 1)), sc = sin(kri_arg_double(w, argv, 2)), cc = cos(kri_arg_double(w, argv, 2));
    double all[9] = {ca * cb * cc - sa * sc, -ca * cb * sc - sa * cc, ca * sb, sa * cb * cc + ca * sc, -sa * cb * sc + ca * cc, sa * sb,
                     -sb * cc, sb * sc, cb};
    struct matrix m = new_matrix(w, 3, 3);
    memcpy(m.at, all, sizeof all);
    return m.array;
}

static kr_value two_triples(struct kri_worker *w, double v[2][3])
{
    kr_value list[2];
    for (int i = 0; i < 2; i++)
        list[i] = kri_list(w, 3, kri_float(w, v[i][0]), kri_float(w, v[i][1]), kri_float(w, v[i][2]));
    return kri_list(w, 2, list[0], list[1]);
}

KR_BUILTIN(rpy_angle, "rpy-angle", "(matrix)", "Return the two lists of yaw, pitch and roll, radians, for which RPY-MATRIX gives MATRIX.")
{
    struct matrix m = arg_rotation(w, argv, 0, 3);
    const double *a = m.at;
    double v[2][3];
    for (int i = 0; i < 2; i++) {
        double yaw = atan2(a[3], a[0]) + i * 3.14159265358979323846, s = sin(yaw), c = cos(yaw);
        v[i][0] = yaw;
        v[i][1] = atan2(-a[6], c * a[0] + s * a[3]);
        v[i][2] = atan2(s * a[2] - c * a[5], -s * a[1] + c * a[4]);
    }
    return two_triples(w, v);
}

KR_BUILTIN(euler_angle, "euler-angle", "(matrix)", "Return the two lists of angles, radians, for which EULER-MATRIX gives MATRIX.")
{
    struct matrix m = arg_rotation(w, argv, 0, 3);
    const double *a = m.at;
    double v[2][3];
    /* Without a turn around y the first and last angles cannot be told apart: the first is taken as 0. */
    bool flat = fabs(a[2]) < 1e-5 && fabs(a[5]) < 1e-5;
    for (int i = 0; i < 2; i++) {
        double first = (flat ? 0 : atan2(a[5], a[2])) + i * 3.14159265358979323846, s = sin(first), c = cos(first);
        v[i][0] = first;
        v[i][1] = atan2(c * a[2] + s * a[5], a[8]);
        v[i][2] = atan2(-s * a[0] + c * a[3], -s * a[1] + c * a[4]);
    }
    return two_triples(w, v);
}

const struct kri_builtin *const kri_builtins_fvector[] = {
    &float_vector_def, &floatvector_def, &integer_vector_def, &float_vector_p_def, &integer_vector_p_def, &vector_x_def, &vector_y_def,
    &vector_z_def, &vector_add_def, &vector_subtract_def, &vector_distances_def, &vector_sum_def, &vector_min_def, &vector_max_def,
    &vector_less_def, &vector_greater_def, &vector_equal_def, &scale_def, &midpoint_def, &inner_product_def, &outer_product_def,
    &triple_product_def, &norm_def, &norm2_def, &distance_def, &distance2_def, &normalize_vector_def, &direction_def, &minimal_box_def,
    &make_matrix_def, &matrix_def, &unit_matrix_def, &matrixp_def, &copy_matrix_def, &replace_matrix_def, &scale_matrix_def,
    &transpose_def, &matrix_row_def, &matrix_column_def, &set_matrix_row_def, &set_matrix_column_def, &matrix_product_def,
    &matrix_products_def, &transform_def, &lu_decompose_def, &lu_solve_def, &lu_determinant_def, &simultaneous_equation_def,
    &inverse_matrix_def, &rotation_matrix_def, &rotate_matrix_def, &rotate_vector_def, &rotation_angle_def, &rpy_matrix_def,
    &euler_matrix_def, &rpy_angle_def, &euler_angle_def, NULL,
};
