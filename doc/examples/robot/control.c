/* control.c -- the control loop. What is called each period allocates nothing, locks nothing, and asks the system for the time only. */
#include "control.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { PRIORITY = 80, STACK = 128 << 10 };
static const double gravity = 9.81, brake_time = 0.3, greatest_jump = 0.02;

/* What holds the arm before Lisp says anything, and after a fault. */
static const struct arm_settings own_settings = {
    .stiffness = {600, 600, 400, 400, 150, 100, 60}, .damping = {80, 80, 35, 35, 6, 5, 2.5}, .weight = 1, .most_error = 0.3};

static struct loop {
    struct control *c;
    pthread_t thread;
    sem_t ready;
    atomic_bool stop;
    atomic_int phase;

    /* The rest is the thread's. */
    struct arm_state state;
    struct arm_settings settings;
    struct arm_segment segment;
    bool following;
    double segment_time, brake, goal_speed[JOINTS];
    int64_t period;
} loop;

/* ---- the law ---- */

static void turn(double r[3][3], char axis, double angle)
{
    double c = cos(angle), s = sin(angle);
    int a = axis == 'z' ? 0 : 2, b = axis == 'z' ? 1 : 0; /* the plane that turns, a towards b */
    for (int i = 0; i < 3; i++) {
        double ra = r[i][a], rb = r[i][b];
        r[i][a] = c * ra + s * rb;
        r[i][b] = c * rb - s * ra;
    }
}

