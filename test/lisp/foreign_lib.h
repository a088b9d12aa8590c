/* foreign_lib.h -- a header as the importer reads them. */
#ifndef FOREIGN_LIB_H
#define FOREIGN_LIB_H
#include <stddef.h>
#include <stdint.h>

#define LIB_VERSION 3
#define LIB_MASK (1 << 4 | 0x0fu)
#define LIB_SCALE 2.5
#define LIB_NAME "lib"
#define LIB_SQUARE(x) ((x) * (x))

enum colour { RED, GREEN = 5, BLUE };
typedef enum { COLD = -1, WARM = LIB_VERSION + 1 } warmth;

struct pair {
    int a, b;
};
typedef struct point {
    double x, y;
} point;
struct box {
    struct point low, high;
};
struct mixed_pair {
    int i;
    float f;
};
struct fpair {
    float a, b;
};
struct wide {
    long v[4];
    char tag;
};
struct opaque;
typedef double (*unary)(double);

double mixed(int a, double b, long c, float d, char e, double f);
struct pair turn(struct pair p);
struct point mirror(point p, double about);
extern double area(struct box b);
void move_point(struct point *p, double dx);
const char *greeting(void);
double sum(const char *types, ...);
int apply_twice(int (*f)(int), int x);
uint16_t same_u16(uint16_t x);
static inline int not_in_the_library(int x) { return x + 1; }
double total(const double x[], int n);
void nothing(void);
#endif
