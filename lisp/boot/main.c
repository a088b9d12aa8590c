/* main.c -- the bootstrap: compiles the core library's sources, on a VM without it, into the bytes that are linked into
 * libkarakuri, and then each module into a section of its own (lisp/core.c). Same sources, same bytes.
 *   karakuri-boot OUTPUT SOURCE... [-- MODULE...] */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "lisp/fasl.h"
#include "lisp/init.h"
#include "lisp/stream.h"

/* What lisp/boot/image.S puts in their place. */
const unsigned char kri_core_image[1];
const char kri_native_header[1];
const uint64_t kri_core_image_bytes = 0, kri_native_header_bytes = 0;

struct boot {
    const char *output;
    char **sources;
    FILE *file;
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

static void write_section(struct kri_worker *w, const struct boot *b, struct kri_fasl *fasl, const char *name)
{
    if (!kri_fasl_write(fasl, name, b->file))
        kri_error(w, KRI_E_OPEN_FILE, kri_string(w, b->output), "%s", strerror(errno));
}

/* lib/auto/NAME.l is module NAME. */
static void compile_module(struct kri_worker *w, const struct boot *b, const char *source)
{
    const char *slash = strrchr(source, '/');
    char name[64];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : source);
    char *dot = strrchr(name, '.');
    if (dot)
        *dot = '\0';
    struct kri_fasl fasl;
    kri_fasl_begin(w, &fasl, false);
    compile(w, &fasl, source);
    write_section(w, b, &fasl, name);
}

static kr_value boot(struct kri_worker *w, void *arg)
{
    const struct boot *b = arg;
    struct kri_fasl fasl;
    char **source = b->sources;
    kri_fasl_begin(w, &fasl, false);
    for (; *source && strcmp(*source, "--") != 0; source++)
        compile(w, &fasl, *source);
    write_section(w, b, &fasl, "core");
    if (*source)
        while (*++source)
            compile_module(w, b, *source);
    return w->vm->sym.t;
}

int main(int argc, char **argv)
{
    const kr_config config = {.bare = 1};
    kr_vm *vm;
    kr_context *ctx;
    kr_value result;
    if (argc < 3) {
        fputs("usage: karakuri-boot OUTPUT SOURCE... [-- MODULE...]\n", stderr);
        return 2;
    }
    if (kr_vm_new(&config, &vm, &ctx) != KR_OK)
        return 1;
    struct boot b = {argv[1], argv + 2, fopen(argv[1], "wb")};
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
    return ok ? 0 : 1;
}
