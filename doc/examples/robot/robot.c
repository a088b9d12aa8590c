/* robot.c -- a robot's process: a simulated arm under a control loop at 1 kHz, and Lisp, which plans, works through a programme, and may
 * be talked to while all that runs. See README.md.
 *
 * Two phases: Lisp at its work only; then also threads of Lisp that allocate as fast as they can. For each it tells how late the control
 * loop was. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "control.h"

#ifndef ROBOT_LISP
#define ROBOT_LISP "." /* where the files *.l are */
#endif

static struct options {
    double seconds;     /* of a phase, at least */
    bool load;
    int threads, cpu;
    const char *svg, *prompt, *script, *lisp;
} options = {.seconds = 10, .load = true, .cpu = -1, .lisp = ROBOT_LISP};

static const char usage[] = "usage: robot [--seconds N] [--no-load] [--threads N] [--cpu N] [--svg FILE] [--repl SOCKET] [--script FILE] [--lisp DIRECTORY]\n"
                            "  --seconds N     how long each phase lasts at least (10); the programme is done once in any case\n"
                            "  --no-load       no second phase, in which Lisp allocates as fast as it can\n"
                            "  --threads N     how many threads allocate there (one for each core)\n"
                            "  --cpu N         keep the control loop on processor N\n"
                            "  --svg FILE      draw what was recorded\n"
                            "  --repl SOCKET   a prompt at a local socket\n"
                            "  --script FILE   the programme, in place of demo.l\n"
                            "  --lisp DIRECTORY  where the Lisp files are\n";

static const char *operand(char ***argv)
{
    if (!(*argv)[1]) {
        fprintf(stderr, "robot: %s needs an argument\n%s", **argv, usage);
        exit(2);
    }
    return *++*argv;
}

static double number(char ***argv, double least, double most)
{
    const char *name = **argv, *text = operand(argv);
    char *end;
    double n = strtod(text, &end);
    if (end == text || *end || !(n >= least && n <= most)) {
        fprintf(stderr, "robot: %s: a number from %g to %g expected, not %s\n", name, least, most, text);
        exit(2);
    }
    return n;
}

static void read_options(char **argv)
{
    options.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    while (*++argv) {
        if (strcmp(*argv, "--seconds") == 0)
            options.seconds = number(&argv, 0, 1e6);
        else if (strcmp(*argv, "--no-load") == 0)
            options.load = false;
        else if (strcmp(*argv, "--threads") == 0)
            options.threads = (int)number(&argv, 1, 200);
        else if (strcmp(*argv, "--cpu") == 0)
            options.cpu = (int)number(&argv, 0, 1023);
        else if (strcmp(*argv, "--svg") == 0)
            options.svg = operand(&argv);
        else if (strcmp(*argv, "--repl") == 0)
            options.prompt = operand(&argv);
        else if (strcmp(*argv, "--script") == 0)
            options.script = operand(&argv);
        else if (strcmp(*argv, "--lisp") == 0)
            options.lisp = operand(&argv);
        else {
            bool help = strcmp(*argv, "--help") == 0;
            fputs(usage, help ? stdout : stderr);
            exit(help ? 0 : 2);
        }
    }
}

/* ---- what Lisp sees of the arm ---- */

static kr_value joints_for_lisp(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    kr_value joint[JOINTS];
    (void)argc, (void)argv, (void)user;
    for (int i = 0; i < JOINTS; i++) {
        const struct arm_joint *j = &arm_joints[i];
        const kr_value part[] = {kr_symbol(ctx, j->axis == 'y' ? ":y" : ":z"), kr_real(ctx, j->offset), kr_real(ctx, j->lower), kr_real(ctx, j->upper),
                                 kr_real(ctx, j->speed)};
        joint[i] = kr_list(ctx, 5, part);
    }
    return kr_list(ctx, JOINTS, joint);
}

static kr_value tool_for_lisp(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv, (void)user;
    return kr_real(ctx, arm_tool);
}

