/* native_compile.c -- compile and compile-file: functions and files to modules of native code. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "lisp/compile.h"
#include "lisp/fasl.h"
#include "lisp/load.h"
#include "lisp/host.h"
#include "lisp/native_module.h"
#include "lisp/stream.h"

/* ---- one function ---- */

struct build {
    struct kri_scratch scratch;
    kr_value texts;
    const struct kri_native_module *module;
};

static kr_value build_and_open(struct kri_worker *w, void *arg)
{
    struct build *b = arg;
    kri_scratch_build(w, &b->scratch, b->texts);
    b->module = kri_native_open(w, b->scratch.object);
    return KRI_NIL;
}

/* The code objects under CODE, those that others refer to first, appended to CODES. */
static kr_value collect(struct kri_worker *w, kr_value code, kr_value codes)
{
    const struct kri_code *c = (const struct kri_code *)code.w;
    if (kri_is_builtin_code(c))
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

/* LIST, the last first, as a vector. */
static kr_value in_order(struct kri_worker *w, kr_value list, size_t *count)
{
    *count = 0;
    for (kr_value l = list; kri_is_cons(l); l = kri_cdr(l))
        ++*count;
    kr_value v = kri_make_vector(w, *count);
    for (size_t i = *count; i-- > 0; list = kri_cdr(list))
        kri_vector_of(v)->at[i] = kri_car(list);
    return v;
}

static kr_value collected(struct kri_worker *w, kr_value code, size_t *count) { return in_order(w, collect(w, code, KRI_NIL), count); }

/* FN, bytecode, as native code; FN itself if it cannot be. */
static kr_value compile_function(struct kri_worker *w, kr_value fn)
{
    struct kri_native_source source = {.source = ""};
    struct build b = {.scratch.optimize = 1};
    source.codes = collected(w, kri_function_of(fn)->code, &source.count);
    b.texts = kri_native_generate(w, &source);
    kri_scratch_begin(w, &b.scratch);
    kri_unwind_protect(w, build_and_open, &b, kri_scratch_end);
    struct kri_native_instance *n = kri_native_instance_new(w, b.module);
    kri_native_attach_copies(w, n, source.codes);
    const struct kri_native *native = &n->native[source.count - 1]; /* FN's comes last */
    if (!native->function->entry)
        return fn;
    if (!kri_code_of(fn)->captures)
        return native->object;
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, 0, kri_code_of(fn)->captures + 1);
    f->code = native->code;
    memcpy(f->captured, kri_function_of(fn)->captured, kri_code_of(fn)->captures * sizeof(kr_value));
    return kri_value_of(f);
}

KR_BUILTIN(compile, "compile", "(function)",
           "Compile the function that the symbol FUNCTION names to native code, which replaces it, and return the symbol. A function "
           "object or a (lambda ..) list is compiled and the native function returned. Its bytecode, which every function is compiled to when it "
           "is defined, is kept. A definition that another thread gives FUNCTION meanwhile stays. Error: undefined function; no C compiler.")
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
        kri_replace_function(w, argv[0], fn, compiled);
    return argv[0];
}

/* ---- disassemble ---- */

/* The C of FN, native, as compile would make it. */
static void print_c(struct kri_worker *w, kr_value fn, kr_value stream)
{
    struct kri_native_source source = {.source = "", .units = 1};
    source.codes = collected(w, kri_function_of(fn)->code, &source.count);
    kr_value text = kri_vector_of(kri_native_generate(w, &source))->at[0];
    const char *begin = (const char *)kri_string_of(text)->byte, *end = strstr(begin, "\nstatic const struct kri_native_function functions[]");
    kri_stream_write(w, stream, begin, end ? (size_t)(end - begin) : kri_length(text));
}

struct dump {
    char command[PATH_MAX + 200];
    char file[64];
    const unsigned char *code;
    size_t bytes, n;
    char text[1 << 16];
};

static void run_objdump(void *arg)
{
    struct dump *d = arg;
    FILE *f = fopen(d->file, "wb"), *p = NULL;
    bool ok = f && fwrite(d->code, 1, d->bytes, f) == d->bytes;
    if (f && fclose(f) == 0 && ok)
        p = popen(d->command, "r");
    d->n = p ? fread(d->text, 1, sizeof d->text, p) : 0;
    if (p)
        pclose(p);
}

