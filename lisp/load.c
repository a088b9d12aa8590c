/* load.c -- loading source files, form by form, and finding them. Modules: lib/core/module.l. */
#include "lisp/load.h"
#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lisp/host.h"
#include "lisp/native_module.h"
#include "lisp/package.h"
#include "lisp/printer.h"

kr_value kri_path_string(struct kri_worker *w, kr_value path)
{
    struct kr_vm *vm = w->vm;
    if (kri_is_pointer(path) && kri_derivedp(vm, path, vm->classes[KRI_CLASS_PATHNAME].object))
        path = kri_namestring(w, path);
    else if (kri_is_pointer(path) && kri_is_symbol(path))
        path = kri_symbol_of(vm, path)->pname;
    if (!kri_is_string(vm, path))
        kri_error(w, KRI_E_NO_STRING, path, "%V is no file name", path);
    if (memchr(kri_string_of(path)->byte, 0, kri_length(path)))
        kri_error(w, KRI_E_OPEN_FILE, path, "a file name with a null character");
    return kri_string_n(w, (char *)kri_string_of(path)->byte, kri_length(path)); /* a copy, which nobody else changes */
}

const char *kri_path_text(kr_value path) { return (const char *)kri_string_of(path)->byte; }

struct opening {
    const char *path;
    int flags, mode, fd, error;
};

static void do_open(void *arg)
{
    struct opening *o = arg;
    do
        o->fd = open(o->path, o->flags | O_CLOEXEC, o->mode);
    while (o->fd < 0 && errno == EINTR);
    o->error = errno;
}

int kri_open_file(struct kri_worker *w, kr_value path, int flags, int mode)
{
    struct opening o = {.path = kri_path_text(path), .flags = flags, .mode = mode};
    kri_blocking(w, do_open, &o);
    return o.fd >= 0 ? o.fd : -o.error;
}

/* ---- one file ---- */

struct loading {
    kr_value path, stream, package;
    kr_value module; /* of native code, to be loaded in the place of forms, or NIL */
    kr_value value; /* of the last form */
    bool print;
    struct kri_positions *positions; /* of whoever loads this */
};

static void warn_of(struct kri_worker *w, kr_value path, const char *what, unsigned line)
{
    struct kri_text t;
    char text[160];
    if (line == 0)
        return;
    kri_text_init(&t);
    snprintf(text, sizeof text, what, line);
    kri_text_puts(w, &t, text);
    kri_text_puts(w, &t, kri_path_text(path));
    kri_text_putc(w, &t, '\n');
    kri_stream_write(w, kri_special(w, w->vm->sym.error_output), t.p, t.n);
}

static kr_value load_forms(struct kri_worker *w, void *arg)
{
    struct loading *l = arg;
    if (!kri_is_nil(l->module)) {
        kri_native_load(w, kri_path_text(l->module));
        return w->vm->sym.t;
    }
    for (;;) {
        kri_positions_begin(w);
        kr_value form = kri_read(w, l->stream, false, KRI_IMMEDIATE(KRI_IMM_EOF));
        kri_positions_freeze(w); /* what the form itself reads is not part of it */
        warn_of(w, l->path, ";; warning: line %u has a closing parenthesis without an open one: ", kri_positions_stray_line(w));
        /* EusLisp evaluates the form all the same, so that programs have lived with it. */
        warn_of(w, l->path, ";; warning: the list that begins in line %u is not closed, but the file ends: ", kri_positions_unclosed_line(w));
        if (kri_eq(form, KRI_IMMEDIATE(KRI_IMM_EOF))) {
            kri_positions_end(w);
            return w->vm->sym.t;
        }
        kr_value v = l->value = kri_eval(w, form);
        kri_positions_end(w);
        if (l->print) {
            kri_print(w, v, KRI_NIL, true);
            kri_stream_putc(w, KRI_NIL, '\n');
        }
    }
}

static kr_value bind_pathname(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.load_pathname, ((struct loading *)arg)->path, load_forms, arg);
}

static kr_value bind_readtable(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.readtable, kri_special(w, w->vm->sym.readtable), bind_pathname, arg);
}

static kr_value bind_package(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.package, ((struct loading *)arg)->package, bind_readtable, arg);
}

