/* main.c -- the bootstrap: compiles the core library's sources, on a VM without it, into the bytes that are linked into
 * libkarakuri, and then each module into a section of its own (lisp/core.c); and the functions to C, NATIVE-0.c and so on, which the
 * C compiler makes native code of. The functions of a source after -b stay bytecode. Same sources, same bytes.
 *   karakuri-boot OUTPUT NATIVE UNITS [-b] SOURCE... -- [-b] MODULE... */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lisp/fasl.h"
#include "lisp/init.h"
#include "lisp/native.h"
#include "lisp/stream.h"

#ifndef KRI_BOOT_LINKED /* with the core linked in, it compiles itself: what it makes must be the same */
/* What lisp/boot/image.S and the native code put in their place. */
const unsigned char kri_core_image[1];
const char kri_native_header[1], kri_default_library[1];
const uint64_t kri_core_image_bytes = 0, kri_native_header_bytes = 0;
const struct kri_native_module *const kri_core_native = NULL;
#endif

struct boot {
    const char *output, *native;
    unsigned units;
    char **sources;
    FILE *file;
    struct kri_fasl fasl; /* the section that is made; the collector sees it, it lies on the stack */
};

static void compile(struct kri_worker *w, struct kri_fasl *fasl, const char *source)
{
    int fd = open(source, O_RDONLY);
    if (fd < 0)
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, source), "%s", strerror(errno));
    kr_value stream = kri_make_fd_stream(w, fd, kri_string(w, source), true, 1 << 16);
    kri_set_special(w, w->vm->sym.load_pathname, kri_string(w, source));
    kri_set_special(w, w->vm->sym.package, w->vm->pkg_lisp);
    kri_fasl_add(fasl, stream);
    kri_stream_close(w, stream);
}

static void write_section(struct kri_worker *w, struct boot *b, const char *name)
{
    if (!kri_fasl_write(&b->fasl, name, b->file))
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, b->output), "%s", strerror(errno));
}

/* lib/auto/NAME.l is module NAME. */
static void compile_module(struct kri_worker *w, struct boot *b, const char *source)
{
    const char *slash = strrchr(source, '/');
    char name[64];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : source);
    char *dot = strrchr(name, '.');
    if (dot)
        *dot = '\0';
    struct kri_fasl before = b->fasl;
    kri_fasl_begin(w, &b->fasl, false, &before);
    b->fasl.native = before.native;
    compile(w, &b->fasl, source);
    write_section(w, b, name);
}

/* Is TEXT what is in FILE already? Then it is left alone, and make has nothing to do. */
static bool is_written(const char *file, kr_value text)
{
    FILE *f = fopen(file, "rb");
    size_t n = kri_length(text), i = 0;
    for (int c; f && (c = getc(f)) != EOF; i++)
        if (i == n || kri_string_of(text)->byte[i] != c) {
            i = n + 1;
            break;
        }
    if (f)
        fclose(f);
    return f && i == n;
}

static void write_native(struct kri_worker *w, const struct boot *b)
{
    struct kri_native_source source = {.source = "", .units = b->units, .lean = true, .linked = "kri_core_"};
    source.codes = kri_fasl_codes(&b->fasl, &source.count);
    kr_value texts = kri_native_generate(w, &source);
    for (unsigned u = 0; u < b->units; u++) {
        kr_value text = kri_vector_of(texts)->at[u];
        char name[4096];
        snprintf(name, sizeof name, "%s-%u.c", b->native, u);
        if (is_written(name, text))
            continue;
        FILE *f = fopen(name, "wb");
        bool ok = f && fwrite(kri_string_of(text)->byte, 1, kri_length(text), f) == kri_length(text);
        if ((f && fclose(f) != 0) || !ok)
            kri_error(w, KRI_E_OPEN_FILE, kri_string(w, name), "%s", strerror(errno));
    }
}

/* The source at *WORD, an option before it taken; NULL: there are no more here. */
static const char *next_source(struct boot *b, char ***word)
{
    b->fasl.native = !**word || strcmp(**word, "-b") != 0;
    if (!b->fasl.native)
        ++*word;
    return !**word || strcmp(**word, "--") == 0 ? NULL : *(*word)++;
}

static kr_value boot(struct kri_worker *w, void *arg)
{
    struct boot *b = arg;
    char **word = b->sources;
    const char *source;
    kri_fasl_begin(w, &b->fasl, false, NULL);
    while ((source = next_source(b, &word)))
        compile(w, &b->fasl, source);
    write_section(w, b, "core");
    if (*word) {
        word++;
        while ((source = next_source(b, &word)))
            compile_module(w, b, source);
    }
    write_native(w, b);
    return w->vm->sym.t;
}

int main(int argc, char **argv)
{
    const kr_config config = {.bare = 1};
    kr_vm *vm;
    kr_context *ctx;
    kr_value result;
    if (argc < 5 || atoi(argv[3]) < 1) {
        fputs("usage: karakuri-boot OUTPUT NATIVE UNITS [-b] SOURCE... -- [-b] MODULE...\n", stderr);
        return 2;
    }
    if (kr_vm_new(&config, &vm, &ctx) != KR_OK)
        return 1;
    struct boot b = {argv[1], argv[2], (unsigned)atoi(argv[3]), argv + 4, fopen(argv[1], "wb"), {0}};
    if (!b.file) {
        perror(argv[1]);
        return 1;
    }
    kri_gate_enter(ctx->worker);
    bool ok = kri_protect(ctx->worker, boot, &b, &result);
    if (!ok)
        kri_report_error(ctx->worker, result, "while compiling the core library");
    kr_vm_free(ctx);
    if (fclose(b.file) != 0) {
        perror(argv[1]);
        ok = false;
    }
    if (!ok)
        remove(argv[1]);
    return ok ? 0 : 1;
}
