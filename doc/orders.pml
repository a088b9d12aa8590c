/* orders.pml -- every kind of pairing of atomic accesses in Karakuri on a weak memory, for Spin. doc/memory-orders.md says which site is
 * checked by which of these programs, and what this memory is and is not.
 *
 * The memory is that of C11 as the promising semantics tells it, without promises: every location keeps the messages written to it, in
 * an order fixed by the place that each took when it was written; a thread has a view, for each location the oldest message that it may
 * still read. A message carries a view too: what its reader gets to know, at once (acquire) or at its next fence. A store takes any free
 * place above the writer's view, not just the last. A read-modify-write takes the place right behind what it read. A fence meets all
 * other fences in one view.
 *
 * Two things are as the machines have them (ARMv8, RISC-V, POWER) and C11 has not: DEPENDENT, a load whose address comes from another
 * one sees what that one's message carries; and KR_RELEASE, a release store also carries what its thread has only read.
 *
 * All programs lie in this one file. The initial step chooses a program and a variant of it: 0 is the code as it is, each other number
 * has one order weakened, which must show. What goes wrong is noted by WRONG and ends nothing; the verifier prints each program and variant
 * that that can go wrong once. All but those of variant 0 must: test/model.sh. */

#define T 3            /* threads */
#define L 4            /* locations; all zero at first */
#define K 5            /* messages of one location, the zero included: no program writes more */

byte val[L * K];
bool used[L * K];
byte carried[L * K * L];
byte cur[T * L];       /* a thread's view */
byte acq[T * L];       /* and with what its relaxed loads met, for the next fence */
byte rel[T * L];       /* its view at its last fence, for relaxed stores */
byte dep[T * L];       /* what its last DEPENDENT load met */
byte sc[L];            /* where fences meet */

byte program, variant; /* what runs */
byte threads, done;    /* how many the program has, how many are at their end */

c_code {
    static unsigned char kri_told[2][64][16];
    static void kri_tell(int wrong, int program, int variant)
    {
        if (!kri_told[wrong][program][variant])
            printf("%s %d %d\n", wrong ? "wrong" : "ran", program, variant);
        kri_told[wrong][program][variant] = 1;
    }
};
#define WRONG c_code { kri_tell(1, now.program, now.variant); }
#define EXPECT(condition) if :: condition :: else -> WRONG fi

/* Orders; of a read-modify-write one of the first four. A number less than another is not weaker in all: compare by the macros. */
#define RELAXED 0
#define ACQUIRE 1
#define RELEASE 2
#define ACQ_REL 3
#define KR_RELEASE 4   /* kri_store: with what was only read */
#define DEPENDENT 5    /* kri_slot: its message's view serves VIA loads */
#define VIA 6          /* a load through the address that the last DEPENDENT one gave */
#define acquires(o) ((o) == ACQUIRE || (o) == ACQ_REL)
#define releases(o) ((o) == RELEASE || (o) == ACQ_REL)

#define V(t, y) ((t) * L + (y))
#define M(x, s) ((x) * K + (s))
#define C(x, s, y) (M(x, s) * L + (y))
#define RAISE(a, b) if :: (a) < (b) -> a = b :: else fi
#define FLOOR(t, x, o) (((o) == VIA && dep[V(t, x)] > cur[V(t, x)]) -> dep[V(t, x)] : cur[V(t, x)])
#define MAY_READ(t, x, o, s) (used[M(x, s)] && FLOOR(t, x, o) <= (s))
#define MAY_WRITE(t, x, s) (!used[M(x, s)] && cur[V(t, x)] < (s))

/* Message n of x is read by thread t; message n of x is written by thread t. For each location y: */
#define MEET_ONE(t, x, o, n, y) \
    RAISE(acq[V(t, y)], carried[C(x, n, y)]); \
    if :: acquires(o) -> RAISE(cur[V(t, y)], carried[C(x, n, y)]) :: else fi; \
    if :: (o) == DEPENDENT -> dep[V(t, y)] = carried[C(x, n, y)] :: else fi
#define MEET(t, x, o, n) \
    RAISE(cur[V(t, x)], n); RAISE(acq[V(t, x)], n); \
    MEET_ONE(t, x, o, n, 0); MEET_ONE(t, x, o, n, 1); MEET_ONE(t, x, o, n, 2); MEET_ONE(t, x, o, n, 3)
