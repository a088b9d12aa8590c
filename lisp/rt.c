/* rt.c -- the bridge to hard real-time threads: channels (runtime/exchange.h) as C and Lisp see them, and what such threads ask of the
 * system. The C side takes no lock; Lisp's threads take the channel's among themselves. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "lisp/api.h"
#include "lisp/number.h"
#include "runtime/exchange.h"

struct kr_rt {
    size_t alive;                /* KRI_ALIVE; the first word, for misuse.c */
    kri_atomic given_back;       /* by the host: what is left is Lisp's */
    bool ring, to_lisp;          /* constant, as all but lock and users */
    size_t bytes, doubles;
    char *class_name;            /* of structs */
    struct field *fields;
    size_t field_count;
    union {
        struct kri_triple triple;
        struct kri_ring ring_buffer;
    };
    pthread_mutex_t lock;        /* Lisp's side: one thread at a time */
    kri_atomic users;            /* the host, and Lisp objects */
};

struct field {
    char *name;
    kr_rt_type type;
    size_t offset, count;
};

static const uint8_t type_bytes[] = {[KR_RT_DOUBLE] = 8, [KR_RT_FLOAT] = 4, [KR_RT_INT8] = 1, [KR_RT_UINT8] = 1, [KR_RT_INT16] = 2, [KR_RT_UINT16] = 2,
                                     [KR_RT_INT32] = 4, [KR_RT_UINT32] = 4, [KR_RT_INT64] = 8, [KR_RT_BOOL] = sizeof(bool)};

/* ---- life ---- */

static void free_channel(struct kr_rt *rt)
{
    for (size_t i = 0; i < rt->field_count; i++)
        free(rt->fields[i].name);
    free(rt->fields);
    free(rt->class_name);
    if (rt->ring)
        kri_ring_finish(&rt->ring_buffer);
    else
        kri_triple_finish(&rt->triple);
    pthread_mutex_destroy(&rt->lock);
    kri_forget(rt);
}

static void check_channel(kr_rt *rt, const char *function)
{
    if (!rt)
        kri_misuse(NULL, function, "the channel is NULL");
    if (rt->alive != KRI_ALIVE || kri_load_relaxed(&rt->given_back))
        kri_misuse(NULL, function, "this channel was given back by kr_rt_free");
}
#define CHECK_CHANNEL(rt) (kri_is_checking() ? check_channel(rt, __func__) : (void)0)

static void drop_channel(struct kr_rt *rt)
{
    if (kri_fetch_add(&rt->users, (size_t)-1) == 1)
        free_channel(rt);
}

void kr_rt_free(kr_rt *rt)
{
    if (!rt)
        return;
    CHECK_CHANNEL(rt);
    kri_store_relaxed(&rt->given_back, 1);
    drop_channel(rt);
}

static void finalize_channel(kr_context *ctx, void *rt)
{
    (void)ctx;
    drop_channel(rt);
}

static const kr_foreign_type channel_type = {"sys:rt-channel", finalize_channel};

static bool config_right(const kr_rt_config *c)
{
    if ((unsigned)c->kind > KR_RT_RING || (unsigned)c->direction > KR_RT_FROM_LISP || (c->kind == KR_RT_RING && c->capacity == 0))
        return false;
    if (c->doubles)
        return !c->struct_name && c->doubles < (size_t)1 << 32;
    if (!c->struct_name || !c->struct_bytes || !c->field_count)
        return false;
    for (size_t i = 0; i < c->field_count; i++) {
        const kr_rt_field *f = &c->fields[i];
        size_t count = f->count ? f->count : 1;
        if (!f->name || (unsigned)f->type > KR_RT_BOOL || f->offset > c->struct_bytes || (f->type == KR_RT_BOOL && count > 1) ||
            count > (c->struct_bytes - f->offset) / type_bytes[f->type])
            return false;
    }
    return true;
}

