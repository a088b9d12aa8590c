/* native_module.c -- modules of native code: the C compiler, shared objects, and what a VM keeps of them.
 *
 * A module stays loaded until the process ends; several VMs share it. Each has an instance: the vector K of constants, flags and
 * function objects, and a kri_native for each function, to which code objects point. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lisp/load.h"
#include "lisp/native.h"
#include "lisp/native_module.h"
#include "lisp/opcode.h"

extern char **environ;

#ifndef KRI_NATIVE_CC
#define KRI_NATIVE_CC "cc"
#endif
/* Measured: -O1 with inlining runs the recursive benchmarks faster than -O2 and takes half of its time to compile. */
#define KRI_NATIVE_FLAGS                                                                                                                     \
    "-std=gnu11 -w -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -finline-functions -finline-small-functions " \
    "--param max-inline-insns-single=200"

/* ---- instances ---- */

struct kri_native_instance *kri_native_instance_new(struct kri_worker *w, const struct kri_native_module *m)
{
    struct kr_vm *vm = w->vm;
    kr_value k = kri_make_vector(w, m->pool), roots = kri_cons(w, k, KRI_NIL);
    struct kri_native_instance *n = calloc(1, sizeof *n + m->functions * sizeof *n->native);
    if (!n)
        kri_error_memory(w, m->functions * sizeof *n->native);
    *m->api = &kri_native_table;
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

/* What stands for V, a constant of bytecode, in native code: the native counterpart of code and of functions that close over nothing. */
static kr_value native_constant(const struct kri_native_instance *n, kr_value v)
{
    bool function = kri_has_class(v, KRI_CLASS_COMPILED_CODE);
    if (!function && !kri_has_class(v, KRI_CLASS_CODE))
        return v;
    kr_value code = function ? kri_function_of(v)->code : v;
    for (uint32_t j = 0; j < n->module->functions; j++) {
        const struct kri_native *native = &n->native[j];
        if (!kri_is_nil(native->twin) && kri_eq(kri_function_of(native->twin)->code, code))
            return function ? native->object : native->code;
    }
    return v;
}

kr_value kri_native_attach(struct kri_worker *w, struct kri_native_instance *n, unsigned j, kr_value code)
{
    const struct kri_code *c = (const struct kri_code *)code.w;
    struct kri_native *native = &n->native[j];
    struct kri_cell *k = kri_ptr(n->constants);
    if (!native->function->entry)
        return code;
    struct kri_code *o = (struct kri_code *)kri_make(w, KRI_CLASS_CODE, 0, (sizeof *o - sizeof(struct kri_cell)) / 8);
    memcpy(&o->name, &c->name, sizeof *o - sizeof(struct kri_cell));
    o->constants = KRI_NIL;
    o->lines = KRI_NIL;
    o->k = NULL;
    o->builtin = kri_native_enter;
    o->native = native;
    native->code = kri_value_of(o);
    kr_value object = function_of(w, o), twin = function_of(w, c);
    kri_store(w, k, (kr_value *)&native->k[1 + n->module->functions + 2 * j], object);
    kri_store(w, k, (kr_value *)&native->k[2 + n->module->functions + 2 * j], twin);
    native->object = object;
    native->twin = twin;
    for (uint32_t i = 0; i < native->function->constants; i++)
        kri_store(w, k, (kr_value *)&native->k[native->function->pool + i], native_constant(n, c->k[i]));
    return kri_value_of(o);
}

/* ---- the C compiler ---- */

struct command {
    char **argv;
    const char *log;
    int status, error; /* error: it could not be started */
};

static void run_command(void *arg)
{
    struct command *c = arg;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, c->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    c->error = posix_spawnp(&pid, c->argv[0], &actions, NULL, c->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (c->error)
        return;
    while (waitpid(pid, &c->status, 0) < 0)
        if (errno != EINTR) {
            c->error = errno;
            return;
        }
}

/* Where lisp/native_code.h is: $KARAKURI_INCLUDE, the source tree, or installed beside the library. */
static bool include_directory(struct kri_worker *w, char path[PATH_MAX])
{
    const char *given = getenv("KARAKURI_INCLUDE"), *library = w->vm->library;
    static const char *const places[] = {"/..", "/../../include/karakuri", "/include"};
    char file[PATH_MAX + 32];
    for (size_t i = given && *given ? 0 : 1; i < 1 + sizeof places / sizeof *places; i++) {
        if (i == 0)
            snprintf(path, PATH_MAX, "%s", given);
        else
            snprintf(path, PATH_MAX, "%s%s", library, places[i - 1]);
        snprintf(file, sizeof file, "%s/lisp/native_code.h", path);
        if (access(file, R_OK) == 0)
            return true;
    }
    return false;
}

static void read_log(const char *log, char *text, size_t size)
{
    FILE *f = fopen(log, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
}

enum { WORDS = 64 };

/* Split TEXT at spaces into ARGV. */
static int add_words(char **argv, int n, char *text)
{
    char *state = NULL;
    for (char *p = strtok_r(text, " ", &state); p && n < WORDS - 8; p = strtok_r(NULL, " ", &state))
        argv[n++] = p;
    return n;
}

/* C to OBJECT, a shared object. */
static void compile_c(struct kri_worker *w, const char *c_file, const char *object, const char *log, int optimize)
{
    char include[PATH_MAX + 2] = "-I", cc[256], level[16], flags[256], more[256], text[300];
    char *argv[WORDS];
    if (!include_directory(w, include + 2))
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "Karakuri's headers (lisp/native_code.h) are not to be found; $KARAKURI_INCLUDE may name their directory");
    const char *given = getenv("KARAKURI_CC"), *given_flags = getenv("KARAKURI_CFLAGS");
    snprintf(cc, sizeof cc, "%s", given && *given ? given : KRI_NATIVE_CC);
    snprintf(level, sizeof level, "-O%d", optimize);
    snprintf(flags, sizeof flags, "%s", KRI_NATIVE_FLAGS);
    snprintf(more, sizeof more, "%s", given_flags ? given_flags : "");
    int n = add_words(argv, 0, cc);
    if (n == 0)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "no C compiler is named");
    argv[n++] = level;
    n = add_words(argv, n, flags);
    n = add_words(argv, n, more);
    argv[n++] = include;
    argv[n++] = "-o";
    argv[n++] = (char *)object;
    argv[n++] = (char *)c_file;
    argv[n] = NULL;
    struct command command = {.argv = argv, .log = log};
    kri_blocking(w, run_command, &command);
    if (command.error)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: there is no C compiler \"%s\" (%s); bytecode goes on serving", argv[0], strerror(command.error));
    if (command.status != 0) {
        read_log(log, text, sizeof text);
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: %s failed: %s", argv[0], text);
    }
}

