/*
 * A channel that moves: one sender, one receiver, SLOTS path slots, each with a ring, a queue
 * pair and a signal word of its own. What is checked, the bounds and the mutants: README.md.
 *
 * Message n is two WQEs, payload 2n and signal 2n+1. A life of a slot carries the positions [lo,
 * hi); ex: executed and acknowledged, vis: visible in the receiver's memory, between them the
 * NIC's buffer.
 * What a life has not executed may still execute until the receiver's RESET, what it has not made
 * visible may still land until the flush: these are the ghosts.
 * The fence is one step here; agent.pml shows that FAILED and FENCED amount to that.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef GENS            /* generations */
#define GENS 3
#endif
#ifndef MSGS            /* messages of one generation */
#define MSGS 1
#endif
#ifndef BUFS            /* buffers, and signal sectors, in rotation */
#define BUFS 2
#endif
#ifndef FAILS           /* failures, true, false or by the death of a NIC */
#define FAILS 1
#endif
#ifndef PLANNED         /* planned moves */
#define PLANNED 1
#endif

#define LAST (GENS * MSGS)
#define NONE SLOTS
#define SPOT(n) (((n) - 1) % (BUFS * MSGS))
#define SECTOR(n) ((((n) - 1) / MSGS) % BUFS)
#define FIRSTOF(n) ((((n) - 1) / MSGS) * MSGS + 1)
#define LASTOF(n) (FIRSTOF(n) + MSGS - 1)

#define GOOD 0
#define FAILED 1        /* left; may still execute what its ring holds */
#define CLOSED 2        /* sender's end in ERR, receiver's end RESET */
#define GONE 3          /* fenced, and never comes back */

byte st[SLOTS], lo[SLOTS], hi[SLOTS], ex[SLOTS], vis[SLOTS];
byte proven[SLOTS];     /* last message known visible through this life */
byte replayed[SLOTS];   /* last message replayed on this life whose read is not yet answered */
bit dead[SLOTS];        /* its NIC died */
byte act, copyto;       /* active slot; target of a copy under way */
byte posted, acked, answers, gen, got;
byte spot[BUFS * MSGS];
byte fails, plans;
bit closing;            /* closed for a planned move */
byte i, n;

#define CARRIES(p, n) (2 * (n) + 1 >= lo[p] && 2 * (n) < hi[p])

/* ---- words: index = slot, unless a mutant says otherwise */
#ifdef MUT_ONE_WORD
#define WORDS 1
#define WORDOF(p) 0
#elif defined(MUT_EARLY) && defined(TWO_WORDS)
#define WORDS (2 * SLOTS)
#define WORDOF(p) ((p) + SLOTS * turn[p])
bit turn[SLOTS];
#else
#define WORDS SLOTS
#define WORDOF(p) (p)
#endif
byte word[BUFS * WORDS];

#define MAX2(a, b) ((a) > (b) -> (a) : (b))
#define WORDAT(k) word[(gen % BUFS) * WORDS + (k)]
#if WORDS == 1
#define SIGNALLED WORDAT(0)
#elif WORDS == 2
#define SIGNALLED MAX2(WORDAT(0), WORDAT(1))
#elif WORDS == 3
#define SIGNALLED MAX2(MAX2(WORDAT(0), WORDAT(1)), WORDAT(2))
#else
#define SIGNALLED MAX2(MAX2(WORDAT(0), WORDAT(1)), MAX2(WORDAT(2), WORDAT(3)))
#endif

/* ---- released, and reusable */
#define ANSWERED (answers * MSGS)
#if defined(MUT_RELEASE_ACK)
#define RELEASED acked
#elif defined(RELAX_RELEASE_ANSWER)
#define RELEASED ANSWERED
#else
#define RELEASED (acked < ANSWERED -> acked : ANSWERED)
#endif

#ifdef MUT_ACK_PROVES
byte lifeack[SLOTS];
#define PROVEN(p, n) (proven[p] >= (n) || lifeack[p] >= (n))
#elif defined(MUT_NO_FENCE)
#define PROVEN(p, n) 1
#else
#define PROVEN(p, n) (proven[p] >= (n))
#endif
#if defined(MUT_EARLY) || defined(MUT_NO_FLUSH) || defined(MUT_NO_READ)
#define GHOSTS          /* a life that its slot has forgotten, but its NIC has not */
byte glo[SLOTS], ghi[SLOTS], gex[SLOTS], gvis[SLOTS], gword[SLOTS];
#endif
#ifdef MUT_EARLY
#define CLEAN(p, n) ((!CARRIES(p, n) || PROVEN(p, n)) && \
    !(2 * (n) + 1 >= glo[p] && 2 * (n) < ghi[p]))