#define FIELD(type, name, lisp_name, kind, count) {lisp_name, kind, offsetof(struct type, name), count}
static const kr_rt_field state_fields[] = {
    FIELD(arm_state, time, "time", KR_RT_DOUBLE, 1),          FIELD(arm_state, angle, "angle", KR_RT_DOUBLE, JOINTS),
    FIELD(arm_state, speed, "speed", KR_RT_DOUBLE, JOINTS),   FIELD(arm_state, goal, "goal", KR_RT_DOUBLE, JOINTS),
    FIELD(arm_state, torque, "torque", KR_RT_DOUBLE, JOINTS), FIELD(arm_state, tool, "tool", KR_RT_DOUBLE, 3),
    FIELD(arm_state, segments, "segments", KR_RT_INT64, 1),   FIELD(arm_state, halts, "halts", KR_RT_INT64, 1),
    FIELD(arm_state, resets, "resets", KR_RT_INT64, 1),       FIELD(arm_state, rejected, "rejected", KR_RT_INT64, 1),
    FIELD(arm_state, unlogged, "unlogged", KR_RT_INT64, 1),   FIELD(arm_state, fault, "fault", KR_RT_INT32, 1),
    FIELD(arm_state, moving, "moving", KR_RT_BOOL, 1),
};
static const kr_rt_field segment_fields[] = {
    FIELD(arm_segment, seconds, "seconds", KR_RT_DOUBLE, 1),
    FIELD(arm_segment, coefficients, "coefficients", KR_RT_DOUBLE, JOINTS * (DEGREE + 1)),
};
static const kr_rt_field settings_fields[] = {
    FIELD(arm_settings, stiffness, "stiffness", KR_RT_DOUBLE, JOINTS), FIELD(arm_settings, damping, "damping", KR_RT_DOUBLE, JOINTS),
    FIELD(arm_settings, weight, "weight", KR_RT_DOUBLE, 1),            FIELD(arm_settings, most_error, "most-error", KR_RT_DOUBLE, 1),
    FIELD(arm_settings, halts, "halts", KR_RT_INT64, 1),               FIELD(arm_settings, resets, "resets", KR_RT_INT64, 1),
};
#define STRUCT(type, table) .struct_name = #type, .struct_bytes = sizeof(struct type), .fields = table, .field_count = sizeof table / sizeof *table

static const kr_rt_config state_channel = {.kind = KR_RT_TRIPLE, .direction = KR_RT_TO_LISP, STRUCT(arm_state, state_fields)};
static const kr_rt_config segment_channel = {.kind = KR_RT_RING, .direction = KR_RT_FROM_LISP, .capacity = 256, STRUCT(arm_segment, segment_fields)};
static const kr_rt_config settings_channel = {.kind = KR_RT_TRIPLE, .direction = KR_RT_FROM_LISP, STRUCT(arm_settings, settings_fields)};
static const kr_rt_config log_channel = {.kind = KR_RT_RING, .direction = KR_RT_TO_LISP, .capacity = 2048, .doubles = LOG_DOUBLES};

static const struct {
    const char *variable;
    const kr_rt_config *config;
    size_t member;
} channels[] = {
    {"*states*", &state_channel, offsetof(struct control, states)},
    {"*segments*", &segment_channel, offsetof(struct control, segments)},
    {"*settings-channel*", &settings_channel, offsetof(struct control, settings)},
    {"*log*", &log_channel, offsetof(struct control, log)},
};
enum { CHANNELS = sizeof channels / sizeof *channels };

static kr_rt **channel(struct control *c, int i) { return (kr_rt **)((char *)c + channels[i].member); }

/* The names of structs and slots have hyphens in Lisp: the struct's C name is turned into one. */
static bool make_channels(kr_context *ctx, struct control *c)
{
    for (int i = 0; i < CHANNELS; i++) {
        kr_rt_config config = *channels[i].config;
        char name[40];
        if (config.struct_name) {
            snprintf(name, sizeof name, "%s", config.struct_name);
            for (char *p = name; *p; p++)
                *p = *p == '_' ? '-' : *p;
            config.struct_name = name;
        }
        if (kr_rt_new(ctx, &config, channel(c, i)) != KR_OK || kr_set(ctx, channels[i].variable, kr_rt_value(ctx, *channel(c, i))) != KR_OK)
            return false;
    }
    return true;
}

/* ---- running Lisp ---- */

static kr_context *main_context; /* for the handler of SIGINT */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
    kr_interrupt(main_context);
}

/* Report what a call gave with KR_ERROR. */
static bool succeeded(kr_context *ctx, kr_status status, kr_value v, const char *what)
{
    char text[1000];
    if (status == KR_OK)
        return true;
    kr_error_message(ctx, v, text, sizeof text);
    fprintf(stderr, "robot: %s: %s\n", what, text);
    kr_error_backtrace(ctx, v, text, sizeof text);
    fputs(text, stderr);
    return false;
}

static bool load(kr_context *ctx, const char *directory, const char *file)
{
    char path[4096];
    kr_value v;
    snprintf(path, sizeof path, "%s%s%s", directory ? directory : "", directory ? "/" : "", file);
    return succeeded(ctx, kr_load_file(ctx, path, &v), v, path);
}

static bool call_with_text(kr_context *ctx, const char *function, const char *text)
{
    kr_value s = kr_string(ctx, text), v;
    return succeeded(ctx, kr_call(ctx, function, 1, &s, &v), v, function);
}

static bool load_all(kr_context *ctx)
{
    static const char *const files[] = {"kinematics.l", "trajectory.l", "machine.l", "prompt.l", "draw.l"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!load(ctx, options.lisp, files[i]))
            return false;
    return options.script ? load(ctx, NULL, options.script) : load(ctx, options.lisp, "demo.l");
}