/* ---- compile ---- */

struct scratch {
    char directory[PATH_MAX], c_file[PATH_MAX + 16], object[PATH_MAX + 16], log[PATH_MAX + 16];
    kr_value text;
    int optimize;
    const struct kri_native_module *module;
};

static void scratch_begin(struct kri_worker *w, struct scratch *s)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory - 32, "%s/karakuri-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(s->directory))
        kri_error(w, KRI_E_OPEN_FILE, KRI_NIL, "%s: %s", s->directory, strerror(errno));
    snprintf(s->c_file, sizeof s->c_file, "%s/module.c", s->directory);
    snprintf(s->object, sizeof s->object, "%s/module.so", s->directory);
    snprintf(s->log, sizeof s->log, "%s/log", s->directory);
}

static void scratch_end(struct kri_worker *w, void *arg)
{
    struct scratch *s = arg;
    (void)w;
    unlink(s->c_file);
    unlink(s->object);
    unlink(s->log);
    rmdir(s->directory);
}

static void write_file(struct kri_worker *w, const char *path, kr_value text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(kri_string_of(text)->byte, 1, kri_length(text), f) == kri_length(text);
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s", strerror(errno));
}

const struct kri_native_module *kri_native_open(struct kri_worker *w, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s", dlerror());
    const struct kri_native_module *m = dlsym(handle, "kri_module");
    if (!m || memcmp(m->magic, KRI_NATIVE_MAGIC, sizeof m->magic) != 0)
        kri_error(w, KRI_E_UNSUPPORTED, kri_string(w, path), "%s is no module of Karakuri's", path);
    if (m->abi != KRI_NATIVE_ABI || m->opcodes != KRI_OP_COUNT)
        kri_error(w, KRI_E_UNSUPPORTED, kri_string(w, path), "%s was compiled for version %u.%u of native code, this is %u.%u; compile it again", path,
                  m->abi, m->opcodes, (unsigned)KRI_NATIVE_ABI, (unsigned)KRI_OP_COUNT);
    return m;
}

