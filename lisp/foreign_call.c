/* foreign_call.c -- shared objects, and Lisp functions that call a C function.
 *
 * Note [register calls]: on x86-64 and aarch64 the registers in which C arguments go depend on nothing but whether each is an integer
 * (or address) or a floating-point number; what lies in other argument registers is ignored. So a call of any C function whose
 * arguments fit into six integer and eight floating-point registers is a call of one of the few function types of call_registers, and
 * neither a stub compiled for its type nor an interpreter of calls is needed. The rest is libffcall's (ffi/ffcall.c).
 *
 * A call leaves the gate: C may wait, or call back from another thread, as long as it likes. :leaf functions do not. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include "lisp/foreign.h"
#include "lisp/init.h"
#include "lisp/load.h"

/* ---- shared objects ---- */

struct opening {
    const char *path, *error;
    void *handle;
};

static void open_object(void *arg)
{
    struct opening *o = arg;
    o->handle = dlopen(o->path, RTLD_NOW | RTLD_GLOBAL);
    o->error = o->handle ? NULL : dlerror();
}

/* Handles that were given out: dlsym takes no others. */
struct kri_foreign_object {
    struct kri_foreign_object *next;
    void *handle;
};

static bool known_object(struct kri_worker *w, void *handle)
{
    kri_lock(w, &w->vm->lock);
    const struct kri_foreign_object *o = w->vm->foreign_objects;
    while (o && o->handle != handle)
        o = o->next;
    kri_unlock(&w->vm->lock);
    return o != NULL;
}

static void note_object(struct kri_worker *w, void *handle)
{
    if (known_object(w, handle))
        return;
    struct kri_foreign_object *o = malloc(sizeof *o);
    if (!o)
        kri_error_memory(w, sizeof *o);
    o->handle = handle;
    kri_lock(w, &w->vm->lock);
    o->next = w->vm->foreign_objects;
    w->vm->foreign_objects = o;
    kri_unlock(&w->vm->lock);
}

/* The VM goes. The objects stay loaded: functions of theirs may be in use elsewhere. */
void kri_foreign_objects_free(struct kr_vm *vm)
{
    for (struct kri_foreign_object *o = vm->foreign_objects, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    vm->foreign_objects = NULL;
}

/* Error if it cannot be loaded. */
static void *load_object(struct kri_worker *w, kr_value path)
{
    struct opening o = {.path = kri_is_nil(path) ? NULL : kri_path_text(path)};
    kri_blocking(w, open_object, &o);
    if (!o.handle)
        kri_error(w, KRI_E_OPEN_FILE, path, "%s", o.error ? o.error : "?");
    return o.handle;
}

const struct kri_ffcall *kri_ffcall_module(struct kri_worker *w)
{
    /* Acquire: pairs with the release below; the table itself is constant. */
    const struct kri_ffcall *m = (const struct kri_ffcall *)kri_load_acquire(&w->vm->ffcall);
    if (m)
        return m;
    kr_value path = kri_find_load_file(w, kri_string(w, "ffcall.so"));
    if (kri_is_nil(path))
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "this needs the module ffcall.so, which is built where libffcall (Debian: libffcall-dev) is there");
    m = dlsym(load_object(w, path), "kri_ffcall");
    if (!m || m->abi != KRI_FFCALL_ABI)
        kri_error(w, KRI_E_UNSUPPORTED, path, "%V is of another version", path);
    kri_store_release(&w->vm->ffcall, (size_t)m);
    return m;
}

KR_BUILTIN(foreign_open, "lisp::%foreign-open", "(path)",
           "Load the shared object PATH, a file or a name that the dynamic linker finds; nil: what is loaded already. Returns its handle. Error: it "
           "cannot be loaded.")
{
    kr_value path = kri_is_nil(argv[0]) ? argv[0] : kri_path_string(w, argv[0]);
    void *handle = load_object(w, path);
    note_object(w, handle);
    return kri_integer(w, (intptr_t)handle);
}

KR_BUILTIN(foreign_symbol, "lisp::%foreign-symbol", "(handle name)",
           "The address of symbol NAME in the shared object HANDLE (nil: in any that is loaded), or nil.")
{
    kr_value name = kri_path_string(w, argv[1]);
    void *handle = kri_is_nil(argv[0]) ? RTLD_DEFAULT : (void *)kri_arg_natural(w, argv, 0);
    if (!kri_is_nil(argv[0]) && !known_object(w, handle))
        kri_argument_error(w, 0, argv[0], KRI_E_TYPE_MISMATCH);
    void *address = dlsym(handle, kri_path_text(name));
    return address ? kri_integer(w, (intptr_t)address) : KRI_NIL;
}