#else
#define CLEAN(p, n) (!CARRIES(p, n) || PROVEN(p, n))
#endif
#define DONE(p) (lo[p] == hi[p] || PROVEN(p, hi[p] / 2 - 1))
#if SLOTS == 2
#define CLEANALL(n) (CLEAN(0, n) && CLEAN(1, n))
#define DONEALL (DONE(0) && DONE(1))
#elif SLOTS == 3
#define CLEANALL(n) (CLEAN(0, n) && CLEAN(1, n) && CLEAN(2, n))
#define DONEALL (DONE(0) && DONE(1) && DONE(2))
#else
#define CLEANALL(n) (CLEAN(0, n) && CLEAN(1, n) && CLEAN(2, n) && CLEAN(3, n))
#define DONEALL (DONE(0) && DONE(1) && DONE(2) && DONE(3))
#endif
#define REUSABLE(n) (RELEASED >= LASTOF(n) && CLEANALL(FIRSTOF(n)) && CLEANALL(LASTOF(n)))
#define MAYPOST(n) ((n) <= BUFS * MSGS || REUSABLE((n) - BUFS * MSGS))

/* ---- a slot that may be moved to */
#ifdef MUT_KEEP_RING
#define TARGET(p) (st[p] == GOOD && act != p && lo[p] == hi[p])
#else
#define TARGET(p) (st[p] == GOOD && act != p)
#endif
#if defined(RELAX_REPLAY_UNSEEN) || defined(MUT_LATE_PROOF)
/* what a read has shown to be visible need not be replayed, answered or not */
byte shown;
#define OLDEST ((RELEASED > shown -> RELEASED : shown) + 1)
#ifdef MUT_LATE_PROOF
byte pend;              /* a proof that counts only after further moves */
#define SHOW(n) pend = (pend > (n) -> pend : (n));
#define LATE :: d_step { pend > shown -> shown = pend; printf("proof counts, late: %d\n", shown) }
#else
#define SHOW(n) shown = (shown > (n) -> shown : (n));
#endif
#elif defined(MUT_REPLAY_UNACKED)
#define OLDEST (acked + 1)
#else
#define OLDEST (RELEASED + 1)
#endif
#ifndef SHOW
#define SHOW(n)
#endif
#ifndef LATE
#define LATE
#endif
/* the ring is the log: last message that the log still holds */
#if defined(MUT_NO_SPARE) || defined(MUT_RING_EARLY)
byte logslot, logto;
#define INLOG logto
#else
#define INLOG posted
#endif

inline blank(p) {
    lo[p] = 0; hi[p] = 0; ex[p] = 0; vis[p] = 0;
#ifdef MUT_ACK_PROVES
    lifeack[p] = 0;
#endif
    proven[p] = 0; replayed[p] = 0
}

/* the channel goes on over slot p, from message n on */
inline begin(p) {
    lo[p] = 2 * n; ex[p] = 2 * n; vis[p] = 2 * n; hi[p] = 2 * INLOG + 2;
    proven[p] = 0;
    replayed[p] = (n <= INLOG -> INLOG : 0);
#ifdef MUT_ACK_PROVES
    lifeack[p] = n - 1;
#endif
#ifdef MUT_SIGNAL_ONLY
    /* the oldest message's payload was acknowledged over the old path: only its signal again */
    if
    :: n <= posted && halfacked == n -> lo[p]++; ex[p]++; vis[p]++
    :: else
    fi;
#endif
#if defined(MUT_EARLY) && defined(TWO_WORDS)
    turn[p] = (glo[p] == ghi[p] -> 0 : 1 - gword[p] / SLOTS);
#endif
#if defined(MUT_NO_SPARE) || defined(MUT_RING_EARLY)
    logslot = p;
#endif
    act = p
}

#ifdef MUT_SIGNAL_ONLY
byte halfacked;
#define NOTEHALF(p) if :: ex[p] % 2 == 1 -> halfacked = ex[p] / 2 :: else fi;
#else
#define NOTEHALF(p)
#endif

inline fail(p) {
    NOTEHALF(p)
    st[p] = FAILED;
    replayed[p] = 0;
    if
    :: act == p -> act = NONE; closing = 0
    :: else
    fi;
    if
    :: copyto == p -> copyto = NONE     /* the log is untouched: another copy may begin */
    :: else
    fi
}

/* message i lands in memory; half 0 is the payload */
inline land(half, w) {
    assert(!REUSABLE(i));               /* no write into a buffer or sector given back */
    if
    :: half == 0 -> assert(spot[SPOT(i)] <= i); spot[SPOT(i)] = i
    :: else -> word[SECTOR(i) * WORDS + (w)] = i
    fi;
    i = 0
}

