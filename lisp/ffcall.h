/* ffcall.h -- what the runtime and the module ffcall.so say to each other: C values, types and calls, nothing of Lisp.
 *
 * The module (ffi/ffcall.c) is all that links libffcall. It knows nothing of Karakuri but this file; the runtime finds the table
 * kri_ffcall in it. Calls whose arguments fit into registers do without it (lisp/foreign_call.c). */
#ifndef KRI_LISP_FFCALL_H
#define KRI_LISP_FFCALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KRI_FFCALL_ABI = 1 };

enum kri_c_kind {
    KRI_C_VOID, KRI_C_INT8, KRI_C_UINT8, KRI_C_INT16, KRI_C_UINT16, KRI_C_INT32, KRI_C_UINT32, KRI_C_INT64, KRI_C_UINT64,
    KRI_C_BOOL, KRI_C_FLOAT, KRI_C_DOUBLE, KRI_C_POINTER,
    KRI_C_STRING, /* a pointer that Lisp sees as a string */
    KRI_C_BUFFER, /* a pointer to the elements of a vector */
    KRI_C_STRUCT, /* by value; without floating-point fields */
    KRI_C_RECORD, /* a pointer to a struct of at least SIZE bytes */
    KRI_C_ANY,    /* what the Lisp value suggests: an int64, a double or a pointer */
};

struct kri_c_type {
    uint8_t kind;
    uint8_t align; /* of a struct */
    uint32_t size; /* of a struct, or the bytes of a result that is a string; 0: it ends with a zero byte */
};

/* Integers are stored as int64 whatever their width, structs as the address of their bytes. */
union kri_c_value {
    int64_t i;
    double d;
    float f;
    void *p;
};

struct kri_c_call {
    void *entry;
    struct kri_c_type result;
    int n;
    const struct kri_c_type *type;    /* of each argument; not KRI_C_ANY */
    const union kri_c_value *argument;
    union kri_c_value value;          /* the result; of a struct: the address to store it at, set beforehand */
};

/* A callback: INVOKE is called with what C passed. */
struct kri_c_callback {
    void (*invoke)(struct kri_c_callback *callback, const union kri_c_value *argument, union kri_c_value *value);
    void *code;                       /* what C calls */
    struct kri_c_type result;
    int n;
    struct kri_c_type type[];
};
enum { KRI_C_ARGUMENTS = 64 };        /* at most */

struct kri_ffcall {
    uint32_t abi;
    bool (*call)(struct kri_c_call *call); /* false: too many arguments */
    void *(*callback_code)(struct kri_c_callback *callback); /* NULL: no memory */
    void (*callback_free)(void *code);
};

#endif