/* ---- functions ---- */

enum { INTEGERS = 6, FLOATS = 8 }; /* argument registers */
enum shape { I0, I1, I2, I3, I6, IX, D1, D2, DX, BEYOND }; /* see call_registers; BEYOND: libffcall's */

struct foreign_function {
    struct kri_cell head;
    void *entry;
    uint8_t n;        /* parameters */
    uint8_t shape;    /* if there are no others */
    bool variadic, leaf;
    struct kri_c_type result;
    struct kri_c_type type[];
};

struct registers {
    union kri_c_value integer[INTEGERS];
    union kri_c_value number[FLOATS];
    void *entry;
    enum shape shape;
    int error;
    union kri_c_value value;
};

#if defined(__x86_64__) || defined(__aarch64__)
enum { HAVE_REGISTERS = true };
#else
enum { HAVE_REGISTERS = false };
#endif

static bool is_number(unsigned kind) { return kind == KRI_C_FLOAT || kind == KRI_C_DOUBLE; }

static enum shape shape_of(struct kri_c_type result, const struct kri_c_type *type, int n)
{
    int integers = 0, numbers = 0;
    if (result.kind == KRI_C_STRUCT || !HAVE_REGISTERS)
        return BEYOND;
    for (int i = 0; i < n; i++) {
        if (type[i].kind == KRI_C_STRUCT)
            return BEYOND;
        if (is_number(type[i].kind))
            numbers++;
        else
            integers++;
    }
    if (integers > INTEGERS || numbers > FLOATS)
        return BEYOND;
    if (is_number(result.kind))
        return integers == 0 && numbers == 1 ? D1 : integers == 0 && numbers == 2 ? D2 : DX;
    return numbers ? IX : integers <= 3 ? (enum shape)(I0 + integers) : I6;
}

/* A float lies in the low half of its register, and of its union; a function that returns one leaves it in the low half of a double's. */
static void call_registers(void *arg)
{
    typedef int64_t W;
    typedef double D;
    struct registers *r = arg;
    const union kri_c_value *i = r->integer, *d = r->number;
    void *e = r->entry;
    switch (r->shape) {
    case I0: r->value.i = ((W(*)(void))e)(); break;
    case I1: r->value.i = ((W(*)(W))e)(i[0].i); break;
    case I2: r->value.i = ((W(*)(W, W))e)(i[0].i, i[1].i); break;
    case I3: r->value.i = ((W(*)(W, W, W))e)(i[0].i, i[1].i, i[2].i); break;
    case I6: r->value.i = ((W(*)(W, W, W, W, W, W))e)(i[0].i, i[1].i, i[2].i, i[3].i, i[4].i, i[5].i); break;
    /* The dots tell a variadic function that floating-point registers are in use. */
    case IX:
        r->value.i = ((W(*)(W, W, W, W, W, W, D, D, D, D, D, D, D, D, ...))e)(i[0].i, i[1].i, i[2].i, i[3].i, i[4].i, i[5].i, d[0].d, d[1].d,
                                                                             d[2].d, d[3].d, d[4].d, d[5].d, d[6].d, d[7].d);
        break;
    case D1: r->value.d = ((D(*)(D))e)(d[0].d); break;
    case D2: r->value.d = ((D(*)(D, D))e)(d[0].d, d[1].d); break;
    case DX:
        r->value.d = ((D(*)(W, W, W, W, W, W, D, D, D, D, D, D, D, D, ...))e)(i[0].i, i[1].i, i[2].i, i[3].i, i[4].i, i[5].i, d[0].d, d[1].d,
                                                                             d[2].d, d[3].d, d[4].d, d[5].d, d[6].d, d[7].d);
        break;
    case BEYOND: break;
    }
    r->error = errno;
}

/* ---- calls ---- */

/* Run CALL(ARG), outside the gate or (LEAF) inside, and raise what callbacks below it failed with. */
static inline void run_call(struct kri_worker *w, bool leaf, void (*call)(void *), void *arg, const int *error)
{
    struct kr_context *ctx = w->ctx;
    struct kri_foreign_call c = {.outer = ctx->foreign};
    ctx->foreign = &c;
    if (leaf)
        call(arg);
    else
        kri_blocking(w, call, arg);
    ctx->foreign = c.outer;
    ctx->foreign_errno = *error;
    if (KRI_UNLIKELY(c.failed))
        kri_pass_on(w, c.condition);
}