static kr_value build_and_open(struct kri_worker *w, void *arg)
{
    struct scratch *s = arg;
    write_file(w, s->c_file, s->text);
    compile_c(w, s->c_file, s->object, s->log, s->optimize);
    s->module = kri_native_open(w, s->object);
    return KRI_NIL;
}

/* The code objects under CODE, those that others refer to first, appended to CODES. */
static kr_value collect(struct kri_worker *w, kr_value code, kr_value codes)
{
    const struct kri_code *c = (const struct kri_code *)code.w;
    if (c->builtin)
        return codes;
    for (kr_value l = codes; kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(l), code))
            return codes;
    if (kri_native_exhausted(w))
        kri_error_stack(w);
    for (size_t i = 0; i < kri_length(c->constants); i++) {
        kr_value v = c->k[i];
        if (kri_has_class(v, KRI_CLASS_COMPILED_CODE))
            v = kri_function_of(v)->code;
        if (kri_has_class(v, KRI_CLASS_CODE))
            codes = collect(w, v, codes);
    }
    return kri_cons(w, code, codes);
}

/* FN, bytecode, as native code; FN itself if it cannot be. */
static kr_value compile_function(struct kri_worker *w, kr_value fn)
{
    struct kri_native_source source = {.source = ""};
    struct scratch s = {.optimize = 1};
    kr_value list = collect(w, kri_function_of(fn)->code, KRI_NIL);
    for (kr_value l = list; kri_is_cons(l); l = kri_cdr(l))
        source.count++;
    source.codes = kri_make_vector(w, source.count);
    for (size_t i = source.count; i-- > 0; list = kri_cdr(list))
        kri_vector_of(source.codes)->at[i] = kri_car(list);
    s.text = kri_native_generate(w, &source);
    scratch_begin(w, &s);
    kri_unwind_protect(w, build_and_open, &s, scratch_end);
    struct kri_native_instance *n = kri_native_instance_new(w, s.module);
    kr_value code = KRI_NIL;
    for (size_t i = 0; i < source.count; i++)
        code = kri_native_attach(w, n, (unsigned)i, kri_vector_of(source.codes)->at[i]);
    if (!kri_code_of(fn)->captures)
        return kri_code_of(fn)->native || !((struct kri_code *)code.w)->native ? fn : n->native[source.count - 1].object;
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, 0, kri_code_of(fn)->captures + 1);
    f->code = code;
    memcpy(f->captured, kri_function_of(fn)->captured, kri_code_of(fn)->captures * sizeof(kr_value));
    return kri_value_of(f);
}

KR_BUILTIN(compile, "compile", "(function)",
           "Compile the function that the symbol FUNCTION names to native code, which replaces it, and return the symbol. A function "
           "object or a (lambda ..) list is compiled and the native function returned. Functions with catch, unwind-protect or special "
           "bindings stay bytecode, which every function is compiled to when it is defined. Error: undefined function; no C compiler.")
{
    kr_value fn = argv[0];
    if (kri_is_cons(fn))
        fn = kri_compile_lambda(w, KRI_NIL, fn);
    else if (!kri_is_function(fn))
        fn = kri_symbol_function(w->vm, kri_arg_symbol(w, argv, 0));
    struct kri_code *code = kri_code_of(fn);
    if (code->flags & KRI_CODE_UNDEFINED)
        kri_error(w, KRI_E_UNDEFINED, argv[0], NULL);
    kr_value compiled = code->builtin ? fn : compile_function(w, fn);
    if (!kri_is_symbol(argv[0]))
        return compiled;
    if (!kri_eq(compiled, fn))
        kri_set_function(w, argv[0], compiled);
    return argv[0];
}

const struct kri_builtin *const kri_builtins_native[] = {&compile_def, NULL};
