/* native_module.c -- modules of native code: what a VM keeps of them, and loading them.
 *
 * A module stays loaded until the process ends; several VMs share it. Each has an instance: the vector K of constants, flags and
 * function objects, and a kri_native for each function, to which code objects point. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lisp/host.h"
#include "lisp/fasl.h"
#include "lisp/load.h"
#include "lisp/native_module.h"
#include "lisp/opcode.h"
#include "lisp/stream.h"

/* ---- instances ---- */

static void nothing(struct kri_worker *w, void *arg) { (void)w, (void)arg; }

struct kri_native_instance *kri_native_instance_new(struct kri_worker *w, const struct kri_native_module *m)
{
    struct kr_vm *vm = w->vm;
    kr_value k = kri_make_vector(w, m->pool), roots = kri_cons(w, k, KRI_NIL);
    struct kri_native_instance *n = calloc(1, sizeof *n + m->functions * sizeof *n->native);
    if (!n)
        kri_error_memory(w, m->functions * sizeof *n->native);
    /* Each VM that loads the module stores the same address, perhaps at once. Relaxed, and then all threads pass the gate: the module's words do
     * not lie behind the address of a function by which another thread comes to its code, so no data dependency orders them. What is linked in calls
     * the runtime as it is. */
    if (m->api)
        kri_store_relaxed((kri_atomic *)(void *)m->api, (size_t)&kri_native_table);
    if (vm->running)
        kri_with_world_stopped(w, nothing, NULL);
    n->module = m;
    n->constants = k;
    kri_vector_of(k)->at[0] = kri_tag_pointer(n);
    for (uint32_t j = 0; j < m->functions; j++) {
        n->native[j].function = &m->function[j];
        n->native[j].k = kri_vector_of(k)->at;
        n->native[j].index = j;
    }
    kri_lock(w, &vm->lock);
    kri_store(w, kri_ptr(roots), &kri_cons_of(roots)->cdr, vm->roots);
    vm->roots = roots;
    n->next = vm->natives;
    vm->natives = n;
    kri_unlock(&vm->lock);
    return n;
}

struct kri_native_instance *kri_native_instance_of(struct kr_vm *vm, const struct kri_native_module *m)
{
    struct kri_native_instance *n = vm->natives;
    while (n && n->module != m)
        n = n->next;
    return n;
}

void kri_native_finish(struct kr_vm *vm)
{
    for (struct kri_native_instance *n = vm->natives, *next; n; n = next) {
        next = n->next;
        free(n);
    }
    vm->natives = NULL;
}

static kr_value function_of(struct kri_worker *w, const struct kri_code *code)
{
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_COMPILED_CODE, kri_signature(code), 1);
    f->code = kri_value_of(code);
    return kri_value_of(f);
}

/* A copy of C, instructions and all. */
static struct kri_code *copy_code(struct kri_worker *w, const struct kri_code *c)
{
    struct kri_code *o = (struct kri_code *)kri_make(w, KRI_CLASS_CODE, c->head.length, (sizeof *o - sizeof(struct kri_cell)) / 8 + c->head.length);
    memcpy(&o->name, &c->name, sizeof *o - sizeof(struct kri_cell) + c->head.length * sizeof *c->instr);
    return o;
}

void kri_native_attach(struct kri_worker *w, struct kri_native_instance *n, unsigned j, kr_value code)
{
    struct kri_code *c = (struct kri_code *)code.w;
    struct kri_native *native = &n->native[j];
    struct kri_cell *k = kri_ptr(n->constants);
    if (!native->function->entry)
        return;
    /* The core's forms run as bytecode: what they would touch of the native code is spread all over it. */
    c->builtin = w->vm->running ? kri_native_enter : NULL;
    c->native = native;
    native->code = code;
    native->object = function_of(w, c);
    kri_store(w, k, (kr_value *)&native->k[1 + n->module->functions + 2 * j], native->object);
    for (uint32_t i = 0; i < native->function->constants; i++)
        kri_store(w, k, (kr_value *)&native->k[native->function->pool + i], c->k[i]);
}

void kri_native_activate(struct kri_native_instance *n)
{
    for (uint32_t j = 0; j < n->module->functions; j++)
        if (kri_is_pointer(n->native[j].code))
            ((struct kri_code *)n->native[j].code.w)->builtin = kri_native_enter;
}

/* What stands for V, a constant of bytecode that has been copied: the copies of code, and of functions that close over nothing. */
static kr_value copied_constant(const struct kri_native_instance *n, kr_value codes, kr_value v)
{
    bool function = kri_has_class(v, KRI_CLASS_COMPILED_CODE);
    if (!function && !kri_has_class(v, KRI_CLASS_CODE))
        return v;
    kr_value code = function ? kri_function_of(v)->code : v;
    for (uint32_t j = 0; j < n->module->functions; j++)
        if (kri_eq(kri_vector_of(codes)->at[j], code) && n->module->function[j].entry)
            return function ? n->native[j].object : n->native[j].code;
    return v;
}

void kri_native_attach_copies(struct kri_worker *w, struct kri_native_instance *n, kr_value codes)
{
    for (uint32_t j = 0; j < n->module->functions; j++) {
        const struct kri_code *c = (const struct kri_code *)kri_vector_of(codes)->at[j].w;
        if (!n->module->function[j].entry)
            continue;
        struct kri_code *copy = copy_code(w, c);
        kr_value constants = kri_make_vector(w, kri_length(c->constants));
        for (size_t i = 0; i < kri_length(c->constants); i++)
            kri_store(w, kri_ptr(constants), &kri_vector_of(constants)->at[i], copied_constant(n, codes, c->k[i]));
        kri_store(w, &copy->head, &copy->constants, constants);
        copy->k = kri_vector_of(constants)->at;
        kri_native_attach(w, n, j, kri_value_of(copy));
    }
}

