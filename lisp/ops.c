/* ops.c -- the out-of-line halves of instructions. */
#include "lisp/native.h"
#include "lisp/ops.h"

kr_value kri_op_getvar_slow(struct kri_worker *w, kr_value symbol)
{
    kr_value v = kri_special(w, symbol);
    return kri_eq(v, KRI_UNBOUND) ? kri_autoload_value(w, symbol, true) : v;
}

kr_value kri_op_function(struct kri_worker *w, kr_value symbol)
{
    kr_value f = kri_symbol_function(w->vm, symbol);
    if (kri_code_of(f)->flags & KRI_CODE_UNDEFINED)
        return kri_undefined_function(w, symbol, false);
    return kri_code_of(f)->flags & KRI_CODE_MACRO ? kri_accessor_function(w, symbol, f) : f;
}

_Noreturn KRI_COLD void kri_op_bad_self(struct kri_worker *w, kr_value self, kr_value cls)
{
    kri_error(w, KRI_E_TYPE_MISMATCH, self, "self of a method of %V, an object of that class expected", kri_slot(&kri_metaclass_of(cls)->name));
}

void kri_op_setvar_slow(struct kri_worker *w, kr_value symbol, kr_value v)
{
    if (kri_eq(((const struct kri_symbol *)symbol.w)->vtype, kri_fixnum(0)))
        kri_error(w, KRI_E_CONSTANT, symbol, NULL);
    kri_set_special(w, symbol, v);
}

bool kri_is_cons_subclass(struct kr_vm *vm, kr_value v)
{
    return kri_is_pointer(v) && kri_ptr(v)->cls >= KRI_CLASS_BUILTIN_COUNT && kri_derivedp(vm, v, vm->classes[KRI_CLASS_CONS].object);
}

/* Not a cons, nor NIL: an instance of a subclass of cons, such as queue, begins like one. */
kr_value kri_op_car(struct kri_worker *w, kr_value v)
{
    if (kri_is_cons_subclass(w->vm, v))
        return kri_slot(&kri_cons_of(v)->car);
    w->callee = kri_symbol_function(w->vm, w->vm->sym.car);
    kri_argument_error(w, 0, v, KRI_E_NO_LIST);
}

kr_value kri_op_cdr(struct kri_worker *w, kr_value v)
{
    if (kri_is_cons_subclass(w->vm, v))
        return kri_slot(&kri_cons_of(v)->cdr);
    w->callee = kri_symbol_function(w->vm, w->vm->sym.cdr);
    kri_argument_error(w, 0, v, KRI_E_NO_LIST);
}

void kri_op_bind(struct kr_context *ctx, kr_value *base, kr_value *h, kr_value symbol, kr_value value)
{
    const struct kri_symbol *s = (const struct kri_symbol *)symbol.w;
    size_t i = (size_t)kri_fixnum_value(s->special);
    if (i == 0) { /* compiled as special, proclaimed since? no index: a local declaration */
        kri_proclaim_special(ctx->worker, symbol);
        i = (size_t)kri_fixnum_value(s->special);
    }
    if (!kri_dynamic_ensure(ctx, i))
        kri_error_memory(ctx->worker, i * sizeof(kr_value));
    h[2] = ctx->dynamic[i];
    kri_handler_push(ctx, base, h, KRI_HANDLER_BIND, i);
    ctx->dynamic[i] = value;
}

void kri_op_unbind(struct kr_context *ctx, kr_value *h)
{
    ctx->dynamic[kri_handler_target(h)] = h[2];
    ctx->handler = kri_op_previous(h);
}

kr_value kri_op_builtin(struct kri_worker *w, kr_value symbol, kr_value x, kr_value y)
{
    kr_value argv[2] = {x, y};
    return kri_call(w, kri_symbol_function(w->vm, symbol), 2, argv);
}

kr_value kri_op_length(struct kri_worker *w, kr_value sequence)
{
    return kri_call(w, kri_symbol_function(w->vm, w->vm->sym.length), 1, &sequence);
}

kr_value kri_op_aref(struct kri_worker *w, kr_value v, kr_value i)
{
    kr_value argv[2] = {v, i};
    return kri_call(w, kri_symbol_function(w->vm, w->vm->sym.aref), 2, argv);
}

void kri_op_aset(struct kri_worker *w, kr_value v, kr_value i, kr_value x)
{
    kr_value argv[3] = {v, i, x};
    kri_call(w, kri_symbol_function(w->vm, w->vm->sym.aset), 3, argv);
}

static bool typep(struct kri_worker *w, kr_value v, kr_value specifier)
{
    kr_value argv[2] = {v, specifier};
    return !kri_is_nil(kri_call(w, kri_symbol_function(w->vm, w->vm->sym.typep), 2, argv));
}

static int type_error(unsigned kind)
{
    switch (kind) {
    case KRI_TYPE_FIXNUM:
    case KRI_TYPE_INTEGER:
    case KRI_TYPE_RANGE:
        return KRI_E_NO_INTEGER;
    case KRI_TYPE_FLOAT:
    case KRI_TYPE_NUMBER:
        return KRI_E_NO_NUMBER;
    case KRI_TYPE_LIST:
        return KRI_E_NO_LIST;
    case KRI_CLASS_SYMBOL:
        return KRI_E_NO_SYMBOL;
    case KRI_CLASS_STRING:
        return KRI_E_NO_STRING;
    case KRI_CLASS_FLOAT_VECTOR:
        return KRI_E_NO_FLOAT_VECTOR;
    case KRI_CLASS_INTEGER_VECTOR:
        return KRI_E_NO_INTEGER_VECTOR;
    default:
        return KRI_E_TYPE_MISMATCH;
    }
}

void kri_op_type(struct kri_worker *w, kr_value v, kr_value type, unsigned kind)
{
    const kr_value *t = kri_vector_of(type)->at;
    if ((kind < KRI_CLASS_BUILTIN_COUNT || kind == KRI_TYPE_LIST || kind == KRI_TYPE_OTHER) && typep(w, v, t[KRI_TYPE_SPECIFIER]))
        return;
    /* The function is named by every message; a datum that is nil is not. */
    const char *value = kri_is_nil(v) ? ", not nil" : "";
    w->callee = kri_running_function(w->ctx);
    if (kri_is_nil(t[KRI_TYPE_VARIABLE]))
        kri_error(w, type_error(kind), v, "(the %V ..)%s", t[KRI_TYPE_SPECIFIER], value);
    kri_error(w, type_error(kind), v, "the variable %V is declared %V%s", t[KRI_TYPE_VARIABLE], t[KRI_TYPE_SPECIFIER], value);
}