#define LEAVE_ONE(t, x, o, n, y) \
    if \
    :: releases(o) -> RAISE(carried[C(x, n, y)], cur[V(t, y)]) \
    :: (o) == KR_RELEASE -> RAISE(carried[C(x, n, y)], acq[V(t, y)]) \
    :: else -> RAISE(carried[C(x, n, y)], rel[V(t, y)]) \
    fi
#define LEAVE(t, x, o, n, v) \
    used[M(x, n)] = true; val[M(x, n)] = v; cur[V(t, x)] = n; RAISE(acq[V(t, x)], n); \
    LEAVE_ONE(t, x, o, n, 0); LEAVE_ONE(t, x, o, n, 1); LEAVE_ONE(t, x, o, n, 2); LEAVE_ONE(t, x, o, n, 3); \
    carried[C(x, n, x)] = n

/* Each thread has `byte r, s`: what it read, and scratch. */
#define LOAD(t, x, o) \
    atomic { \
        if \
        :: MAY_READ(t, x, o, 0) -> s = 0 \
        :: MAY_READ(t, x, o, 1) -> s = 1 \
        :: MAY_READ(t, x, o, 2) -> s = 2 \
        :: MAY_READ(t, x, o, 3) -> s = 3 \
        :: MAY_READ(t, x, o, 4) -> s = 4 \
        fi; \
        d_step { r = val[M(x, s)]; MEET(t, x, o, s); s = 0 } }
#define STORE(t, x, o, v) \
    atomic { \
        if \
        :: MAY_WRITE(t, x, 1) -> s = 1 \
        :: MAY_WRITE(t, x, 2) -> s = 2 \
        :: MAY_WRITE(t, x, 3) -> s = 3 \
        :: MAY_WRITE(t, x, 4) -> s = 4 \
        fi; \
        d_step { LEAVE(t, x, o, s, v); s = 0 } }

/* The message behind number s of x, by a read-modify-write: its reader gets to know what that one carried, too. */
#define FOLLOW(t, x, o, new) \
    carried[C(x, s + 1, 0)] = carried[C(x, s, 0)]; carried[C(x, s + 1, 1)] = carried[C(x, s, 1)]; \
    carried[C(x, s + 1, 2)] = carried[C(x, s, 2)]; carried[C(x, s + 1, 3)] = carried[C(x, s, 3)]; \
    s++; \
    LEAVE(t, x, o, s, new)
/* r is the old value; the new one is NEW, an expression of r. */
#define MAY_CHANGE(t, x, n) (MAY_READ(t, x, RELAXED, n) && !used[M(x, (n) + 1)])
#define RMW(t, x, o, new) \
    atomic { \
        if \
        :: MAY_CHANGE(t, x, 0) -> s = 0 \
        :: MAY_CHANGE(t, x, 1) -> s = 1 \
        :: MAY_CHANGE(t, x, 2) -> s = 2 \
        :: MAY_CHANGE(t, x, 3) -> s = 3 \
        fi; \
        d_step { r = val[M(x, s)]; MEET(t, x, o, s); FOLLOW(t, x, o, new); s = 0 } }
/* r becomes 1 and x becomes NEW if it was OLD; else 0, and it was read in the same order. */
#define MATCHES(t, x, n, old) (MAY_CHANGE(t, x, n) && val[M(x, n)] == (old))
#define FAILS(t, x, n, old) (MAY_READ(t, x, RELAXED, n) && val[M(x, n)] != (old))
#define CAS(t, x, o, old, new) \
    atomic { \
        if \
        :: MATCHES(t, x, 0, old) -> s = 0; r = 1 \
        :: MATCHES(t, x, 1, old) -> s = 1; r = 1 \
        :: MATCHES(t, x, 2, old) -> s = 2; r = 1 \
        :: MATCHES(t, x, 3, old) -> s = 3; r = 1 \
        :: FAILS(t, x, 0, old) -> s = 0; r = 0 \
        :: FAILS(t, x, 1, old) -> s = 1; r = 0 \
        :: FAILS(t, x, 2, old) -> s = 2; r = 0 \
        :: FAILS(t, x, 3, old) -> s = 3; r = 0 \
        :: FAILS(t, x, 4, old) -> s = 4; r = 0 \
        fi; \
        d_step { \
            MEET(t, x, o, s); \
            if \
            :: r -> FOLLOW(t, x, o, new) \
            :: else \
            fi; \
            s = 0 } }

