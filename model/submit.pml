/*
 * Submit and close: INITS initiators and a mover share a channel's two rings; an agent rebuilds
 * the ring that was left. What is checked, the bounds and the mutants: README.md.
 *
 * The words have one shape, (move, CLOSED, sequence), compared as one number:
 *   resv   next sequence; replaced by one compare-and-swap that has tested room and CLOSED
 *   cons   frontier: all below it is complete; raised by max, closed by the mover's fetch-or
 *   slot   (cpu modes) what the proxy may ring; stored by who has the turn, closed by max
 * ready is the turn: who finds his own sequence in it rings and then sets it to the next one's.
 * A wait is a guard that blocks, so a wait for ever is an invalid end state.
 */
#ifndef INITS
#define INITS 3
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef MOVES
#define MOVES 1
#endif
#if !defined(GPU) && !defined(CPU) && !defined(CPUHOST)
#define GPU
#endif

#define WORD(m, c, s) ((m) * 32 + (c) * 16 + (s))
#define SEQ(w) ((w) & 15)
#define SHUT(w) (((w) >> 4) & 1)
#define MOVE(w) ((w) >> 5)
#define NOLIFE 7

byte resv[2], cons[2], ready[2], base[2];
byte prod[2];           /* prod_idx: what was rung, as an index of this life */
byte db[2];             /* what the NIC was told */
byte ex[2];             /* executed by the NIC, which is what the CQE says */
byte life[2];           /* move number of the ring's life; NOLIFE while it is being rebuilt */
bit dead[2], fresh[2], left[2];
byte wqe[2 * DEPTH];    /* WORD(life, nop, sequence + 1) */
byte act;
byte ran;               /* bit per sequence: executed */
byte done;              /* all below it was reported complete, so its source belongs to its owner */
#ifndef GPU
byte slot[2], echo[2];
#ifdef CPUHOST
byte seen[2];           /* a posted write reaches host memory later */
#define SLOTREAD(r) seen[r]
#else
#define SLOTREAD(r) slot[r]
#endif
#endif

#ifdef MUT_CLOSED_APART
bit shutflag[2];
#define SHUTNOW(r, v) shutflag[r]
#else
#define SHUTNOW(r, v) SHUT(v)
#endif

#define ROOM(r, v) (SEQ(v) < SEQ(cons[r]) + DEPTH)
#define AT(r, s, b) ((r) * DEPTH + ((s) - (b)) % DEPTH)

/* the doorbell register: index i of ring r's present life */
inline ring(r, i) {
    assert(i >= db[r]);         /* never backward */
    db[r] = i
}

/* tell the NIC or the proxy of all up to block s; prod_idx is what was rung, for the agent */
inline bell(a, s, b, v) {
#ifdef GPU
    d_step { prod[a] = s + 1 - b; ring(a, s + 1 - b) }
#elif defined(MUT_WRONG_COUNTER)
    skip
#else
    slot[a] = WORD(MOVE(v), 0, s + 1)
#endif
}

/* wait for one's turn, ring in it, pass it on; who sees that another has reserved behind him may
 * leave the bell to that one, who cannot but publish */
inline turn(a, s, b, v) {
#ifndef MUT_NO_READY
    ready[a] == s;
#endif
#ifdef MUT_RING_LATE
    d_step { if :: ready[a] < s + 1 -> ready[a] = s + 1 :: else fi };
#endif
    if
#ifdef MUT_LEAVE_BLIND
    :: skip
#else
    :: SEQ(resv[a]) > s + 1 -> skip
#endif
    :: bell(a, s, b, v)
    fi;
#ifndef MUT_RING_LATE
    d_step { if :: ready[a] < s + 1 -> ready[a] = s + 1 :: else fi }
#else
    skip
#endif
}

