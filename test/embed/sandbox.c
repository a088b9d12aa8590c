/* sandbox.c -- a script that is denied files, processes, network, foreign code and threads gets none by any door. */
#include <sys/stat.h>
#include <unistd.h>
#include "embed.h"

static const char *const doors[] = {
    "(open \"/tmp/karakuri-sandbox\" :direction :output)",
    "(funcall #'open \"/etc/passwd\")",
    "(apply (symbol-function 'open) '(\"/etc/passwd\"))",
    "(funcall (find-symbol \"OPEN\" \"LISP\") \"/etc/passwd\")",
    "(let ((f #'open)) (unintern 'open \"LISP\") (funcall f \"/etc/passwd\"))",
    "(mapcar #'open '(\"/etc/passwd\"))",
    "(eval (read-from-string \"(open \\\"/etc/passwd\\\")\"))",
    "(read-from-string \"#.(open \\\"/etc/passwd\\\")\")",
    "(with-open-file (s \"/etc/passwd\") (read-line s))",
    "(load \"/tmp/karakuri-sandbox.l\")", "(require :unittest)", "(sys:srcload \"x.l\")", "(sys:openfile \"/etc/passwd\" 0 0 100)",
    "(instance file-stream :init 0 \"x\" :input)", "(probe-file \"/etc/passwd\")", "(directory \"/\")", "(delete-file \"/tmp/karakuri-sandbox\")",
    "(rename-file \"/tmp/a\" \"/tmp/b\")", "(file-size \"/etc/passwd\")", "(file-write-date \"/etc/passwd\")",
    "(unix:unlink \"/tmp/karakuri-sandbox\")", "(unix:mkdir \"/tmp/karakuri-sandbox\")", "(unix:stat \"/etc/passwd\")", "(unix:getwd)", "(unix:chdir \"/\")",
    "(unix:dup 1)", "(unix:uclose 1)", "(unix:uread 0 10)", "(unix:lseek 0 0)", "(pwd)", "(cd \"/\")", "(write-buffer \"/tmp/karakuri-sandbox\" \"x\")",
    "(unix:system \"touch /tmp/karakuri-sandbox\")", "(exit 3)", "(unix:_exit 3)", "(unix::_exit 3)", "(unix:fork)", "(unix:vfork)", "(unix:exec \"/bin/true\")",
    "(unix:kill (unix:getppid) 0)", "(unix:signal 2 #'print)", "(unix:alarm 1)", "(unix:getenv \"HOME\")", "(unix:putenv \"A=1\")", "(unix:environ)",
    "(unix:setuid 0)", "(unix:getpid)", "(unix:uname)", "(unix:setpriority 0 0 19)", "(more (print 1))",
    "(unix:socket 2 1)", "(unix:gethostbyname \"localhost\")", "(unix:gethostname)", "(unix:shmget 1 10)", "(unix:msgget 1)", "(unix:mmap 0 100 1 1 0 0)",
    "(unix:malloc 100)", "(unix:ioctl 0 1 \"x\")",
    "(defun f (x) x) (compile 'f)", "(compile-file \"/tmp/x.l\")", "(lisp::load-module-file \"x\" \"/tmp/x.so\" nil)", "(sys:address 'a)",
    "(sys:thread #'list)", "(sys:thread-no-wait #'list)", "(sys:make-thread 1)", "(plist 1 2)",
    "(sys:rt-lock-memory)", "(sys:rt-set-fifo 50)", "(sys:rt-set-affinity 0)", "(sys:pin-thread 0)",
    "(setf (symbol-function 'sys:denied) #'(lambda () nil)) (unix:system \"true\")",
    "(handler-case (unix:system \"touch /tmp/karakuri-sandbox\") (lisp::file-error (c) :no))",
};

