/* atomic.h -- every atomic access of Karakuri, over libatomic_ops, with the order in the name.
 * Nothing else includes atomic_ops.h. Under the thread sanitizer, which understands only the
 * compiler's own intrinsics and no fences, the same names map to those intrinsics; so they do where there is no atomic_ops.h, as when a
 * robot's program compiles Lisp functions with a bare gcc.
 *
 * Note [orders]. A read-modify-write (kri_cas, kri_fetch_add, kri_set_bits, kri_clear_bits, kri_exchange) acquires and releases, and no
 * more: on aarch64 a later access to another word may pass its store. Where a thread must be seen before it looks, or seen here
 * before it is seen there, a kri_fence stands between. kri_fetch_add(p, 0) is how to read a word that others change by read-modify-writes so
 * that one of the two surely sees the other. doc/memory-orders.md lists every pair, doc/orders.pml checks them. */
#ifndef KRI_RUNTIME_ATOMIC_H
#define KRI_RUNTIME_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define KRI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KRI_TSAN 1
#endif
#endif

#if defined(KRI_TSAN) || !__has_include(<atomic_ops.h>)

typedef size_t kri_atomic;

static inline size_t kri_load_relaxed(const volatile kri_atomic *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline size_t kri_load_acquire(const volatile kri_atomic *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void kri_store_relaxed(volatile kri_atomic *p, size_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static inline void kri_store_release(volatile kri_atomic *p, size_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline bool kri_cas(volatile kri_atomic *p, size_t old, size_t v)
{
    return __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static inline size_t kri_fetch_add(volatile kri_atomic *p, size_t n) { return __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL); }
static inline void kri_set_bits(volatile kri_atomic *p, size_t bits) { (void)__atomic_fetch_or(p, bits, __ATOMIC_ACQ_REL); }
static inline void kri_clear_bits(volatile kri_atomic *p, size_t bits) { (void)__atomic_fetch_and(p, ~bits, __ATOMIC_ACQ_REL); }
#ifdef KRI_TSAN
/* The sanitizer knows no fences: a sequentially consistent read-modify-write of one shared word (gate.c). */
extern kri_atomic kri_fence_word;
static inline void kri_fence(void) { (void)__atomic_fetch_add(&kri_fence_word, 1, __ATOMIC_SEQ_CST); }
#else
static inline void kri_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
static inline unsigned char kri_load_byte(const volatile unsigned char *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void kri_store_byte(volatile unsigned char *p, unsigned char v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static inline unsigned kri_load_int_acquire(const volatile unsigned *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void kri_store_int_release(volatile unsigned *p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

#else

#include <atomic_ops.h>

typedef AO_t kri_atomic;
_Static_assert(sizeof(kri_atomic) == sizeof(uintptr_t), "an atomic is one word");

static inline size_t kri_load_relaxed(const volatile kri_atomic *p) { return AO_load(p); }
static inline size_t kri_load_acquire(const volatile kri_atomic *p) { return AO_load_acquire(p); }
static inline void kri_store_relaxed(volatile kri_atomic *p, size_t v) { AO_store(p, v); }
static inline void kri_store_release(volatile kri_atomic *p, size_t v) { AO_store_release(p, v); }
/* "Full" is more than the name says on no machine but x86: Note [orders]. */
static inline bool kri_cas(volatile kri_atomic *p, size_t old, size_t v) { return AO_compare_and_swap_full(p, old, v) != 0; }
static inline size_t kri_fetch_add(volatile kri_atomic *p, size_t n) { return AO_fetch_and_add_full(p, n); }
static inline void kri_set_bits(volatile kri_atomic *p, size_t bits) { AO_or_full(p, bits); }
static inline void kri_clear_bits(volatile kri_atomic *p, size_t bits) { AO_and_full(p, ~bits); }
static inline void kri_fence(void) { AO_nop_full(); }
static inline unsigned char kri_load_byte(const volatile unsigned char *p) { return AO_char_load(p); }
static inline void kri_store_byte(volatile unsigned char *p, unsigned char v) { AO_char_store(p, v); }
static inline unsigned kri_load_int_acquire(const volatile unsigned *p) { return AO_int_load_acquire(p); }
static inline void kri_store_int_release(volatile unsigned *p, unsigned v) { AO_int_store_release(p, v); }

#endif

/* Store V and answer what was there: acquire and release. Libatomic_ops has none; a loop of compare-and-swap would have no bound. */
static inline size_t kri_exchange(volatile kri_atomic *p, size_t v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }

/* Keeps the compiler from moving memory accesses across; no instruction. */
static inline void kri_compiler_barrier(void) { __asm__ volatile("" ::: "memory"); }

/* In a loop that waits for another core. */
static inline void kri_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    kri_compiler_barrier();
#endif
}

/* For functions that read memory which other code owns: native stacks, with the red zones and racing words in them. */
#define KRI_NO_SANITIZE __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

#define KRI_LIKELY(x) __builtin_expect(!!(x), 1)
#define KRI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KRI_NOINLINE __attribute__((noinline))
#define KRI_COLD __attribute__((noinline, cold))

#endif
