/* futex.h -- sleep until a word changes. The word is the low half of a kri_atomic; who changes it wakes the sleepers. */
#ifndef KRI_RUNTIME_FUTEX_H
#define KRI_RUNTIME_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/atomic.h"

static inline uint32_t *kri_futex_word(kri_atomic *p)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (uint32_t *)(void *)p;
#else
    return (uint32_t *)(void *)p + sizeof *p / sizeof(uint32_t) - 1;
#endif
}

/* Sleep while *P is EXPECTED (in its low 32 bits); may return early. The kernel compares and falls asleep in one step. */
static inline void kri_futex_wait(kri_atomic *p, size_t expected)
{
    syscall(SYS_futex, kri_futex_word(p), FUTEX_WAIT_PRIVATE, (uint32_t)expected, NULL, NULL, 0);
}
static inline void kri_futex_wake(kri_atomic *p, int sleepers)
{
    syscall(SYS_futex, kri_futex_word(p), FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
}

#endif