static void end_loading(struct kri_worker *w, void *arg)
{
    struct loading *l = arg;
    while (w->ctx->positions && w->ctx->positions != l->positions)
        kri_positions_end(w);
    if (!kri_is_nil(l->stream))
        kri_stream_finalize(w, l->stream); /* an input stream: nothing to write, nothing raised */
}

/* FD -1: MODULE, of native code, stands for the forms of PATH. */
static void load_open(struct kri_worker *w, int fd, kr_value path, kr_value module, kr_value package, bool print)
{
    struct loading l = {.path = path, .module = module, .package = package, .print = print, .positions = w->ctx->positions};
    l.stream = fd < 0 ? KRI_NIL : kri_make_fd_stream(w, fd, path, true, 0);
    kri_unwind_protect(w, bind_package, &l, end_loading);
}

kr_value kri_load_stream(struct kri_worker *w, kr_value stream, kr_value path)
{
    struct loading l = {.path = path, .stream = stream, .package = kri_special(w, w->vm->sym.package), .positions = w->ctx->positions};
    kri_unwind_protect(w, bind_package, &l, end_loading);
    return l.value;
}

void kri_load_path(struct kri_worker *w, const char *path)
{
    kr_value name = kri_string(w, path);
    int fd = kri_open_file(w, name, O_RDONLY, 0);
    if (fd < 0)
        kri_error(w, KRI_E_OPEN_FILE, name, "cannot open %s: %s", path, strerror(-fd));
    load_open(w, fd, name, KRI_NIL, kri_special(w, w->vm->sym.package), false);
}

/* ---- finding files ---- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* DIRECTORY and NAME joined, with each suffix in turn; NIL if no such file. */
static kr_value try_directory(struct kri_worker *w, kr_value directory, kr_value name)
{
    static const char *const suffixes[] = {"", ".l", ".so"}; /* a source leads to its module (kri_native_fresh) */
    struct kri_text t;
    kri_text_init(&t);
    if (kri_is_string(w->vm, directory) && kri_length(directory)) {
        kri_text_write(w, &t, kri_path_text(directory), kri_length(directory));
        if (t.p[t.n - 1] != '/')
            kri_text_putc(w, &t, '/');
    }
    kri_text_write(w, &t, kri_path_text(name), kri_length(name));
    size_t n = t.n;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        t.n = n;
        kri_text_puts(w, &t, suffixes[i]);
        kr_value path = kri_text_string(w, &t);
        if (is_file(kri_path_text(path)))
            return path;
    }
    return KRI_NIL;
}

/* EusLisp's library is the directory lib/llib/, and programs name its files so: NAME in ours, or NIL. */
static kr_value within_library(struct kri_worker *w, kr_value name)
{
    static const char directory[] = "lib/llib/";
    size_t n = strlen(directory), length = kri_length(name);
    if (length <= n || memcmp(kri_path_text(name), directory, n) != 0)
        return KRI_NIL;
    return kri_string_n(w, kri_path_text(name) + n, length - n);
}

kr_value kri_find_load_file(struct kri_worker *w, kr_value name)
{
    kr_value found = try_directory(w, KRI_NIL, name), ours = within_library(w, name);
    if (!kri_is_nil(found) || kri_path_text(name)[0] == '/')
        return found;
    if (!kri_is_nil(ours) && !kri_is_nil(found = try_directory(w, kri_string(w, w->vm->library), ours)))
        return found;
    for (kr_value l = kri_special(w, w->vm->sym.load_path); kri_is_cons(l); l = kri_cdr(l), kri_poll(w)) {
        kr_value directory = kri_car(l);
        if (kri_is_pointer(directory) && !kri_is_string(w->vm, directory))
            directory = kri_path_string(w, directory);
        found = try_directory(w, directory, name);
        if (!kri_is_nil(found))
            return found;
    }
    return KRI_NIL;
}

static bool has_suffix(kr_value path, const char *suffix)
{
    size_t n = kri_length(path), m = strlen(suffix);
    return n >= m && memcmp(kri_path_text(path) + n - m, suffix, m) == 0;
}

static void announce(struct kri_worker *w, const char *what, kr_value path)
{
    struct kri_text t;
    kri_text_init(&t);
    kri_text_puts(w, &t, what);
    kri_print_text(w, &t, path, false);
    kri_text_puts(w, &t, " into ");
    kri_print_text(w, &t, kri_special(w, w->vm->sym.package), true);
    kri_text_putc(w, &t, '\n');
    kri_stream_write(w, KRI_NIL, t.p, t.n);
}

