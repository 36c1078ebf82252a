/*
 * Mask agreement: PES survivors agree on the iteration from which a lost PE is masked, close
 * their ends to it, and later admit its replacement, while one of them, the coordinator too, may
 * die. What is checked, the bounds and the mutants: README.md.
 *
 * Two instances of one agreement: MASK (from which iteration incarnation 1 no longer counts) and
 * ADMIT (from which iteration incarnation 2 counts, and above which value its signals start). The
 * ballot is the coordinator's rank; the lowest live rank coordinates. What was sent may be heard
 * late or again.
 * The lost PE may be alive: it writes whenever an end is open to it.
 */
#ifndef PES             /* survivors: 2 or 3 */
#define PES 3
#endif
#ifndef ITERS
#define ITERS 3
#endif
#ifndef JOIN            /* is a replacement admitted? */
#define JOIN 1
#endif
#ifndef DEATHS          /* of survivors */
#define DEATHS 1
#endif
#define NEWCOMER PES    /* the replacement's place among those who agree */
#define MASK 0
#define ADMIT 1
#define AT(v, i) ((v) * (PES + 1) + (i))

bit dead[PES];
byte deaths = DEATHS;
byte word[PES];         /* the lost PE's signal word at each survivor */
byte fresh[PES];        /* iterations of incarnation 2 that truly are there */
byte open[PES];         /* incarnation that this end accepts, 0 none */
byte finished[PES];     /* iterations completed */
byte view[PES * ITERS]; /* with whom it was completed: 1 masked, 2 and 3 incarnation 1 and 2 */

/* what each has promised and learnt, per instance */
byte ballot[2 * (PES + 1)], since[2 * (PES + 1)], start[PES + 1];
/* promises: what was finished, what was learnt, the word's value */
byte told_finished[PES], told_word[PES];
/* messages of coordinator c, per instance: prepared, promised by (bits), committed */
bit prepared[2 * PES], committed[2 * PES];
byte promised[2 * PES], value[2 * PES], first[PES];
byte k, s;

#define CO(v, c) ((v) * PES + (c))
#if PES == 2
#define ALL(p) (p(0) && p(1))
#define LOWERDEAD(c) ((c) == 0 || dead[0])
#else
#define ALL(p) (p(0) && p(1) && p(2))
#define LOWERDEAD(c) ((c) == 0 || (dead[0] && ((c) == 1 || dead[1])))
#endif
#ifdef MUT_NO_TAKEOVER
#define MAYLEAD(c) ((c) == 0)
#else
#define MAYLEAD(c) (LOWERDEAD(c) && !dead[c])
#endif

/* x has sent what i needs for its next iteration */
#define SENT(x, i) (dead[x] || finished[x] >= finished[i])
#define OVER(i) (dead[i] || finished[i] == ITERS)
#define UNCOMMITTED(i) (since[AT(MASK, i)] == 0)
#define SAMEVIEW(i) (dead[i] || finished[i] < k || view[(i) * ITERS + k - 1] == s)
/* one thing after the other: who has not learnt the mask does not promise to admit */
#ifdef RELAX_ADMIT_EARLY
#define MAYPROMISE(v, i) 1
#else
#define MAYPROMISE(v, i) (v == MASK || since[AT(MASK, i)] > 0)
#endif

/* the view of iteration k at survivor i */
#define VIEW(i, k) ((since[AT(ADMIT, i)] > 0 && k >= since[AT(ADMIT, i)]) -> 3 : \
    ((since[AT(MASK, i)] == 0 || k < since[AT(MASK, i)]) -> 2 : 1))
/* undecided: between a promise and its commit */
#define PLEDGED(v, i) (ballot[AT(v, i)] > 0 && since[AT(v, i)] == 0)
#ifdef MUT_NO_PLEDGE
#define HELD(i) 0
#else
#define HELD(i) (PLEDGED(MASK, i) || PLEDGED(ADMIT, i))
#endif
#define THERE(i, k) \
    (VIEW(i, k) == 1 || (VIEW(i, k) == 2 && (word[i] >= k || since[AT(MASK, i)] > 0)) || \
    (VIEW(i, k) == 3 && word[i] >= start[i] + k - since[AT(ADMIT, i)]))