/* The machine code of FN by objdump, where it is installed; it ends where the next function of the module begins. */
static void print_machine_code(struct kri_worker *w, kr_value fn, kr_value stream)
{
    const struct kri_native *n = kri_code_of(fn)->native;
    const struct kri_native_instance *i = kri_untag_pointer(n->k[0]);
    const unsigned char *entry = n->function->entry, *end = entry + 4096;
    char directory[] = "/tmp/karakuri-XXXXXX";
    for (uint32_t j = 0; j < i->module->functions; j++) {
        const unsigned char *other = i->module->function[j].entry;
        if (other > entry && other < end)
            end = other;
    }
    struct dump *d = malloc(sizeof *d);
    if (!d || !mkdtemp(directory)) {
        free(d);
        return;
    }
    d->code = entry;
    d->bytes = (size_t)(end - entry) > 600 && end == entry + 4096 ? 600 : (size_t)(end - entry); /* the last one: as much as is surely there */
    snprintf(d->file, sizeof d->file, "%s/code", directory);
    snprintf(d->command, sizeof d->command, "objdump -D -b binary -m %s --no-show-raw-insn --adjust-vma=%p %s 2>/dev/null | tail -n +8",
#if defined(__aarch64__)
             "aarch64",
#else
             "i386:x86-64",
#endif
             (const void *)entry, d->file);
    kri_blocking(w, run_objdump, d);
    unlink(d->file);
    rmdir(directory);
    kr_value text = kri_string_n(w, d->text, d->n);
    free(d);
    if (kri_length(text)) {
        static const char head[] = "\nMachine code, by objdump; what lies out of the way is elsewhere:\n";
        kri_stream_write(w, stream, head, sizeof head - 1);
        kri_stream_write(w, stream, kri_path_text(text), kri_length(text));
    }
}

void kri_native_disassemble(struct kri_worker *w, kr_value fn, kr_value stream)
{
    kri_disassemble(w, fn, stream);
    kri_stream_write(w, stream, "\n", 1);
    print_c(w, fn, stream);
    if (!kri_is_denied(w, KR_FILES | KR_PROCESSES))
        print_machine_code(w, fn, stream);
}

/* ---- a file ----
 *
 * It is read twice. First the forms that define something are evaluated, so that every macro, class, package and constant is there when
 * the second reading compiles all forms: functions may come before the macros that they use, as in a file that is loaded. */

struct unit {
    kr_value path, output, stream, package, texts;
    struct kri_fasl fasl;
    struct kri_scratch scratch;
    struct kri_native_source source;
    struct kri_positions *positions;
    bool emit, verbose;
    unsigned forms;
};

static bool named(struct kri_worker *w, kr_value symbol, const char *const *names)
{
    const unsigned char *text;
    size_t n;
    (void)w;
    const struct kri_string *s = kri_string_of(((const struct kri_symbol *)symbol.w)->pname);
    text = s->byte;
    n = s->head.length;
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, text, n) == 0)
            return true;
    return false;
}

/* Forms that change how the rest of the file is read: evaluated both times. */
static bool changes_reading(struct kri_worker *w, kr_value head)
{
    static const char *const names[] = {"IN-PACKAGE", "USE-PACKAGE", "UNUSE-PACKAGE", "EXPORT", "IMPORT", "SHADOW", "UNEXPORT", "MAKE-PACKAGE",
                                        "SET-MACRO-CHARACTER", "SET-DISPATCH-MACRO-CHARACTER", "SET-SYNTAX-FROM-CHAR", NULL};
    return named(w, head, names);
}

static bool defines(struct kri_worker *w, kr_value head)
{
    static const char *const names[] = {"REQUIRE", "PROCLAIM", "DECLAIM", "LOAD", "AUTOLOAD", "SETF-EXPANDER", NULL};
    const struct kri_string *s = kri_string_of(((const struct kri_symbol *)head.w)->pname);
    return (s->head.length > 3 && memcmp(s->byte, "DEF", 3) == 0) || named(w, head, names);
}

