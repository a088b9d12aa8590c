/* native_cc.c -- the C compiler: a directory for its files, its options, several at a time, its failures. The headers that generated C
 * includes are those this library was made with: it carries them, in one (tools/flatten.awk). Nothing is written in place: the shared object gets its
 * name when it is complete. Whatever ends a compilation, an interrupt too, ends the compilers that still run and removes the files. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lisp/native_module.h"
#include "lisp/stream.h"
#include "lisp/unix.h"

extern const char kri_native_header[];
extern const uint64_t kri_native_header_bytes;

#ifndef KRI_NATIVE_CC
#define KRI_NATIVE_CC "cc"
#endif
/* The thread sanitizer must see the jumps of modules. */
#ifdef KRI_TSAN
#define KRI_NATIVE_MODE " -DKRI_TSAN"
#else
#define KRI_NATIVE_MODE ""
#endif
/* Measured: -O1 with inlining runs the recursive benchmarks faster than -O2 and takes half of its time to compile; -fcaller-saves keeps doubles in
 * registers over the polls of a loop. */
#define KRI_NATIVE_FLAGS                                                                                                                     \
    "-std=gnu11 -w -pipe -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -fcaller-saves -foptimize-sibling-calls -finline-functions -finline-small-functions " \
    "--param max-inline-insns-single=200" KRI_NATIVE_MODE

enum { WORDS = 128, CHILDREN = 64 };

/* The compiler and its options; what ARGV points to. */
struct words {
    char command[2000], flags[sizeof KRI_NATIVE_FLAGS], more[2000], level[16], include[PATH_MAX + 2];
};

/* TEXT, copied to ROOM of SIZE bytes, split at spaces into ARGV from N on. */
static int add_words(struct kri_worker *w, char **argv, int n, char *room, size_t size, const char *text)
{
    char *state = NULL;
    if ((size_t)snprintf(room, size, "%s", text ? text : "") >= size)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: $KARAKURI_CC or $KARAKURI_CFLAGS is too long");
    for (char *p = strtok_r(room, " \t\n", &state); p; p = strtok_r(NULL, " \t\n", &state)) {
        if (n == WORDS - 16)
            kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: $KARAKURI_CC or $KARAKURI_CFLAGS has too many words");
        argv[n++] = p;
    }
    return n;
}

/* The compiler with its options in ARGV; how many words. */
static int compiler_words(struct kri_worker *w, const struct kri_scratch *s, struct words *words, char **argv)
{
    snprintf(words->include, sizeof words->include, "-I%s", s->directory);
    const char *given = getenv("KARAKURI_CC");
    int n = add_words(w, argv, 0, words->command, sizeof words->command, given && *given ? given : KRI_NATIVE_CC);
    if (n == 0)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: $KARAKURI_CC names no C compiler");
    snprintf(words->level, sizeof words->level, "-O%d", s->optimize);
    argv[n++] = words->level;
    n = add_words(w, argv, n, words->flags, sizeof words->flags, KRI_NATIVE_FLAGS);
    n = add_words(w, argv, n, words->more, sizeof words->more, getenv("KARAKURI_CFLAGS"));
    argv[n++] = words->include;
    return n;
}

/* ---- the directory and what is in it ---- */

static void unit_file(const struct kri_scratch *s, unsigned unit, const char *suffix, char path[PATH_MAX + 32])
{
    snprintf(path, PATH_MAX + 32, "%s/unit%u%s", s->directory, unit, suffix);
}

void kri_scratch_begin(struct kri_worker *w, struct kri_scratch *s)
{
    const char *tmp = getenv("TMPDIR");
    if ((size_t)snprintf(s->directory, sizeof s->directory, "%s/karakuri-XXXXXX", tmp && *tmp ? tmp : "/tmp") >= sizeof s->directory)
        kri_error(w, KRI_E_OPEN_FILE, KRI_NIL, "$TMPDIR is too long");
    if (!mkdtemp(s->directory))
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, s->directory), "%s: %s", s->directory, strerror(errno));
    snprintf(s->object, sizeof s->object, "%s/module.so", s->directory);
}

/* ---- compilers that run ---- */

struct kri_compilers {
    unsigned count;
    struct {
        struct kri_child child;
        unsigned unit;
    } at[CHILDREN];
};

