/* system.c -- what the memory asks of the operating system: mappings, sizes, time, membarrier. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/chunk.h"

size_t kri_system_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *kri_system_map(size_t bytes, size_t alignment)
{
    size_t page = kri_system_page_bytes(), slack = alignment > page ? alignment : 0;

    bytes = (bytes + page - 1) & ~(page - 1);
    if (bytes + slack < bytes)
        return NULL;
    char *p = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (slack) {
        size_t before = -(uintptr_t)p & (alignment - 1);
        if (before)
            munmap(p, before);
        if (slack - before)
            munmap(p + before + bytes, slack - before);
        p += before;
    }
    return p;
}

void kri_system_unmap(void *p, size_t bytes)
{
    size_t page = kri_system_page_bytes();
    if (p)
        munmap(p, (bytes + page - 1) & ~(page - 1));
}

void kri_system_huge_pages(void *p, size_t bytes)
{
    madvise(p, bytes, MADV_HUGEPAGE); /* a wish: a kernel without them serves small pages */
}

/* The number in a control group's file, or 0: no such file, no limit. */
static unsigned long long group_limit(const char *path)
{
    unsigned long long n = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu", &n) != 1)
        n = 0;
    fclose(f);
    return n;
}

size_t kri_system_memory_bytes(void)
{
    static const char *const files[] = {
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    };
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * kri_system_page_bytes();

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        unsigned long long n = group_limit(files[i]);
        if (n && n < bytes)
            bytes = n;
    }
    return bytes;
}

unsigned kri_system_cores(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than the set has room for */
    return n > 0 ? (unsigned)n : 1;
}

uint64_t kri_system_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool kri_system_membarrier_prepare(void)
{
    /* Registering twice is harmless: the process, not the heap, is registered. */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void kri_system_membarrier(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