/* Macros whose expanders note what they define: these forms are evaluated where the module is loaded, as a source's are. */
static bool expands_once_more(struct kri_worker *w, kr_value head)
{
    static const char *const names[] = {"DEFSTRUCT", "DEFINE-CONDITION", NULL};
    return named(w, head, names);
}

static kr_value evaluate(struct kri_worker *w, void *form) { return kri_eval(w, *(kr_value *)form); }

/* Evaluate a definition while compiling. What fails may depend on forms that only run when the file is loaded. */
static void evaluate_now(struct kri_worker *w, kr_value form)
{
    kr_value result, rest = kri_cdr(form);
    if (kri_attempt(w, evaluate, &form, true, &result))
        return;
    const struct kri_string *s = kri_string_of(((const struct kri_symbol *)kri_car(form).w)->pname);
    bool variable = (s->head.length == 6 && !memcmp(s->byte, "DEFVAR", 6)) || (s->head.length == 12 && !memcmp(s->byte, "DEFPARAMETER", 12));
    if (variable && kri_is_cons(rest) && kri_has_class(kri_car(rest), KRI_CLASS_SYMBOL)) {
        kri_proclaim_special(w, kri_car(rest));
        return;
    }
    kr_value report = kri_send(w, result, kri_keyword(w, "REPORT"), 0, NULL);
    struct kri_text t;
    kri_text_init(&t);
    kri_text_puts(w, &t, ";; while compiling: ");
    kri_text_write(w, &t, kri_path_text(report), kri_length(report));
    kri_text_putc(w, &t, '\n');
    kri_stream_write(w, kri_special(w, w->vm->sym.error_output), t.p, t.n);
}

static void top_level(struct kri_worker *w, struct unit *u, kr_value form, bool now);

static void each(struct kri_worker *w, struct unit *u, kr_value forms, bool now)
{
    for (; kri_is_cons(forms); forms = kri_cdr(forms))
        top_level(w, u, kri_car(forms), now);
}

static bool has_situation(struct kri_worker *w, kr_value situations, const char *plain, const char *keyword)
{
    kr_value a = kri_intern(w, plain, strlen(plain), w->vm->pkg_lisp), b = kri_keyword(w, keyword);
    for (; kri_is_cons(situations); situations = kri_cdr(situations))
        if (kri_eq(kri_car(situations), a) || kri_eq(kri_car(situations), b))
            return true;
    return false;
}

/* FORM of the file, or of a progn there. NOW: an eval-when asks for evaluation while compiling. */
static void top_level(struct kri_worker *w, struct unit *u, kr_value form, bool now)
{
    kr_value head = kri_is_cons(form) ? kri_car(form) : KRI_NIL;
    if (kri_native_exhausted(w))
        kri_error_stack(w);
    if (kri_has_class(head, KRI_CLASS_SYMBOL)) {
        bool definition = defines(w, head), expanded = false;
        if (kri_eq(head, w->vm->sym.progn)) {
            each(w, u, kri_cdr(form), now);
            return;
        }
        if (kri_eq(head, w->vm->sym.eval_when) && kri_is_cons(kri_cdr(form))) {
            kr_value situations = kri_car(kri_cdr(form)), body = kri_cdr(kri_cdr(form));
            bool compile = has_situation(w, situations, "COMPILE", "COMPILE-TOPLEVEL");
            if (has_situation(w, situations, "LOAD", "LOAD-TOPLEVEL") || has_situation(w, situations, "EVAL", "EXECUTE"))
                each(w, u, body, compile);
            else if (compile && !u->emit)
                for (; kri_is_cons(body); body = kri_cdr(body))
                    evaluate_now(w, kri_car(body));
            return;
        }
        bool reading = changes_reading(w, head);
        if (u->emit && expands_once_more(w, head)) {
            kr_value quoted = kri_list(w, 2, w->vm->sym.quote, form);
            kri_fasl_form(&u->fasl, kri_compile_form(w, kri_list(w, 2, w->vm->sym.eval, quoted)));
            return;
        }
        /* The parts of a definition are forms of their own: a class is there before its methods are read. */
        if ((!definition || u->emit) && !reading) {
            kr_value expansion = kri_macroexpand1(w, form, &expanded);
            if (expanded) {
                top_level(w, u, expansion, now);
                return;
            }
        }
        if (reading || (!u->emit && (definition || now)))
            evaluate_now(w, form);
    }
    if (u->emit && (kri_is_cons(form) || kri_has_class(form, KRI_CLASS_SYMBOL))) {
        kri_fasl_form(&u->fasl, kri_compile_form(w, form));
        u->forms++;
    }
}