struct beyond {
    struct kri_c_call call;
    const struct kri_ffcall *module;
    bool ok;
    int error;
};

static void call_beyond(void *arg)
{
    struct beyond *b = arg;
    b->ok = b->module->call(&b->call);
    b->error = errno;
}

/* With types resolved. RESULT: where a struct is to be stored. */
static union kri_c_value call_by_module(struct kri_worker *w, const struct foreign_function *f, int n, const struct kri_c_type *type,
                                        const union kri_c_value *value, void *result)
{
    struct beyond b = {.module = kri_ffcall_module(w)};
    b.call = (struct kri_c_call){.entry = f->entry, .result = f->result, .n = n, .type = type, .argument = value, .value = {.p = result}};
    run_call(w, f->leaf, call_beyond, &b, &b.error);
    if (!b.ok)
        kri_error(w, KRI_E_ARGC, KRI_NIL, "%d arguments are more than a C function can be given", n);
    return b.call.value;
}

static void to_registers(struct registers *r, int n, const struct kri_c_type *type, const union kri_c_value *value)
{
    int integers = 0, numbers = 0;
    for (int i = 0; i < n; i++)
        if (is_number(type[i].kind))
            r->number[numbers++] = value[i];
        else
            r->integer[integers++] = value[i];
}

/* Any call: variadic, by libffcall, with a struct as its result (argv[0] then is where it goes, and is returned). */
static kr_value call_general(struct kri_worker *w, const struct foreign_function *f, int argc, kr_value *argv)
{
    struct kri_c_type type[KRI_C_ARGUMENTS];
    union kri_c_value value[KRI_C_ARGUMENTS];
    int first = f->result.kind == KRI_C_STRUCT ? 1 : 0, n = argc - first;
    void *result = NULL;
    if (n > KRI_C_ARGUMENTS)
        kri_error(w, KRI_E_ARGC, KRI_NIL, "%d arguments; at most %d are possible", n, (int)KRI_C_ARGUMENTS);
    for (int i = 0; i < n; i++) {
        type[i] = i < f->n ? f->type[i] : (struct kri_c_type){.kind = KRI_C_ANY};
        if (type[i].kind == KRI_C_ANY)
            type[i] = kri_c_type_suggested(w, argv[first + i], i);
        value[i] = kri_to_c(w, argv[first + i], type[i], i);
    }
    if (first)
        result = kri_to_c(w, argv[0], (struct kri_c_type){.kind = KRI_C_RECORD, .size = f->result.size}, 0).p;
    enum shape shape = shape_of(f->result, type, n);
    if (shape == BEYOND) {
        union kri_c_value v = call_by_module(w, f, n, type, value, result);
        return first ? argv[0] : kri_from_c(w, f->result, &v);
    }
    struct registers r = {.entry = f->entry, .shape = f->variadic ? is_number(f->result.kind) ? DX : IX : shape};
    to_registers(&r, n, type, value);
    run_call(w, f->leaf, call_registers, &r, &r.error);
    return kri_from_c(w, f->result, &r.value);
}

/* The builtin behind every foreign function. */
static kr_value foreign_call(struct kri_worker *w, int argc, kr_value *argv)
{
    const struct foreign_function *f = (const struct foreign_function *)kri_slot(&kri_function_of(w->callee)->captured[0]).w;
    struct registers r;
    if (f->shape == BEYOND || argc != f->n)
        return call_general(w, f, argc, argv);
    int integers = 0, numbers = 0;
    for (int i = 0; i < argc; i++) {
        struct kri_c_type t = f->type[i];
        kr_value v = argv[i];
        if (t.kind == KRI_C_DOUBLE) {
            r.number[numbers++].d = kri_is_flonum(v) ? kri_flonum_value(v) : kri_to_c(w, v, t, i).d;
        } else if (t.kind == KRI_C_FLOAT) {
            r.number[numbers++] = kri_to_c(w, v, t, i);
        } else if (kri_is_fixnum(v) && (t.kind == KRI_C_INT64 || (t.kind == KRI_C_INT32 && kri_fixnum_value(v) == (int32_t)kri_fixnum_value(v)))) {
            r.integer[integers++].i = kri_fixnum_value(v);
        } else {
            r.integer[integers++] = kri_to_c(w, v, t, i);
        }
    }
    if (f->shape == IX || f->shape == DX || f->shape == I6) { /* all registers are loaded */
        for (; integers < INTEGERS; integers++)
            r.integer[integers].i = 0;
        for (; numbers < FLOATS; numbers++)
            r.number[numbers].d = 0;
    }
    r.entry = f->entry;
    r.shape = f->shape;
    run_call(w, f->leaf, call_registers, &r, &r.error);
    return kri_from_c(w, f->result, &r.value);
}