/* Outside the gate: end the compilers, at first politely, so that they remove files of their own. */
static void end_compilers(void *arg)
{
    struct kri_compilers *c = arg;
    int64_t begin = kri_now();
    for (int signal = SIGTERM; c->count > 0; signal = kri_now() - begin > 500000000 ? SIGKILL : SIGTERM) {
        for (unsigned i = c->count; i-- > 0;) {
            kill(-c->at[i].child.pid, signal);
            if (kri_child_look(&c->at[i].child) != EAGAIN)
                c->at[i] = c->at[--c->count];
        }
        usleep(2000);
    }
}

void kri_scratch_end(struct kri_worker *w, void *arg)
{
    struct kri_scratch *s = arg;
    char path[PATH_MAX + 32];
    if (s->compilers && s->compilers->count)
        kri_blocking(w, end_compilers, s->compilers);
    free(s->compilers);
    s->compilers = NULL;
    snprintf(path, sizeof path, "%s/lisp/native_code.h", s->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/lisp", s->directory);
    rmdir(path);
    for (unsigned u = 0; u < s->units + 1; u++) {
        static const char *const suffixes[] = {".c", ".o", ".log"};
        for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
            unit_file(s, u, suffixes[i], path);
            unlink(path);
        }
    }
    unlink(s->object);
    rmdir(s->directory);
}

static void write_file(struct kri_worker *w, const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    int error = errno;
    if (f && fclose(f) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (!ok)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s: %s", path, strerror(error));
}

struct starting {
    char **argv;
    int input, output;
    struct kri_child *child;
    int error;
};

static void start_child(void *arg)
{
    struct starting *s = arg;
    s->error = kri_child_start(s->argv, s->input, s->output, s->child);
}

static void write_text(struct kri_worker *w, const char *path, kr_value text)
{
    write_file(w, path, kri_string_of(text)->byte, kri_length(text));
}

/* Start ARGV as the compiler of UNIT; its output goes to the unit's log. */
static void start(struct kri_worker *w, struct kri_scratch *s, char **argv, unsigned unit)
{
    struct kri_compilers *c = s->compilers;
    char log[PATH_MAX + 32];
    unit_file(s, unit, ".log", log);
    int output = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct starting starting = {argv, input, output, &c->at[c->count].child, errno};
    if (output >= 0 && input >= 0)
        kri_blocking(w, start_child, &starting);
    int error = starting.error;
    bool opened = output >= 0 && input >= 0;
    if (output >= 0)
        close(output);
    if (input >= 0)
        close(input);
    if (error && !opened)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, log), "%s: %s", log, strerror(error));
    if (error)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: there is no C compiler \"%s\" (%s); bytecode goes on serving", argv[0], strerror(error));
    c->at[c->count++].unit = unit;
}

struct look {
    struct pollfd p[CHILDREN];
    nfds_t n;
    int milliseconds;
};

static void look_slice(void *arg)
{
    struct look *l = arg;
    poll(l->p, l->n, l->milliseconds);
}

/* What the compiler of UNIT said: its errors, if a line is one, else the beginning. */
static _Noreturn void failed(struct kri_worker *w, const struct kri_scratch *s, const char *compiler, unsigned unit, int status)
{
    char log[PATH_MAX + 32], text[1200];
    unit_file(s, unit, ".log", log);
    FILE *f = fopen(log, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *error = strstr(text, "rror: ");
    while (error && error > text && error[-1] != '\n')
        error--;
    if (WIFSIGNALED(status))
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: %s was ended by signal %d", compiler, WTERMSIG(status));
    if (WEXITSTATUS(status) == 127 && n == 0)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: there is no C compiler \"%s\"; bytecode goes on serving", compiler);
    char *said = text + (error ? error - text : 0);
    if (strlen(said) > 300)
        said[300] = '\0';
    kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: %s failed: %s", compiler, said);
}

/* What UNIT's compiler was to write is there. (The last one writes the module.) */
static bool has_written(const struct kri_scratch *s, unsigned unit)
{
    char path[PATH_MAX + 32];
    unit_file(s, unit, ".o", path);
    return access(unit < s->units ? path : s->object, R_OK) == 0;
}