/* The torques that carry the arm's weight. */
static void carry_weight(const double angle[JOINTS], double torque[JOINTS])
{
    double r[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, p[3] = {0}, point[JOINTS][3], axis[JOINTS][3], center[JOINTS][3];
    double mass = 0, moment_x = 0, moment_y = 0; /* of the links from the joint to the tool */
    for (int i = 0; i < JOINTS; i++) {
        const struct arm_joint *j = &arm_joints[i];
        for (int k = 0; k < 3; k++) {
            point[i][k] = p[k] += r[k][2] * j->offset;
            axis[i][k] = r[k][j->axis == 'y' ? 1 : 2];
        }
        turn(r, j->axis, angle[i]);
        for (int k = 0; k < 3; k++)
            center[i][k] = p[k] + r[k][2] * j->center;
    }
    for (int i = JOINTS - 1; i >= 0; i--) {
        mass += arm_joints[i].mass;
        moment_x += arm_joints[i].mass * center[i][0];
        moment_y += arm_joints[i].mass * center[i][1];
        torque[i] = gravity * (axis[i][0] * (moment_y - mass * point[i][1]) - axis[i][1] * (moment_x - mass * point[i][0]));
    }
}

static void command_torques(struct arm_state *s, const struct arm_settings *set)
{
    double weight[JOINTS];
    carry_weight(s->angle, weight);
    for (int i = 0; i < JOINTS; i++) {
        double t = set->weight * weight[i] + set->stiffness[i] * (s->goal[i] - s->angle[i]) + set->damping[i] * (loop.goal_speed[i] - s->speed[i]);
        s->torque[i] = fmin(fmax(t, -arm_joints[i].torque), arm_joints[i].torque);
    }
}

/* ---- what Lisp says ---- */

static bool within(double x, double least, double most) { return x >= least && x <= most; } /* not of a NaN */

static bool settings_make_sense(const struct arm_settings *s)
{
    bool ok = within(s->weight, 0, 2) && within(s->most_error, 0, 3);
    for (int i = 0; i < JOINTS; i++)
        ok = ok && within(s->stiffness[i], 0, 5000) && within(s->damping[i], 0, 500);
    return ok;
}

static void hold(void)
{
    memcpy(loop.state.goal, loop.state.angle, sizeof loop.state.goal);
    memset(loop.goal_speed, 0, sizeof loop.goal_speed);
    loop.following = false;
    loop.brake = 0;
}

static void fail(enum fault fault)
{
    loop.state.fault = fault;
    hold();
}

static void take_settings(void)
{
    bool fresh;
    const struct arm_settings *s = kr_rt_front(loop.c->settings, &fresh);
    if (!fresh)
        return;
    if (!settings_make_sense(s)) {
        loop.state.rejected++;
        return;
    }
    if (s->halts != loop.settings.halts) {
        struct arm_segment forgotten;
        for (size_t n = kr_rt_count(loop.c->segments); n > 0; n--) /* no more than are there now: Lisp may send others */
            kr_rt_pop(loop.c->segments, &forgotten);
        loop.following = false;
        loop.brake = brake_time;
    }
    if (s->resets != loop.settings.resets && loop.state.fault) {
        loop.state.fault = FAULT_NONE;
        hold();
    }
    loop.settings = *s;
    loop.state.halts = s->halts;
    loop.state.resets = s->resets;
}

/* ---- the trajectory ---- */

static void evaluate(int joint, double t, double *position, double *speed)
{
    const double *c = &loop.segment.coefficients[joint * (DEGREE + 1)];
    double p = c[DEGREE], v = 0;
    for (int k = DEGREE; k-- > 0;) {
        v = v * t + p;
        p = p * t + c[k];
    }
    *position = p;
    *speed = v;
}

/* Does the segment begin where the goal is, and say nothing impossible? */
static enum fault judge_segment(void)
{
    if (!within(loop.segment.seconds, 0.001, 3600))
        return FAULT_SEGMENT;
    for (int i = 0; i < JOINTS; i++) {
        double begin, end, speed;
        evaluate(i, 0, &begin, &speed);
        evaluate(i, loop.segment.seconds, &end, &speed);
        if (!within(end, arm_joints[i].lower, arm_joints[i].upper))
            return FAULT_SEGMENT;
        if (!within(begin - loop.state.goal[i], -greatest_jump, greatest_jump))
            return FAULT_JUMP;
    }
    return FAULT_NONE;
}

static void take_segment(double time_left_over)
{
    if (!kr_rt_pop(loop.c->segments, &loop.segment))
        return;
    loop.state.segments++;
    enum fault fault = loop.state.fault ? FAULT_NONE : judge_segment();
    if (fault)
        fail(fault);
    loop.following = !loop.state.fault; /* else it is dropped, and so are those behind it */
    loop.segment_time = time_left_over;
}

static void move_goal(double dt)
{
    if (loop.brake > 0) {
        for (int i = 0; i < JOINTS; i++) {
            loop.goal_speed[i] *= fmax(0, 1 - dt / loop.brake);
            loop.state.goal[i] += loop.goal_speed[i] * dt;
        }
        loop.brake -= dt;
        return;
    }
    double over = 0;
    if (loop.following && (loop.segment_time += dt) > loop.segment.seconds) {
        over = loop.segment_time - loop.segment.seconds;
        loop.following = false;
        for (int i = 0; i < JOINTS; i++) {
            evaluate(i, loop.segment.seconds, &loop.state.goal[i], &loop.goal_speed[i]);
            loop.goal_speed[i] = 0; /* unless another segment goes on */
        }
    }
    if (!loop.following)
        take_segment(over);
    if (loop.following)
        for (int i = 0; i < JOINTS; i++)
            evaluate(i, fmin(loop.segment_time, loop.segment.seconds), &loop.state.goal[i], &loop.goal_speed[i]);
}

/* ---- a period ---- */

static void check_arm(void)
{
    for (int i = 0; i < JOINTS; i++) {
        if (!isfinite(loop.state.angle[i]) || !isfinite(loop.state.speed[i]))
            fail(FAULT_SIMULATION);
        else if (!loop.state.fault && fabs(loop.state.goal[i] - loop.state.angle[i]) > loop.settings.most_error)
            fail(FAULT_TRACKING);
    }
}

static void report(void)
{
    struct arm_state *s = &loop.state;
    s->time = (double)loop.period * PERIOD_NS * 1e-9;
    s->moving = loop.following || loop.brake > 0 || kr_rt_count(loop.c->segments) > 0;
    arm_tool_point(loop.c->arm, s->tool);
    if (loop.period % LOG_EVERY == 0) {
        double *sample = kr_rt_back(loop.c->log);
        if (sample) {
            sample[0] = s->time;
            memcpy(sample + 1, s->goal, sizeof s->goal);
            memcpy(sample + 1 + JOINTS, s->angle, sizeof s->angle);
            memcpy(sample + 1 + 2 * JOINTS, s->tool, sizeof s->tool);
            kr_rt_publish(loop.c->log);
        } else {
            s->unlogged++;
        }
    }
    kr_rt_push(loop.c->states, s);
}

static void run_period(void)
{
    const double dt = PERIOD_NS * 1e-9;
    loop.period++;
    arm_read(loop.c->arm, loop.state.angle, loop.state.speed);
    take_settings();
    move_goal(dt);
    check_arm();
    command_torques(&loop.state, loop.state.fault ? &own_settings : &loop.settings);
    arm_step(loop.c->arm, loop.state.torque, dt);
    report();
}

/* ---- time ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static void count(struct lateness *l, int64_t late, int64_t work, int64_t missed)
{
    int64_t us = late / 1000;
    l->periods++;
    l->missed += missed;
    l->worst = greater(l->worst, late);
    l->longest = greater(l->longest, work);
    l->bin[us < LATENESS_BINS ? us : LATENESS_BINS - 1]++;
}

static void *run(void *arg)
{
    struct control *c = arg;
    c->fifo_error = kr_rt_set_fifo(PRIORITY);
    c->affinity_error = c->cpu >= 0 ? kr_rt_set_affinity((unsigned)c->cpu) : 0;
    c->stack_error = kr_rt_prefault_stack(STACK);
    arm_enter_thread();
    arm_read(c->arm, loop.state.angle, loop.state.speed);
    loop.settings = own_settings;
    hold();
    run_period(); /* once before it counts: ODE takes its working memory */
    sem_post(&loop.ready);
    for (int64_t next = now_ns() + PERIOD_NS; !atomic_load_explicit(&loop.stop, memory_order_relaxed); next += PERIOD_NS) {
        sleep_until(next);
        int64_t begin = now_ns();
        run_period();
        int64_t end = now_ns(), missed = (end - next) / PERIOD_NS;
        int phase = atomic_load_explicit(&loop.phase, memory_order_relaxed);
        if (phase >= 0)
            count(&c->lateness[phase], begin - next, end - begin, missed);
        next += missed * PERIOD_NS; /* what has passed has passed */
    }
    arm_leave_thread();
    return NULL;
}

int control_start(struct control *c)
{
    loop.c = c;
    loop.phase = -1;
    sem_init(&loop.ready, 0, 0);
    int error = pthread_create(&loop.thread, NULL, run, c);
    if (error)
        return error;
    while (sem_wait(&loop.ready) != 0)
        ;
    return 0;
}

void control_phase(int phase) { atomic_store_explicit(&loop.phase, phase, memory_order_relaxed); }

void control_stop(void)
{
    loop.stop = true;
    pthread_join(loop.thread, NULL);
    sem_destroy(&loop.ready);
}

int64_t control_percentile(const struct lateness *l)
{
    int64_t beyond = 0, allowed = l->periods / 10000;
    for (int i = LATENESS_BINS - 1; i >= 0; i--)
        if ((beyond += l->bin[i]) > allowed)
            return i == LATENESS_BINS - 1 ? l->worst : (i + 1) * INT64_C(1000);
    return 0;
}