/* kri_fence, of thread u, which need not be the caller: membarrier makes others pass one. */
#define FENCE_ONE(u, y) \
    RAISE(acq[V(u, y)], sc[y]); cur[V(u, y)] = acq[V(u, y)]; rel[V(u, y)] = acq[V(u, y)]; sc[y] = acq[V(u, y)]
#define FENCE(u) d_step { FENCE_ONE(u, 0); FENCE_ONE(u, 1); FENCE_ONE(u, 2); FENCE_ONE(u, 3) }
/* membarrier(2) by thread t: each thread passes a fence somewhere between its beginning and its end. */
#define MEMBARRIER(t) FENCE(t); FENCE((t + 1) % T); FENCE((t + 2) % T); FENCE(t)

/* futex(2): one who waits, at most, on one word. The system looks at the word, and at who waits, behind fences. */
bool asleep;
#define FUTEX_WAIT(t, x, expected) \
    atomic { FENCE(t); LOAD(t, x, RELAXED); asleep = (r == (expected)) }; \
    (!asleep || done == threads - 1) -> EXPECT(!asleep)      /* nobody is left who could wake it */
#define FUTEX_WAKE(t) atomic { FENCE(t); asleep = false }

/* ---- the programs: each thread begins with THREAD and ends with done++ ---- */

#define THREAD byte r, s
#define WEAK(v, weak, order) ((variant == (v)) -> (weak) : (order))

/* 0: two threads that must see each other, by fences: what `fences` of the gate is. 1, 2: one has none. */
#define X 0
#define Y 1
bool missed;
proctype one_looks() { THREAD;
    STORE(0, X, RELAXED, 1);
    if :: variant == 1 -> skip :: else -> FENCE(0) fi;
    LOAD(0, Y, RELAXED);
    if :: r == 0 -> atomic { if :: missed -> WRONG :: else -> missed = true fi } :: else fi;
    done++ }
proctype other_looks() { THREAD;
    STORE(1, Y, RELAXED, 1);
    if :: variant == 2 -> skip :: else -> FENCE(1) fi;
    LOAD(1, X, RELAXED);
    if :: r == 0 -> atomic { if :: missed -> WRONG :: else -> missed = true fi } :: else fi;
    done++ }

/* 1: a message: what is written before a release is seen behind the acquire that reads it. */
#define DATA 0
#define FLAG 1
proctype message_writer() { THREAD;
    STORE(0, DATA, RELAXED, 1);
    STORE(0, FLAG, WEAK(1, RELAXED, RELEASE), 1);
    done++ }
proctype message_reader() { THREAD;
    LOAD(1, FLAG, WEAK(2, RELAXED, ACQUIRE));
    if :: r -> LOAD(1, DATA, RELAXED); EXPECT(r) :: else fi;
    done++ }

/* 2: kri_store and kri_slot: what lies behind the address. 3: what was written before as well, but lies elsewhere. */
proctype pointer_writer() { THREAD;
    STORE(0, DATA, RELAXED, 1);
    STORE(0, FLAG, WEAK(1, RELAXED, KR_RELEASE), 1);
    done++ }
proctype pointer_reader() { THREAD;
    LOAD(1, FLAG, WEAK(2, RELAXED, DEPENDENT));
    if :: r -> LOAD(1, DATA, WEAK(3, RELAXED, VIA)); EXPECT(r) :: else fi;
    done++ }

/* 3: an address handed on by a thread that has only read it. 1: a release as C11 has it. */
#define SECOND 2
proctype handed_maker() { THREAD;
    STORE(0, DATA, RELAXED, 1);
    STORE(0, FLAG, KR_RELEASE, 1);
    done++ }
proctype handed_between() { THREAD;
    LOAD(1, FLAG, DEPENDENT);
    if :: r -> STORE(1, SECOND, WEAK(1, RELEASE, KR_RELEASE), 1) :: else fi;
    done++ }
