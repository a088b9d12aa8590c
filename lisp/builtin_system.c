/* builtin_system.c -- the memory manager, time and the process, as Lisp sees them. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/stream.h"

/* ---- collection ---- */

static kr_value words(size_t bytes) { return kri_fixnum((intptr_t)(bytes / KRI_WORD)); }

KR_BUILTIN(gc, "sys:gc", "()", "Collect now; returns (free-words total-words).")
{
    struct kri_heap_stats s;
    kri_collect(w, KRI_GC_REQUEST);
    kri_heap_get_stats(w, &s);
    return kri_list(w, 2, words(s.free_bytes), words(s.heap_bytes));
}

KR_BUILTIN(gctime, "sys:gctime", "()", "(collections mark-time sweep-time), times in clock ticks of 1/100 s; mark-time holds the stops too.")
{
    struct kri_heap_stats s;
    kri_heap_get_stats(w, &s);
    return kri_list(w, 3, kri_fixnum((intptr_t)s.collections), kri_fixnum((intptr_t)((s.stop_ns + s.mark_ns) / 10000000)),
                    kri_fixnum((intptr_t)(s.sweep_ns / 10000000)));
}

KR_BUILTIN(alloc, "sys:alloc", "(words)", "Grow the heap by WORDS; returns its size in words. Error: allocation, at the limit.")
{
    struct kri_heap_stats s;
    size_t n = (size_t)kri_arg_natural(w, argv, 0);
    if (n > (size_t)1 << 44 || !kri_heap_grow(w, n * KRI_WORD))
        kri_error_memory(w, n);
    kri_heap_get_stats(w, &s);
    return words(s.heap_bytes);
}

static kr_value property(struct kri_worker *w, const char *key, intptr_t n, kr_value rest)
{
    return kri_cons(w, kri_cons(w, kri_keyword(w, key), kri_fixnum(n)), rest);
}

KR_BUILTIN(heap_statistics, "sys:heap-statistics", "()",
           "Totals of this heap as an alist: :collections, :stop-ns :mark-ns :sweep-ns :gc-ns, :heap-bytes :peak-bytes :free-bytes "
           ":live-bytes :allocated-bytes :local-bytes, :chunks :large-objects, and :allocated-cells, an alist from cell size in words to the "
           "number of cells of that size allocated so far.")
{
    struct kri_heap_stats s;
    kri_heap_get_stats(w, &s);
    kr_value cells = KRI_NIL;
    for (int i = KRI_CHUNK_INDEX; i >= 0; i--)
        if (s.allocated_cells[i])
            cells = kri_cons(w, kri_cons(w, kri_fixnum((intptr_t)kri_fib[i] * 3), kri_fixnum((intptr_t)s.allocated_cells[i])), cells);
    kr_value l = kri_cons(w, kri_cons(w, kri_keyword(w, "ALLOCATED-CELLS"), cells), KRI_NIL);
    l = property(w, "LARGE-CELLS", (intptr_t)s.allocated_cells[KRI_CHUNK_INDEX + 1], l);
    l = property(w, "LARGE-OBJECTS", (intptr_t)s.large_objects, l);
    l = property(w, "CHUNKS", (intptr_t)s.chunks, l);
    l = property(w, "LOCAL-BYTES", (intptr_t)s.local_bytes, l);
    l = property(w, "ALLOCATED-BYTES", (intptr_t)s.allocated_bytes, l);
    l = property(w, "LIVE-BYTES", (intptr_t)s.live_bytes, l);
    l = property(w, "FREE-BYTES", (intptr_t)s.free_bytes, l);
    l = property(w, "PEAK-BYTES", (intptr_t)s.peak_bytes, l);
    l = property(w, "HEAP-BYTES", (intptr_t)s.heap_bytes, l);
    l = property(w, "GC-NS", (intptr_t)s.gc_ns, l);
    l = property(w, "SWEEP-NS", (intptr_t)s.sweep_ns, l);
    l = property(w, "MARK-NS", (intptr_t)s.mark_ns, l);
    l = property(w, "STOP-NS", (intptr_t)s.stop_ns, l);
    return property(w, "COLLECTIONS", (intptr_t)s.collections, l);
}

