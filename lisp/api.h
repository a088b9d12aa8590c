/* api.h -- what the files behind karakuri.h share: in and out of the gate, values that a host holds, protected calls. */
#ifndef KRI_LISP_API_H
#define KRI_LISP_API_H

#include "lisp/init.h"

/* Whether the caller was outside, as hosts are (a kr_function that Lisp called is inside already); and what of its native
 * stack is answered for meanwhile: something if it came through kr_blocking. */
struct kri_visit {
    bool entered;
    void *native_top;
};

static inline struct kri_visit kri_visit_begin(kr_context *ctx)
{
    struct kri_visit v = {.entered = !kri_inside(ctx->worker)};
    if (v.entered)
        v.native_top = kri_gate_enter_host(ctx->worker);
    return v;
}

static inline void kri_visit_end(kr_context *ctx, struct kri_visit v)
{
    if (v.entered)
        kri_gate_leave_to(ctx->worker, v.native_top);
}

/* Room for one more. Whoever runs Lisp asks before it does, so that a result never gets lost for want of a place. */
bool kri_reserve_local_slow(kr_context *ctx);
static inline bool kri_reserve_local(kr_context *ctx)
{
    return KRI_LIKELY(kri_load_relaxed(&ctx->locals_count) < ctx->locals_size) || kri_reserve_local_slow(ctx);
}

/* Hand V to the host: inside the gate, with room. */
static inline kr_value kri_local(kr_context *ctx, kr_value v)
{
    size_t n = kri_load_relaxed(&ctx->locals_count);
    if (!kri_is_pointer(v))
        return v;
    ctx->locals[n] = v;
    kri_store_relaxed(&ctx->locals_count, n + 1);
    return v;
}
/* The same for what was only read, from anywhere; false: memory is out. */
bool kri_hand_out(kr_context *ctx, kr_value v, kr_value *out);

typedef kr_value kri_protected(struct kri_worker *w, void *arg);
/* Run F within the gate; *OUT (or NULL) gets its value or the condition. */
kr_status kri_protected_call(kr_context *ctx, kri_protected *f, void *arg, kr_value *out);

/* The symbol that NAME names, as kri_symbol_named finds it, remembered in the context. */
kr_value kri_symbol_remembered(struct kri_worker *w, const char *name);
/* A keyword from the name of a message, with or without its colon. */
kr_value kri_selector_named(struct kri_worker *w, const char *name);
/* A function whose code is the host's. */
kr_value kri_host_function(struct kri_worker *w, kr_value name, const char *arglist, const char *doc, kr_function fn, void *user);
/* The class that NAME names, or the error. */
kr_value kri_class_named(struct kri_worker *w, const char *name);

#endif