proctype handed_reader() { THREAD;
    LOAD(2, SECOND, WEAK(2, RELAXED, DEPENDENT));
    if :: r -> LOAD(2, DATA, VIA); EXPECT(r) :: else fi;
    done++ }

/* 4: the gate with membarrier, one visit of a reader and one collection. What either wrote the other sees.
 * 1: no membarrier. 2: the reader enters by a relaxed load. 3: it leaves by a relaxed store. 4: the writer looks with a relaxed load. 5: it opens
 * by a relaxed store. */
#define GATE 1
#define WRITER 2
#define CELLS 3
bool inside, holds, visited, collected;     /* ghosts */
#define visit() \
    LOAD(0, WRITER, WEAK(2, RELAXED, ACQUIRE)); \
    if \
    :: r == 0 -> \
        atomic { inside = true; if :: holds -> WRONG :: else fi }; \
        LOAD(0, CELLS, RELAXED); \
        EXPECT(r || !collected); \
        STORE(0, DATA, RELAXED, 1); \
        atomic { visited = true; inside = false } \
    :: else \
    fi; \
    STORE(0, GATE, WEAK(3, RELAXED, RELEASE), 0)
#define collection() \
    LOAD(1, GATE, WEAK(4, RELAXED, ACQUIRE)); \
    if \
    :: r == 0 -> \
        atomic { holds = true; if :: inside -> WRONG :: else fi }; \
        LOAD(1, DATA, RELAXED); \
        EXPECT(r || !visited); \
        STORE(1, CELLS, RELAXED, 1); \
        atomic { collected = true; holds = false } \
    :: else \
    fi; \
    STORE(1, WRITER, WEAK(5, RELAXED, RELEASE), 0)
proctype gate_reader() { THREAD;
    STORE(0, GATE, RELAXED, 1);
    visit();
    done++ }
proctype gate_writer() { THREAD;
    STORE(1, WRITER, RELAXED, 1);
    if :: variant == 1 -> FENCE(1) :: else -> MEMBARRIER(1) fi;
    collection();
    done++ }

/* 5: the gate with fences. 1, 6: no fence of the writer's, of the reader's; 2 to 5 as before. */
proctype fenced_reader() { THREAD;
    STORE(0, GATE, RELAXED, 1);
    if :: variant == 6 -> skip :: else -> FENCE(0) fi;
    visit();
    done++ }
proctype fenced_writer() { THREAD;
    STORE(1, WRITER, RELAXED, 1);
    if :: variant == 1 -> skip :: else -> FENCE(1) fi;
    collection();
    done++ }

/* 6: Note [requests]: at the end the limit is poisoned (2), whatever the owner stored. 1, 2: without the requester's fence, the owner's. */
#define LIMIT 0
#define REQUESTS 1
proctype requester() { THREAD;
    RMW(0, REQUESTS, ACQ_REL, 1);
    if :: variant == 1 -> skip :: else -> FENCE(0) fi;
    STORE(0, LIMIT, RELAXED, 2);
    done++ }
proctype owner() { THREAD;
    STORE(1, LIMIT, RELAXED, 1);
    if :: variant == 2 -> skip :: else -> FENCE(1) fi;
    LOAD(1, REQUESTS, RELAXED);
    if :: r -> STORE(1, LIMIT, RELAXED, 2) :: else fi;
    done++ }
#define last_limit() \
    s = K - 1; \
    do :: !used[M(LIMIT, s)] -> s-- :: else -> break od; \
    EXPECT(val[M(LIMIT, s)] == 2)

/* 7: the writer sleeps while a reader is inside (here 0; outside is 1). 1, 2: `left` is read, added to, relaxed. 3: it is read last. */
#define LEFT 2
proctype leaver() { THREAD;
    STORE(0, GATE, RELEASE, 1);
    RMW(0, LEFT, WEAK(2, RELAXED, ACQ_REL), r + 1);
    FUTEX_WAKE(0);
    done++ }