/* ---- variants of single steps */
#ifdef MUT_NO_FLUSH
#define FLUSHED(p) (glo[p] == ghi[p])
#define FORGET(p) if :: !dead[p] -> HAUNT(p) :: else fi;
#else
#define FORGET(p)
#define FLUSHED(p) (vis[p] == ex[p] || dead[p])
#endif
#ifdef MUT_NO_READ
#define READ(p) (ex[p] == hi[p])
#else
#define READ(p) (vis[p] == hi[p] && !dead[p])
#endif
#ifdef MUT_ANSWER_PROVES
#define SOLE(n) 1
#else
#define SOLE(n) ((n) > replayed[act])
#endif
#ifdef MUT_KEEP_RING
#define LEAVE(p) proven[p] = posted
#elif defined(MUT_NO_READ)
#define LEAVE(p) HAUNT(p) blank(p)
#else
#define LEAVE(p) blank(p)
#endif
#ifdef MUT_LATE_PROVEN
/* the waiter that saw the answer slept before it said so; the slot may have a new life by then */
byte late[SLOTS];
#define READSHOWS(p) late[p] = replayed[p];
#define LATEPROVEN(p) \
    :: d_step { late[p] > 0 -> \
        if :: proven[p] < late[p] -> proven[p] = late[p] :: else fi; \
        late[p] = 0; printf("path %d: an earlier proof counts, late\n", p) }
#else
#define READSHOWS(p) if :: proven[p] < replayed[p] -> proven[p] = replayed[p] :: else fi;
#define LATEPROVEN(p)
#endif
#ifdef MUT_NO_REPLAY_READ
#define REPLAYREAD(p)
#else
#define REPLAYREAD(p) \
    :: d_step { act == p && replayed[p] > 0 && !dead[p] && vis[p] >= 2 * replayed[p] + 2 -> \
        READSHOWS(p) \
        if :: acked < replayed[p] -> acked = replayed[p] :: else fi; \
        SHOW(replayed[p]) replayed[p] = 0; \
        printf("path %d: the read behind the replay is answered\n", p) }
#endif
#ifdef MUT_ACK_PROVES
#define SEEACK(p) lifeack[p] = ex[p] / 2 - 1;
#else
#define SEEACK(p)
#endif
#ifdef GHOSTS
#define HAUNT(p) \
    if \
    :: vis[p] < ex[p] || st[p] == FAILED -> \
        glo[p] = lo[p]; gex[p] = ex[p]; gvis[p] = vis[p]; gword[p] = WORDOF(p); \
        ghi[p] = (st[p] == FAILED -> hi[p] : ex[p]) \
    :: else \
    fi;
#define GHOST(p) \
    :: d_step { gex[p] < ghi[p] -> gex[p]++ } \
    :: d_step { gvis[p] < gex[p] -> \
        i = gvis[p] / 2; printf("path %d: ghost of %d half %d lands\n", p, i, gvis[p] % 2); \
        land(gvis[p] % 2, gword[p]); gvis[p]++ } \
    :: d_step { glo[p] < ghi[p] && gvis[p] == ghi[p] -> \
        glo[p] = 0; ghi[p] = 0; gex[p] = 0; gvis[p] = 0; gword[p] = 0 }
#else
#define GHOST(p)
#endif
#ifdef MUT_EARLY
#define EARLY(p) \
    :: d_step { st[p] == FAILED && !dead[p] && glo[p] == ghi[p] -> \
        HAUNT(p) blank(p); st[p] = GOOD; printf("path %d: rebuilt before its fence\n", p) }
#else
#define EARLY(p)
#endif
#ifdef MUT_NO_SPARE
#define LOSELOG(p) if :: act == NONE && logslot == p -> logto = RELEASED :: else fi;
#else
#define LOSELOG(p)
#endif
#if defined(MUT_NO_SPARE) || defined(MUT_RING_EARLY)
#define GROWLOG logto = posted;
#else
#define GROWLOG
#endif
#ifdef MUT_RING_EARLY
/* the copy's first message is rung before the rest is copied, and the new ring counts as the log */
#define COPYSTART(p) n = OLDEST; if :: n < logto -> logto = n :: else fi; logslot = p; n = 0;
#define COPYEND(p)
#else
#define COPYSTART(p)
#define COPYEND(p)
#endif
#if SLOTS == 2
#define OTHERSGONE(p) (st[1 - p] == GONE)
#elif SLOTS == 3
#define OTHERSGONE(p) (st[(p + 1) % 3] == GONE && st[(p + 2) % 3] == GONE)
#else
#define OTHERSGONE(p) \
    (st[(p + 1) % 4] == GONE && st[(p + 2) % 4] == GONE && st[(p + 3) % 4] == GONE)
