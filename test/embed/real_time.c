/* real_time.c -- channels: a thread that never waits and Lisp exchange vectors and structs; nothing is torn, lost or reordered. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include "embed.h"

enum { ROUNDS = 200000, ITEMS = 20000 };

struct state {
    double time;
    float current;
    int32_t count;
    uint8_t mode;
    bool enabled;
    double joint[3];
    int64_t ticks[2];
};

static const kr_rt_field fields[] = {
    {"time", KR_RT_DOUBLE, offsetof(struct state, time), 1},         {"current", KR_RT_FLOAT, offsetof(struct state, current), 1},
    {"count", KR_RT_INT32, offsetof(struct state, count), 1},        {"mode", KR_RT_UINT8, offsetof(struct state, mode), 1},
    {"enabled", KR_RT_BOOL, offsetof(struct state, enabled), 1},     {"joint", KR_RT_DOUBLE, offsetof(struct state, joint), 3},
    {"ticks", KR_RT_INT64, offsetof(struct state, ticks), 2},
};

static kr_rt *newest, *queue, *commands;
static atomic_bool done;

/* Every vector has equal elements: a torn one would not. */
static void *control(void *arg)
{
    (void)arg;
    double command[2], last = 0;
    bool over = false;
    for (int i = 1; i <= ROUNDS || !over; i++) {
        over = done; /* before the look at the commands: all have come then */
        double *d = kr_rt_back(newest);
        for (int k = 0; k < 8; k++)
            d[k] = i;
        kr_rt_publish(newest);
        while (kr_rt_pop(commands, command)) {
            CHECK(command[0] == last + 1 && command[1] == -command[0]); /* in order, none lost */
            last = command[0];
        }
        if (i % 1000 == 0)
            nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    CHECK(last == ITEMS);
    return NULL;
}

static void *produce(void *arg)
{
    (void)arg;
    for (int i = 1; i <= ITEMS; i++) {
        struct state s = {.time = i * 0.001, .current = 0.5f, .count = -i, .mode = (uint8_t)i, .enabled = i & 1, .joint = {i, i, i}, .ticks = {i, INT64_MAX}};
        while (!kr_rt_push(queue, &s))
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return NULL;
}

static void wrong(kr_context *ctx, kr_rt_config config)
{
    kr_rt *rt;
    CHECK(kr_rt_new(ctx, &config, &rt) == KR_BAD_TYPE && rt == NULL);
}

int main(void)
{
    kr_vm *vm;
    kr_context *ctx = must_new(NULL, &vm);
    kr_value v;
    pthread_t a, b;
    const kr_rt_config vectors = {.kind = KR_RT_TRIPLE, .direction = KR_RT_TO_LISP, .doubles = 8};
    const kr_rt_config structs = {.kind = KR_RT_RING, .direction = KR_RT_TO_LISP, .capacity = 100, .struct_name = "arm-state",
                                  .struct_bytes = sizeof(struct state), .fields = fields, .field_count = 7};
    const kr_rt_config back = {.kind = KR_RT_RING, .direction = KR_RT_FROM_LISP, .capacity = 64, .doubles = 2};
    wrong(ctx, (kr_rt_config){.kind = KR_RT_TRIPLE});
    wrong(ctx, (kr_rt_config){.kind = KR_RT_RING, .doubles = 3});
    wrong(ctx, (kr_rt_config){.struct_name = "x", .struct_bytes = 8, .fields = fields, .field_count = 7});
    CHECK(kr_rt_new(ctx, &vectors, &newest) == KR_OK && kr_rt_new(ctx, &structs, &queue) == KR_OK && kr_rt_new(ctx, &back, &commands) == KR_OK);
    kr_set(ctx, "*newest*", kr_rt_value(ctx, newest));
    kr_set(ctx, "*queue*", kr_rt_value(ctx, queue));
    kr_set(ctx, "*commands*", kr_rt_value(ctx, commands));
    CHECK(prints(ctx, must(ctx, "(list (sys:rt-count *newest*) (sys:rt-read *newest*) (sys:rt-read *queue*))"), "(0 #f(0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0) nil)"));
    CHECK(kr_rt_back(commands) == NULL && kr_rt_front(newest, NULL) == NULL); /* the other way */

    pthread_create(&a, NULL, control, NULL);
    pthread_create(&b, NULL, produce, NULL);
    must(ctx, "(sys:thread-no-wait #'(lambda () (dotimes (i 20) (make-sequence vector 100000) (sys:gc))))");
    must(ctx, "(setq f (instantiate float-vector 8) last 0)"
              "(defun look () (sys:rt-read *newest* f)"
              "  (dotimes (i 8) (if (/= (aref f i) (aref f 0)) (error \"torn ~a\" f)))"
              "  (if (< (aref f 0) last) (error \"old ~a\" f)) (setq last (aref f 0)))"
              "(setq s (instance arm-state))"
              "(defun items (n) (let ((i 0)) (while (< i n)"
              "  (if (sys:rt-read *queue* s) (progn (setq i (1+ i))"
              "    (unless (and (= (arm-state-count s) (- i)) (= (arm-state-mode s) (logand i 255)) (eq (arm-state-enabled s) (oddp i))"
              "                 (= (aref (arm-state-joint s) 2) i) (= (aref (arm-state-ticks s) 1) 9223372036854775807) (= (arm-state-current s) 0.5))"
              "      (error \"item ~d ~a\" i (arm-state-count s))))"
              "    (unix:usleep 50)) (look)) i))"
              "(defun commands (n) (let ((c (float-vector 0 0)))"
              "  (dotimes (i n) (setf (aref c 0) (1+ i) (aref c 1) (- (1+ i))) (while (not (sys:rt-write *commands* c)) (unix:usleep 50)))))"
              "(dolist (x '(count mode enabled joint ticks current)) (eval `(defun ,(intern (format nil \"ARM-STATE-~a\" (symbol-name x))) (s) (slot s arm-state ',x))))");
    char text[100];
    snprintf(text, sizeof text, "(setq th (sys:thread #'commands %d))", ITEMS);
    must(ctx, text);
    snprintf(text, sizeof text, "(items %d)", ITEMS);
    CHECK(must_integer(ctx, text) == ITEMS);
    must(ctx, "(sys:wait-thread th)");
    done = true;
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    CHECK(must_integer(ctx, "(round (progn (look) (aref f 0)))") >= ROUNDS);

    static const struct { const char *text, *part; } errors[] = {
        {"(sys:rt-read 5)", "foreign data expected"}, {"(sys:rt-read *commands*)", "written from Lisp"}, {"(sys:rt-write *newest* f)", "read from Lisp"},
        {"(sys:rt-read *newest* #f(1 2))", "dimension"}, {"(sys:rt-read *newest* \"x\")", "float vector"}, {"(sys:rt-write *commands* #f(1))", "dimension"},
        {"(sys:rt-read *queue* (instance object))", "type mismatch"}, {"(sys:rt-write *commands* nil)", "float vector"}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        CHECK(kr_eval_string(ctx, errors[i].text, &v) == KR_ERROR && message_has(ctx, v, errors[i].part));

    /* The checked mode without allocation. */
    CHECK(must_integer(ctx, "(let ((n 0)) (sys:without-allocation (dotimes (i 1000) (setq n (+ n i)) (look))) n)") == 499500);
    CHECK(kr_eval_string(ctx, "(sys:without-allocation (list 1 2))", &v) == KR_ERROR && kr_is_a(ctx, v, "lisp:allocation-forbidden"));
    CHECK(kr_eval_string(ctx, "(sys:without-allocation (make-string 10000000))", &v) == KR_ERROR && message_has(ctx, v, "allocation where none"));
    CHECK(must_integer(ctx, "(length (list 1 2))") == 2);
    kr_forbid_allocation(ctx, true);
    CHECK(kr_eval_string(ctx, "(list 1 2)", &v) == KR_ERROR);
    kr_forbid_allocation(ctx, false);

    /* The system may refuse; it says so. */
    int refused = kr_rt_set_fifo(10);
    CHECK(refused == 0 || refused == EPERM);
    CHECK(kr_rt_set_fifo(0) == 0 && kr_rt_set_fifo(1000) != 0 && kr_rt_set_affinity(100000) != 0);
    CHECK(kr_rt_prefault_stack(100000) == 0 && kr_rt_prefault_stack((size_t)1 << 40) == ENOMEM);

    /* A ring's oldest element stays until it is released. */
    must(ctx, "(sys:rt-write *commands* #f(1 2)) (sys:rt-write *commands* #f(3 4))");
    bool fresh;
    const double *oldest = kr_rt_front(commands, &fresh);
    CHECK(oldest && fresh && oldest[0] == 1 && kr_rt_front(commands, NULL) == oldest && kr_rt_count(commands) == 2);
    kr_rt_release(commands);
    oldest = kr_rt_front(commands, NULL);
    CHECK(oldest && oldest[1] == 4 && kr_rt_count(commands) == 1);
    kr_rt_release(commands);
    kr_rt_release(commands); /* of nothing */
    CHECK(kr_rt_front(commands, &fresh) == NULL && !fresh && kr_rt_count(commands) == 0);
    must(ctx, "(dotimes (i 64) (or (sys:rt-write *commands* #f(1 2)) (error \"full at ~d\" i)))");
    CHECK(kr_is_nil(must(ctx, "(sys:rt-write *commands* #f(1 2))")) && kr_rt_count(commands) == 64);

    kr_rt_free(queue); /* Lisp still has it */
    CHECK(must_integer(ctx, "(sys:rt-count *queue*)") == 0);
    kr_vm_free(ctx);
    kr_rt_free(newest);
    kr_rt_free(commands);
    return 0;
}