/* Each capability by itself: what only it takes is refused, with its name. */
static const struct {
    unsigned capability;
    const char *name, *doors[16];
} alone[] = {
    {KR_FILES, "files", {"(open \"/dev/null\")", "(probe-file \"/dev/null\")", "(lisp::%find-load-file \"x\")", "(directory \"/\")", "(unix:stat \"/\")",
                         "(unix:dup 0)", "(load \"x\")", "(load \"x.so\")", "(require :json)", "(compile-file \"x.l\")"}},
    {KR_PROCESSES, "processes", {"(unix:system \"true\")", "(exit)", "(unix:fork)", "(unix:kill (unix:getpid) 0)", "(unix:getenv \"HOME\")", "(piped-fork \"true\")",
                                 "(unix:signal 10 #'list)", "(sys:rt-set-affinity 0)"}},
    {KR_NETWORK, "network", {"(unix:socket 2 1)", "(unix:gethostbyname \"localhost\")", "(make-socket-port (make-socket-address :port 0))",
                             "(make-client-socket-stream (make-socket-address :domain af_unix :pathname \"/x\"))"}},
    {KR_FOREIGN, "foreign code", {"(lisp::%foreign-open \"libm.so.6\")", "(load-foreign \"libm.so.6\")", "(lisp::%foreign-symbol 1 \"sin\")",
                                  "(lisp::%make-callback #'list :int nil)", "(make-foreign-string 0 1)", "(sys:peek 4096 :byte)", "(sys:poke 1 4096 :byte)", "(sys:address 'a)",
                                  "(progn (defun f (x) x) (compile 'f))", "(compile-file \"/nowhere/x.l\")", "(unix:malloc 10)", "(load \"lib/ffcall.so\")", "(unix:mmap 0 100 1 1 0 0)"}},
    {KR_THREADS, "threads", {"(sys:thread #'list)", "(sys:thread-no-wait #'list)", "(sys:make-thread 1)", "(sys::%profile-start 1000)", "(sys:pin-thread 0)"}},
};

static void one_alone(unsigned capability, const char *name, const char *const *door)
{
    const kr_config config = {.deny = capability, .library = "lib"};
    kr_context *ctx = must_new(&config, NULL);
    kr_value v;
    for (; *door; door++) {
        size_t scope = kr_scope_begin(ctx);
        char text[300], part[60];
        kr_status s = kr_eval_string(ctx, *door, &v);
        (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
        snprintf(part, sizeof part, "not allowed here: %s", name);
        if (s == KR_OK || !kr_is_a(ctx, v, "lisp:capability-denied") || !strstr(text, part)) {
            fprintf(stderr, "%s\n  is to be refused for %s: %s\n", *door, name, text);
            exit(1);
        }
        kr_scope_end(ctx, scope);
    }
    kr_vm_free(ctx);
}

int main(void)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        one_alone(alone[i].capability, alone[i].name, alone[i].doors);
    const kr_config config = {.deny = KR_EVERYTHING};
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    kr_value v;
    unlink("/tmp/karakuri-sandbox");
    CHECK(kr_vm_denied(vm) == KR_EVERYTHING);
    CHECK(prints(ctx, must(ctx, "(sys:denied)"), "(:files :processes :network :foreign :threads)"));
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
        size_t scope = kr_scope_begin(ctx);
        kr_status s = kr_eval_string(ctx, doors[i], &v);
        char text[300];
        (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
        if (s == KR_OK || !(strstr(text, "not allowed here") || strstr(text, "undefined function") || strstr(text, "no such external symbol"))) {
            fprintf(stderr, "%s\n  was not stopped: %s\n", doors[i], text);
            return 1;
        }
        kr_scope_end(ctx, scope);
    }
    struct stat st;
    CHECK(stat("/tmp/karakuri-sandbox", &st) != 0);

    CHECK(must_integer(ctx, "(length (format nil \"~a\" (list 1 2)))") == 5); /* the rest of the language is there */

    /* The host may open what it likes, and close it again. */
    kr_vm_deny(vm, KR_EVERYTHING & ~(unsigned)KR_FILES);
    CHECK(must_integer(ctx, "(length (directory \"/\"))") > 2);
    CHECK(kr_eval_string(ctx, "(unix:system \"true\")", &v) == KR_ERROR && message_has(ctx, v, "not allowed here: processes"));
    kr_vm_deny(vm, KR_FILES);
    CHECK(kr_load_file(ctx, "/etc/passwd", &v) == KR_ERROR && message_has(ctx, v, "not allowed here: files"));
    CHECK(must_integer(ctx, "(sys:wait-thread (sys:thread #'+ 1 2))") == 3);
    kr_vm_deny(vm, 0);
    CHECK(must_integer(ctx, "(unix:system \"true\")") == 0);
    kr_vm_free(ctx);
    return 0;
}
