/* native_code.h -- what generated C includes: opcodes.def's words as they are meant in native code. Registers are C variables r0, r1 ...
 * A function defines POOL (its constants), SITES (its first site), SELF, and FRAME(), which completes its record; an instruction
 * defines PC. See native.h and native_generate.c. */
#ifndef KRI_LISP_NATIVE_CODE_H
#define KRI_LISP_NATIVE_CODE_H

#include "lisp/native.h"

static const struct kri_native_api *kri_api;
#define API(type, name, parameters, arguments) \
    type kri_##name parameters { return kri_api->name arguments; }
#define API_VOID(name, parameters, arguments) \
    void kri_##name parameters { kri_api->name arguments; }
#define API_NORETURN(name, parameters, arguments) \
    _Noreturn void kri_##name parameters { kri_api->name arguments; __builtin_unreachable(); }
#include "lisp/native_api.def"
#undef API
#undef API_VOID
#undef API_NORETURN

/* The native stack's pointer, for the poll at every entry. */
#if defined(__x86_64__)
register uintptr_t kri_stack_pointer __asm__("rsp");
#elif defined(__aarch64__)
register uintptr_t kri_stack_pointer __asm__("sp");
#else
#define kri_stack_pointer ((uintptr_t)__builtin_frame_address(0))
#endif
#define KRI_NATIVE_LOW() KRI_UNLIKELY(kri_stack_pointer < kri_load_relaxed(&w->native_limit))

#define KRI_PASTE_(a, b) a##b
#define KRI_PASTE(a, b) KRI_PASTE_(a, b)
#define R(n) KRI_PASTE(r, n)
#define K(n) k[POOL + (n)]
#define JUMP(n) goto KRI_PASTE(i, n)
#define NEXT break
#define SITE() (rec.frame.site = &sites[SITES + PC])
#define SYNC_HERE() (FRAME(), SITE(), w->ctx->native = &rec.frame)

#define KRI_THROW(tag, value)                      \
    do {                                           \
        SYNC_HERE();                               \
        kri_throw(w, (tag), (value));              \
    } while (0)
#define KRI_RETURN_FROM(tag, value)                \
    do {                                           \
        SYNC_HERE();                               \
        kri_native_return_from(w, (tag), (value)); \
    } while (0)
#define KRI_RETURN(value) return (value)

#endif