#endif

#define PATH(p) \
    :: d_step { st[p] <= FAILED && !dead[p] && ex[p] < hi[p] -> \
        assert(ex[p] % 2 == 1 || posted < ex[p] / 2 + BUFS * MSGS); /* source still its own */ \
        printf("path %d: executes and acknowledges %d half %d\n", p, ex[p] / 2, ex[p] % 2); \
        ex[p]++ } \
    :: d_step { vis[p] < ex[p] && !dead[p] -> \
        i = vis[p] / 2; printf("path %d: %d half %d lands\n", p, i, vis[p] % 2); \
        land(vis[p] % 2, WORDOF(p)); vis[p]++ } \
    :: d_step { act == p && acked < ex[p] / 2 - 1 && ex[p] > lo[p] -> \
        acked = ex[p] / 2 - 1; SEEACK(p) printf("sender sees %d acknowledged\n", acked) } \
    :: d_step { fails > 0 && st[p] == GOOD && !dead[p] -> \
        fails--; printf("path %d: failure declared\n", p); fail(p) } \
    :: d_step { fails > 0 && st[p] == GOOD && !dead[p] -> \
        fails--; dead[p] = 1; ex[p] = vis[p]; printf("path %d: its NIC dies\n", p) } \
    :: d_step { dead[p] && st[p] == GOOD -> printf("path %d: death detected\n", p); fail(p) } \
    :: d_step { st[p] == FAILED -> st[p] = CLOSED; printf("path %d: ERR, FAILED, RESET\n", p) } \
    :: d_step { st[p] == CLOSED && FLUSHED(p) -> \
        LOSELOG(p) FORGET(p) blank(p); dead[p] = 0; st[p] = GOOD; \
        printf("path %d: FENCED, rebuilt into a spare ring\n", p) } \
    :: d_step { st[p] == CLOSED && FLUSHED(p) && !OTHERSGONE(p) -> \
        FORGET(p) blank(p); dead[p] = 0; st[p] = GONE; \
        printf("path %d: FENCED, gone for good\n", p) } \
    :: d_step { act == NONE && copyto == NONE && TARGET(p) -> \
        copyto = p; COPYSTART(p) printf("copy to path %d begins\n", p) } \
    :: d_step { copyto == p -> \
        COPYEND(p) n = OLDEST; begin(p); copyto = NONE; \
        printf("moved to path %d, %d to %d replayed\n", p, n, posted); n = 0 } \
    :: d_step { plans > 0 && act == p && !closing -> \
        plans--; closing = 1; printf("planned move from %d: closed\n", p) } \
    :: d_step { closing && act != NONE && act != p && TARGET(p) && READ(act) -> \
        acked = posted; SHOW(posted) LEAVE(act); n = posted + 1; begin(p); closing = 0; \
        printf("planned move to %d\n", p); n = 0 } \
    :: d_step { closing && act == p -> \
        printf("planned move: deadline\n"); fail(p) } \
    REPLAYREAD(p) \
    LATEPROVEN(p) \
    GHOST(p) \
    EARLY(p)

active proctype channel() {
    d_step {
        lo[0] = 2; hi[0] = 2; ex[0] = 2; vis[0] = 2;
        copyto = NONE; fails = FAILS; plans = PLANNED
    };
    do
    :: d_step { act != NONE && !closing && posted < LAST && MAYPOST(posted + 1) ->
        posted++; hi[act] = 2 * posted + 2; GROWLOG
        printf("sender posts %d on path %d\n", posted, act) }
    :: d_step { gen < GENS && SIGNALLED > got && SIGNALLED > gen * MSGS ->
        n = SIGNALLED; printf("receiver sees %d\n", n);
        assert(n <= (gen + 1) * MSGS);          /* no generation is lost unread */
        i = gen * MSGS + 1;
        do
        :: i <= n -> assert(spot[SPOT(i)] == i); i++     /* no signal before its payload */
        :: else -> break
        od;
        got = n;
        if
        :: got == (gen + 1) * MSGS -> gen++     /* and answers */
        :: else
        fi;
        n = 0; i = 0 }
    :: d_step { answers < gen ->
        answers++; printf("sender sees the answer to generation %d\n", answers);
        if
        :: act != NONE && CARRIES(act, ANSWERED) && SOLE(ANSWERED) && proven[act] < ANSWERED ->
            proven[act] = ANSWERED
        :: else
        fi }
    LATE
    PATH(0)
    PATH(1)
#if SLOTS > 2
    PATH(2)
#endif
#if SLOTS > 3
    PATH(3)
#endif
    :: posted == LAST && RELEASED == LAST && DONEALL && !closing -> break   /* all reusable */
    od
}
