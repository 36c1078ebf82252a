/*
 * Two agents and the kernels of one end: a channel leaves path 0 for a backup when path 0 fails,
 * the agents fence and rebuild path 0, the channel returns. What is checked, the bounds and the
 * mutants: README.md.
 *
 * A life of the path is numbered by (incarnation, epoch) of its initiator; as one number, 1 to
 * LIVES.
 * The network is the set of what was ever said: whatever is in it may be heard at any time,
 * again, late and out of order; LOSSES of its members may vanish.
 */
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef INCS            /* incarnations of the initiator */
#define INCS 1
#endif
#ifndef EVENTS          /* failures and restarts */
#define EVENTS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef PARKS           /* movers that run out of time */
#define PARKS 1
#endif
#define LIVES (EPOCHS * INCS)
#define INC(l) (((l) - 1) / EPOCHS)
#define EPOCH(l) (((l) - 1) % EPOCHS)
#ifdef MUT_NO_INC
#define NEWER(a, b) (EPOCH(a) > EPOCH(b))
#else
#define NEWER(a, b) ((a) > (b))
#endif

/* the network: bit per life */
byte failed_msg, fenced_msg, rebuild_msg = 2, rebuilt_msg = 2, lost_msg;
byte losses = LOSSES, events = EVENTS, parks = PARKS;
#define HAS(m, l) (((m) >> (l)) & 1)
#define SAY(m, l) m = m | (1 << (l))
#define UNSAY(m, l) m = m & (255 - (1 << (l)))

/* words of the initiator (state, act, failed) and of its agent (armed, fenced, hint); a path is
   usable while armed > failed */
#define GOOD 0
#define MOVING 1
#define PARKED 2
byte state, act, failed, armed = 1, fenced, hint;
byte on = 1;            /* while act is 0: the life whose ring holds the channel's records */
byte want = 2;          /* next life to build */
bit err, joining, launch, over;
byte dead;              /* the life whose link is gone, or is taken to be */
byte movers, busy;

/* the wire and the receiver's end */
byte sent, flying, rlife = 1, rpeer = 1, rbuf;
bit ropen = 1;

#define SETTLED (over && busy == 0 && state == GOOD && !launch && \
    (act == 1 || (on == armed && dead < on)) && \
    (armed > failed || (want > LIVES && fenced == failed)))

/* ---- kernels */
#ifdef MUT_BEGINNER_MARKS
#define MARKS began                     /* not who resumes a parked move */
#else
#define MARKS 1
#endif

inline park() {
#ifdef MUT_NO_PARK
    parks--; movers--
#else
    parks--; movers--; state = PARKED
#endif
}

/* time may run out before the life is marked as failed, or after */
inline move() {
    if
    :: atomic { parks > 0 -> park() }
    :: d_step {
        assert(dead >= on);             /* no healthy life is failed on old news */
        if
        :: failed < on && MARKS -> failed = on
        :: else
        fi
        };
        if
        :: atomic { parks > 0 -> park() }
        :: atomic {
            assert(failed >= on);       /* who is left by failure is marked, or nobody fences it */
            act = 1; state = GOOD; movers--
            }
        fi
    fi
}
/* what was seen concerns the life that the channel is on, whatever was rebuilt meanwhile */
#ifdef MUT_RESUME_USABLE
#define CONCERNS(saw) (saw == armed || failed == armed)
#else
#define CONCERNS(saw) (saw == on)
#endif

inline trymove() {
#ifdef MUT_NO_CAS
    if
    :: state == GOOD || state == PARKED -> state = MOVING; won = 1
    :: else
    fi;
    atomic {
        if :: won -> movers++; assert(movers == 1) :: else fi
    };
#else
    atomic {
        if
        :: state == GOOD || state == PARKED ->
            began = (state == GOOD);
            state = MOVING; won = 1; movers++;
            assert(movers == 1)
        :: else
        fi
    };
#endif
    if
    :: won ->
        /* what I saw may be old news by now */
        if
#ifdef MUT_NO_RECHECK
        :: act == 0 -> move()
#else
        :: act == 0 && CONCERNS(saw) -> move()
#endif
        :: else -> atomic { state = GOOD; movers-- }
        fi
    :: else
    fi;
    d_step { won = 0; saw = 0; began = 0; busy-- }
}