proctype sleeping_writer() { THREAD; byte left, gate;
    do
    :: true ->
        if
        :: variant == 3 -> LOAD(1, GATE, ACQUIRE); gate = r; LOAD(1, LEFT, ACQUIRE); left = r
        :: else -> LOAD(1, LEFT, WEAK(1, RELAXED, ACQUIRE)); left = r; LOAD(1, GATE, ACQUIRE); gate = r
        fi;
        if :: gate || done == 1 -> break :: else fi;
        FUTEX_WAIT(1, LEFT, left)
    od;
    done++ }

/* 8: a marker sleeps for want of work while another publishes some. 1: the publisher has no fence. */
#define WORK 0
#define SLEEPERS 1
proctype publisher() { THREAD;
    RMW(0, WORK, ACQ_REL, r + 1);
    if :: variant == 1 -> skip :: else -> FENCE(0) fi;
    LOAD(0, SLEEPERS, RELAXED);
    if :: r -> FUTEX_WAKE(0) :: else fi;
    done++ }
proctype sleeping_marker() { THREAD;
    RMW(1, SLEEPERS, ACQ_REL, r + 1);
    FUTEX_WAIT(1, WORK, 0);
    done++ }

/* 9: the crew: a helper joins while it is open (4 and more), sees the job, and its marks are seen when it has left.
 * 1: it leaves relaxed. 2: the collector looks relaxed. 3: the crew is opened relaxed. 4: the helper joins relaxed. */
#define JOB 0
#define CREW 1
#define MARKS 2
bool joined;
proctype collector() { THREAD;
    STORE(0, JOB, RELAXED, 1);
    RMW(0, CREW, WEAK(3, RELAXED, ACQ_REL), r + 4);
    RMW(0, CREW, WEAK(2, RELEASE, ACQ_REL), r - 4);
    LOAD(0, CREW, WEAK(2, RELAXED, ACQUIRE));
    if :: r == 0 -> LOAD(0, MARKS, RELAXED); EXPECT(r || !joined) :: else fi;
    done++ }
proctype helper() { THREAD; byte crew;
    LOAD(1, CREW, WEAK(4, RELAXED, ACQUIRE));
    crew = r;
    if
    :: crew >= 4 ->
        CAS(1, CREW, WEAK(4, RELAXED, ACQ_REL), crew, crew + 1);
        if
        :: r ->
            joined = true;
            LOAD(1, JOB, RELAXED);
            EXPECT(r);
            STORE(1, MARKS, RELAXED, 1);
            RMW(1, CREW, WEAK(1, RELAXED, ACQ_REL), r - 1)
        :: else
        fi
    :: else
    fi;
    done++ }

/* 10: a triple buffer. Each owner of a slot marks it, and the next one sees the mark. In `middle` the slot, and 4 if it is new; it has slot 0 at
 * first, the writer 1, the reader 2. 1, 2: publishing only acquires, only releases. 3, 4: taking likewise. */
#define MIDDLE 3
byte mark[3], back = 1, front = 2;      /* mark: ghost */
#define owned(t, slot) \
    if \
    :: slot == 0 -> LOAD(t, 0, RELAXED); EXPECT(r == mark[0]); STORE(t, 0, RELAXED, mark[0] + 1); mark[0]++ \
    :: slot == 1 -> LOAD(t, 1, RELAXED); EXPECT(r == mark[1]); STORE(t, 1, RELAXED, mark[1] + 1); mark[1]++ \
    :: slot == 2 -> LOAD(t, 2, RELAXED); EXPECT(r == mark[2]); STORE(t, 2, RELAXED, mark[2] + 1); mark[2]++ \
    fi
proctype triple_writer() { THREAD; byte n;
    do
    :: n < 2 ->
        owned(0, back);
        RMW(0, MIDDLE, WEAK(1, ACQUIRE, WEAK(2, RELEASE, ACQ_REL)), back | 4);
        back = r & 3;
        n++
    :: else -> break
    od;
    owned(0, back);
    done++ }
proctype triple_reader() { THREAD; byte n;
    owned(1, front);
    do
    :: n < 2 ->
        LOAD(1, MIDDLE, RELAXED);
        if
        :: r & 4 ->
            RMW(1, MIDDLE, WEAK(3, ACQUIRE, WEAK(4, RELEASE, ACQ_REL)), front);
            front = r & 3;
            owned(1, front)
        :: else
        fi;
        n++
    :: else -> break
    od;
    done++ }

