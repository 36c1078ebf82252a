/* SPDX-License-Identifier: Apache-2.0 */
/* What has come, and waiting for it. */
#include <inttypes.h>

#include "ep/ep.h"
#include "host/error.h"

/* Newest value of a sector, its answer noted. */
static uint64_t look(struct ry_ep *ep, uint64_t at, uint32_t p)
{
    const struct ry_wide_sector *s = ry_ep_here(ep, at);
    uint64_t v = ry_observe_wide_signal(s);

    ry_ep_answer_note(ep, p, ry_observe_answer(s));
    return v;
}

uint32_t ry_ep_got_channel(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p, uint32_t c)
{
    return ry_sig_count(look(ep, ry_ep_signal_at(&ep->l, kind, gen, p, c), p));
}

bool ry_ep_got(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p)
{
    struct ry_ep_gen *g = ry_ep_gen_of(ep, gen);
    uint32_t i = kind * ep->n + p, rows = 0, n = ry_ep_channels(ep, p);

    if (p == ep->pe || g->got[i])
        return true;
    if (n == 0) /* lost, and its replacement was met half: nothing came by no channel */
        return false;
    for (uint32_t c = 0; c < n; c++) {
        uint64_t v = look(ep, ry_ep_signal_at(&ep->l, kind, gen, p, c), p);
        bool last = ry_sig_gen(v) == gen && ry_sig_last(v);

        rows += ry_sig_count(v);
        if (kind == RY_EP_COUNTS && last)
            break; /* one message on one channel, whichever */
        if (!last && (kind != RY_EP_COUNTS || c + 1 == n))
            return false;
    }
    g->got_rows[i] = rows & RY_SIG_COUNT_MASK;
    g->got[i] = true;
    return true;
}

int ry_ep_all_got(struct ry_ep *ep, uint32_t kind, const struct ry_ep_gen *g)
{
    for (uint32_t p = 0; p < ep->n; p++) {
        if (!ry_ep_on(ep, p) || ry_ep_got(ep, kind, g->gen, p))
            continue;
        ep->wait_for = p;
        return 0;
    }
    return 1;
}

int ry_ep_break(struct ry_ep *ep, int rc)
{
    if (ep->broken == RY_OK)
        ry_mesh_leave(ep->m);
    ep->broken = rc;
    return rc;
}

int ry_ep_wrong_rows(struct ry_ep *ep, uint32_t kind, uint32_t p, uint32_t rows, uint32_t want)
{
    static const char *const names[RY_EP_KINDS] = {"counts", "dispatch", "forward", "combine",
                                                   "cross"};

    if (((rows ^ want) & RY_SIG_COUNT_MASK) == 0)
        return RY_OK;
    ry_ep_break(ep, RY_ERR_PROTOCOL);
    return ry_fail(RY_ERR_PROTOCOL,
                   "%s: pe %" PRIu32 " sent %" PRIu32 " rows where %" PRIu32
                   " were due: all pes must make the same calls in the same order",
                   names[kind], p, rows, want);
}

int ry_ep_await(struct ry_ep *ep, int (*step)(struct ry_ep *, void *), void *arg)
{
    enum { PATIENCE_NS = 2000000 }; /* before answers are sent that no message carries */
    uint64_t flush_ns = ry_now(&ep->m->env) + PATIENCE_NS;
    struct ry_wait w;
    uint32_t from = RY_EP_NO_PE;
    bool begun = false;

    for (;;) {
        int rc;

        ep->wait_for = RY_EP_NO_PE;
        rc = step(ep, arg);
        if (rc)
            return rc < 0 ? rc : RY_OK;
        if (!begun || from != ep->wait_for) {
            begun = true;
            from = ep->wait_for;
            ry_wait_begin(ep->m, &w, from, 0);
        }
        if (w.turns > 0 && ry_now(&ep->m->env) > flush_ns) {
            flush_ns += PATIENCE_NS;
            rc = ry_ep_answer_flush(ep);
            if (rc)
                return rc;
        }
        rc = ry_wait_turn(ep->m, &w);
        if (rc == RY_OK && ep->end_ns && ry_now(&ep->m->env) > ep->end_ns)
            return ry_ep_break(ep, ry_fail(RY_ERR_TIMEOUT, "peers have not finished either"));
        if (rc == RY_ERR_TIMEOUT && from != RY_EP_NO_PE && ry_mesh_give_up(ep->m, from))
            rc = RY_ERR_PEER_LOST;
        if (rc == RY_ERR_PEER_LOST)
            rc = RY_OK; /* the mask sees to it */
        if (rc == RY_OK && !ep->settling && ry_ep_unsettled(ep)) {
            begun = false;
            rc = ry_ep_settle(ep);
        }
        if (rc)
            return ry_ep_break(ep, rc);
    }
}
