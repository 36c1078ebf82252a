/* SPDX-License-Identifier: Apache-2.0 */
/* The in-process hub, beyond what boot.h shows: a PE that dies or comes back, for tests and for the
 * fault `kill` when PEs are threads. */
#ifndef RY_HOST_BOOT_HUB_H
#define RY_HOST_BOOT_HUB_H

#include "host/boot.h"

/* How many datagrams wait for one PE before more are dropped. */
enum { RY_HUB_QUEUE = 256 };

/* PE `pe` is dead from now on: its datagrams go nowhere, collectives that miss it fail with
 * RY_ERR_LAUNCH, every other PE gets RY_BOOT_PE_LOST. Nothing if it was dead already. Any thread.
 */
void ry_hub_kill(struct ry_hub *hub, uint32_t pe);

/* Makes room for a replacement of a dead PE: its next ry_boot_open gets incarnation + 1 and the
 * others RY_BOOT_PE_JOINED. RY_ERR_BUSY: that PE is alive, or its predecessor has not closed yet.
 */
int ry_hub_revive(struct ry_hub *hub, uint32_t pe);

/* A hub of one PE that its only boot owns: a job without a launcher. */
int ry_hub_solo(struct ry_boot **out);

/* Opens PE `pe` of the hub; ry_boot_open calls it. */
int ry_hub_open(struct ry_hub *hub, uint32_t pe, struct ry_boot **out);

#endif