/* 11: a ring of one slot, marked likewise. 1, 2: `tail` is stored, loaded relaxed. 3, 4: `head`. */
#define TAIL 1
#define HEAD 2
proctype ring_writer() { THREAD; byte tail, n;
    do
    :: n < 3 ->
        LOAD(0, HEAD, WEAK(4, RELAXED, ACQUIRE));
        if
        :: r == tail -> owned(0, 0); tail++; STORE(0, TAIL, WEAK(1, RELAXED, RELEASE), tail)
        :: else
        fi;
        n++
    :: else -> break
    od;
    done++ }
proctype ring_reader() { THREAD; byte head, n;
    do
    :: n < 2 ->
        LOAD(1, TAIL, WEAK(2, RELAXED, ACQUIRE));
        if
        :: r > head -> owned(1, 0); head++; STORE(1, HEAD, WEAK(3, RELAXED, RELEASE), head)
        :: else
        fi;
        n++
    :: else -> break
    od;
    done++ }

/* 12: Note [versions]: two writers add one to both words, a reader sees them equal, and no addition is lost. 1: the reader's loads of the words are
 * relaxed. 2: the writers' stores of them. 3: of the even version. 4: the first look at the version. */
#define VERSION 0
#define KEY 1
#define VALUE 2
#define table_write(t) \
    LOAD(t, VERSION, WEAK(4, RELAXED, ACQUIRE)); \
    version = r; \
    if \
    :: version % 2 == 0 -> \
        LOAD(t, KEY, WEAK(1, RELAXED, ACQUIRE)); \
        key = r; \
        CAS(t, VERSION, WEAK(4, RELEASE, ACQ_REL), version, version + 1); \
        if \
        :: r -> \
            EXPECT(key == version / 2); \
            STORE(t, KEY, WEAK(2, RELAXED, RELEASE), key + 1); \
            STORE(t, VALUE, WEAK(2, RELAXED, RELEASE), key + 1); \
            STORE(t, VERSION, WEAK(3, RELAXED, RELEASE), version + 2) \
        :: else \
        fi \
    :: else \
    fi
proctype first_writer() { THREAD; byte version, key;
    table_write(0);
    done++ }
proctype second_writer() { THREAD; byte version, key;
    table_write(1);
    done++ }
proctype table_reader() { THREAD; byte version, key, value;
    LOAD(2, VERSION, WEAK(4, RELAXED, ACQUIRE));
    version = r;
    if
    :: version % 2 == 0 ->
        LOAD(2, KEY, WEAK(1, RELAXED, ACQUIRE));
        key = r;
        LOAD(2, VALUE, WEAK(1, RELAXED, ACQUIRE));
        value = r;
        LOAD(2, VERSION, RELAXED);
        EXPECT(r != version || (key == value && key == version / 2))
    :: else
    fi;
    done++ }

/* 13: a lock of Lisp's with one who waits. Held by the first at first (0), free (1), held by the second (2). 1: the one who releases looks at the count
 * by a load. 2: the lock is released, 3: taken, relaxed. */
#define OWNER 1
#define COUNT 2
bool stripe;           /* the mutex under which waiters go to sleep */
proctype releaser() { THREAD;
    STORE(0, DATA, RELAXED, 1);
    CAS(0, OWNER, WEAK(2, RELAXED, ACQ_REL), 0, 1);
    if
    :: variant == 1 -> LOAD(0, COUNT, ACQUIRE)
    :: else -> RMW(0, COUNT, WEAK(2, RELAXED, ACQ_REL), r)
    fi;
    if :: r -> atomic { !stripe -> asleep = false } :: else fi;
    done++ }
proctype waiter() { THREAD;
    stripe = true;
    RMW(1, COUNT, ACQ_REL, r + 1);
    CAS(1, OWNER, WEAK(3, RELAXED, ACQ_REL), 1, 2);
    if
    :: r == 0 ->
        atomic { asleep = true; stripe = false };
        (!asleep || done == 1) -> EXPECT(!asleep)
    :: else ->
        LOAD(1, DATA, RELAXED);
        EXPECT(r);
        stripe = false
    fi;
    done++ }

