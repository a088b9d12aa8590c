/* core.c -- finding the Lisp library and loading its core. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lisp/init.h"

#ifndef KRI_LIBRARY
#define KRI_LIBRARY "/usr/local/share/karakuri"
#endif

static const char *const core_files[] = {"sequence", "macros", "setf", "class", "stream", "system", "thread", "debug", "toplevel"};

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
        static const char *const beside[] = {"/../lib/core/macros.l", "/../share/karakuri/core/macros.l"};
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        for (size_t i = 0; slash && i < sizeof beside / sizeof *beside; i++) {
            strcpy(slash, beside[i]);
            if (access(path, R_OK) == 0) {
                strcpy(slash + strlen(beside[i]) - strlen("/core/macros.l"), "");
                char *real = realpath(path, NULL);
                return real ? real : strdup(path);
            }
        }
    }
    return strdup(KRI_LIBRARY);
}

kr_value kri_load_core(struct kri_worker *w, void *arg)
{
    struct kr_vm *vm = w->vm;
    struct kri_core_load *load = arg;
    vm->library = library_directory(load->library);
    if (!vm->library)
        kri_error_memory(w, 0);
    kri_set_special(w, vm->sym.load_path, kri_list(w, 2, kri_string(w, "./"), kri_string(w, vm->library)));
    for (size_t i = 0; i < sizeof core_files / sizeof *core_files; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/core/%s.l", vm->library, core_files[i]);
        kri_load_path(w, path);
    }
    kri_set_special(w, vm->sym.package, vm->pkg_user);
    return vm->sym.t;
}
