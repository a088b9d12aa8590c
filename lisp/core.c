/* core.c -- the core library and its modules, compiled at build time and linked in (lisp/boot), and where the rest of the library is.
 *
 * The image is a sequence of sections, the core's first: a name, the length of what follows, compiled forms (fasl.c). The others are
 * modules, lib/auto: lib/core/autoload.l says which names they define, and loads one when such a name is used. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lisp/fasl.h"
#include "lisp/init.h"
#include "lisp/native.h"

extern const unsigned char kri_core_image[];
extern const uint64_t kri_core_image_bytes;
extern const char kri_default_library[]; /* PREFIX/share/karakuri */
extern const struct kri_native_module *const kri_core_native;

/* The core's native code in this VM; NULL in the bootstrap's executable, which has none. */
static struct kri_native_instance *core_instance(struct kri_worker *w)
{
    const struct kri_native_module *m = kri_core_native;
    if (m && !kri_native_instance_of(w->vm, m))
        kri_native_instance_new(w, m);
    return m ? kri_native_instance_of(w->vm, m) : NULL;
}

/* Run the section NAME; false if there is none. */
static bool load_section(struct kri_worker *w, const char *name)
{
    const unsigned char *p = kri_core_image, *end = p + kri_core_image_bytes;
    while (p < end) {
        struct kri_section s;
        memcpy(&s, p, sizeof s);
        p += sizeof s;
        if (strcmp(s.name, name) == 0) {
            kri_fasl_load(w, p, s.length, core_instance(w));
            return true;
        }
        p += s.length;
    }
    return false;
}

static kr_value load_module(struct kri_worker *w, void *name)
{
    return kri_bool(w, load_section(w, name));
}

KR_BUILTIN(load_module, "lisp::%load-module", "(name)", "Run the forms of module NAME, a string, which is linked in. Returns nil if there is none.")
{
    char name[sizeof ((struct kri_section *)0)->name] = "";
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    if (kri_length(argv[0]) < sizeof name)
        memcpy(name, s->byte, kri_length(argv[0]));
    return kri_with_binding(w, w->vm->sym.package, w->vm->pkg_lisp, load_module, name);
}

kr_value kri_autoload_value(struct kri_worker *w, kr_value symbol, bool raise)
{
    struct kr_vm *vm = w->vm;
    if (vm->running && !kri_is_nil(kri_get(w, symbol, vm->sym.k_autoload))) {
        kr_value callee = w->callee;
        kri_call1(w, kri_symbol_function(vm, vm->sym.autoload_value), symbol);
        w->callee = callee;
    }
    kr_value v = kri_special(w, symbol);
    return raise && kri_eq(v, KRI_UNBOUND) ? kri_unbound_variable(w, symbol) : v;
}

const struct kri_builtin *const kri_builtins_core[] = {&load_module_def, NULL};

/* The library's directory as it lies to FILE, the executable or the shared object; malloc'ed, or NULL. */
static char *beside(const char *file)
{
    /* bin/karakuri and build/MODE/karakuri in the tree; PREFIX/bin, PREFIX/lib and PREFIX/lib/ARCHITECTURE installed. */
    static const char *const relative[] = {"/../lib", "/../../lib", "/../share/karakuri", "/../../share/karakuri"};
    char path[PATH_MAX + 64];
    snprintf(path, PATH_MAX, "%s", file);
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof relative / sizeof *relative; i++) {
        strcpy(slash, relative[i]);
        size_t length = strlen(path);
        strcat(path, "/core/macros.l");
        if (access(path, R_OK) != 0)
            continue;
        path[length] = '\0';
        char *real = realpath(path, NULL);
        return real ? real : strdup(path);
    }
    return NULL;
}

/* The library's directory: as configured, $KARAKURI_LIB, as it lies to the shared object or the executable that this code is in (build
 * tree and installed alike, wherever it was moved to), or as compiled in. malloc'ed. */
static char *library_directory(const char *configured)
{
    const char *given = configured ? configured : getenv("KARAKURI_LIB");
    if (given && *given)
        return strdup(given);
    Dl_info object;
    char *found = NULL, executable[PATH_MAX + 1];
    if (dladdr(kri_core_image, &object) && object.dli_fname)
        found = beside(object.dli_fname);
    ssize_t n = found ? 0 : readlink("/proc/self/exe", executable, PATH_MAX);
    if (n > 0) {
        executable[n] = '\0';
        found = beside(executable);
    }
    return found ? found : strdup(kri_default_library);
}

/* *load-path*: the working directory, the library, and where the benchmarks are, installed or in the source tree. */
static void set_load_path(struct kri_worker *w, const char *library)
{
    static const char *const places[] = {"/", "/bench/", "/../bench/"};
    kr_value list = KRI_NIL;
    for (size_t i = sizeof places / sizeof *places; i-- > 0;) {
        char directory[PATH_MAX];
        snprintf(directory, sizeof directory, "%s%s", library, places[i]);
        if (i == 0 || access(directory, R_OK) == 0)
            list = kri_cons(w, kri_string(w, directory), list);
    }
    kri_set_special(w, w->vm->sym.load_path, kri_cons(w, kri_string(w, "./"), list));
}

kr_value kri_load_core(struct kri_worker *w, void *arg)
{
    struct kr_vm *vm = w->vm;
    struct kri_core_load *load = arg;
    vm->library = library_directory(load->library);
    if (!vm->library)
        kri_error_memory(w, 0);
    set_load_path(w, vm->library);
    kri_set_special(w, vm->sym.package, vm->pkg_lisp);
    load_section(w, "core");
    if (kri_core_native)
        kri_native_activate(core_instance(w));
    kri_set_special(w, vm->sym.package, vm->pkg_user);
    kri_set_special(w, vm->sym.load_pathname, KRI_NIL);
    return vm->sym.t;
}