KR_BUILTIN(gc_statistics, "sys:gc-statistics", "(&optional (n 10))",
           "The newest N collections, newest first, each an alist: :number :cause (0 allocation, 1 request, 2 stress, 3 limit), :stop-ns "
           ":mark-ns :total-ns :live-bytes :heap-bytes :freed-chunks :markers :workers, and :marked, the cells that each marker marked.")
{
    intptr_t n = argc > 0 ? kri_arg_natural(w, argv, 0) : 10;
    if (n > 1000)
        n = 1000;
    kr_value buffer = kri_value_of(kri_make(w, KRI_CLASS_BYTES, 0, (size_t)(n + 1) * sizeof(struct kri_gc_record) / 8 + 1));
    struct kri_gc_record *r = (struct kri_gc_record *)kri_string_of(buffer)->byte;
    size_t have = kri_heap_records(w, r, (size_t)n);
    kr_value list = KRI_NIL;
    for (size_t i = have; i-- > 0;) {
        kr_value marked = KRI_NIL;
        for (unsigned m = r[i].markers < 16 ? r[i].markers : 16; m-- > 0;)
            marked = kri_cons(w, kri_fixnum((intptr_t)r[i].marked[m]), marked);
        kr_value l = kri_cons(w, kri_cons(w, kri_keyword(w, "MARKED"), marked), KRI_NIL);
        l = property(w, "WORKERS", r[i].workers, l);
        l = property(w, "MARKERS", r[i].markers, l);
        l = property(w, "FREED-CHUNKS", (intptr_t)r[i].freed_chunks, l);
        l = property(w, "HEAP-BYTES", (intptr_t)r[i].heap_bytes, l);
        l = property(w, "LIVE-BYTES", (intptr_t)r[i].live_bytes, l);
        l = property(w, "TOTAL-NS", (intptr_t)r[i].total, l);
        l = property(w, "MARK-NS", (intptr_t)r[i].mark, l);
        l = property(w, "STOP-NS", (intptr_t)r[i].stop, l);
        l = property(w, "CAUSE", (intptr_t)r[i].cause, l);
        list = kri_cons(w, property(w, "NUMBER", (intptr_t)r[i].number, l), list);
    }
    return list;
}

KR_BUILTIN(heap_check, "sys:heap-check", "()", "Verify every invariant of the heap, all threads stopped: t, or the first violation as a string.")
{
    char message[200] = "";
    return kri_heap_check(w, message, sizeof message) ? w->vm->sym.t : kri_string(w, message);
}

KR_BUILTIN(fail_allocations, "sys::fail-allocations", "(after &optional (count 1))",
           "For tests of what happens when memory is out, under --stress only: of the calling thread's next allocations that leave the fast "
           "path AFTER succeed, then COUNT fail with the error allocation. Returns t, or nil without --stress, when nothing fails.")
{
    intptr_t after = kri_arg_natural(w, argv, 0), count = argc > 1 ? kri_arg_natural(w, argv, 1) : 1;
    if (after > UINT32_MAX || count > UINT32_MAX)
        kri_error(w, KRI_E_RANGE, argv[after > UINT32_MAX ? 0 : 1], "fail-allocations: below 2^32");
    return kri_bool(w, kri_heap_fail(w, (uint32_t)after, (uint32_t)count));
}

struct census {
    struct kr_vm *vm;
    uint64_t count[KRI_CLASS_MAX + 1], bytes[KRI_CLASS_MAX + 1];
};

static void count_cell(struct kri_cell *c, void *arg)
{
    struct census *s = arg;
    s->count[c->cls]++;
    s->bytes[c->cls] += kri_cell_bytes(c);
}

static void count_all(struct kri_worker *w, void *arg) { kri_heap_walk(w, count_cell, arg); }

KR_BUILTIN(heap_census, "sys:heap-census", "()",
           "Live cells by class, after a collection: a list of (class-name count bytes), most bytes first; hidden classes are strings.")
{
    struct kr_vm *vm = w->vm;
    struct census *s = calloc(1, sizeof *s);
    if (!s)
        kri_error_memory(w, sizeof *s);
    kri_collect(w, KRI_GC_REQUEST);
    kri_with_world_stopped(w, count_all, s);
    size_t n = kri_load_acquire(&vm->class_count);
    /* Selection by insertion into a small table; the counts leave malloc'ed memory before anything is allocated. */
    struct { unsigned cls; uint64_t count, bytes; } top[64];
    size_t have = 0;
    for (size_t i = 1; i < n; i++) {
        if (!s->count[i])
            continue;
        if (have == 64 && top[63].bytes >= s->bytes[i])
            continue;
        size_t at = have < 64 ? have++ : 63;
        while (at > 0 && top[at - 1].bytes < s->bytes[i]) {
            top[at] = top[at - 1];
            at--;
        }
        top[at].cls = (unsigned)i;
        top[at].count = s->count[i];
        top[at].bytes = s->bytes[i];
    }
    free(s);
    kr_value list = KRI_NIL;
    for (size_t i = have; i-- > 0;) {
        kr_value object = vm->classes[top[i].cls].object;
        kr_value name = kri_is_nil(object) ? kri_string(w, top[i].cls == KRI_CLASS_CODE ? "code" : top[i].cls == KRI_CLASS_BOX ? "box" : "internal")
                                           : kri_slot(&kri_metaclass_of(object)->name);
        list = kri_cons(w, kri_list(w, 3, name, kri_fixnum((intptr_t)top[i].count), kri_fixnum((intptr_t)top[i].bytes)), list);
    }
    return list;
}

