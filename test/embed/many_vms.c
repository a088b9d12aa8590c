/* many_vms.c -- VMs come and go: a hundred of them, with threads, collections, files and errors, leave nothing behind; those that
 * cannot be made leave nothing either; the end comes also to threads that are busy, asleep or waiting. */
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static size_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return pages * 4096;
}

static int finalized;
static void finalize(kr_context *ctx, void *data)
{
    (void)ctx;
    free(data);
    finalized++;
}
static const kr_foreign_type datum = {"datum", finalize};

static void one_life(int i)
{
    const kr_config config = {.heap_limit = 256 << 20, .stack_limit = 4 << 20, .alloc = (kr_alloc)(i % 3), .markers = 1 + (unsigned)i % 2};
    kr_context *ctx = must_new(&config, NULL);
    kr_value v;
    must(ctx, "(defun work (n) (let ((l nil)) (dotimes (i n) (push (list i (float i) (* i 100000000000000000)) l)) (length l)))");
    CHECK(must_integer(ctx, "(let ((a (sys:thread 'work 3000)) (b (sys:thread #'(lambda () (work 2000)))))"
                            "  (+ (sys:wait-thread a) (sys:wait-thread b) (work 1000)))") == 6000);
    must(ctx, "(defclass thing :super propertied-object :slots (a b)) (instance thing) (defstruct pair a b) (instantiate pair)");
    must(ctx, "(setq *table* (make-hash-table :test #'equal)) (dotimes (i 1000) (setf (gethash (format nil \"~A\" i) *table*) i))");
    must(ctx, "(setq *file* (open \"/dev/null\" :direction :output)) (format *file* \"text\")");
    must(ctx, "(setq *in* (open \"/dev/zero\")) (read-char *in*)");
    CHECK(kr_eval_string(ctx, "(let ((x 1)) (sys:thread-no-wait #'(lambda () x)) (error \"on purpose\"))", &v) == KR_ERROR);
    CHECK(kr_eval_string(ctx, "(list 1 #<2)", &v) == KR_ERROR);
    CHECK(kr_eval_string(ctx, "(labels ((f (n) (+ 1 (f n)))) (f 1))", &v) == KR_ERROR);
    kr_ref_new(ctx, v);
    int before = finalized;
    CHECK(kr_foreign_class(ctx, &datum, NULL, NULL) == KR_OK);
    for (int k = 0; k < 10; k++)
        CHECK(!kr_is_nil(kr_foreign(ctx, &datum, malloc(100))));
    const kr_budget budget = {.time_ns = 1000000000000, .heap_bytes = 64 << 20};
    CHECK(kr_budget_begin(ctx, &budget) == KR_OK && must_integer(ctx, "(work 10)") == 10);
    if (i % 2) /* else the VM ends under it */
        CHECK(kr_budget_end(ctx) == KR_WITHIN_BUDGET);
    kr_collect(ctx);
    kr_vm_free(ctx);
    CHECK(finalized == before + 10);
}

/* Nothing is made where there is no room. */
static void no_room(void)
{
    kr_vm *vm = NULL;
    kr_context *ctx = NULL;
    int made = 0;
    for (size_t limit = 1; limit < (size_t)64 << 20; limit *= 2) {
        const kr_config config = {.heap_limit = limit};
        kr_status status = kr_vm_new(&config, &vm, &ctx);
        CHECK(status == KR_OK || status == KR_NO_MEMORY);
        if (status == KR_OK)
            kr_vm_free(ctx);
        made += status == KR_OK;
    }
    CHECK(made > 0);
    kr_config wrong = {.alloc = (kr_alloc)77};
    CHECK(kr_vm_new(&wrong, &vm, &ctx) == KR_BAD_TYPE);
    /* One context only, without exclusion. */
    const kr_config single = {.alloc = KR_ALLOC_NONE};
    kr_value v;
    ctx = must_new(&single, &vm);
    CHECK(kr_attach(vm) == NULL);
    CHECK(kr_eval_string(ctx, "(sys:thread #'list)", &v) == KR_ERROR && message_has(ctx, v, "thread error"));
    kr_vm_free(ctx);
    const kr_config bare = {.bare = 1};
    ctx = must_new(&bare, &vm);
    CHECK(must_integer(ctx, "(car (cons 5 nil))") == 5);
    kr_vm_free(ctx);
}

