/* control.h -- the control loop: a thread that runs once a millisecond and never waits for Lisp.
 *
 * Each period it reads the arm, follows the segment of the trajectory that it is in, and commands torques: what carries the arm's weight,
 * and springs and dampers that pull it to the goal. Lisp sends it segments and settings, and sees its state, over channels only. What Lisp
 * sends is checked; when the arm does not follow, the loop holds it where it is and takes no segment until it is told to. */
#ifndef ROBOT_CONTROL_H
#define ROBOT_CONTROL_H

#include <stdint.h>
#include "arm.h"
#include "karakuri.h"

enum { PERIOD_NS = 1000000, LOG_EVERY = 10, LOG_DOUBLES = 1 + 2 * JOINTS + 3, DEGREE = 5, LATENESS_BINS = 20000, PHASES = 2 };

/* What went wrong; the loop holds the arm until settings with another RESET come. */
enum fault { FAULT_NONE, FAULT_TRACKING, FAULT_JUMP, FAULT_SEGMENT, FAULT_SIMULATION };

/* To Lisp, the newest: class arm-state. */
struct arm_state {
    double time;                    /* s of periods that ran */
    double angle[JOINTS], speed[JOINTS], goal[JOINTS], torque[JOINTS];
    double tool[3];                 /* as a camera would see it, for judging */
    int64_t segments;               /* how many have begun */
    int64_t halts, resets;          /* the last that were obeyed */
    int64_t rejected;               /* settings that made no sense */
    int64_t unlogged;               /* samples for which the log had no room */
    int32_t fault;
    bool moving;                    /* a segment is being followed, or waits */
};
/* From Lisp, all in order: class arm-segment. A polynomial in the time since its begin for each joint, constant term first. */
struct arm_segment {
    double seconds;
    double coefficients[JOINTS * (DEGREE + 1)];
};
/* From Lisp, the newest: class arm-settings. */
struct arm_settings {
    double stiffness[JOINTS], damping[JOINTS]; /* N m / rad, N m s / rad */
    double weight;                  /* the part of the arm's weight that is carried: 1 */
    double most_error;              /* rad between goal and joint; beyond it the arm is held */
    int64_t halts;                  /* another number than before: stop, forget the segments */
    int64_t resets;                 /* likewise: forget the fault */
};

/* Lateness of the wake-ups in one phase of the program. */
struct lateness {
    int64_t periods, missed;        /* missed: their time passed before the loop was ready */
    int64_t worst, longest;         /* ns: of a wake-up, of the work of a period */
    uint32_t bin[LATENESS_BINS];    /* by microseconds; the last holds what is beyond */
};

struct control {
    struct arm *arm;
    kr_rt *states, *segments, *settings, *log;
    int cpu;                        /* -1: any */
    int fifo_error, affinity_error, stack_error; /* errno or 0, from control_start on */
    struct lateness lateness[PHASES];            /* to be read after control_stop */
};

/* Start the thread, and wait until it runs; 0 or errno. */
int control_start(struct control *c);
/* Count what comes as of phase PHASE; -1: not at all. */
void control_phase(int phase);
void control_stop(void);
/* The lateness, in ns, that all but 1 of 10,000 periods keep within. */
int64_t control_percentile(const struct lateness *l);

#endif