/* Live instances of a class, gathered in two walks: cells made in between are not all seen. */
struct instances {
    struct kr_vm *vm;
    kr_value cls;
    bool subclasses;
    size_t n, room;
    kr_value *into; /* NULL: count only */
};

static void add_instance(struct kri_cell *c, void *arg)
{
    struct instances *s = arg;
    kr_value own = s->vm->classes[c->cls].object;
    if (kri_is_nil(own) || !(s->subclasses ? kri_derivedp(s->vm, kri_value_of(c), s->cls) : kri_eq(own, s->cls)))
        return;
    if (s->into && s->n < s->room)
        s->into[s->n] = kri_value_of(c);
    s->n++;
}

static void add_instances(struct kri_worker *w, void *arg) { kri_heap_walk(w, add_instance, arg); }

KR_BUILTIN(list_all_instances, "sys:list-all-instances", "(class &optional subclasses-too)",
           "A list of all live instances of CLASS, and of its subclasses if SUBCLASSES-TOO is true, after a collection.")
{
    struct instances s = {.vm = w->vm, .cls = kri_arg_class(w, argv, 0), .subclasses = argc > 1 && !kri_is_nil(argv[1])};
    kri_collect(w, KRI_GC_REQUEST);
    kri_with_world_stopped(w, add_instances, &s);
    /* Its own vector is an instance too, when vectors are asked for: it is left out of the list. */
    s.room = s.n + 64;
    kr_value found = kri_make_vector(w, s.room);
    s.into = kri_vector_of(found)->at;
    s.n = 0;
    kri_with_world_stopped(w, add_instances, &s);
    kr_value list = KRI_NIL;
    for (size_t i = s.n < s.room ? s.n : s.room; i-- > 0;) {
        kr_value v = kri_slot(&kri_vector_of(found)->at[i]);
        if (!kri_eq(v, found))
            list = kri_cons(w, v, list);
    }
    return list;
}

KR_BUILTIN(object_size, "sys:object-size", "(object)", "Words that OBJECT's own cell occupies; 0 for immediates.")
{
    return kri_is_pointer(argv[0]) ? words(kri_cell_bytes(kri_ptr(argv[0]))) : kri_fixnum(0);
}

KR_BUILTIN(address, "sys:address", "(object)", "The address of OBJECT's cell as an integer; it never changes.")
{
    return kri_integer(w, (intptr_t)argv[0].w);
}

/* ---- finalizers and weak pointers ---- */

/* vm->finalizers: a vector of lists of (address . function), or NIL; a list for each remainder of the scrambled address. It keeps
 * the functions alive and not the objects. The vector, its lists and the count are guarded by vm->lock. */
enum { FIRST_FINALIZERS = 64 };

static kr_value *finalizers_of(kr_value vector, uintptr_t address)
{
    return &kri_vector_of(vector)->at[((uint64_t)address * 0x9e3779b97f4a7c15u >> 32) % kri_length(vector)];
}

static size_t finalizers_size(struct kr_vm *vm) { return kri_is_nil(vm->finalizers) ? 0 : kri_length(vm->finalizers); }

/* Twice as many lists, if there are still SIZE. */
static void grow_finalizers(struct kri_worker *w, size_t size)
{
    struct kr_vm *vm = w->vm;
    kr_value more = kri_make_vector(w, size ? 2 * size : FIRST_FINALIZERS);
    kri_lock(w, &vm->lock);
    if (finalizers_size(vm) == size) {
        for (size_t i = 0; i < size; i++)
            for (kr_value l = kri_vector_of(vm->finalizers)->at[i], next; kri_is_cons(l); l = next) {
                kr_value *to = finalizers_of(more, (uintptr_t)kri_fixnum_value(kri_car(kri_car(l))));
                next = kri_cdr(l);
                kri_store(w, kri_ptr(l), &kri_cons_of(l)->cdr, kri_slot(to));
                kri_store(w, kri_ptr(more), to, l);
            }
        vm->finalizers = more;
    }
    kri_unlock(&vm->lock);
}

