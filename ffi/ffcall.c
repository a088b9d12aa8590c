/* ffcall.c -- the module ffcall.so: calls with arguments on the stack or structs by value, and callbacks, by libffcall.
 *
 * This file and libffcall make one work under the GNU General Public License; nothing else of Karakuri links it (doc/foreign.md). */
#include "lisp/ffcall.h"

#include <avcall.h>
#include <callback.h>

/* ---- calls ---- */

/* Where the result is kept until it is widened. */
union result {
    signed char i8;
    unsigned char u8;
    short i16;
    unsigned short u16;
    int i32;
    unsigned u32;
    long i64;
    float f;
    double d;
    void *p;
};

static void start_call(av_alist *list, const struct kri_c_call *c, union result *r)
{
    __avrword (*entry)() = (__avrword(*)())c->entry;
    switch ((enum kri_c_kind)c->result.kind) {
    case KRI_C_VOID: av_start_void(*list, entry); break;
    case KRI_C_INT8: av_start_schar(*list, entry, &r->i8); break;
    case KRI_C_BOOL:
    case KRI_C_UINT8: av_start_uchar(*list, entry, &r->u8); break;
    case KRI_C_INT16: av_start_short(*list, entry, &r->i16); break;
    case KRI_C_UINT16: av_start_ushort(*list, entry, &r->u16); break;
    case KRI_C_INT32: av_start_int(*list, entry, &r->i32); break;
    case KRI_C_UINT32: av_start_uint(*list, entry, &r->u32); break;
    case KRI_C_FLOAT: av_start_float(*list, entry, &r->f); break;
    case KRI_C_DOUBLE: av_start_double(*list, entry, &r->d); break;
    case KRI_C_STRUCT: _av_start_struct(*list, entry, c->result.size, 1, c->value.p); break;
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: av_start_ptr(*list, entry, void *, &r->p); break;
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: av_start_long(*list, entry, &r->i64); break;
    }
}

static int push_argument(av_alist *list, struct kri_c_type type, const union kri_c_value *v)
{
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_INT8:
    case KRI_C_INT16:
    case KRI_C_INT32: return av_int(*list, (int)v->i);
    case KRI_C_BOOL:
    case KRI_C_UINT8:
    case KRI_C_UINT16:
    case KRI_C_UINT32: return av_uint(*list, (unsigned)v->i);
    case KRI_C_FLOAT: return av_float(*list, v->f);
    case KRI_C_DOUBLE: return av_double(*list, v->d);
    case KRI_C_STRUCT: return _av_struct(*list, type.size, type.align, v->p);
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: return av_ptr(*list, void *, v->p);
    case KRI_C_VOID:
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: break;
    }
    return av_long(*list, v->i);
}

static void widen(struct kri_c_call *c, const union result *r)
{
    switch ((enum kri_c_kind)c->result.kind) {
    case KRI_C_VOID:
    case KRI_C_STRUCT: break;
    case KRI_C_INT8: c->value.i = r->i8; break;
    case KRI_C_BOOL:
    case KRI_C_UINT8: c->value.i = r->u8; break;
    case KRI_C_INT16: c->value.i = r->i16; break;
    case KRI_C_UINT16: c->value.i = r->u16; break;
    case KRI_C_INT32: c->value.i = r->i32; break;
    case KRI_C_UINT32: c->value.i = r->u32; break;
    case KRI_C_FLOAT: c->value.f = r->f; break;
    case KRI_C_DOUBLE: c->value.d = r->d; break;
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: c->value.p = r->p; break;
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: c->value.i = r->i64; break;
    }
}

static bool call(struct kri_c_call *c)
{
    av_alist list;
    union result r;
    start_call(&list, c, &r);
    for (int i = 0; i < c->n; i++)
        if (push_argument(&list, c->type[i], &c->argument[i]) < 0)
            return false;
    if (av_call(list) < 0)
        return false;
    widen(c, &r);
    return true;
}