static kr_value read_forms(struct kri_worker *w, void *arg)
{
    struct unit *u = arg;
    for (;;) {
        kri_positions_begin(w);
        kr_value form = kri_read(w, u->stream, false, KRI_IMMEDIATE(KRI_IMM_EOF));
        kri_positions_freeze(w);
        if (kri_eq(form, KRI_IMMEDIATE(KRI_IMM_EOF))) {
            kri_positions_end(w);
            return KRI_NIL;
        }
        top_level(w, u, form, false);
        kri_positions_end(w);
    }
}

/* The second reading notes which macros the functions use, and the module says so where it is loaded: they are compiled again if a macro changes. */
static kr_value read_and_note(struct kri_worker *w, void *arg)
{
    struct unit *u = arg;
    read_forms(w, arg);
    kr_value list = kri_eval(w, kri_read_from_string(w, kri_string(w,
        "(let ((users nil)) (lisp:maphash #'(lambda (lisp::k lisp::v) (lisp:push (lisp:cons lisp::k lisp::v) users)) lisp::*macro-users*) users)")));
    if (!kri_is_nil(list)) {
        kr_value note = kri_intern(w, "%NOTE-MACRO-USERS", 17, w->vm->pkg_lisp);
        kri_fasl_form(&u->fasl, kri_compile_form(w, kri_list(w, 2, note, kri_list(w, 2, w->vm->sym.quote, list))));
    }
    return KRI_NIL;
}

static kr_value bind_users(struct kri_worker *w, void *arg)
{
    if (!((struct unit *)arg)->emit || !kri_late_ready(w))
        return read_forms(w, arg);
    kr_value table = kri_eval(w, kri_read_from_string(w, kri_string(w, "(lisp:make-hash-table)")));
    return kri_with_binding(w, w->vm->sym.macro_users, table, read_and_note, arg);
}

static kr_value bind_pathname(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.load_pathname, ((struct unit *)arg)->path, bind_users, arg);
}
static kr_value bind_readtable(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.readtable, kri_special(w, w->vm->sym.readtable), bind_pathname, arg);
}
static kr_value bind_package(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.package, ((struct unit *)arg)->package, bind_readtable, arg);
}
static void end_reading(struct kri_worker *w, void *arg)
{
    struct unit *u = arg;
    while (w->ctx->positions && w->ctx->positions != u->positions)
        kri_positions_end(w);
    kri_stream_finalize(w, u->stream);
}

static void read_file(struct kri_worker *w, struct unit *u, bool emit)
{
    int fd = kri_open_file(w, u->path, O_RDONLY, 0);
    if (fd < 0)
        kri_error(w, KRI_E_OPEN_FILE, u->path, "%s: %s", kri_path_text(u->path), strerror(-fd));
    u->emit = emit;
    u->stream = kri_make_fd_stream(w, fd, u->path, true, 0);
    kri_unwind_protect(w, bind_package, u, end_reading);
}

static kr_value build_file(struct kri_worker *w, void *arg)
{
    struct unit *u = arg;
    kri_scratch_build(w, &u->scratch, u->texts);
    if (rename(u->scratch.object, kri_path_text(u->output)) != 0)
        kri_error(w, KRI_E_OPEN_FILE, u->output, "%s", strerror(errno));
    return KRI_NIL;
}

