/* SPDX-License-Identifier: Apache-2.0 */
/* A fence that cannot be had ends in cutting its rail off. When the keys go, nobody may be using
 * them in good faith: whoever meets an invalid key takes the request for the one at fault (rule 12)
 * and drops it. So every responder of the rail, whoever it serves, is RESET by then, and our own
 * lives over it are condemned; other rails are left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/agent.h"

enum { PES = 3, CHANNELS = 2, SLOTS = CHANNELS * RY_SLOTS, CUT = 1, WHOLE = 0 };

static struct {
    struct ry_mesh mesh;
    struct ry_peer peers[PES];
    struct ry_in_slot in[PES][SLOTS];
    struct ry_out_channel out[PES][CHANNELS];
    struct ry_channel ch[PES][CHANNELS];
    struct ry_boot boot;
    struct ry_nic nic;
    uint8_t reset[PES * SLOTS]; /* by the responder that its qp stands for */
    uint32_t cuts, regs, early;
    uint64_t now;
} w;

static uint8_t *flag_of(struct ry_nic_qp *qp) { return (uint8_t *)(void *)qp; }

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return w.now;
}

static int ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    (void)b, (void)pe, (void)msg, (void)len;
    return RY_OK;
}

static int fence_begin(struct ry_nic_qp *qp)
{
    *flag_of(qp) = 1;
    return RY_OK;
}

static int fence_poll(struct ry_nic_qp *qp)
{
    (void)qp;
    return w.cuts ? 1 : RY_ERR_DEVICE;
}

static void destroy(struct ry_nic_qp *qp) { (void)qp; }

static int cut(struct ry_nic *nic, uint32_t rail)
{
    (void)nic;
    assert_int_equal(rail, CUT);
    for (uint32_t i = 0; i < PES * SLOTS; i++) {
        const struct ry_in_slot *in = &w.in[i / SLOTS][i % SLOTS];
        const struct ry_out_slot *s = &w.out[i / SLOTS][i % SLOTS / RY_SLOTS].slot[i % RY_SLOTS];

        w.early += in->qp && in->rail == CUT && !w.reset[i];
        w.early += s->state == RY_OUT_ARMED && s->rail == CUT && s->host.condemn_epoch < s->epoch;
    }
    w.cuts++;
    return RY_OK;
}

static int reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len, bool remote,
               struct ry_mr *out)
{
    (void)nic, (void)base, (void)len, (void)remote;
    assert_int_equal(rail, CUT);
    w.regs++;
    *out = (struct ry_mr){.lkey = 71, .rkey = 72};
    return RY_OK;
}

static int setup(void **state)
{
    static const struct ry_boot_ops boot_ops = {.ctl_send = ctl_send};
    static const struct ry_nic_ops ops = {.qp_fence_begin = fence_begin,
                                          .qp_fence_poll = fence_poll,
                                          .qp_destroy = destroy,
                                          .rail_cut = cut,
                                          .mr_reg = reg};

    (void)state;
    memset(&w, 0, sizeof(w));
    w.now = 1000;
    w.nic.ops = &ops;
    w.boot.ops = &boot_ops;
    w.mesh = (struct ry_mesh){.n_pes = PES, .nic = &w.nic, .boot = &w.boot, .peers = w.peers};
    w.mesh.env.now_ns = now_ns;
    w.mesh.cfg.path_timeout_ns = 1000;
    w.mesh.hello.rails = 2;
    w.mesh.rails_up = 3;
    for (uint32_t q = 1; q < PES; q++) {
        struct ry_peer *p = &w.peers[q];

        *p = (struct ry_peer){.pe = q, .n_channels = CHANNELS, .out = w.out[q], .in = w.in[q]};
        for (uint32_t i = 0; i < SLOTS; i++) { /* the first two of each channel live */
            struct ry_out_slot *s = &w.out[q][i / RY_SLOTS].slot[i % RY_SLOTS];

            w.out[q][i / RY_SLOTS].ch = &w.ch[q][i / RY_SLOTS];
            w.ch[q][i / RY_SLOTS].ring[i % RY_SLOTS].host = &s->host;
            if (i % RY_SLOTS >= 2)
                continue;
            w.in[q][i] = (struct ry_in_slot){
                .state = RY_IN_READY,
                .rail = i % 2,
                .epoch = 5,
                .qp = (struct ry_nic_qp *)(void *)&w.reset[q * SLOTS + i],
            };
            *s = (struct ry_out_slot){.state = RY_OUT_ARMED, .rail = i % 2, .epoch = 5};
            s->host.armed_epoch = 5;
        }
    }
    return 0;
}

static void nobody_meets_invalid_keys(void **state)
{
    struct ry_msg failed = {.type = RY_MSG_FAILED, .slot = CUT, .rail = CUT, .epoch = 5};

    (void)state;
    ry_agent_failed_told(&w.mesh, &w.peers[1], &failed);
    ry_agent_in(&w.mesh, &w.peers[1], CUT, w.now);
    assert_int_equal(w.cuts, 1);
    assert_int_equal(w.early, 0);
    assert_int_equal(w.in[1][CUT].state, RY_IN_FENCED);
    assert_int_equal(w.in[2][WHOLE].state, RY_IN_READY);
    assert_int_equal(w.reset[2 * SLOTS + WHOLE], 0);
    assert_true(w.out[2][0].slot[WHOLE].host.condemn_epoch < 5);
    assert_int_equal(w.mesh.rail_downs[CUT], 1); /* what it had acknowledged may be lost: told */
}

/* A late ARMED brings its own life's keys, not those of others on the rail. */
static void keys_belong_to_a_life(void **state)
{
    struct ry_out_slot *a = &w.out[1][0].slot[CUT], *b = &w.out[1][1].slot[CUT];

    (void)state;
    a->rkeys[0] = 72;
    ry_slot_offer(&w.mesh, 1, &w.out[1][0], a);
    b->rkeys[0] = 7;
    ry_slot_offer(&w.mesh, 1, &w.out[1][1], b);
    assert_int_equal(a->host.rkeys[0], 72);
    assert_int_equal(b->host.rkeys[0], 7);
}

static void keys_are_renewed_once(void **state)
{
    (void)state;
    w.mesh.rails_cut = 1u << CUT;
    assert_int_equal(ry_agent_renew_keys(&w.mesh, CUT), RY_OK);
    assert_int_equal(ry_agent_renew_keys(&w.mesh, CUT), RY_OK);
    assert_int_equal(w.regs, 1);
    assert_int_equal(w.mesh.lkeys[CUT][0], 71);
    assert_int_equal(w.mesh.hello.rail[CUT].rkey, 72);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_meets_invalid_keys, setup),
        cmocka_unit_test_setup(keys_belong_to_a_life, setup),
        cmocka_unit_test_setup(keys_are_renewed_once, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
