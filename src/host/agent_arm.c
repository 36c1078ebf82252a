/* SPDX-License-Identifier: Apache-2.0 */
/* Which path to arm next: always one usable path beside the active one, and the home path as soon
 * as it may come back. Returns are held back longer each time a pair fails again soon after (rule
 * 10); there is no holding back while no path is usable (rule 11). */
#include "host/agent.h"

/* A pair that fails soon after it was good, or never was, is held back twice as long each time; one
 * that was good for long begins anew. */
void ry_agent_pair_failed(struct ry_mesh *m, struct ry_peer *p, uint32_t rail, uint32_t peer_rail,
                          uint64_t now_ns)
{
    struct ry_pair *pair = &p->pair[rail][peer_rail];
    uint64_t hold = ry_min64(m->cfg.recovery_ns << pair->level, m->cfg.recovery_ns_max);

    if (now_ns < pair->not_before_ns)
        return; /* the same failure, seen by another channel */
    if (pair->good_since_ns && now_ns - pair->good_since_ns >= 20 * hold) {
        pair->level = 0;
        hold = m->cfg.recovery_ns;
    }
    if (RY_MUT(RY_MUT_NO_HOLD_BACK))
        return;
    pair->not_before_ns = now_ns + hold;
    pair->good_since_ns = 0;
    pair->level += pair->level < 16;
}

struct wanted {
    uint32_t rail, peer_rail, cost;
};

/* Is the pair in some slot of this channel already? */
static bool in_slot(const struct ry_out_channel *oc, uint32_t rail, uint32_t peer_rail)
{
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        const struct ry_out_slot *s = &oc->slot[i];
        bool live = s->state == RY_OUT_ARMING || s->state == RY_OUT_PROBING ||
                    (s->state == RY_OUT_ARMED && !s->condemned);

        if (live && s->rail == rail && s->peer_rail == peer_rail)
            return true;
    }
    return false;
}

static bool allowed(const struct ry_mesh *m, const struct ry_peer *p,
                    const struct ry_out_channel *oc, uint32_t i, uint32_t j, bool desperate,
                    uint64_t now_ns)
{
    return ry_agent_pair_up(m, p, i, j) && !in_slot(oc, i, j) &&
           (desperate ||
            (!ry_agent_pair_drained(m, p, i, j) && now_ns >= p->pair[i][j].not_before_ns));
}

/* Best pair to stand in for (rail, peer_rail). */
static bool best_pair(const struct ry_mesh *m, const struct ry_peer *p,
                      const struct ry_out_channel *oc, uint32_t rail, uint32_t peer_rail,
                      bool desperate, uint64_t now_ns, struct wanted *w)
{
    w->cost = UINT32_MAX;
    for (uint32_t i = 0; i < m->hello.rails; i++) {
        for (uint32_t j = 0; j < p->hello.rails; j++) {
            uint32_t cost = ry_plan_cost(&m->hello, &p->hello, rail, peer_rail, i, j);

            if (cost == UINT32_MAX)
                cost = 4096; /* the pair itself: better than nothing */
            cost += p->pair[i][j].unreachable ? 8192 : 0;
            if (cost < w->cost && allowed(m, p, oc, i, j, desperate, now_ns)) {
                w->cost = cost;
                w->rail = i;
                w->peer_rail = j;
            }
        }
    }
    return w->cost != UINT32_MAX;
}

/* A slot whose last life left nothing behind and whose ring is not the log. */
static struct ry_out_slot *free_slot(struct ry_out_channel *oc, uint32_t active)
{
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        struct ry_out_slot *s = &oc->slot[i];

        if (i != active && s->state == RY_OUT_EMPTY)
            return s;
        if (RY_MUT(RY_MUT_TARGET_UNFENCED) && i != active &&
            (s->state == RY_OUT_FENCING || s->state == RY_OUT_FLUSHING))
            return s;
    }
    return NULL;
}

static void start(struct ry_mesh *m, struct ry_peer *p, struct ry_out_slot *s,
                  const struct wanted *w, uint64_t now_ns)
{
    if (ry_agent_renew_keys(m, w->rail) || ry_slot_create(m, p->pe, s, w->rail, w->peer_rail)) {
        ry_agent_pair_failed(m, p, w->rail, w->peer_rail, now_ns);
        return;
    }
    s->epoch++;
    s->state = RY_OUT_ARMING;
    s->since_ns = s->next_ns = now_ns;
    s->until_ns = now_ns + ry_agent_setup_ns(m);
}

/* Paths that a mover could take now beside the active one, and those on their way. */
static uint32_t stand_ins(const struct ry_mesh *m, const struct ry_peer *p,
                          const struct ry_out_channel *oc, uint32_t active, bool *usable)
{
    uint32_t n = 0;

    *usable = false;
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        const struct ry_out_slot *s = &oc->slot[i];
        bool live = s->state == RY_OUT_ARMED && !s->condemned &&
                    ry_ld_acq64(&oc->ch->ring[i].failed_epoch) < s->epoch;

        if (live)
            *usable = true;
        if (i == active || ry_agent_pair_drained(m, p, s->rail, s->peer_rail))
            continue;
        n += live || s->state == RY_OUT_ARMING || s->state == RY_OUT_PROBING;
    }
    return n;
}

void ry_agent_arm(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns)
{
    struct ry_out_channel *oc = &p->out[c];
    uint64_t st = ry_observe_state(oc->ch);
    uint32_t active = ry_state_active(st);
    const struct ry_out_slot *a = &oc->slot[active];
    struct ry_out_slot *s;
    struct wanted w = {oc->home_rail, oc->home_peer_rail, 0};
    bool usable, desperate, on = __atomic_load_n(&m->cfg.failover, __ATOMIC_RELAXED);
    uint32_t n;

    if (!on || p->state != RY_PEER_UP || ry_state_of(st) == RY_CH_DEAD)
        return;
    n = stand_ins(m, p, oc, active, &usable);
    desperate = !usable;
    s = free_slot(oc, active);
    if (!s)
        return;
    if (allowed(m, p, oc, w.rail, w.peer_rail, desperate, now_ns))
        start(m, p, s, &w, now_ns); /* home first */
    else if ((n == 0 || desperate) &&
             best_pair(m, p, oc, a->rail, a->peer_rail, desperate, now_ns, &w))
        start(m, p, s, &w, now_ns);
}