/* Wait until a compiler has ended: how many have. An interrupt, or another error, leaves. */
static unsigned wait_for_some(struct kri_worker *w, struct kri_scratch *s, const char *compiler)
{
    struct kri_compilers *c = s->compilers;
    struct look l = {.n = c->count, .milliseconds = KRI_LOOK_UP_MS};
    unsigned ended = 0;
    for (unsigned i = 0; i < c->count; i++) {
        l.p[i] = (struct pollfd){.fd = c->at[i].child.pidfd, .events = POLLIN};
        if (l.p[i].fd < 0)
            l.milliseconds = 3;
    }
    kri_poll(w);
    kri_blocking(w, look_slice, &l);
    kri_poll(w);
    for (unsigned i = c->count; i-- > 0;) {
        int error = kri_child_look(&c->at[i].child), status = c->at[i].child.status;
        unsigned unit = c->at[i].unit;
        if (error == EAGAIN)
            continue;
        c->at[i] = c->at[--c->count];
        if (error == ECHILD) { /* a host that waits for every child, or ignores SIGCHLD, has its status: a compiler that fails leaves nothing */
            error = 0;
            status = has_written(s, unit) ? 0 : 1 << 8;
        }
        if (error)
            kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: %s: %s", compiler, strerror(error));
        if (status != 0)
            failed(w, s, compiler, unit, status);
        ended++;
    }
    return ended;
}

static unsigned processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > CHILDREN ? CHILDREN : (unsigned)n;
}

/* Every unit to an object file. */
static void compile_units(struct kri_worker *w, struct kri_scratch *s, char **argv, int n)
{
    unsigned most = processors(), begun = 0, done = 0;
    char source[PATH_MAX + 32], object[PATH_MAX + 32];
    while (done < s->units) {
        if (begun < s->units && s->compilers->count < most) {
            unit_file(s, begun, ".c", source);
            unit_file(s, begun, ".o", object);
            char *rest[] = {"-c", "-o", object, source, NULL};
            memcpy(argv + n, rest, sizeof rest);
            start(w, s, argv, begun++);
            continue;
        }
        unsigned ended = wait_for_some(w, s, argv[0]);
        done += ended;
        if (ended && s->progress)
            s->progress(w, s, done);
    }
}

/* A file that names the object files, since a command holds only so many words: PATH gets @ and its name. */
static void list_objects(struct kri_worker *w, const struct kri_scratch *s, char path[PATH_MAX + 33])
{
    struct kri_text t;
    char object[PATH_MAX + 32];
    kri_text_init(&t);
    for (unsigned u = 0; u < s->units; u++) {
        unit_file(s, u, ".o", object);
        for (const char *p = object; *p; p++) {
            if (*p != '/' && *p != '.' && !isalnum((unsigned char)*p))
                kri_text_putc(w, &t, '\\');
            kri_text_putc(w, &t, *p);
        }
        kri_text_putc(w, &t, '\n');
    }
    path[0] = '@';
    unit_file(s, s->units, ".o", path + 1);
    write_text(w, path + 1, kri_text_string(w, &t));
}

void kri_scratch_build(struct kri_worker *w, struct kri_scratch *s, kr_value texts)
{
    struct words words;
    char *argv[WORDS], path[PATH_MAX + 33];
    int n = compiler_words(w, s, &words, argv);
    s->compilers = calloc(1, sizeof *s->compilers);
    if (!s->compilers)
        kri_error_memory(w, sizeof *s->compilers);
    s->units = (unsigned)kri_length(texts);
    snprintf(path, sizeof path, "%s/lisp", s->directory);
    if (mkdir(path, 0700) != 0)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/lisp/native_code.h", s->directory);
    write_file(w, path, kri_native_header, kri_native_header_bytes);
    for (unsigned u = 0; u < s->units; u++) {
        unit_file(s, u, ".c", path);
        write_text(w, path, kri_vector_of(texts)->at[u]);
    }
    unit_file(s, 0, ".c", path); /* a single unit is compiled and linked at once */
    if (s->units > 1) {
        compile_units(w, s, argv, n);
        list_objects(w, s, path);
    }
    char *rest[] = {"-shared", "-Wl,-z,defs", "-o", s->object, path, NULL};
    memcpy(argv + n, rest, sizeof rest);
    start(w, s, argv, s->units);
    while (wait_for_some(w, s, argv[0]) == 0)
        ;
}
