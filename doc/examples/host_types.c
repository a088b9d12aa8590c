/* host_types.c -- a robot's joints: C structs that Lisp holds, sends messages to, and forgets.
 *
 * The struct is the host's. Lisp gets an object of class joint that stands for it; methods in C and in Lisp live side by side, and when Lisp
 * has forgotten the object, or the VM ends, the struct is given back by the type's finalizer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "karakuri.h"

struct joint {
    double angle, lower, upper;
};

static int joints;

static void free_joint(kr_context *ctx, void *data)
{
    (void)ctx;
    free(data);
    joints--;
}

static const kr_foreign_type joint_type = {"joint", free_joint};

/* The receiver's struct, or a Lisp error: a joint that was released has none. */
static struct joint *self(kr_context *ctx, kr_value v)
{
    void *data;
    if (kr_to_foreign(ctx, v, &joint_type, &data) != KR_OK)
        kr_raise(ctx, "a joint expected");
    return data;
}

/* (make-joint lower upper) => joint */
static kr_value make_joint(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    double lower, upper;
    (void)argc, (void)user;
    if (kr_to_real(ctx, argv[0], &lower) != KR_OK || kr_to_real(ctx, argv[1], &upper) != KR_OK || lower > upper)
        kr_raise(ctx, "make-joint: two angles in radians expected, the lower one first");
    struct joint *j = malloc(sizeof *j);
    if (!j)
        kr_raise(ctx, "make-joint: memory is out");
    *j = (struct joint){0, lower, upper};
    joints++;
    kr_value v = kr_foreign(ctx, &joint_type, j);
    if (kr_is_nil(v))
        free_joint(ctx, j);
    return v;
}

/* (send joint :angle [radians]) => radians */
static kr_value joint_angle(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    struct joint *j = self(ctx, argv[0]);
    double angle;
    (void)user;
    if (argc > 1) {
        if (kr_to_real(ctx, argv[1], &angle) != KR_OK)
            kr_raise(ctx, "joint :angle: a number expected");
        if (angle < j->lower || angle > j->upper)
            kr_raise_condition(ctx, "lisp:index-error", "joint :angle: beyond the limits");
        j->angle = angle;
    }
    return kr_real(ctx, j->angle);
}

static void show(kr_context *ctx, const char *form)
{
    kr_value v;
    char text[300];
    size_t scope = kr_scope_begin(ctx);
    kr_status s = kr_eval_string(ctx, form, &v);
    (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
    printf("%s => %s\n", form, text);
    kr_scope_end(ctx, scope);
}

int main(void)
{
    kr_vm *vm;
    kr_context *ctx;
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK)
        return 1;
    kr_foreign_class(ctx, &joint_type, "name", "A joint of the arm; angles are in radians.");
    kr_define(ctx, "make-joint", "(lower upper)", "A joint that turns from LOWER to UPPER radians.", make_joint, NULL);
    kr_define_method(ctx, "joint", "angle", "(&optional radians)", "The angle; with RADIANS it is moved there.", joint_angle, NULL);

    show(ctx, "(defmethod joint (:name (&optional n) (if n (setq name n) name)) (:degrees () (round (rad2deg (send self :angle)))))");
    show(ctx, "(setq elbow (make-joint -2.0 2.0)) (send elbow :name 'elbow)");
    show(ctx, "(send elbow :angle pi/2)");
    show(ctx, "(list (send elbow :name) (send elbow :degrees))");
    show(ctx, "(handler-case (send elbow :angle 3) (lisp::index-error (c) :beyond))");
    show(ctx, "(handler-case (send elbow :angle 'left) (error (c) :no-number))");
    show(ctx, "(dotimes (i 100) (make-joint 0 1)) (setq elbow nil) 'forgotten");
    show(ctx, "(dotimes (i 3) (sys:gc))"); /* finalizers run at a poll after the collection */
    printf("few are left: %s\n", joints < 50 ? "yes" : "no");
    show(ctx, "(setq last (make-joint 0 1)) (class-name (class last))");
    kr_vm_free(ctx);
    printf("joints after the VM: %d\n", joints);
    return joints != 0;
}