#ifdef MUT_SAME_QPN
#define ACCEPTS1(i) (open[i] != 0)
#else
#define ACCEPTS1(i) (open[i] == 1)
#endif
#ifdef MUT_NO_RESET
#define CLOSE(i)
#define CLOSELATE(i) open[i] = 0;
#else
#define CLOSE(i) open[i] = 0;
#define CLOSELATE(i)
#endif
#ifdef MUT_OLD_BALLOT
#define RIGHTBALLOT(v, i, c) 1
#else
#define RIGHTBALLOT(v, i, c) (ballot[AT(v, i)] == (c) + 1)
#endif
#ifdef MUT_LOCAL
#define CUT(i, c) (finished[i] + 1)
#else
#define CUT(i, c) value[CO(MASK, c)]
#endif

#define NEXT(i) (finished[i] + 1)
#if PES == 2
#define ALLSENT(i) (SENT(0, i) && SENT(1, i))
#else
#define ALLSENT(i) (SENT(0, i) && SENT(1, i) && SENT(2, i))
#endif

#define SURVIVOR(i) \
    :: d_step { !dead[i] && finished[i] < ITERS && !HELD(i) && ALLSENT(i) && THERE(i, NEXT(i)) -> \
        k = NEXT(i); s = VIEW(i, k); \
        assert(ALL(SAMEVIEW));      /* the living see each iteration with the same PEs */ \
        assert(s != 3 || fresh[i] > k - since[AT(ADMIT, i)]); /* no false completion */ \
        finished[i] = k; view[i * ITERS + k - 1] = s; \
        printf("%d finishes %d, view %d\n", i, k, s); \
        k = 0; s = 0 } \
    :: d_step { ACCEPTS1(i) && word[i] < ITERS && !dead[i] -> \
        assert(ALL(UNCOMMITTED));       /* a late write meets a closed QP */ \
        word[i]++; printf("lost PE writes %d to %d\n", word[i], i) } \
    :: d_step { open[i] == 2 && since[AT(ADMIT, NEWCOMER)] > 0 && \
        fresh[i] + since[AT(ADMIT, NEWCOMER)] <= ITERS -> \
        word[i] = start[NEWCOMER] + fresh[i]; fresh[i]++; \
        printf("newcomer writes %d to %d\n", word[i], i) } \
    :: d_step { deaths > 0 && !dead[i] && !LASTALIVE(i) -> \
        deaths--; dead[i] = 1; printf("%d dies\n", i); \
        word[i] = 0; fresh[i] = 0; open[i] = 0; finished[i] = 0; FORGET(i) \
        promised[CO(MASK, i)] = 0; promised[CO(ADMIT, i)] = 0; \
        told_finished[i] = 0; told_word[i] = 0; start[i] = 0; since[AT(MASK, i)] = 0; \
        since[AT(ADMIT, i)] = 0; ballot[AT(MASK, i)] = 0; ballot[AT(ADMIT, i)] = 0 }
#if ITERS == 2
#define FORGET(i) view[(i) * ITERS] = 0; view[(i) * ITERS + 1] = 0;
#else
#define FORGET(i) view[(i) * ITERS] = 0; view[(i) * ITERS + 1] = 0; view[(i) * ITERS + 2] = 0;
#endif
#if PES == 2
#define LASTALIVE(i) dead[1 - (i)]
#else
#define LASTALIVE(i) (dead[((i) + 1) % 3] && dead[((i) + 2) % 3])
#endif