active proctype kernel() {
    bit won, began;
    byte saw;

    do
    :: atomic { act == 0 && (dead >= on || hint == on) && state != MOVING ->
        saw = on; busy++ };
        trymove()
    /* the way back, after a probe, by the same word */
    :: atomic { act == 1 && armed > failed && dead < armed && state == GOOD -> busy++ };
        atomic {
            if
            :: state == GOOD -> state = MOVING; won = 1; movers++; assert(movers == 1)
            :: else
            fi
        };
        if
        :: won ->
            atomic {
                if
                :: act == 1 && armed > failed -> act = 0; on = armed
                :: else
                fi
            };
            atomic { state = GOOD; movers--; won = 0 }
        :: else
        fi;
        busy--
    :: atomic { act == 0 && failed < on && state == GOOD && !HAS(sent, on) ->
        SAY(sent, on); SAY(flying, on) }
    :: break            /* kernels end when they like */
    od
}

/* the preloaded mover kernel that the agent launches */
active proctype rescue() {
    bit won, began;
    byte saw;

    do
    :: atomic { launch ->
        busy++;
#ifdef MUT_HINT_NOEPOCH
        saw = on
#else
        saw = hint
#endif
        };
        trymove();
        launch = 0
    :: atomic { SETTLED -> break }
    od
}

#ifdef MUT_LAUNCH_ONCE
#define AGAIN (hint != on)
#else
#define AGAIN (hint != on || state != MOVING)
#endif

#ifdef MUT_NO_REPEAT
byte once;
#define REPEAT !HAS(once, failed)
#define TOLD SAY(once, failed)
#else
#define REPEAT 1                        /* until it is echoed */
#define TOLD skip
#endif

/* the last life is fenced, or belongs to a predecessor */
#define CLEARED ((err && fenced == failed) || joining)

/* ---- the initiator's agent: owns the epoch */
active proctype agent() {
    byte was;

    do
#ifndef MUT_NO_HINT
    /* again and again: one launch may lose the word to a winner that was about something else */
    :: d_step { act == 0 && (dead >= on || HAS(lost_msg, on)) && AGAIN && !launch ->
        hint = on; launch = 1 }
    :: d_step { state == PARKED && !launch -> launch = 1 }
#endif
    :: d_step { failed == armed && !err && !joining -> err = 1 }     /* ERR, flushed */
    :: d_step { err && fenced < failed && !HAS(failed_msg, failed) && REPEAT ->
        SAY(failed_msg, failed); TOLD }
#if defined(MUT_FENCED_ANY)
    :: d_step { err && fenced < failed && fenced_msg != 0 -> fenced = failed }
#elif defined(MUT_NO_FENCE)
    :: d_step { err && fenced < failed -> fenced = failed }
#else
    :: d_step { err && fenced < failed && HAS(fenced_msg, failed) -> fenced = failed }
#endif
    :: d_step { CLEARED && want <= LIVES && !HAS(rebuild_msg, want) ->
        SAY(rebuild_msg, want) }
    :: d_step { CLEARED && want <= LIVES && HAS(rebuilt_msg, want) ->
        assert(ropen && rlife == want && rpeer == want);        /* both ends agree */
        fenced = want - 1; armed = want; want++; err = 0; joining = 0 }
#ifdef MUT_AGENT_RMW
    /* marks the rebuilt channel GOOD by reading and writing back */
    :: armed > failed && armed > 1 && was == 0 -> was = state + 1;
        if
        :: was == GOOD + 1 -> state = GOOD
        :: else
        fi
#endif
    :: atomic { SETTLED -> break }
    od
}
/* ---- the other end */
#ifdef MUT_NO_FLUSH
#define FLUSHED 1
#else
#define FLUSHED (rbuf == 0)
#endif
#ifdef MUT_NO_REANSWER
byte answered;
#define ANSWERING(l) && !HAS(answered, l)
#define ANSWER(l) SAY(answered, l);
#else
#define ANSWERING(l)
#define ANSWER(l)
#endif
#ifdef MUT_SAME_QPN
#define ACCEPTS(l) ropen
#else
#define ACCEPTS(l) (ropen && rlife == l)
#endif
#ifdef MUT_OLD_NEWS
#define WANTED(l) (l != rlife)
#else
#define WANTED(l) NEWER(l, rlife)
#endif
#ifdef MUT_KEEP_OPEN
#define READY 1
#else
#define READY (!ropen && FLUSHED)
#endif
#ifdef MUT_BOTH_REBUILD
#define ALONE \
    :: d_step { ropen && dead == rlife && rlife < LIVES -> \
        rlife++; SAY(rebuilt_msg, rlife) }
