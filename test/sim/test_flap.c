/* SPDX-License-Identifier: Apache-2.0 */
/* kvcache-ai/Mooncake#3596: one of eight rails flaps, is taken back each time, and all is slow for
 * 25 minutes. Right: a pair that fails again soon after its return is held back twice as long each
 * time, up to a bound; one that was good for long begins anew. */
#include "host/agent.h"

#include <stdio.h>

int main(void)
{
    static struct ry_mesh m;
    static struct ry_peer p;
    struct ry_pair *pair = &p.pair[0][0];
    uint64_t now = 1000000000, last = 0;
    int wrong = 0;

    m.cfg.recovery_ns = 100;
    m.cfg.recovery_ns_max = 30000;
    for (int i = 0; i < 12; i++) {
        uint64_t hold;

        pair->good_since_ns = now;
        now += 10; /* good for a moment */
        ry_agent_pair_failed(&m, &p, 0, 0, now);
        hold = pair->not_before_ns - now;
        wrong += i && hold != (2 * last < 30000 ? 2 * last : 30000);
        last = hold;
        now = pair->not_before_ns;
    }
    wrong += last != 30000;
    pair->good_since_ns = now;
    now += 1000 * 30000ull;
    ry_agent_pair_failed(&m, &p, 0, 0, now); /* after a long good time */
    ry_agent_pair_failed(&m, &p, 0, 0, now);
    wrong += pair->not_before_ns - now != 100;
    printf("holds reach %llu, %d wrong\n", (unsigned long long)last, wrong);
    return wrong != 0;
}