/* ---- callbacks ---- */

static void start_return(va_alist list, struct kri_c_type type)
{
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_VOID: va_start_void(list); break;
    case KRI_C_INT8: va_start_schar(list); break;
    case KRI_C_BOOL:
    case KRI_C_UINT8: va_start_uchar(list); break;
    case KRI_C_INT16: va_start_short(list); break;
    case KRI_C_UINT16: va_start_ushort(list); break;
    case KRI_C_INT32: va_start_int(list); break;
    case KRI_C_UINT32: va_start_uint(list); break;
    case KRI_C_FLOAT: va_start_float(list); break;
    case KRI_C_DOUBLE: va_start_double(list); break;
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: va_start_ptr(list, void *); break;
    case KRI_C_STRUCT:
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: va_start_long(list); break;
    }
}

static union kri_c_value next_argument(va_alist list, struct kri_c_type type)
{
    union kri_c_value v = {0};
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_INT8: v.i = va_arg_schar(list); break;
    case KRI_C_BOOL:
    case KRI_C_UINT8: v.i = va_arg_uchar(list); break;
    case KRI_C_INT16: v.i = va_arg_short(list); break;
    case KRI_C_UINT16: v.i = va_arg_ushort(list); break;
    case KRI_C_INT32: v.i = va_arg_int(list); break;
    case KRI_C_UINT32: v.i = va_arg_uint(list); break;
    case KRI_C_FLOAT: v.f = va_arg_float(list); break;
    case KRI_C_DOUBLE: v.d = va_arg_double(list); break;
    case KRI_C_STRUCT: v.p = _va_arg_struct(list, type.size, type.align); break;
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: v.p = va_arg_ptr(list, void *); break;
    case KRI_C_VOID:
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: v.i = va_arg_long(list); break;
    }
    return v;
}

static void give_back(va_alist list, struct kri_c_type type, const union kri_c_value *v)
{
    switch ((enum kri_c_kind)type.kind) {
    case KRI_C_VOID: va_return_void(list); break;
    case KRI_C_INT8: va_return_schar(list, (signed char)v->i); break;
    case KRI_C_BOOL:
    case KRI_C_UINT8: va_return_uchar(list, (unsigned char)v->i); break;
    case KRI_C_INT16: va_return_short(list, (short)v->i); break;
    case KRI_C_UINT16: va_return_ushort(list, (unsigned short)v->i); break;
    case KRI_C_INT32: va_return_int(list, (int)v->i); break;
    case KRI_C_UINT32: va_return_uint(list, (unsigned)v->i); break;
    case KRI_C_FLOAT: va_return_float(list, v->f); break;
    case KRI_C_DOUBLE: va_return_double(list, v->d); break;
    case KRI_C_POINTER:
    case KRI_C_STRING:
    case KRI_C_BUFFER:
    case KRI_C_RECORD: va_return_ptr(list, void *, v->p); break;
    case KRI_C_STRUCT:
    case KRI_C_INT64:
    case KRI_C_UINT64:
    case KRI_C_ANY: va_return_long(list, v->i); break;
    }
}

static void called_back(void *data, va_alist list)
{
    struct kri_c_callback *cb = data;
    union kri_c_value argument[KRI_C_ARGUMENTS], value = {0};
    start_return(list, cb->result);
    for (int i = 0; i < cb->n; i++)
        argument[i] = next_argument(list, cb->type[i]);
    cb->invoke(cb, argument, &value);
    give_back(list, cb->result, &value);
}

static void *callback_code(struct kri_c_callback *callback) { return (void *)alloc_callback(called_back, callback); }
static void callback_free(void *code) { free_callback((callback_t)code); }

extern const struct kri_ffcall kri_ffcall;
__attribute__((visibility("default"))) const struct kri_ffcall kri_ffcall = {KRI_FFCALL_ABI, call, callback_code, callback_free};
