/* native_cc.c -- the C compiler: a directory for its files, its options, its failures. The headers that generated C includes are those this
 * library was made with: it carries them, in one (tools/flatten.awk). Nothing is written in place: the shared object gets its name when it is
 * complete. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lisp/native_module.h"

extern char **environ;
extern const char kri_native_header[];
extern const uint64_t kri_native_header_bytes;

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
    char include[PATH_MAX + 2], cc[256], level[16], flags[256], more[256], text[300];
    char *argv[WORDS];
    snprintf(include, sizeof include, "-I%s", s->directory);
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
    snprintf(s->header_directory, sizeof s->header_directory, "%s/lisp", s->directory);
    snprintf(s->header, sizeof s->header, "%s/lisp/native_code.h", s->directory);
    snprintf(s->c_file, sizeof s->c_file, "%s/module.c", s->directory);
    snprintf(s->object, sizeof s->object, "%s/module.so", s->directory);
    snprintf(s->log, sizeof s->log, "%s/log", s->directory);
}

void kri_scratch_end(struct kri_worker *w, void *arg)
{
    struct kri_scratch *s = arg;
    (void)w;
    unlink(s->header);
    rmdir(s->header_directory);
    unlink(s->c_file);
    unlink(s->object);
    unlink(s->log);
    rmdir(s->directory);
}

static void write_file(struct kri_worker *w, const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, path), "%s", strerror(errno));
}

void kri_scratch_build(struct kri_worker *w, const struct kri_scratch *s, kr_value text)
{
    if (mkdir(s->header_directory, 0700) != 0)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, s->header_directory), "%s", strerror(errno));
    write_file(w, s->header, kri_native_header, kri_native_header_bytes);
    write_file(w, s->c_file, kri_string_of(text)->byte, kri_length(text));
    compile_c(w, s, s->c_file, s->object);
}
