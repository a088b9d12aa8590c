/* frame.h -- the frames of a running context, as errors, backtraces and the debugger see them. */
#ifndef KRI_LISP_FRAME_H
#define KRI_LISP_FRAME_H

#include "lisp/interp.h"
#include "lisp/native.h"

/* kri_frames (native.h) without those that nobody wants to see: the innermost frame of W's context; false if there is none. */
bool kri_frame_first(struct kri_worker *w, struct kri_frames *f);
/* Its caller. *CALLER (if not NULL) becomes the name of the builtin through which F was called, or NIL if no C lies between. */
bool kri_frame_next(struct kri_worker *w, struct kri_frames *f, kr_value *caller);
/* The arguments of F's function as they are now. */
kr_value kri_frame_arguments(struct kri_worker *w, const struct kri_frames *f);
/* An association list of F's variables that are no parameters, outer ones first. */
kr_value kri_frame_locals(struct kri_worker *w, const struct kri_frames *f);
/* The names of all variables of CODE and of those it captured. */
kr_value kri_variable_names(struct kri_worker *w, const struct kri_code *code);
/* The form that is evaluated, as EusLisp names it in errors: the innermost call; with OUTER the form around it, for what fails
 * before its call begins. CALL: what is known of the call of a builtin without a source, a list, or NIL. */
kr_value kri_fault_form(struct kri_worker *w, bool outer, kr_value call);

/* Is FILE, a string, one of the core library's? (lisp/report.c) */
bool kri_is_core_file(kr_value file);
/* Is NAME a function that evaluates a form of someone else's? */
bool kri_is_evaluator(struct kri_worker *w, kr_value name);

#endif