static bool copy_fields(struct kr_rt *rt, const kr_rt_config *c)
{
    rt->class_name = strdup(c->struct_name);
    rt->fields = calloc(c->field_count, sizeof *rt->fields);
    if (!rt->class_name || !rt->fields)
        return false;
    for (size_t i = 0; i < c->field_count; i++) {
        struct field *f = &rt->fields[i];
        *f = (struct field){strdup(c->fields[i].name), c->fields[i].type, c->fields[i].offset, c->fields[i].count ? c->fields[i].count : 1};
        rt->field_count = i + 1;
        if (!f->name)
            return false;
    }
    return true;
}

/* The class of the elements, with a slot for each field, unless the program has made one. */
static kr_value element_class(struct kri_worker *w, void *arg)
{
    const struct kr_rt *rt = arg;
    kr_value symbol = kri_symbol_named(w, rt->class_name, true);
    if (!kri_is_class(w->vm, kri_special(w, symbol))) {
        kr_value slots = KRI_NIL;
        for (size_t i = rt->field_count; i-- > 0;)
            slots = kri_cons(w, kri_symbol_named(w, rt->fields[i].name, true), slots);
        kr_value object = kri_intern(w, "PROPERTIED-OBJECT", 17, w->vm->pkg_lisp), defclass = kri_intern(w, "DEFCLASS", 8, w->vm->pkg_lisp);
        kri_eval(w, kri_list(w, 6, defclass, symbol, kri_keyword(w, "SUPER"), object, kri_keyword(w, "SLOTS"), slots));
    }
    kr_value cls = kri_class_named(w, rt->class_name);
    for (size_t i = 0; i < rt->field_count; i++)
        if (kri_slot_index(w->vm, cls, kri_symbol_named(w, rt->fields[i].name, false)) < 0)
            kri_error(w, KRI_E_NO_SLOT, kri_string(w, rt->fields[i].name), "class %V has no such field", symbol);
    return cls;
}

kr_status kr_rt_new(kr_context *ctx, const kr_rt_config *config, kr_rt **out)
{
    KRI_CHECK_CONTEXT(ctx);
    *out = NULL;
    if (!config_right(config))
        return KR_BAD_TYPE;
    struct kr_rt *rt = calloc(1, sizeof *rt);
    if (!rt)
        return KR_NO_MEMORY;
    pthread_mutex_init(&rt->lock, NULL);
    rt->alive = KRI_ALIVE;
    rt->users = 1;
    rt->ring = config->kind == KR_RT_RING;
    rt->to_lisp = config->direction == KR_RT_TO_LISP;
    rt->doubles = config->doubles;
    rt->bytes = config->doubles ? config->doubles * sizeof(double) : config->struct_bytes;
    bool ok = rt->ring ? kri_ring_init(&rt->ring_buffer, rt->bytes, config->capacity) : kri_triple_init(&rt->triple, rt->bytes);
    ok = ok && (rt->doubles || copy_fields(rt, config));
    if (ok && rt->doubles == 0 && kri_protected_call(ctx, element_class, rt, NULL) != KR_OK) {
        free_channel(rt);
        return KR_BAD_TYPE;
    }
    if (!ok) {
        free_channel(rt);
        return KR_NO_MEMORY;
    }
    *out = rt;
    return KR_OK;
}

static kr_value channel_class(struct kri_worker *w, void *arg)
{
    (void)arg;
    return kri_class_named(w, channel_type.name);
}

kr_value kr_rt_value(kr_context *ctx, kr_rt *rt)
{
    CHECK_CHANNEL(rt);
    size_t scope = kr_scope_begin(ctx);
    if (kri_protected_call(ctx, channel_class, NULL, NULL) != KR_OK)
        kr_foreign_class(ctx, &channel_type, NULL, "A channel to a real-time thread of the host: see sys:rt-read and sys:rt-write.");
    if (kri_load_relaxed(&ctx->locals_count) > scope)
        kr_scope_end(ctx, scope);
    kri_fetch_add(&rt->users, 1);
    kr_value v = kr_foreign(ctx, &channel_type, rt);
    if (kri_is_nil(v))
        kri_fetch_add(&rt->users, (size_t)-1);
    return v;
}

