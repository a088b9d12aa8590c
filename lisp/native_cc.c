/* native_cc.c -- the C compiler: a directory for its files, its options, its failures. Nothing is written in place: the shared object gets its
 * name when it is complete. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lisp/native_module.h"

extern char **environ;

#ifndef KRI_NATIVE_CC
#define KRI_NATIVE_CC "cc"
#endif
/* Measured: -O1 with inlining runs the recursive benchmarks faster than -O2 and takes half of its time to compile; -fcaller-saves keeps doubles in
 * registers over the polls of a loop. */
#define KRI_NATIVE_FLAGS                                                                                                                     \
    "-std=gnu11 -w -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -fcaller-saves -foptimize-sibling-calls -finline-functions -finline-small-functions -Wl,-z,defs " \
    "--param max-inline-insns-single=200"

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
static void compile_c(struct kri_worker *w, const struct kri_scratch *s, const char *c_file, const char *object)
{
    char include[PATH_MAX + 2] = "-I", cc[256], level[16], flags[256], more[256], text[300];
    char *argv[WORDS];
    if (!include_directory(w, include + 2))
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "Karakuri's headers (lisp/native_code.h) are not to be found; $KARAKURI_INCLUDE may name their directory");
    const char *given = getenv("KARAKURI_CC"), *given_flags = getenv("KARAKURI_CFLAGS");
    snprintf(cc, sizeof cc, "%s", given && *given ? given : KRI_NATIVE_CC);
    snprintf(level, sizeof level, "-O%d", s->optimize);
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
    struct command command = {.argv = argv, .log = s->log};
    kri_blocking(w, run_command, &command);
    if (command.error)
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: there is no C compiler \"%s\" (%s); bytecode goes on serving", argv[0], strerror(command.error));
    if (command.status != 0) {
        read_log(s->log, text, sizeof text);
        kri_error(w, KRI_E_UNSUPPORTED, KRI_NIL, "native code: %s failed: %s", argv[0], text);
    }
}

void kri_scratch_begin(struct kri_worker *w, struct kri_scratch *s)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory - 32, "%s/karakuri-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(s->directory))
        kri_error(w, KRI_E_OPEN_FILE, KRI_NIL, "%s: %s", s->directory, strerror(errno));
    snprintf(s->c_file, sizeof s->c_file, "%s/module.c", s->directory);
    snprintf(s->object, sizeof s->object, "%s/module.so", s->directory);
    snprintf(s->log, sizeof s->log, "%s/log", s->directory);
}

void kri_scratch_end(struct kri_worker *w, void *arg)
{
    struct kri_scratch *s = arg;
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

void kri_scratch_build(struct kri_worker *w, const struct kri_scratch *s, kr_value text)
{
    write_file(w, s->c_file, text);
    compile_c(w, s, s->c_file, s->object);
}