/* ---- the phases ---- */

static void tell_refusals(const struct control *c, int memory_error)
{
    if (c->fifo_error)
        fprintf(stderr, "robot: the control loop runs as an ordinary thread: SCHED_FIFO is refused: %s (it takes CAP_SYS_NICE, or a limit of rtprio)\n",
                strerror(c->fifo_error));
    if (c->affinity_error)
        fprintf(stderr, "robot: the control loop is not kept on processor %d: %s\n", c->cpu, strerror(c->affinity_error));
    if (c->stack_error)
        fprintf(stderr, "robot: the control loop's stack is not there beforehand: %s\n", strerror(c->stack_error));
    if (memory_error)
        fprintf(stderr, "robot: memory is not locked: %s (it takes CAP_IPC_LOCK, or a limit of memlock)\n", strerror(memory_error));
}

static bool run_phase(kr_context *ctx, int phase, bool loaded)
{
    kr_value v, argv[2] = {kr_real(ctx, options.seconds), kr_integer(ctx, options.threads)};
    double millions;
    control_phase(phase);
    kr_status s = loaded ? kr_call(ctx, "run-loaded", 2, argv, &v) : kr_call(ctx, "run-phase", 1, argv, &v);
    control_phase(-1);
    if (s == KR_ERROR && interrupted)
        return true;
    if (s == KR_OK && loaded && kr_to_real(ctx, v, &millions) == KR_OK)
        printf("%d threads of Lisp allocated %.0f million objects\n", options.threads, millions);
    return succeeded(ctx, s, v, "the programme");
}

static void print_lateness(const char *name, const struct lateness *l)
{
    if (l->periods)
        printf("%-18s %8lld %8lld %12.1f %12.1f %12.1f\n", name, (long long)l->periods, (long long)l->missed, (double)l->worst / 1000,
               (double)control_percentile(l) / 1000, (double)l->longest / 1000);
}

static void print_statistics(const struct control *c)
{
    printf("control loop, 1 kHz   periods   missed  worst late    99.99%% late  longest work (us)\n");
    print_lateness("Lisp plans", &c->lateness[0]);
    print_lateness("Lisp allocates too", &c->lateness[1]);
}

static bool finish_report(kr_context *ctx)
{
    kr_value v;
    bool ok = succeeded(ctx, kr_eval_string(ctx, "(format t \"targets~%\") (print-reached *standard-output*) (finish-output)", &v), v, "report");
    if (options.svg)
        ok = call_with_text(ctx, "draw-record", options.svg) && ok;
    return ok;
}

/* Has somebody said (finish)? */
static bool told_to_finish(kr_context *ctx)
{
    kr_value v;
    return kr_get(ctx, "*finish*", &v) == KR_OK && !kr_is_nil(v);
}

static bool run(kr_context *ctx, struct control *c)
{
    static const double start[JOINTS] = {0, 0.3, 0, 1.0, 0, 0.6, 0};
    if (!make_channels(ctx, c) || !(c->arm = arm_new(start)))
        return false;
    kr_define(ctx, "arm-joints", "()", "The arm's joints: lists of axis, offset in m, lower and upper stop in rad, greatest speed in rad/s.", joints_for_lisp, NULL);
    kr_define(ctx, "arm-tool", "()", "How far the tool's point is from the last joint, in m.", tool_for_lisp, NULL);
    if (!load_all(ctx))
        return false;
    int memory_error = kr_rt_lock_memory(), error = control_start(c);
    if (error) {
        fprintf(stderr, "robot: no thread for the control loop: %s\n", strerror(error));
        return false;
    }
    tell_refusals(c, memory_error);
    bool ok = kr_eval_string(ctx, "(sys:thread-no-wait #'keep-record)", NULL) == KR_OK;
    ok = ok && (!options.prompt || call_with_text(ctx, "open-prompt", options.prompt));
    ok = ok && run_phase(ctx, 0, false);
    if (options.load && !interrupted && !told_to_finish(ctx))
        ok = ok && run_phase(ctx, 1, true);
    control_stop();
    ok = ok && finish_report(ctx);
    if (c->lateness[0].periods)
        print_statistics(c);
    if (options.prompt)
        unlink(options.prompt);
    return ok;
}

int main(int argc, char **argv)
{
    static struct control control;
    kr_vm *vm;
    (void)argc;
    read_options(argv);
    control.cpu = options.cpu;
    kr_status status = kr_vm_new(NULL, &vm, &main_context);
    if (status != KR_OK) {
        fprintf(stderr, "robot: no Lisp: status %d\n", status);
        return 1;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    bool ok = run(main_context, &control);
    signal(SIGINT, SIG_DFL);
    kr_vm_free(main_context);
    for (int i = 0; i < CHANNELS; i++)
        kr_rt_free(*channel(&control, i));
    if (control.arm)
        arm_free(control.arm);
    return !ok;
}