#ifdef MUT_GATHER_EARLY
#define GATHER(v, i) if :: v == MASK -> told_word[i] = gathered[i] :: else fi;
byte gathered[PES];
#define GATHERNOW(i) :: d_step { gathered[i] < word[i] && open[i] == 1 -> gathered[i] = word[i] }
#else
#define GATHER(v, i) told_word[i] = word[i];
#define GATHERNOW(i)
#endif

#ifdef RELAX_ADMIT_EARLY
#define UNTELL(i)
#else
#define UNTELL(i) told_finished[i] = 0; told_word[i] = 0    /* said in vain from here on */
#endif

/* survivor i hears coordinator c */
#define HEARS(v, i, c) \
    :: d_step { prepared[CO(v, c)] && !dead[i] && ballot[AT(v, i)] < (c) + 1 && \
        MAYPROMISE(v, i) -> \
        ballot[AT(v, i)] = (c) + 1; \
        if \
        :: v == MASK && open[i] == 1 -> CLOSE(i) \
        :: v == ADMIT -> open[i] = 2 \
        :: else \
        fi; \
        told_finished[i] = finished[i]; GATHER(v, i) \
        if \
        :: !dead[c] -> promised[CO(v, c)] = promised[CO(v, c)] | (1 << (i)) \
        :: else \
        fi; \
        printf("%d promises %d to %d\n", i, v, c) } \
    :: d_step { committed[CO(v, c)] && !dead[i] && RIGHTBALLOT(v, i, c) && since[AT(v, i)] == 0 -> \
        if \
        :: v == MASK -> CLOSELATE(i) since[AT(v, i)] = CUT(i, c) \
        :: else -> since[AT(v, i)] = value[CO(v, c)]; start[i] = first[c]; UNTELL(i) \
        fi; \
        printf("%d learns %d: %d\n", i, v, since[AT(v, i)]) }

#ifdef MUT_NO_INC
#define AGAIN(i, c) \
    :: d_step { committed[CO(MASK, c)] && !dead[i] && since[AT(ADMIT, i)] > 0 && !again -> \
        again = 1; since[AT(ADMIT, i)] = 0; printf("%d masks the newcomer\n", i) }
bit again;
#else
#define AGAIN(i, c)
#endif

/* the newcomer is asked like the others, for it may have learnt what a dead coordinator decided */
#define NEWHEARS(c) \
    :: d_step { prepared[CO(ADMIT, c)] && ballot[AT(ADMIT, NEWCOMER)] < (c) + 1 -> \
        ballot[AT(ADMIT, NEWCOMER)] = (c) + 1; \
        if \
        :: !dead[c] -> promised[CO(ADMIT, c)] = promised[CO(ADMIT, c)] | (1 << NEWCOMER) \
        :: else \
        fi } \
    :: d_step { committed[CO(ADMIT, c)] && RIGHTBALLOT(ADMIT, NEWCOMER, c) && \
        since[AT(ADMIT, NEWCOMER)] == 0 -> \
        since[AT(ADMIT, NEWCOMER)] = value[CO(ADMIT, c)]; start[NEWCOMER] = first[c]; \
        printf("newcomer learns %d from %d\n", since[AT(ADMIT, NEWCOMER)], first[c]) }

#ifdef MUT_NO_ADOPT
#define ADOPT(v, i)
#else
#define ADOPT(v, i) \
    if \
    :: ((promised[CO(v, k)] >> (i)) & 1) && since[AT(v, i)] > 0 -> \
        value[CO(v, k)] = since[AT(v, i)]; \
        if :: v == ADMIT -> first[k] = start[i] :: else fi \
    :: else \
    fi;
#endif
#ifdef MUT_MIN_CUT
#define BETTER(a, b) ((a) < (b))
#define WORST 9
#else
#define BETTER(a, b) ((a) > (b))
#define WORST 0
#endif
#define COLLECT(v, i) \
    if \
    :: !dead[i] && BETTER(told_finished[i] + 1, value[CO(v, k)]) -> \
        value[CO(v, k)] = told_finished[i] + 1 \
    :: else \
    fi; \
    if \
    :: v == ADMIT && !dead[i] && told_word[i] >= s -> s = told_word[i] + 1 \
    :: else \
    fi;