/* ---- both sides ---- */

static void *back_of(struct kr_rt *rt) { return rt->ring ? kri_ring_back(&rt->ring_buffer) : kri_triple_back(&rt->triple); }

static void publish(struct kr_rt *rt)
{
    if (!rt->ring)
        kri_triple_publish(&rt->triple);
    else if (kri_ring_back(&rt->ring_buffer)) /* there is room: a host may publish what it was not given */
        kri_ring_push(&rt->ring_buffer);
}

static const void *front_of(struct kr_rt *rt, bool *fresh)
{
    const void *front;
    if (rt->ring) {
        front = kri_ring_front(&rt->ring_buffer);
        *fresh = front != NULL;
    } else {
        *fresh = kri_triple_take(&rt->triple);
        front = kri_triple_front(&rt->triple);
    }
    return front;
}

static void release(struct kr_rt *rt)
{
    if (rt->ring && kri_ring_front(&rt->ring_buffer)) /* likewise */
        kri_ring_pop(&rt->ring_buffer);
}

/* ---- C's side ---- */

void *kr_rt_back(kr_rt *rt)
{
    CHECK_CHANNEL(rt);
    return rt->to_lisp ? back_of(rt) : NULL;
}
void kr_rt_publish(kr_rt *rt)
{
    CHECK_CHANNEL(rt);
    if (rt->to_lisp)
        publish(rt);
}
bool kr_rt_push(kr_rt *rt, const void *element)
{
    void *slot = kr_rt_back(rt);
    if (!slot)
        return false;
    memcpy(slot, element, rt->bytes);
    publish(rt);
    return true;
}

const void *kr_rt_front(kr_rt *rt, bool *fresh)
{
    CHECK_CHANNEL(rt);
    bool is_fresh = false;
    const void *front = rt->to_lisp ? NULL : front_of(rt, &is_fresh);
    if (fresh)
        *fresh = is_fresh;
    return front;
}
void kr_rt_release(kr_rt *rt)
{
    CHECK_CHANNEL(rt);
    if (!rt->to_lisp)
        release(rt);
}
bool kr_rt_pop(kr_rt *rt, void *element)
{
    bool fresh;
    const void *front = kr_rt_front(rt, &fresh);
    if (!fresh)
        return false;
    memcpy(element, front, rt->bytes);
    release(rt);
    return true;
}

static size_t waiting(struct kr_rt *rt)
{
    return rt->ring ? kri_ring_count(&rt->ring_buffer) : (kri_load_relaxed(&rt->triple.middle) & KRI_TRIPLE_NEW) != 0;
}

size_t kr_rt_count(kr_rt *rt)
{
    CHECK_CHANNEL(rt);
    return waiting(rt);
}

/* ---- Lisp's side ---- */

static struct kr_rt *arg_channel(struct kri_worker *w, const kr_value *argv, int i)
{
    void *rt;
    if (kr_to_foreign(w->ctx, argv[i], &channel_type, &rt) != KR_OK)
        kri_argument_error(w, i, argv[i], KRI_E_RELEASED);
    return rt;
}

static bool is_real(kr_rt_type type) { return type == KR_RT_DOUBLE || type == KR_RT_FLOAT; }

static double real_at(const char *p, kr_rt_type type)
{
    double d;
    float f;
    if (type == KR_RT_DOUBLE) {
        memcpy(&d, p, sizeof d);
        return d;
    }
    memcpy(&f, p, sizeof f);
    return f;
}

