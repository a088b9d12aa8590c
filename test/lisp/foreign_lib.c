/* foreign_lib.c -- what foreign_test.l calls. Compiled by the test. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "foreign_lib.h"

#define SAME(name, type) \
    type same_##name(type x) { return x; }
SAME(i8, int8_t)
SAME(u8, uint8_t)
SAME(i16, int16_t)
SAME(u16, uint16_t)
SAME(i32, int32_t)
SAME(u32, uint32_t)
SAME(i64, int64_t)
SAME(u64, uint64_t)
SAME(bool, bool)
SAME(f32, float)
SAME(f64, double)
SAME(pointer, void *)

int nothing_calls;
void nothing(void) { nothing_calls++; }
int fail_with(int code)
{
    errno = code;
    return -1;
}

double mixed(int a, double b, long c, float d, char e, double f) { return a + 10 * b + 100 * (double)c + 1000 * (double)d + 10000 * e + 100000 * f; }
long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}
double many(double a, double b, double c, double d, double e, double f, double g, double h, double i, int n, float j)
{
    return a + b + c + d + e + f + g + h + i * n + (double)j;
}

/* "ld" sums a long and a double, and so on. */
double sum(const char *types, ...)
{
    va_list ap;
    double s = 0;
    va_start(ap, types);
    for (; *types; types++)
        s += *types == 'l' ? (double)va_arg(ap, long) : *types == 'd' ? va_arg(ap, double) : (double)strlen(va_arg(ap, char *));
    va_end(ap);
    return s;
}

const char *greeting(void) { return "good day"; }
const char *no_text(void) { return NULL; }
void upcase(char *s)
{
    for (; *s; s++)
        if (*s >= 'a' && *s <= 'z')
            *s = (char)(*s - 32);
}
double total(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}

struct pair turn(struct pair p) { return (struct pair){p.b, p.a}; }
struct point mirror(struct point p, double about) { return (struct point){2 * about - p.x, p.y}; }
double area(struct box b) { return (b.high.x - b.low.x) * (b.high.y - b.low.y); }
struct box grow(struct box b, double by)
{
    b.low.x -= by, b.low.y -= by, b.high.x += by, b.high.y += by;
    return b;
}
float blend(struct mixed_pair m, struct fpair f) { return (float)m.i + m.f + f.a * f.b; }
struct mixed_pair blended(int i, float f) { return (struct mixed_pair){i, f}; }
long wide(struct wide w) { return w.v[0] + w.v[1] + w.v[2] + w.v[3] + w.tag; }
void move_point(struct point *p, double dx) { p->x += dx; }

int apply_twice(int (*f)(int), int x) { return f(f(x)); }
double apply_double(double (*f)(double, float, int), double x) { return f(x, 0.5f, 3); }
int count_calls(int (*f)(int), int n)
{
    int s = 0;
    for (int i = 0; i < n; i++)
        s += f(i);
    return s;
}
long pair_callback(long (*f)(struct pair), int a, int b) { return f((struct pair){a, b}); }
int text_callback(int (*f)(const char *), const char *s) { return f(s); }

struct job {
    int (*f)(int);
    int n, sum;
};
static void *run(void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < job->n; i++)
        job->sum += job->f(i);
    return NULL;
}
/* F called n times from each of THREADS threads that Lisp does not know. */
int from_threads(int (*f)(int), int n, int threads)
{
    pthread_t t[16];
    struct job job[16];
    int s = 0;
    for (int i = 0; i < threads; i++) {
        job[i] = (struct job){f, n, 0};
        pthread_create(&t[i], NULL, run, &job[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], NULL);
        s += job[i].sum;
    }
    return s;
}

static int (*kept)(int);
void keep(int (*f)(int)) { kept = f; }
int call_kept(int x) { return kept ? kept(x) : -1; }
