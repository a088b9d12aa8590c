/* arm.h -- the arm, simulated with ODE: what stands here in the place of motors and encoders.
 *
 * A chain of seven joints that take torques. A step of the simulation is what a real arm does in one period of its controller. One
 * thread uses an arm. Lengths in m, masses in kg, angles in rad, torques in N m. */
#ifndef ROBOT_ARM_H
#define ROBOT_ARM_H

#include <stdbool.h>

enum { JOINTS = 7 };

/* The link that a joint turns; where all angles are zero its frame has the axes of the world's. */
struct arm_joint {
    char axis;                 /* 'y' or 'z' */
    double offset;             /* from the frame before, along its z */
    double mass, center;       /* of the link; its centre along z */
    double width, length;      /* of the box that its inertia is that of, without */
    double rotor;              /* the drive's rotor behind its gear: kg m2 about the axis */
    double lower, upper;       /* the stops */
    double torque, speed;      /* what the drive can do */
};
extern const struct arm_joint arm_joints[JOINTS];
extern const double arm_tool; /* from the last frame to the tool's point, along z */

struct arm;
/* An arm at rest with ANGLES; NULL when memory is out. */
struct arm *arm_new(const double angles[JOINTS]);
void arm_free(struct arm *arm);
/* Once in each thread that steps an arm, before it does. */
void arm_enter_thread(void);
void arm_leave_thread(void);
/* What the encoders say. */
void arm_read(const struct arm *arm, double angles[JOINTS], double speeds[JOINTS]);
/* Apply TORQUES for SECONDS. */
void arm_step(struct arm *arm, const double torques[JOINTS], double seconds);
/* Where the tool's point really is: for judging, not for control. */
void arm_tool_point(const struct arm *arm, double point[3]);

#endif