static int64_t integer_at(const char *p, kr_rt_type type)
{
    union { int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; uint32_t u32; int64_t i64; bool b; } u;
    memcpy(&u, p, type_bytes[type]);
    switch (type) {
    case KR_RT_INT8: return u.i8;
    case KR_RT_UINT8: return u.u8;
    case KR_RT_INT16: return u.i16;
    case KR_RT_UINT16: return u.u16;
    case KR_RT_INT32: return u.i32;
    case KR_RT_UINT32: return u.u32;
    case KR_RT_BOOL: return u.b;
    default: return u.i64;
    }
}

/* The array of field F as a vector: OLD, if that fits, is filled. */
static kr_value array_value(struct kri_worker *w, const struct field *f, const char *p, kr_value old)
{
    size_t size = type_bytes[f->type];
    if (is_real(f->type)) {
        kr_value v = kri_is_fvector(w->vm, old) && kri_length(old) == f->count ? old : kri_make_fvector(w, f->count);
        for (size_t i = 0; i < f->count; i++)
            kri_fvector_of(v)->at[i] = real_at(p + i * size, f->type);
        return v;
    }
    kr_value v = kri_is_ivector(w->vm, old) && kri_length(old) == f->count ? old : kri_make_ivector(w, f->count);
    for (size_t i = 0; i < f->count; i++)
        kri_ivector_of(v)->at[i] = integer_at(p + i * size, f->type);
    return v;
}

static kr_value field_value(struct kri_worker *w, const struct field *f, const char *p, kr_value old)
{
    if (f->count > 1)
        return array_value(w, f, p, old);
    if (is_real(f->type))
        return kri_float(w, real_at(p, f->type));
    if (f->type == KR_RT_BOOL)
        return kri_bool(w, integer_at(p, f->type) != 0);
    return kri_integer(w, integer_at(p, f->type));
}

/* Where OBJECT keeps field F; OBJECT is an instance of the elements' class or of a subclass. */
static kr_value *field_slot(struct kri_worker *w, const struct field *f, kr_value object)
{
    kr_value name = kri_symbol_remembered(w, f->name);
    intptr_t i = kri_slot_index(w->vm, kri_class_of(w->vm, object), name);
    if (i < 0 || i >= w->vm->classes[kri_ptr(object)->cls].slots)
        kri_error(w, KRI_E_NO_SLOT, name, "of %V", object);
    return &kri_ptr(object)->slot[i];
}

static kr_value element_for(struct kri_worker *w, const struct kr_rt *rt, kr_value into, int argument)
{
    if (rt->doubles) {
        if (kri_is_nil(into))
            return kri_make_fvector(w, rt->doubles);
        if (!kri_is_fvector(w->vm, into))
            kri_argument_error(w, argument, into, KRI_E_NO_FLOAT_VECTOR);
        if (kri_length(into) != rt->doubles)
            kri_error(w, KRI_E_VECTOR_DIMENSION, into, "%zu elements expected", rt->doubles);
        return into;
    }
    kr_value cls = kri_class_named(w, rt->class_name);
    if (kri_is_nil(into))
        return kri_instantiate(w, cls, -1);
    if (!kri_derivedp(w->vm, into, cls))
        kri_error(w, KRI_E_TYPE_MISMATCH, into, "an instance of %s expected", rt->class_name);
    return into;
}

