/* gate.pml -- the gate of runtime/gate.c and the stop/resume handshake of runtime/collect.c, for Spin.
 *
 * Spin's memory is sequentially consistent; the machine's is not. So every thread owns a store buffer: a store waits in
 * the thread's queue until the `drain` process of that thread moves it to memory, a load of the thread's own cells looks
 * into the queue first (none is needed here), a read-modify-write, a fence and a system call need an empty queue. That is
 * total store order, the machine that x86 is. membarrier(2) empties every thread's queue, one after the other, while it runs.
 *
 * Threads 0 .. NW-1 are workers: each may enter, allocate, poll, block outside, and collect. Thread NW is somebody who
 * requests interrupts. Checked:
 *   - no worker allocates, or has an allocation under way to memory, while a collector holds the writer's side;
 *   - only one collector holds it;
 *   - no request is lost: at a poll whose limit is not poisoned no request waits whose poison is not on its way;
 *   - no deadlock, hence no lost wake-up of collector or worker (Spin's invalid end states).
 * With -DNO_BARRIER the collector fences itself only, and the first assertion must fail. So that a silent model is not taken for
 * a good one, two more mutants must fail as well: -DNO_RECHECK (the owner restores a limit and does not look at its
 * requests again: the third) and -DNO_COMPARE (the writer sleeps whatever `left` says: the fourth).
 *
 * test/model.sh runs them all. */

#ifndef NW
#define NW 2
#endif
#define NT (NW + 1)

#define STOP 1
#define INTERRUPT 2

/* What a store buffer holds: where, and what. */
#define S_GATE 0      /* gate[owner] */
#define S_CELL 1      /* an allocation's stores into the heap */
#define S_WRITER 2
#define S_LIMIT 3     /* S_LIMIT + i: limit[i] */

chan buffer[NT] = [2] of { byte, byte };

bool gate[NW];            /* worker.gate */
bool limit[NW] = true;    /* worker.lisp_limit: false when poisoned */
byte requests[NW];
bool writer;              /* heap.writer, also the futex that readers sleep on */
byte left;                /* heap.left, the futex that the writer sleeps on; modulo 4 */
bool lock;                /* heap.workers_lock */

bool asleep[NW];          /* sleeps in a futex; the waker clears it */
bool holds[NW];           /* ghost: this worker collects */
byte under_way[NW];       /* ghost: poisons between their request bit and memory */
byte holders;             /* ghost */

#define EMPTY(t) (len(buffer[t]) == 0)

/* The machine moves the oldest store of thread T to memory whenever it likes. */
proctype drain(byte t)
{
    byte where, what;
end:
    do
    :: atomic { buffer[t]?where,what ->
        if
        :: where == S_GATE -> gate[t] = what
        :: where == S_CELL -> assert(holders == 0)
        :: where == S_WRITER -> writer = what
        :: else ->
            limit[where - S_LIMIT] = what;
            if
            :: !what && t != where - S_LIMIT -> under_way[where - S_LIMIT]--
            :: else
            fi
        fi;
        where = 0; what = 0 }
    od
}

/* kri_request: the bit by a read-modify-write, then the poison by a plain store. The fence between them does nothing on this memory; orders.pml
 * shows what it is for. */
inline request(from, to, what)
{
    atomic { EMPTY(from) -> requests[to] = requests[to] | what; under_way[to]++ };
    buffer[from]!S_LIMIT + to,0;
}

/* unpoison: restore the limit, fence, look at the requests again. */
inline unpoison(i)
{
    buffer[i]!S_LIMIT + i,1;
    EMPTY(i);
    if
#ifdef NO_RECHECK
    :: false ->
#else
    :: requests[i] != 0 ->
#endif
        buffer[i]!S_LIMIT + i,0; EMPTY(i)
    :: else
    fi
}

/* kri_gate_leave: release store, compiler barrier, look at the writer; wake it if it is there. */
inline leave(i)
{
    buffer[i]!S_GATE,0;
    if
    :: writer ->
        atomic { EMPTY(i) -> left = (left + 1) % 4 };
        d_step { wake = 0;
            do
            :: wake < NW -> asleep[wake] = (asleep[wake] && !writer_sleeps[wake]); wake++
            :: else -> break
            od;
            wake = 0 }
    :: else
    fi
}

/* Ghost that tells the two futexes apart: true in who sleeps on `left`. */
bool writer_sleeps[NW];