KR_BUILTIN(finalize, "sys:finalize", "(object function)",
           "Have FUNCTION called with OBJECT once nothing else refers to it; at a poll, in the thread that collected. Several are called, the "
           "last one first. Returns OBJECT.")
{
    struct kr_vm *vm = w->vm;
    if (!kri_is_pointer(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    kr_value fn = kri_coerce_function(w, argv[1]);
    kr_value entry = kri_cons(w, kri_cons(w, kri_fixnum((intptr_t)argv[0].w), fn), KRI_NIL);
    kri_lock(w, &vm->lock);
    while (vm->finalizer_count >= 2 * finalizers_size(vm)) {
        size_t size = finalizers_size(vm);
        kri_unlock(&vm->lock);
        grow_finalizers(w, size);
        kri_lock(w, &vm->lock);
    }
    kr_value *list = finalizers_of(vm->finalizers, argv[0].w);
    kri_store(w, kri_ptr(entry), &kri_cons_of(entry)->cdr, kri_slot(list));
    kri_store(w, kri_ptr(vm->finalizers), list, entry);
    vm->finalizer_count++;
    kri_unlock(&vm->lock);
    if (!kri_finalize(w, argv[0]))
        kri_error_memory(w, 0);
    return argv[0];
}

/* Take what is registered for the object at ADDRESS out of the table: a list of (address . function), newest first. */
static kr_value take_finalizers(struct kri_worker *w, uintptr_t address)
{
    struct kr_vm *vm = w->vm;
    kr_value taken = KRI_NIL, last = KRI_NIL, prev = KRI_NIL, next;
    kri_lock(w, &vm->lock);
    kr_value *list = finalizers_size(vm) ? finalizers_of(vm->finalizers, address) : NULL;
    for (kr_value l = list ? kri_slot(list) : KRI_NIL; kri_is_cons(l); l = next) {
        next = kri_cdr(l);
        if (!kri_eq(kri_car(kri_car(l)), kri_fixnum((intptr_t)address))) {
            prev = l;
            continue;
        }
        if (kri_is_nil(prev))
            kri_store(w, kri_ptr(vm->finalizers), list, next);
        else
            kri_store(w, kri_ptr(prev), &kri_cons_of(prev)->cdr, next);
        kri_store(w, kri_ptr(l), &kri_cons_of(l)->cdr, KRI_NIL);
        if (kri_is_nil(last))
            taken = l;
        else
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, l);
        last = l;
        vm->finalizer_count--;
    }
    kri_unlock(&vm->lock);
    return taken;
}

void kri_run_finalizer(struct kri_worker *w, kr_value v)
{
    if (kri_has_class(v, KRI_CLASS_FOREIGN)) {
        kri_foreign_finalize(w, v);
        return;
    }
    for (kr_value l = take_finalizers(w, v.w); kri_is_cons(l); l = kri_cdr(l))
        kri_call1(w, kri_cdr(kri_car(l)), v);
    if (kri_is_stream(w->vm, v))
        kri_stream_finalize(w, v);
}

KR_BUILTIN(make_weak_pointer, "sys:make-weak-pointer", "(object)", "A weak pointer to OBJECT, which it does not keep alive.")
{
    kr_value weak = kri_value_of(kri_make(w, KRI_CLASS_WEAK_POINTER, 0, 1));
    kri_ptr(weak)->slot[0] = argv[0];
    return weak;
}

KR_BUILTIN(weak_pointer_value, "sys:weak-pointer-value", "(weak-pointer)", "What WEAK-POINTER points to, or nil once that died.")
{
    if (!kri_has_class(argv[0], KRI_CLASS_WEAK_POINTER))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    return kri_slot(&kri_ptr(argv[0])->slot[0]);
}

/* ---- time and processors ---- */

static intptr_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (intptr_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

KR_BUILTIN(nanotime, "sys:nanotime", "()", "Nanoseconds of the monotonic clock.") { return kri_fixnum(clock_ns(CLOCK_MONOTONIC)); }
KR_BUILTIN(thread_cputime, "sys:thread-cputime", "()", "Nanoseconds of processor time that this thread has used.")
{
    return kri_fixnum(clock_ns(CLOCK_THREAD_CPUTIME_ID));
}
KR_BUILTIN(process_cputime, "sys:process-cputime", "()", "Nanoseconds of processor time that all threads have used.")
{
    return kri_fixnum(clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

KR_BUILTIN(processors, "sys:processors", "()", "How many processors this process may use.")
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return kri_fixnum(CPU_COUNT(&set));
    return kri_fixnum(sysconf(_SC_NPROCESSORS_ONLN));
}

KR_BUILTIN(pin_thread, "sys:pin-thread", "(n)",
           "Bind this thread to the N-th (from 0, modulo their number) of the processors that the process may use; returns t, or nil if refused.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    cpu_set_t set, one;
    if (sched_getaffinity(getpid(), sizeof set, &set) != 0 || CPU_COUNT(&set) == 0)
        return KRI_NIL;
    n %= CPU_COUNT(&set);
    int cpu = 0;
    for (;; cpu++)
        if (CPU_ISSET(cpu, &set) && n-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return kri_bool(w, pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
}

KR_BUILTIN(allocation_discipline, "sys:allocation-discipline", "()", "How cells are obtained: :gate, :rwlock, :mutex or :none.")
{
    static const char *const names[] = {[KRI_ALLOC_GATE] = "GATE", [KRI_ALLOC_RWLOCK] = "RWLOCK", [KRI_ALLOC_MUTEX] = "MUTEX", [KRI_ALLOC_NONE] = "NONE"};
    return kri_keyword(w, names[kri_heap_discipline(w->vm->heap)]);
}

KR_BUILTIN(getpid, "unix:getpid", "()", "The number of this process.") { return kri_fixnum(getpid()); }

KR_BUILTIN(getrusage, "unix:getrusage", "(who)",
           "Resource usage of WHO (0 this process, -1 its children): 16 numbers, user and system seconds as floats first, then "
           "maximum resident size in KB and the rest as getrusage(2) has them.")
{
    struct rusage r;
    if (getrusage((int)kri_arg_fixnum(w, argv, 0), &r) != 0)
        return kri_fixnum(-errno);
    const long rest[] = {r.ru_maxrss, r.ru_ixrss, r.ru_idrss, r.ru_isrss, r.ru_minflt, r.ru_majflt, r.ru_nswap, r.ru_inblock,
                         r.ru_oublock, r.ru_msgsnd, r.ru_msgrcv, r.ru_nsignals, r.ru_nvcsw, r.ru_nivcsw};
    kr_value list = KRI_NIL;
    for (size_t i = sizeof rest / sizeof *rest; i-- > 0;)
        list = kri_cons(w, kri_integer(w, rest[i]), list);
    list = kri_cons(w, kri_float(w, (double)r.ru_stime.tv_sec + (double)r.ru_stime.tv_usec * 1e-6), list);
    return kri_cons(w, kri_float(w, (double)r.ru_utime.tv_sec + (double)r.ru_utime.tv_usec * 1e-6), list);
}

KR_BUILTIN(gettimeofday, "unix:gettimeofday", "()", "(seconds microseconds 0 0) since 1970.")
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return kri_list(w, 4, kri_fixnum(t.tv_sec), kri_fixnum(t.tv_nsec / 1000), kri_fixnum(0), kri_fixnum(0));
}

KR_BUILTIN(internal_run_time, "get-internal-run-time", "()", "Processor time used by this process, in clock ticks of 1/100 s.")
{
    return kri_fixnum(clock_ns(CLOCK_PROCESS_CPUTIME_ID) / (1000000000 / 100));
}
KR_BUILTIN(internal_real_time, "get-internal-real-time", "()", "Elapsed time of the monotonic clock, in clock ticks of 1/100 s.")
{
    return kri_fixnum(clock_ns(CLOCK_MONOTONIC) / (1000000000 / 100));
}

void kri_system_init(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    static const char *const features[] = {"KARAKURI", "EUS", "COMMON", "UNIX", "LINUX", "THREAD", "PTHREAD", "NATIVE-CODE", "X86_64", "WORD-SIZE=64",
                                           "IEEE-FLOATING-POINT", "GCC", "GCC3"};
    kr_value list = KRI_NIL;
    for (size_t i = sizeof features / sizeof *features; i-- > 0;)
        list = kri_cons(w, kri_keyword(w, features[i]), list);
    kri_set_special(w, vm->sym.features, list);
    kri_set_special(w, vm->sym.program_name, kri_string(w, "karakuri"));
}

const struct kri_builtin *const kri_builtins_system[] = {
    &gc_def, &gctime_def, &alloc_def, &heap_statistics_def, &gc_statistics_def, &heap_check_def, &fail_allocations_def, &heap_census_def,
    &list_all_instances_def, &object_size_def, &address_def, &finalize_def, &make_weak_pointer_def, &weak_pointer_value_def, &nanotime_def, &thread_cputime_def,
    &process_cputime_def, &processors_def, &pin_thread_def, &allocation_discipline_def, &getpid_def, &getrusage_def, &gettimeofday_def,
    &internal_run_time_def, &internal_real_time_def, NULL};