/* What threads do when the VM ends. */
static const char *const busy[] = {
    "(sys:thread #'(lambda () (while t)))",
    "(sys:thread #'(lambda () (while t (list 1 2 3))))",
    "(sys:thread #'(lambda () (while t (handler-case (car 1) (error () nil)))))",
    "(sys:thread #'(lambda () (while t (catch 'x (unwind-protect (while t) (throw 'x 1))))))",
    "(sys:thread-no-wait #'(lambda () (unix:sleep 1000)))",
    "(setq *l* (sys:make-mutex-lock)) (sys:mutex-lock *l*) (sys:thread #'(lambda () (sys:mutex-lock *l*)))",
    "(sys:thread #'(lambda () (sys:sema-wait (sys:make-semaphore))))",
    "(let ((m (sys:make-mutex-lock)) (c (sys:make-cond))) (sys:thread #'(lambda () (sys:mutex-lock m) (sys:cond-wait c m))))",
    "(sys:thread #'(lambda () (sys:wait-thread (sys:thread #'(lambda () (unix:sleep 1000))))))",
    "(sys:thread #'(lambda () (while t (sys:thread-no-wait #'list 1))))",
    "(sys:thread #'(lambda () (sort (let ((l nil)) (dotimes (i 1000) (push i l)) l) #'(lambda (a b) (while t)))))",
    "(sys:thread #'(lambda () (while t (sys:gc))))",
    "(sys:thread #'(lambda () (labels ((f () (+ 1 (f)))) (while t (handler-case (f) (error () nil))))))",
    "(sys:make-thread 5)",
    "(sys:thread #'(lambda () (error \"nobody asks\")))",
    "(setq *cleaned* (sys:thread #'(lambda () (unwind-protect (while t) (setq *done* t)))))",
};

static void stop_busy_threads(int input)
{
    char text[200];
    for (int together = 0; together < 2; together++) {
        kr_context *ctx = must_new(NULL, NULL);
        for (size_t i = 0; i < sizeof busy / sizeof *busy; i++) {
            must(ctx, busy[i]);
            if (!together) {
                struct timespec pause = {0, 5000000};
                nanosleep(&pause, NULL);
                kr_vm_free(ctx);
                ctx = must_new(NULL, NULL);
            }
        }
        /* And one that reads what never comes. */
        snprintf(text, sizeof text, "(sys:thread #'(lambda () (read-line (open \"/proc/self/fd/%d\"))))", input);
        must(ctx, text);
        must(ctx, "(unix:usleep 20000)");
        kr_vm_free(ctx);
    }
}

int main(void)
{
    const char *lives = getenv("TEST_VMS");
    int n = lives ? atoi(lives) : 100, silent[2];
    CHECK(pipe(silent) == 0);
    no_room();
    for (int i = 0; i < 10; i++)
        one_life(i);
    int files = open_files();
    size_t mapped = mapped_bytes();
    for (int i = 0; i < n; i++)
        one_life(i);
    CHECK(open_files() == files);
    /* The C library keeps an arena for each thread that it has seen at once; the VMs took some 200 KB of it each. */
    size_t now = mapped_bytes();
    if (now > mapped + ((size_t)300 << 20) && now < (size_t)1 << 40) { /* the sanitizers map terabytes */
        fprintf(stderr, "mapped bytes grew from %zu to %zu\n", mapped, now);
        return 1;
    }
    stop_busy_threads(silent[0]);
    CHECK(open_files() == files);
    return 0;
}