/* 14: Note [signal handler]: `worker` is 0 while it is the old one, which is freed when no handler is busy. 1: `busy` is read by a load. 2: the handler
 * counts itself relaxed. */
#define TABLE 0
#define BUSY 1
bool freed, serves;
proctype signal_handler() { THREAD;
    RMW(0, BUSY, WEAK(2, RELAXED, ACQ_REL), r + 1);
    LOAD(0, TABLE, ACQUIRE);
    if
    :: r == 0 -> atomic { serves = true; if :: freed -> WRONG :: else fi }; serves = false
    :: else
    fi;
    RMW(0, BUSY, ACQ_REL, r - 1);
    done++ }
proctype signal_remover() { THREAD; byte n;
    STORE(1, TABLE, RELEASE, 1);
    do
    :: n < 2 ->
        if
        :: variant == 1 -> LOAD(1, BUSY, ACQUIRE)
        :: else -> RMW(1, BUSY, ACQ_REL, r)
        fi;
        n++;
        if
        :: r == 0 -> atomic { freed = true; if :: serves -> WRONG :: else fi }; break
        :: else
        fi
    :: else -> break
    od;
    done++ }

/* 15: method caches and their epoch; names_epoch is the same. A sender that was told of the method finds it, and an entry of the new epoch is the new
 * method. 1: the epoch is read relaxed before the search. 2: it is bumped first. 3: bumped relaxed. */
#define METHODS 0
#define EPOCH 1
#define TOLD 2
proctype definer() { THREAD;
    if :: variant == 2 -> RMW(0, EPOCH, ACQ_REL, 1) :: else fi;
    STORE(0, METHODS, KR_RELEASE, 1);
    if :: variant != 2 -> RMW(0, EPOCH, WEAK(3, RELAXED, ACQ_REL), 1) :: else fi;
    STORE(0, TOLD, RELEASE, 1);
    done++ }
proctype sender() { THREAD; bool told, epoch;
    LOAD(1, TOLD, ACQUIRE);
    told = r;
    LOAD(1, EPOCH, RELAXED);
    if
    :: r == 0 -> EXPECT(!told)
    :: else ->
        LOAD(1, EPOCH, WEAK(1, RELAXED, ACQUIRE));
        epoch = r;
        LOAD(1, METHODS, DEPENDENT);
        EXPECT(r || !epoch)
    fi;
    done++ }

#define PROGRAMS 16
init { byte s, variants, i;
    atomic {
        do
        :: i < L -> used[M(i, 0)] = true; i++
        :: else -> break
        od;
        do
        :: program < PROGRAMS - 1 -> program++
        :: break
        od;
        threads = 2;
        if
        :: program == 0 -> variants = 2; run one_looks(); run other_looks()
        :: program == 1 -> variants = 2; run message_writer(); run message_reader()
        :: program == 2 -> variants = 3; run pointer_writer(); run pointer_reader()
        :: program == 3 -> variants = 2; run handed_maker(); run handed_between(); run handed_reader(); threads = 3
        :: program == 4 -> variants = 5; run gate_reader(); run gate_writer()
        :: program == 5 -> variants = 6; run fenced_reader(); run fenced_writer()
        :: program == 6 -> variants = 2; run requester(); run owner()
        :: program == 7 -> variants = 3; run leaver(); run sleeping_writer()
        :: program == 8 -> variants = 1; run publisher(); run sleeping_marker()
        :: program == 9 -> variants = 4; run collector(); run helper()
        :: program == 10 -> variants = 4; run triple_writer(); run triple_reader()
        :: program == 11 -> variants = 4; run ring_writer(); run ring_reader()
        :: program == 12 -> variants = 4; run first_writer(); run second_writer(); run table_reader(); threads = 3
        :: program == 13 -> variants = 3; run releaser(); run waiter()
        :: program == 14 -> variants = 2; run signal_handler(); run signal_remover()
        :: program == 15 -> variants = 3; run definer(); run sender()
        fi;
        do
        :: variant < variants -> variant++
        :: break
        od;
        c_code { kri_tell(0, now.program, now.variant); }
    };
    done == threads;
    if :: program == 6 -> last_limit() :: else fi
}