kr_value kri_native_twin_of(struct kri_worker *w, const struct kri_native *native)
{
    struct kri_native_instance *n = kri_untag_pointer(native->k[0]);
    kr_value *place = (kr_value *)&native->k[2 + n->module->functions + 2 * native->index], twin = kri_slot(place);
    if (!kri_is_nil(twin))
        return twin;
    struct kri_code *copy = copy_code(w, (const struct kri_code *)native->code.w);
    copy->builtin = NULL;
    copy->native = NULL;
    twin = function_of(w, copy);
    /* Two threads may make one each: the first is kept, the other's is as good. */
    kri_lock(w, &w->vm->lock);
    if (kri_is_nil(*place))
        kri_store(w, kri_ptr(n->constants), place, twin);
    kri_unlock(&w->vm->lock);
    return twin;
}

/* ---- opening and loading ---- */

struct opening {
    const char *path;
    void *handle;
};

/* The loader knows objects by name first. One that has been replaced since it was loaded is opened under another name. */
static void *open_object(const char *path)
{
    char directory[] = "/tmp/karakuri-XXXXXX", link[64], real[PATH_MAX];
    if (!realpath(path, real)) /* a name without a slash would be sought elsewhere */
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *known = dlopen(real, RTLD_NOW | RTLD_NOLOAD);
    if (!known)
        return dlopen(real, RTLD_NOW | RTLD_LOCAL);
    dlclose(known);
    if (!mkdtemp(directory))
        return dlopen(real, RTLD_NOW | RTLD_LOCAL);
    snprintf(link, sizeof link, "%s/module.so", directory);
    void *handle = dlopen(symlink(real, link) == 0 ? link : real, RTLD_NOW | RTLD_LOCAL);
    unlink(link);
    rmdir(directory);
    return handle;
}

/* What is wrong with M, or NULL. */
static const char *refusal(const struct kri_native_module *m)
{
    if (!m || memcmp(m->magic, KRI_NATIVE_MAGIC, sizeof m->magic) != 0)
        return "it is no module of Karakuri's";
    if (m->abi != KRI_NATIVE_ABI || m->opcodes != KRI_OP_COUNT || m->fingerprint != KRI_NATIVE_FINGERPRINT)
        return "it was compiled for another version of Karakuri: compile it again";
    return NULL;
}

const struct kri_native_module *kri_native_open(struct kri_worker *w, const char *path)
{
    kri_need(w, KR_FOREIGN);
    void *handle = open_object(path);
    if (!handle) {
        const char *why = dlerror();
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s", why ? why : "");
    }
    const struct kri_native_module *m = dlsym(handle, "kri_module");
    const char *why = refusal(m);
    if (why)
        kri_error(w, KRI_E_UNSUPPORTED, kri_string(w, path), "%s: %s", path, why);
    return m;
}

void kri_native_load(struct kri_worker *w, const char *path)
{
    const struct kri_native_module *m = kri_native_open(w, path);
    if (!m->image)
        kri_error(w, KRI_E_UNSUPPORTED, kri_string(w, path), "%s: a module without forms", path);
    kri_fasl_load(w, m->image, m->image_size, kri_native_instance_new(w, m));
}

static void say(struct kri_worker *w, const char *module, const char *why)
{
    struct kri_text t;
    kri_text_init(&t);
    kri_text_puts(w, &t, ";; ");
    kri_text_puts(w, &t, module);
    kri_text_puts(w, &t, ": ");
    kri_text_puts(w, &t, why);
    kri_text_puts(w, &t, "; the source is loaded\n");
    kri_stream_write(w, kri_special(w, w->vm->sym.error_output), t.p, t.n);
}

kr_value kri_native_fresh(struct kri_worker *w, kr_value source)
{
    const char *text = kri_path_text(source);
    size_t n = kri_length(source);
    struct stat st, so;
    if (kri_load_relaxed(&w->vm->denied) & KR_FOREIGN)
        return KRI_NIL; /* the source is loaded */
    if (n < 2 || strcmp(text + n - 2, ".l") != 0 || stat(text, &st) != 0)
        return KRI_NIL;
    kr_value module = kri_make_string(w, n + 1);
    snprintf((char *)kri_string_of(module)->byte, n + 2, "%.*s.so", (int)n - 2, text);
    const char *path = kri_path_text(module);
    if (stat(path, &so) != 0)
        return KRI_NIL;
    /* Looked at without binding it for good only if it cannot be used: an object that is opened stays. */
    void *handle = open_object(path);
    const struct kri_native_module *m = handle ? dlsym(handle, "kri_module") : NULL;
    if (!m || memcmp(m->magic, KRI_NATIVE_MAGIC, sizeof m->magic) != 0) {
        const char *error = handle ? "it is no module of Karakuri's" : dlerror();
        say(w, path, error ? error : "it cannot be opened");
        if (handle)
            dlclose(handle);
        return KRI_NIL;
    }
    const char *why = refusal(m);
    if (!why && (m->source_size != st.st_size || m->source_time != st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec))
        why = "it is not of this version of the source";
    dlclose(handle);
    if (!why)
        return module;
    say(w, path, why);
    return KRI_NIL;
}