proctype initiator(byte me) {
    byte a, v, b, s;
    bit nop;

again:
    a = act;
    v = resv[a];
    if
    :: SHUTNOW(a, v) -> atomic { (act != a || resv[a] != v || !SHUTNOW(a, v)); goto again }
    :: else
    fi;
#ifdef RELAX_BASE_EARLY
    b = base[a];
#endif
#ifndef MUT_ROOM_AFTER
    (ROOM(a, v) || resv[a] != v);
#endif
    /* one compare-and-swap: room, CLOSED and the reservation stand or fall together */
    atomic {
#if defined(MUT_FETCH_ADD) || defined(MUT_CLOSED_APART)
        v = resv[a]; resv[a] = resv[a] + 1;
#elif defined(RELAX_RESV_NOMOVE)
        if
        :: SEQ(resv[a]) == SEQ(v) && !SHUT(resv[a]) && SEQ(v) == me ->
            v = resv[a];
            resv[a] = resv[a] + 1
        :: SEQ(resv[a]) != SEQ(v) || SHUT(resv[a]) -> goto again
        fi;
#else
        if
        :: resv[a] == v && SEQ(v) == me -> resv[a] = v + 1      /* symmetry: see README */
        :: resv[a] != v -> goto again
        fi;
#endif
        s = SEQ(v)
    }
#ifdef MUT_ROOM_AFTER
    ROOM(a, v);
#endif
#ifndef RELAX_BASE_EARLY
    b = base[a];
#endif
    if
    :: nop = 0
    :: me == 1 -> nop = 1    /* its deadline passed: the only way out is to publish NOPs */
#ifdef MUT_ABANDON
        -> goto over
#endif
    fi;
#ifdef MUT_NO_RELEASE
    turn(a, s, b, v);
#endif
    d_step {
        assert(s < b + ex[a] + DEPTH);          /* no overrun of what the NIC has not read */
        assert(s < SEQ(cons[a]) + DEPTH);       /* nor of the log */
        wqe[AT(a, s, b)] = WORD(MOVE(v), nop, s + 1)
    }
#ifndef MUT_NO_RELEASE
    turn(a, s, b, v);
#endif
over:
    skip
}

/* quiet: raises the frontier until it has passed every operation, on whichever ring is active */
proctype waiter() {
    byte a, b, c, x;
    bit taken;

    do
    :: a = act;
        c = cons[a];
        if
        :: SEQ(c) == INITS -> break
        :: SHUT(c) && SEQ(c) < INITS -> (act != a || cons[a] != c)
        :: else ->
            (base[a] + ex[a] > SEQ(c) || cons[a] != c || act != a);
            b = base[a];
            x = b + ex[a];
            d_step {
#ifdef MUT_CONS_NOMOVE
                taken = !SHUT(cons[a]);
                if
                :: taken && x > SEQ(cons[a]) -> cons[a] = WORD(MOVE(cons[a]), 0, x)
                :: else
                fi;
#else
                /* max changes nothing once the word is closed or of a later move, and tells so */
                taken = (MOVE(cons[a]) == MOVE(c) && !SHUT(cons[a]));
                if
                :: cons[a] < WORD(MOVE(c), 0, x) -> cons[a] = WORD(MOVE(c), 0, x)
                :: else
                fi;
#endif
#ifdef MUT_CONS_IGNORE
                taken = 1;
#endif
                if
                :: taken -> done = (x > done -> x : done)
                :: else
                fi;
                /* nothing is complete that was not executed */
                assert((ran | ((1 << done) - 1)) == ran);
                b = 0; x = 0; c = 0; taken = 0
            }
        fi
    od
}