KR_BUILTIN(rt_read, "sys:rt-read", "(channel &optional into)",
           "The newest element of CHANNEL, a triple buffer that a real-time thread writes, or the oldest of a ring, which is taken out; nil if the ring "
           "is empty. A float-vector, or an instance with the fields of the struct: INTO, if it is given, filled anew, else a fresh one. Errors: CHANNEL "
           "is none, or goes the other way; INTO is of another class or length.")
{
    struct kr_rt *rt = arg_channel(w, argv, 0);
    if (!rt->to_lisp)
        kri_error(w, KRI_E_STREAM_DIRECTION, argv[0], "this channel is written from Lisp");
    kr_value element = element_for(w, rt, kri_arg_optional(argc, argv, 1, KRI_NIL), 1);
    /* Out of the channel under its lock, into Lisp's objects afterwards: those may take memory. */
    kr_value raw = rt->doubles ? element : kri_value_of(kri_make(w, KRI_CLASS_BYTES, 0, (rt->bytes + 7) / 8));
    bool fresh;
    kri_lock(w, &rt->lock);
    const void *front = front_of(rt, &fresh);
    if (front) {
        memcpy(kri_string_of(raw)->byte, front, rt->bytes);
        release(rt);
    }
    kri_unlock(&rt->lock);
    if (!front)
        return KRI_NIL;
    for (size_t i = 0; i < rt->field_count; i++) {
        const struct field *f = &rt->fields[i];
        kr_value *slot = field_slot(w, f, element);
        kri_store(w, kri_ptr(element), slot, field_value(w, f, (const char *)kri_string_of(raw)->byte + f->offset, kri_slot(slot)));
    }
    return element;
}

static void put_real(struct kri_worker *w, char *p, kr_rt_type type, kr_value v)
{
    if (!kri_is_number(v))
        kri_error(w, KRI_E_NO_NUMBER, v, "a field");
    double d = kri_to_double(w, v);
    float f = (float)d;
    memcpy(p, type == KR_RT_DOUBLE ? (const void *)&d : (const void *)&f, type_bytes[type]);
}

static void put_integer(struct kri_worker *w, char *p, kr_rt_type type, int64_t n)
{
    memcpy(p, &n, type_bytes[type]); /* little-endian: the low bytes come first */
    if (integer_at(p, type) != n)
        kri_error(w, KRI_E_RANGE, kri_integer(w, n), "it does not fit the field");
}

static void put_field(struct kri_worker *w, const struct field *f, char *p, kr_value v)
{
    size_t size = type_bytes[f->type];
    int64_t n;
    if (f->count > 1) {
        bool real = is_real(f->type);
        if (!(real ? kri_is_fvector(w->vm, v) : kri_is_ivector(w->vm, v)) || kri_length(v) != f->count)
            kri_error(w, KRI_E_TYPE_MISMATCH, v, "field %s: %s-vector of %zu expected", f->name, real ? "float" : "integer", f->count);
        for (size_t i = 0; i < f->count; i++) {
            if (real)
                put_real(w, p + i * size, f->type, kri_float(w, kri_fvector_of(v)->at[i]));
            else
                put_integer(w, p + i * size, f->type, kri_ivector_of(v)->at[i]);
        }
    } else if (is_real(f->type)) {
        put_real(w, p, f->type, v);
    } else if (f->type == KR_RT_BOOL) {
        bool b = !kri_is_nil(v);
        memcpy(p, &b, sizeof b);
    } else {
        if (!kri_is_integer(v) || !kri_int_to_i64(v, &n))
            kri_error(w, KRI_E_NO_INTEGER, v, "field %s", f->name);
        put_integer(w, p, f->type, n);
    }
}

KR_BUILTIN(rt_write, "sys:rt-write", "(channel element)",
           "Hand ELEMENT, a float-vector or an instance with the fields of the struct, to the real-time thread that reads CHANNEL: t, or nil if "
           "its ring is full. Errors: CHANNEL is none, or goes the other way; ELEMENT is of another class or length; a field does not fit.")
{
    struct kr_rt *rt = arg_channel(w, argv, 0);
    if (rt->to_lisp)
        kri_error(w, KRI_E_STREAM_DIRECTION, argv[0], "this channel is read from Lisp");
    if (kri_is_nil(argv[1]))
        kri_argument_error(w, 1, argv[1], rt->doubles ? KRI_E_NO_FLOAT_VECTOR : KRI_E_NO_OBJECT);
    kr_value element = element_for(w, rt, argv[1], 1), raw = element;
    if (!rt->doubles) {
        raw = kri_value_of(kri_make(w, KRI_CLASS_BYTES, 0, (rt->bytes + 7) / 8));
        for (size_t i = 0; i < rt->field_count; i++) {
            const struct field *f = &rt->fields[i];
            put_field(w, f, (char *)kri_string_of(raw)->byte + f->offset, kri_slot(field_slot(w, f, element)));
        }
    }
    kri_lock(w, &rt->lock);
    void *back = back_of(rt);
    if (back) {
        memcpy(back, kri_string_of(raw)->byte, rt->bytes);
        publish(rt);
    }
    kri_unlock(&rt->lock);
    return kri_bool(w, back != NULL);
}