/* ---- making them ---- */

/* The parameters of a foreign function as an arglist, a, b and so on if there are no names. */
static int count_types(struct kri_worker *w, kr_value types)
{
    int n = 0;
    for (kr_value l = types; kri_is_cons(l); l = kri_cdr(l))
        if (++n > KRI_C_ARGUMENTS)
            kri_error(w, KRI_E_ARGC, types, "at most %d parameters are possible", (int)KRI_C_ARGUMENTS);
    return n;
}

static struct kri_c_type value_type(struct kri_worker *w, kr_value name)
{
    struct kri_c_type t = kri_c_type_of(w, name);
    if (t.kind == KRI_C_VOID)
        kri_error(w, KRI_E_TYPE_MISMATCH, name, "no value is of type %V", name);
    return t;
}

static struct kri_c_type result_type(struct kri_worker *w, kr_value name)
{
    struct kri_c_type t = kri_c_type_of(w, name);
    if (t.kind == KRI_C_ANY || t.kind == KRI_C_RECORD)
        kri_error(w, KRI_E_TYPE_MISMATCH, name, "no result is of type %V", name);
    return t;
}

KR_BUILTIN(foreign_function, "lisp::%foreign-function", "(name address arglist types result variadic leaf documentation)",
           "A function that calls the C function at ADDRESS. NAME and DOCUMENTATION are its own; ARGLIST is the text of its parameters; "
           "TYPES is a list of their types and RESULT its type, as in define-foreign, with (:struct size align) for structs; if the result "
           "is one, the first argument is the struct to fill, which is returned. VARIADIC: t if the C function "
           "is, or :lax; if ARGLIST lets arguments beyond TYPES come, they go as they suggest. LEAF: call "
           "it inside the gate. Error: no such type.")
{
    int n = count_types(w, argv[3]);
    uint64_t address = (uint64_t)kri_to_c(w, argv[1], (struct kri_c_type){.kind = KRI_C_UINT64}, 1).i;
    if (address == 0)
        kri_argument_error(w, 1, argv[1], KRI_E_NO_INTEGER);
    kr_value arglist = kri_path_string(w, argv[2]), doc = kri_is_nil(argv[7]) ? KRI_NIL : kri_path_string(w, argv[7]);
    size_t words = (sizeof(struct foreign_function) + (size_t)n * sizeof(struct kri_c_type) + 7) / 8;
    struct foreign_function *f = (struct foreign_function *)kri_make(w, KRI_CLASS_BYTES, 0, words - 1);
    bool any = false;
    kr_value l = argv[3];
    for (int i = 0; i < n && kri_is_cons(l); i++, l = kri_cdr(l)) {
        f->type[i] = value_type(w, kri_car(l));
        any = any || f->type[i].kind == KRI_C_ANY;
    }
    f->entry = (void *)(uintptr_t)address;
    f->n = (uint8_t)n;
    f->result = result_type(w, argv[4]);
    f->variadic = kri_eq(argv[5], w->vm->sym.t);
    f->leaf = !kri_is_nil(argv[6]);
    f->shape = any || f->variadic ? BEYOND : (uint8_t)shape_of(f->result, f->type, n);
    kr_value fn = kri_make_builtin(w, argv[0], foreign_call, kri_path_text(arglist), kri_is_nil(doc) ? NULL : kri_path_text(doc));
    kri_store(w, kri_ptr(fn), &kri_function_of(fn)->captured[0], kri_value_of(f));
    return fn;
}

KR_BUILTIN(foreign_errno, "foreign-errno", "()", "What errno was after this thread's last foreign call, an integer.")
{
    return kri_fixnum(w->ctx->foreign_errno);
}

const struct kri_builtin *const kri_builtins_foreign_call[] = {&foreign_open_def, &foreign_symbol_def, &foreign_function_def, &foreign_errno_def,
                                                              NULL};