inline enter(i)
{
    do
    :: true ->
        buffer[i]!S_GATE,1;
        if
        :: !writer -> break
        :: else
        fi;
        leave(i);
        atomic { EMPTY(i);      /* futex_wait(&writer, 1) */
            if
            :: writer -> asleep[i] = true
            :: else
            fi };
        !asleep[i]
    od
}

/* Begin of a stop; GOT tells whether this worker became the collector. */
inline stop_world(i)
{
    atomic { EMPTY(i) && !lock -> lock = true };
    if
    :: writer ->               /* another one collects: yield, and count it as ours */
        atomic { EMPTY(i) -> lock = false };
        leave(i);
        enter(i);
        got = false
    :: else ->
        buffer[i]!S_WRITER,1;
        EMPTY(i);               /* membarrier fences its caller too */
#ifndef NO_BARRIER
        j = 0;
        do
        :: atomic { j < NT -> EMPTY(j); j++ }
        :: else -> break
        od;
#endif
        j = 0;
        do
        :: j < NW ->
            if
            :: j != i && gate[j] -> request(i, j, STOP)
            :: else
            fi;
            j++
        :: else -> j = 0; break
        od;
        do
        :: true ->
            seen = left;
            /* At once, though the loads come one by one: with two workers there is but one. */
            d_step { inside = false;
                do
                :: j < NW -> inside = inside || (j != i && gate[j]); j++
                :: else -> break
                od;
                j = 0 };
            if
            :: !inside -> break
            :: else
            fi;
            atomic { EMPTY(i) -> lock = false };
            atomic { EMPTY(i);  /* futex_wait(&left, seen) */
                if
#ifdef NO_COMPARE
                :: true -> asleep[i] = true; writer_sleeps[i] = true
#else
                :: left == seen -> asleep[i] = true; writer_sleeps[i] = true
                :: else
#endif
                fi };
            atomic { !asleep[i] -> writer_sleeps[i] = false };
            atomic { EMPTY(i) && !lock -> lock = true }
        od;
        seen = 0;
        got = true
    fi
}

inline resume_world(i)
{
    buffer[i]!S_WRITER,0;
    d_step { EMPTY(i) -> wake = 0;      /* futex_wake(&writer, all) */
        do
        :: wake < NW -> asleep[wake] = (asleep[wake] && writer_sleeps[wake]); wake++
        :: else -> break
        od;
        wake = 0 };
    atomic { EMPTY(i) -> lock = false }
}

inline collect(i)
{
    stop_world(i);
    if
    :: got ->
        d_step { holders++; holds[i] = true; assert(holders == 1) };
        d_step { assert(holders == 1); holders--; holds[i] = false };
        resume_world(i)
    :: else
    fi;
    got = false
}

inline poll(i)
{
    if
    :: limit[i] ->
        skip
    :: else ->                  /* kri_poll_slow */
        if
        :: (requests[i] & STOP) ->
            atomic { EMPTY(i) -> requests[i] = requests[i] & ~STOP };
            unpoison(i)
        :: else
        fi;
        if
        :: writer -> leave(i); enter(i)
        :: else
        fi;
        if
        :: requests[i] == 0 -> unpoison(i)
        :: else ->
            if
            :: (requests[i] & INTERRUPT) ->
                atomic { EMPTY(i) -> requests[i] = requests[i] & ~INTERRUPT };
                unpoison(i)
            :: else
            fi
        fi
    fi
}

proctype worker(byte i)
{
    byte j, seen, wake;
    bool inside, got;

    do
    :: break                    /* stay outside for good: who still sleeps when all did so was forgotten */
    :: true ->
        enter(i);
        do
        :: atomic { !holds[i] -> assert(holders == 0) };     /* allocate */
            buffer[i]!S_CELL,0
        :: true -> poll(i);     /* `true`, or the selection inside would share its `else` with this one */
            atomic { assert(!(limit[i] && EMPTY(i) && requests[i] != 0 && under_way[i] == 0)) }
        :: collect(i)
        :: break
        od;
        leave(i)
    od
}

/* Another thread, or a signal handler. */
proctype interrupter()
{
    do
    :: break
    :: under_way[0] == 0 ->     /* one at a time keeps the ghost counter small */
        request(NW, 0, INTERRUPT)
    od
}

init {
    byte t = 0;
    atomic {
        do
        :: t < NT -> run drain(t); t++
        :: else -> break
        od;
        t = 0;
        do
        :: t < NW -> run worker(t); t++
        :: else -> break
        od;
        run interrupter()
    }
}