proctype mover() {
    byte o, v, f, i, moves;

    do
    :: moves < MOVES ->
        atomic { fresh[1 - act]; o = act; moves++ };
        if
        :: dead[o] = 1
        :: skip                         /* a false alarm: the NIC works on */
        fi;
        atomic {
            v = resv[o];
#ifdef MUT_CLOSED_APART
            shutflag[o] = 1
#else
            resv[o] = v | 16
#endif
        };
        ready[o] == SEQ(v);
        /* gpu: all reserved is published, so nobody has the turn, or ever gets it on this ring */
#ifndef GPU
        d_step {
            if
            :: slot[o] < WORD(MOVE(v), 1, 0) -> slot[o] = WORD(MOVE(v), 1, 0)
            :: else
            fi
        };
#ifndef MUT_NO_ECHO
        echo[o] == WORD(MOVE(v), 1, 0);
#endif
#endif
        atomic {
            f = SEQ(cons[o]);
#ifndef MUT_CONS_OPEN
            cons[o] = cons[o] | 16
#endif
        };
        d_step {
            base[1 - o] = f;
            life[1 - o] = MOVE(v) + 1;
            cons[1 - o] = WORD(MOVE(v) + 1, 0, f);
            ready[1 - o] = SEQ(v);
            fresh[1 - o] = 0
        };
#ifdef MUT_OPEN_EARLY
        d_step { resv[1 - o] = WORD(MOVE(v) + 1, 0, SEQ(v)); act = 1 - o };
#endif
        i = f;
        do
        :: i < SEQ(v) ->
            d_step {
                assert(SEQ(wqe[AT(o, i, base[o])]) == i + 1);    /* the log still holds it */
                wqe[AT(1 - o, i, f)] = WORD(MOVE(v) + 1, SHUT(wqe[AT(o, i, base[o])]), i + 1);
                i++
            }
        :: else -> break
        od;
#ifdef GPU
        atomic { prod[1 - o] = SEQ(v) - f; ring(1 - o, SEQ(v) - f) };
#else
        slot[1 - o] = WORD(MOVE(v) + 1, 0, SEQ(v));
#endif
#ifndef MUT_OPEN_EARLY
        d_step {
#ifdef MUT_CLOSED_APART
            shutflag[1 - o] = 0;
#endif
            resv[1 - o] = WORD(MOVE(v) + 1, 0, SEQ(v))
        };
        act = 1 - o;
#endif
        d_step { left[o] = 1; o = 0; v = 0; f = 0; i = 0 }
    :: break
    od
}

/* The NICs, and the agent that rebuilds the ring that was left: counters at zero, old WQEs kept. */
active proctype world() {
    d_step {
        resv[1] = WORD(0, 1, 0);
        cons[1] = WORD(0, 1, 0);
        life[1] = NOLIFE;
        fresh[1] = 1
    };
    atomic {
        byte n = 0;
        do
        :: n < INITS -> run initiator(n); n++
        :: else -> break
        od;
        n = 0;
        run waiter();
        run mover();
#ifndef GPU
        run proxy(0);
        run proxy(1);
#endif
    }
end:
    do
#define NIC(r) \
    :: d_step { ex[r] < db[r] && !dead[r] -> \
        /* no stale doorbell: the WQE is of this life and in order */ \
        assert(wqe[r * DEPTH + ex[r] % DEPTH] == WORD(life[r], 0, base[r] + ex[r] + 1) || \
            wqe[r * DEPTH + ex[r] % DEPTH] == WORD(life[r], 1, base[r] + ex[r] + 1)); \
        assert(SHUT(cons[r]) || base[r] + ex[r] >= done);     /* nor a source given back */ \
        ran = ran | (1 << (base[r] + ex[r])); \
        ex[r]++ } \
    :: d_step { left[r] -> \
        left[r] = 0; fresh[r] = 1; dead[r] = 0; db[r] = 0; ex[r] = 0; prod[r] = 0; \
        life[r] = NOLIFE }
    NIC(0)
    NIC(1)
    od
}

#ifndef GPU
proctype proxy(byte r) {
    byte v;
end:
    do
#ifdef CPUHOST
    :: seen[r] != slot[r] -> seen[r] = slot[r]
#endif
    :: atomic { SLOTREAD(r) != echo[r] -> v = SLOTREAD(r) };
        if
        :: SHUT(v)
        :: else -> d_step { prod[r] = SEQ(v) - base[r]; ring(r, SEQ(v) - base[r]) }
        fi;
        d_step { echo[r] = v; v = 0 }
    od
}
#endif