/* Keys of load; others that EusLisp's load knows (for object files) are let through. */
static kr_value load_file(struct kri_worker *w, int argc, kr_value *argv, bool source_only)
{
    struct kr_vm *vm = w->vm;
    kr_value name = kri_path_string(w, argv[0]), path = kri_find_load_file(w, name);
    if (kri_is_nil(path))
        kri_error(w, KRI_E_OPEN_FILE, argv[0], "file #P%V not found", argv[0]);
    const kr_value keys[] = {kri_keyword(w, "VERBOSE"), kri_keyword(w, "PACKAGE"), kri_keyword(w, "PRINT"), kri_keyword(w, "ENTRY"),
                             kri_keyword(w, "SYMBOL-INPUT"), kri_keyword(w, "SYMBOL-OUTPUT"), kri_keyword(w, "LD-OPTION")};
    kri_check_keys(w, argc, argv, 1, keys, 7);
    bool verbose = !kri_is_nil(kri_arg_key(argc, argv, 1, keys[0], kri_special(w, vm->sym.load_verbose)));
    kr_value package = kri_arg_key(argc, argv, 1, keys[1], KRI_NIL);
    package = kri_is_nil(package) ? kri_special(w, vm->sym.package) : kri_package_arg(w, package);
    kr_value module = has_suffix(path, ".so") ? path : source_only || kri_is_denied(w, KR_FOREIGN) ? KRI_NIL : kri_native_fresh(w, path);
    if (!kri_is_nil(module)) {
        if (verbose)
            announce(w, ";; binloading ", module);
        load_open(w, -1, path, module, package, false);
        return vm->sym.t;
    }
    if (has_suffix(path, ".o"))
        kri_error(w, KRI_E_UNSUPPORTED, path, "loading object files; compile-file makes modules");
    if (verbose)
        announce(w, ";; txtloading ", path);
    int fd = kri_open_file(w, path, O_RDONLY, 0);
    if (fd < 0)
        kri_error(w, KRI_E_OPEN_FILE, path, "cannot open %s: %s", kri_path_text(path), strerror(-fd));
    load_open(w, fd, path, KRI_NIL, package, !kri_is_nil(kri_arg_key(argc, argv, 1, keys[2], KRI_NIL)));
    return vm->sym.t;
}

KR_BUILTIN(load, "load", "(name &key verbose package print entry symbol-input symbol-output ld-option)",
           "Read and evaluate the forms of file NAME: as it is, with .so or .l appended, or so in the directories of *load-path*. "
           "The current package and readtable are restored afterwards. :package is the package to begin in; :verbose (by default "
           "*load-verbose*) announces it, :print prints each value. Returns t. Error: file not found; the file's own errors.")
{
    return load_file(w, argc, argv, false);
}

KR_BUILTIN(load_text, "lisp::%load-text", "(text file line)",
           "Evaluate the forms of TEXT as those of FILE from LINE on, as an editor sends them. Returns the last value.")
{
    const struct kri_string *text = kri_arg_string(w, argv, 0);
    size_t n = text->head.length;
    kr_value file = kri_path_string(w, argv[1]);
    intptr_t line = kri_arg_natural(w, argv, 2);
    if (line == 0 || line > 10000000)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    kr_value padded = kri_make_string(w, (size_t)line - 1 + n); /* the reader counts lines */
    memset(kri_string_of(padded)->byte, '\n', (size_t)line - 1);
    memcpy(kri_string_of(padded)->byte + line - 1, text->byte, n);
    return kri_load_stream(w, kri_make_string_input(w, (const char *)kri_string_of(padded)->byte, kri_length(padded)), file);
}

KR_BUILTIN(srcload, "sys:srcload", "(name)", "Load file NAME as source. Returns t.")
{
    return load_file(w, 1, argv, true);
}

KR_BUILTIN(find_load_file, "lisp::%find-load-file", "(name)",
           "The file that (load NAME) would load: NAME as it is, with .so or .l appended, or so in a directory of *load-path*, lib/llib/ at its beginning "
           "standing for the library too; nil if there is none.")
{
    return kri_find_load_file(w, kri_path_string(w, argv[0]));
}

const struct kri_builtin *const kri_builtins_load[] = {&load_def, &load_text_def, &srcload_def, &find_load_file_def, NULL};
