/* SPDX-License-Identifier: Apache-2.0 */
/* Which bootstrap this process has. */
#include "host/boot.h"

#include "host/boot_hub.h"

int ry_boot_open(struct ry_hub *hub, uint32_t hub_pe, uint64_t deadline_ns, struct ry_boot **out)
{
    (void)deadline_ns;
    if (hub)
        return ry_hub_open(hub, hub_pe, out);
    return ry_hub_solo(out);
}
