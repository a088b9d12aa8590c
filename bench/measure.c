/* measure.c -- run a command N times; print the medians of its elapsed and processor time and its greatest memory.
 *
 *   measure N COMMAND ARGUMENT...        prints "measure elapsed-ns cpu-ns peak-kilobytes"
 *
 * The time is from before the fork to the end of the child: what somebody waits who starts the program. Standard output of the
 * command goes to standard error, or nowhere if N is more than 1; its standard input is empty. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void become(char **command, int n)
{
    int in = open("/dev/null", O_RDONLY), out = open("/dev/null", O_WRONLY);
    if (in >= 0)
        dup2(in, 0);
    if (n > 1 && out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
    } else {
        dup2(2, 1);
    }
    execvp(command[0], command);
    _exit(127);
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[1]) : 0;
    uint64_t *elapsed = calloc((size_t)(n > 0 ? n : 1), sizeof *elapsed), *cpu = calloc((size_t)(n > 0 ? n : 1), sizeof *cpu);
    long peak = 0;
    if (n < 1 || !elapsed || !cpu) {
        fprintf(stderr, "usage: measure N COMMAND ARGUMENT...\n");
        return 2;
    }
    for (int i = 0; i < n; i++) {
        struct rusage u;
        int status;
        uint64_t start = now();
        pid_t child = fork();
        if (child == 0)
            become(argv + 2, n);
        if (child < 0 || wait4(child, &status, 0, &u) != child) {
            perror("measure");
            return 2;
        }
        elapsed[i] = now() - start;
        cpu[i] = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 + (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
        peak = u.ru_maxrss > peak ? u.ru_maxrss : peak;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "measure: %s failed\n", argv[2]);
            return 1;
        }
    }
    qsort(elapsed, (size_t)n, sizeof *elapsed, by_value);
    qsort(cpu, (size_t)n, sizeof *cpu, by_value);
    printf("measure %llu %llu %ld\n", (unsigned long long)elapsed[n / 2], (unsigned long long)cpu[n / 2], peak);
    return 0;
}
