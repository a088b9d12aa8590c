/* core.c -- the core library, compiled at build time and linked in (lisp/boot), and where the rest of the library is. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lisp/fasl.h"
#include "lisp/init.h"

#ifndef KRI_LIBRARY
#define KRI_LIBRARY "/usr/local/share/karakuri"
#endif

extern const unsigned char kri_core_image[], kri_core_image_end[];

/* The library's directory: as configured, $KARAKURI_LIB, beside the executable's bin/ (build tree and installed alike), or as
 * compiled in. malloc'ed. */
static char *library_directory(const char *configured)
{
    const char *given = configured ? configured : getenv("KARAKURI_LIB");
    char path[PATH_MAX + 64];
    if (given && *given)
        return strdup(given);
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    if (n > 0) {
        /* bin/karakuri and build/MODE/karakuri in the tree; PREFIX/bin/karakuri installed. */
        static const char *const beside[] = {"/../lib", "/../../lib", "/../share/karakuri"};
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        for (size_t i = 0; slash && i < sizeof beside / sizeof *beside; i++) {
            strcpy(slash, beside[i]);
            size_t length = strlen(path);
            strcat(path, "/core/macros.l");
            bool there = access(path, R_OK) == 0;
            path[length] = '\0';
            if (there) {
                char *real = realpath(path, NULL);
                return real ? real : strdup(path);
            }
        }
    }
    return strdup(KRI_LIBRARY);
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
    kri_fasl_load(w, kri_core_image, (size_t)(kri_core_image_end - kri_core_image));
    kri_set_special(w, vm->sym.package, vm->pkg_user);
    kri_set_special(w, vm->sym.load_pathname, KRI_NIL);
    return vm->sym.t;
}
