/* arm.c -- the simulated arm: ODE bodies joined by hinges. */
#include "arm.h"

#include <ode/ode.h>
#include <stdlib.h>

const struct arm_joint arm_joints[JOINTS] = {
    /* axis offset mass center width length rotor lower  upper  torque speed */
    {'z', 0.15, 4.0, 0.10, 0.14, 0.20, 0.30, -2.9, 2.9, 180, 1.7},
    {'y', 0.19, 4.0, 0.10, 0.14, 0.22, 0.30, -2.0, 2.0, 180, 1.7},
    {'z', 0.21, 3.0, 0.09, 0.12, 0.20, 0.20, -2.9, 2.9, 110, 1.7},
    {'y', 0.19, 2.7, 0.10, 0.12, 0.21, 0.20, -2.0, 2.0, 110, 2.2},
    {'z', 0.21, 1.7, 0.10, 0.10, 0.20, 0.05, -2.9, 2.9, 60, 2.4},
    {'y', 0.19, 1.6, 0.04, 0.10, 0.12, 0.05, -2.0, 2.0, 40, 3.1},
    {'z', 0.08, 0.6, 0.05, 0.10, 0.10, 0.03, -3.0, 3.0, 40, 3.1},
};
const double arm_tool = 0.12;

struct arm {
    dWorldID world;
    dBodyID body[JOINTS];
    dJointID hinge[JOINTS];
    double height; /* of the tool's point above the centre of the last body */
};

static void add_joint(struct arm *arm, int i, double base)
{
    const struct arm_joint *j = &arm_joints[i];
    dMass mass;
    arm->body[i] = dBodyCreate(arm->world);
    dBodySetPosition(arm->body[i], 0, 0, base + j->center);
    dMassSetBoxTotal(&mass, j->mass, j->width, j->width, j->length);
    mass.I[j->axis == 'y' ? 5 : 10] += j->rotor;
    dBodySetMass(arm->body[i], &mass);
    dBodySetGyroscopicMode(arm->body[i], 1);
    arm->hinge[i] = dJointCreateHinge(arm->world, 0);
    dJointAttach(arm->hinge[i], arm->body[i], i ? arm->body[i - 1] : 0);
    dJointSetHingeAnchor(arm->hinge[i], 0, 0, base);
    dJointSetHingeAxis(arm->hinge[i], 0, j->axis == 'y', j->axis == 'z');
    dJointSetHingeParam(arm->hinge[i], dParamLoStop, j->lower);
    dJointSetHingeParam(arm->hinge[i], dParamHiStop, j->upper);
    dJointSetHingeParam(arm->hinge[i], dParamStopERP, 0.2);
}

/* Turn all that follows joint I, the tool included, about its axis. */
static void turn_from(struct arm *arm, int i, double angle)
{
    dVector3 anchor, axis;
    dMatrix3 turn, now;
    dJointGetHingeAnchor(arm->hinge[i], anchor);
    dJointGetHingeAxis(arm->hinge[i], axis);
    dRFromAxisAndAngle(turn, axis[0], axis[1], axis[2], angle);
    for (int k = i; k < JOINTS; k++) {
        const dReal *p = dBodyGetPosition(arm->body[k]);
        dVector3 from = {p[0] - anchor[0], p[1] - anchor[1], p[2] - anchor[2]}, to;
        dMultiply0_331(to, turn, from);
        dMultiply0_333(now, turn, dBodyGetRotation(arm->body[k]));
        dBodySetPosition(arm->body[k], anchor[0] + to[0], anchor[1] + to[1], anchor[2] + to[2]);
        dBodySetRotation(arm->body[k], now);
    }
}

struct arm *arm_new(const double angles[JOINTS])
{
    struct arm *arm = calloc(1, sizeof *arm);
    double base = 0;
    if (!arm)
        return NULL;
    dInitODE2(0);
    arm->world = dWorldCreate();
    dWorldSetGravity(arm->world, 0, 0, -9.81);
    dWorldSetERP(arm->world, 0.5);
    for (int i = 0; i < JOINTS; i++)
        add_joint(arm, i, base += arm_joints[i].offset);
    for (int i = 0; i < JOINTS; i++)
        turn_from(arm, i, angles[i]);
    arm->height = arm_tool - arm_joints[JOINTS - 1].center;
    return arm;
}

void arm_free(struct arm *arm)
{
    dWorldDestroy(arm->world);
    dCloseODE();
    free(arm);
}

void arm_enter_thread(void) { dAllocateODEDataForThread(dAllocateMaskAll); }
void arm_leave_thread(void) { dCleanupODEAllDataForThread(); }

void arm_read(const struct arm *arm, double angles[JOINTS], double speeds[JOINTS])
{
    for (int i = 0; i < JOINTS; i++) {
        angles[i] = dJointGetHingeAngle(arm->hinge[i]);
        speeds[i] = dJointGetHingeAngleRate(arm->hinge[i]);
    }
}

void arm_step(struct arm *arm, const double torques[JOINTS], double seconds)
{
    for (int i = 0; i < JOINTS; i++)
        dJointAddHingeTorque(arm->hinge[i], torques[i]);
    dWorldStep(arm->world, seconds);
}

void arm_tool_point(const struct arm *arm, double point[3])
{
    dVector3 p;
    dBodyGetRelPointPos(arm->body[JOINTS - 1], 0, 0, arm->height, p);
    for (int i = 0; i < 3; i++)
        point[i] = p[i];
}