#else
#define ALONE
#endif
#define HEAR(l) \
    :: d_step { HAS(failed_msg, l) && l == rlife && ropen -> ropen = 0 } /* RESET */ \
    :: d_step { HAS(failed_msg, l) && !HAS(fenced_msg, l) ANSWERING(l) && \
        (NEWER(rlife, l) || (l == rlife && !ropen && FLUSHED)) -> ANSWER(l) SAY(fenced_msg, l) } \
    :: d_step { HAS(rebuild_msg, l) && WANTED(l) && READY -> \
        rlife = l; rpeer = l; ropen = 1; SAY(rebuilt_msg, l) } \
    :: d_step { HAS(rebuild_msg, l) && NEWER(l, rlife) && ropen && INC(l) > INC(rlife) -> \
        ropen = 0 } \
    :: d_step { HAS(rebuild_msg, l) && l == rlife && ropen && !HAS(rebuilt_msg, l) && \
        losses < LOSSES -> SAY(rebuilt_msg, l) } \
    :: d_step { HAS(flying, l) && ACCEPTS(l) && rbuf == 0 -> rbuf = l; UNSAY(flying, l) } \
    :: d_step { rbuf == l -> assert(l > fenced); rbuf = 0 }      /* nothing lands once fenced */

active proctype peer() {
    do
    HEAR(1)
#if LIVES > 1
    HEAR(2)
#endif
#if LIVES > 2
    HEAR(3)
#endif
#if LIVES > 3
    HEAR(4)
#endif
    ALONE
    :: d_step { ropen && dead == rlife && !HAS(lost_msg, rlife) -> SAY(lost_msg, rlife) }
    :: atomic { SETTLED && rbuf == 0 -> break }
    od
}

/* ---- the world */
#define LOSE(l) \
    :: d_step { losses > 0 && HAS(failed_msg, l) -> UNSAY(failed_msg, l); losses-- } \
    :: d_step { losses > 0 && HAS(fenced_msg, l) -> UNSAY(fenced_msg, l); losses-- } \
    :: d_step { losses > 0 && HAS(rebuild_msg, l) -> UNSAY(rebuild_msg, l); losses-- } \
    :: d_step { losses > 0 && HAS(rebuilt_msg, l) -> UNSAY(rebuilt_msg, l); losses-- }

active proctype world() {
    do
    :: d_step { events > 0 && armed > failed && dead != armed -> dead = armed; events-- }
#if INCS > 1
    /* the initiator dies and comes back: everything of its own starts anew */
    :: d_step { events > 0 && want <= EPOCHS + 1 && !joining && INC(want - 1) == 0 && busy == 0 ->
        events--; joining = 1; err = 0; want = EPOCHS + 1; armed = EPOCHS; failed = EPOCHS;
        hint = 0; launch = 0; state = GOOD; act = 1 }
#endif
    LOSE(1)
#if LIVES > 1
    LOSE(2)
#endif
#if LIVES > 2
    LOSE(3)
#endif
    :: d_step { !over -> over = 1; events = 0; losses = 0 }; break
    od
}