static void progress(struct kri_worker *w, const struct unit *u, const char *what, uint64_t count)
{
    char line[PATH_MAX + 100];
    if (!u->verbose)
        return;
    int n = count ? snprintf(line, sizeof line, ";; %s: %s %lu\n", kri_path_text(u->path), what, (unsigned long)count)
                  : snprintf(line, sizeof line, ";; %s: %s\n", kri_path_text(u->path), what);
    kri_stream_write(w, KRI_NIL, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* The module's name for source PATH when none is given: .so in the place of .l. */
static kr_value default_output(struct kri_worker *w, kr_value path)
{
    const char *text = kri_path_text(path);
    size_t n = kri_length(path);
    if (n > 2 && strcmp(text + n - 2, ".l") == 0)
        n -= 2;
    kr_value output = kri_make_string(w, n + 3);
    snprintf((char *)kri_string_of(output)->byte, n + 4, "%.*s.so", (int)n, text);
    return output;
}

static void compile_file(struct kri_worker *w, struct unit *u)
{
    struct stat st;
    if (stat(kri_path_text(u->path), &st) != 0)
        kri_error(w, KRI_E_OPEN_FILE, u->path, "%s: %s", kri_path_text(u->path), strerror(errno));
    u->positions = w->ctx->positions;
    u->package = kri_special(w, w->vm->sym.package);
    kri_fasl_begin(w, &u->fasl, true, NULL);
    read_file(w, u, false);
    read_file(w, u, true);
    kri_fasl_end(&u->fasl);
    progress(w, u, "top-level forms", u->forms);
    u->source.codes = kri_fasl_codes(&u->fasl, &u->source.count);
    u->source.source = kri_path_text(u->path);
    u->source.source_size = st.st_size;
    u->source.source_time = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
    u->source.image = kri_string_of(u->fasl.buffer)->byte;
    u->source.image_size = u->fasl.n;
    u->texts = kri_native_generate(w, &u->source);
    progress(w, u, "functions", u->source.count);
    kri_scratch_begin(w, &u->scratch);
    /* In the output's own directory, so that it can be renamed; written under a name of its own. */
    snprintf(u->scratch.object, sizeof u->scratch.object, "%s.%ld.new", kri_path_text(u->output), (long)getpid());
    kri_unwind_protect(w, build_file, u, kri_scratch_end);
    progress(w, u, "compiled", 0);
}

KR_BUILTIN(compile_file, "compile-file", "(file &key output verbose optimize c-optimize safety pic cc entry o)",
           "Compile FILE (.l may be left off) to native code: a module, FILE with .so, or :output, which load and require then prefer to the source while "
           "that is unchanged. :optimize is the C compiler's -O (1); :verbose shows progress. EusLisp's other keys are accepted. Definitions, in-package and "
           "require are evaluated meanwhile, other forms only when the module is loaded. Returns the module's name. Errors: no such file, a form that "
           "cannot be compiled, no C compiler.")
{
    static const char *const names[] = {"OUTPUT", "VERBOSE", "OPTIMIZE", "C-OPTIMIZE", "SAFETY", "PIC", "CC", "ENTRY", "O"};
    kr_value keys[9], name = kri_path_string(w, argv[0]), path = KRI_NIL;
    for (int i = 0; i < 9; i++)
        keys[i] = kri_keyword(w, names[i]);
    kri_check_keys(w, argc, argv, 1, keys, 9);
    struct stat st;
    if (stat(kri_path_text(name), &st) == 0 && !S_ISDIR(st.st_mode)) {
        path = name;
    } else {
        path = kri_make_string(w, kri_length(name) + 2);
        snprintf((char *)kri_string_of(path)->byte, kri_length(name) + 3, "%s.l", kri_path_text(name));
    }
    struct unit unit = {.path = path, .scratch.optimize = 1};
    kr_value output = kri_arg_key(argc, argv, 1, keys[0], kri_arg_key(argc, argv, 1, keys[8], KRI_NIL));
    kr_value level = kri_arg_key(argc, argv, 1, keys[2], kri_fixnum(1));
    if (kri_is_fixnum(level) && kri_fixnum_value(level) >= 0 && kri_fixnum_value(level) <= 3)
        unit.scratch.optimize = (int)kri_fixnum_value(level);
    unit.verbose = !kri_is_nil(kri_arg_key(argc, argv, 1, keys[1], KRI_NIL));
    unit.output = kri_is_nil(output) ? default_output(w, path) : kri_path_string(w, output);
    compile_file(w, &unit);
    return unit.output;
}

const struct kri_builtin *const kri_builtins_native[] = {&compile_def, &compile_file_def, NULL};