#if PES == 2
#define EACH(m, v) m(v, 0) m(v, 1)
#else
#define EACH(m, v) m(v, 0) m(v, 1) m(v, 2)
#endif
#ifdef MUT_JOINER_NOT_ASKED
#define NEWASKED(c) 1
#define ADOPTNEW
#else
#define NEWASKED(c) ((promised[CO(ADMIT, c)] >> NEWCOMER) & 1)
#define ADOPTNEW ADOPT(ADMIT, NEWCOMER)
#endif
#ifdef MUT_JOIN_ZERO
#define STARTABOVE 1
#else
#define STARTABOVE s
#endif

#if PES == 2
#define HEARDALL(v, c) (HEARDBY(v, c, 0) && HEARDBY(v, c, 1))
#else
#define HEARDALL(v, c) (HEARDBY(v, c, 0) && HEARDBY(v, c, 1) && HEARDBY(v, c, 2))
#endif
#ifdef MUT_WAIT_DEAD
#define HEARDBY(v, c, i) ((promised[CO(v, c)] >> (i)) & 1)
#else
#define HEARDBY(v, c, i) (dead[i] || ((promised[CO(v, c)] >> (i)) & 1))
#endif

#define LEADS(c) \
    :: d_step { MAYLEAD(c) && !dead[c] && !prepared[CO(MASK, c)] -> \
        prepared[CO(MASK, c)] = 1; printf("%d: prepare mask\n", c) } \
    :: d_step { prepared[CO(MASK, c)] && !committed[CO(MASK, c)] && !dead[c] && \
        HEARDALL(MASK, c) -> \
        k = c; value[CO(MASK, c)] = WORST; \
        EACH(COLLECT, MASK) EACH(ADOPT, MASK) \
        committed[CO(MASK, c)] = 1; printf("%d: commit mask %d\n", c, value[CO(MASK, c)]); \
        k = 0; s = 0 } \
    :: d_step { JOIN && MAYLEAD(c) && !dead[c] && !prepared[CO(ADMIT, c)] && \
        since[AT(MASK, c)] > 0 -> \
        prepared[CO(ADMIT, c)] = 1; printf("%d: prepare admit\n", c) } \
    :: d_step { prepared[CO(ADMIT, c)] && !committed[CO(ADMIT, c)] && !dead[c] && \
        HEARDALL(ADMIT, c) && NEWASKED(c) -> \
        k = c; value[CO(ADMIT, c)] = WORST; s = 0; \
        EACH(COLLECT, ADMIT) first[c] = STARTABOVE; EACH(ADOPT, ADMIT) ADOPTNEW \
        committed[CO(ADMIT, c)] = 1; \
        printf("%d: admit from %d, values from %d\n", c, value[CO(ADMIT, c)], first[c]); \
        k = 0; s = 0 }

#define PAIR(i, c) HEARS(MASK, i, c) HEARS(ADMIT, i, c) AGAIN(i, c)

active proctype world() {
    d_step {
        open[0] = 1; open[1] = 1;
#if PES > 2
        open[2] = 1
#endif
    };
    do
    SURVIVOR(0)
    SURVIVOR(1)
    PAIR(0, 0)
    PAIR(0, 1)
    PAIR(1, 0)
    PAIR(1, 1)
    LEADS(0)
    LEADS(1)
    NEWHEARS(0)
    NEWHEARS(1)
    GATHERNOW(0)
    GATHERNOW(1)
#if PES > 2
    SURVIVOR(2)
    PAIR(0, 2)
    PAIR(1, 2)
    PAIR(2, 0)
    PAIR(2, 1)
    PAIR(2, 2)
    LEADS(2)
    NEWHEARS(2)
    GATHERNOW(2)
#endif
    :: ALL(OVER) -> break
    od
}