KR_BUILTIN(rt_count, "sys:rt-count", "(channel)", "How many elements wait in CHANNEL, a ring; of a triple buffer 1 if its newest was not read yet, else 0.")
{
    return kri_fixnum((intptr_t)waiting(arg_channel(w, argv, 0)));
}

/* ---- the system ---- */

int kr_rt_lock_memory(void)
{
    /* On fault: what is reserved and not touched is not committed by being locked. */
    return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0 ? 0 : errno;
}

int kr_rt_prefault_stack(size_t bytes)
{
    pthread_attr_t attr;
    void *limit;
    size_t size;
    const char *here = __builtin_frame_address(0);
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return errno;
    int error = pthread_attr_getstack(&attr, &limit, &size);
    pthread_attr_destroy(&attr);
    if (error)
        return error;
    if ((size_t)(here - (const char *)limit) < bytes + 16384)
        return ENOMEM;
    volatile char *page = __builtin_alloca(bytes + 1);
    for (size_t i = bytes;; i -= 4096) { /* downwards, as a stack grows */
        page[i] = 0;
        if (i < 4096)
            return 0;
    }
}

int kr_rt_set_affinity(unsigned cpu)
{
    cpu_set_t set;
    if (cpu >= CPU_SETSIZE)
        return EINVAL;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int kr_rt_set_fifo(int priority)
{
    struct sched_param p = {.sched_priority = priority};
    return pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &p);
}

void kr_forbid_allocation(kr_context *ctx, bool on)
{
    KRI_CHECK_CONTEXT(ctx);
    struct kri_visit visit = kri_visit_begin(ctx);
    kri_heap_forbid(ctx->worker, on);
    kri_visit_end(ctx, visit);
}

static kr_value system_answer(struct kri_worker *w, int error) { return error ? kri_fixnum(-error) : w->vm->sym.t; }

KR_BUILTIN(rt_lock_memory, "sys:rt-lock-memory", "()", "Keep all memory of the process from being paged out, what it has and will have: t, or minus errno.")
{
    return system_answer(w, kr_rt_lock_memory());
}
KR_BUILTIN(rt_set_fifo, "sys:rt-set-fifo", "(priority)",
           "Schedule this thread by SCHED_FIFO with PRIORITY, 1 to 99; 0: as an ordinary thread again. t, or minus errno.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    return system_answer(w, n > 99 ? EINVAL : kr_rt_set_fifo((int)n));
}
KR_BUILTIN(rt_set_affinity, "sys:rt-set-affinity", "(cpu)", "Run this thread on processor CPU, as the system numbers them, only: t, or minus errno.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    return system_answer(w, n > 1 << 20 ? EINVAL : kr_rt_set_affinity((unsigned)n));
}
KR_BUILTIN(forbid_allocation, "sys::%forbid-allocation", "(on)",
           "Make every allocation of this thread the error allocation-forbidden, or no longer. Returns whether it was so.")
{
    bool was = kri_heap_forbidden(w);
    kri_heap_forbid(w, !kri_is_nil(argv[0]));
    return kri_bool(w, was);
}

const struct kri_builtin *const kri_builtins_rt[] = {&rt_read_def, &rt_write_def, &rt_count_def, &rt_lock_memory_def, &rt_set_fifo_def,
                                                     &rt_set_affinity_def, &forbid_allocation_def, NULL};
