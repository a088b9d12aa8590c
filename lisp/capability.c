/* capability.c -- what Lisp code may be kept from: files, processes, the network, foreign code, threads (kr_config.deny).
 *
 * lisp/capability.def says which builtin takes what. In package UNIX, the operating system's, a builtin that is not there takes
 * KR_PROCESSES: what nobody thought of is denied. A builtin that takes something is defined with kri_guarded_call before it, so every
 * way to call it meets the question. Nothing in Lisp changes vm->denied. */
#include "lisp/host.h"

static const struct {
    const char *name;
    unsigned takes;
} table[] = {
#define TAKES(capability, name) {name, KR_##capability},
#define HARMLESS(name) {name, 0},
#include "lisp/capability.def"
#undef TAKES
#undef HARMLESS
};

unsigned kri_capability_of(const char *name)
{
    unsigned takes = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].name[0] == name[0] && strcmp(table[i].name, name) == 0) {
            takes |= table[i].takes;
            known = true;
        }
    return !known && strncmp(name, "unix:", 5) == 0 ? KR_PROCESSES : takes;
}

static const char *capability_text(unsigned capability)
{
    switch (capability) {
    case KR_FILES: return "files";
    case KR_PROCESSES: return "processes";
    case KR_NETWORK: return "network";
    case KR_FOREIGN: return "foreign code";
    default: return "threads";
    }
}

static unsigned denied_of(struct kri_worker *w, unsigned capabilities) { return (unsigned)kri_load_relaxed(&w->vm->denied) & capabilities; }

bool kri_is_denied(struct kri_worker *w, unsigned capabilities) { return denied_of(w, capabilities) != 0; }

void kri_need(struct kri_worker *w, unsigned capability)
{
    unsigned denied = denied_of(w, capability);
    if (KRI_UNLIKELY(denied))
        kri_error(w, KRI_E_DENIED, KRI_NIL, "%s", capability_text(denied & -denied));
}

kr_value kri_guarded_call(struct kri_worker *w, int argc, kr_value *argv)
{
    const struct kri_builtin *b = (const struct kri_builtin *)kri_code_of(w->callee)->k;
    kri_need(w, kri_code_of(w->callee)->captures);
    return b->fn(w, argc, argv);
}

void kr_vm_deny(kr_vm *vm, unsigned capabilities)
{
    KRI_CHECK_VM(vm);
    kri_store_release(&vm->denied, capabilities & KR_EVERYTHING);
}

unsigned kr_vm_denied(kr_vm *vm)
{
    KRI_CHECK_VM(vm);
    return (unsigned)kri_load_acquire(&vm->denied);
}

KR_BUILTIN(denied, "sys:denied", "()",
           "What the host keeps this program from: a list of :files, :processes, :network, :foreign, :threads; nil if of nothing.")
{
    static const char *const names[] = {"FILES", "PROCESSES", "NETWORK", "FOREIGN", "THREADS"};
    size_t mask = kri_load_relaxed(&w->vm->denied);
    kr_value list = KRI_NIL;
    for (int i = 5; i-- > 0;)
        if (mask >> i & 1)
            list = kri_cons(w, kri_keyword(w, names[i]), list);
    return list;
}

const struct kri_builtin *const kri_builtins_capability[] = {&denied_def, NULL};
