/* ops.c -- the out-of-line halves of instructions. */
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
