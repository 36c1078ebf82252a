/* SPDX-License-Identifier: Apache-2.0 */
/* Making, connecting and offering one path slot: what set-up and the agent share. */
#ifndef RY_HOST_SLOT_H
#define RY_HOST_SLOT_H

#include "host/mesh.h"

/* Preference of the home path; a backup's is below. Drained or hopeless: 0. */
enum { RY_PREFER_HOME = 1000, RY_PREFER_BACKUP = 500 };

/* Create the initiator queue pair of a slot on `rail`; its CQE says invalid. */
int ry_slot_create(struct ry_mesh *m, uint32_t pe, struct ry_out_slot *s, uint32_t rail,
                   uint32_t peer_rail);
/* Create and connect the responder of an inbound slot towards `remote`. */
int ry_slot_respond(struct ry_mesh *m, uint32_t pe, struct ry_in_slot *in, uint32_t rail,
                    const struct ry_qp_addr *remote);
/* Offer a connected slot to movers as life s->epoch. */
void ry_slot_offer(struct ry_mesh *m, uint32_t pe, struct ry_out_channel *oc,
                   struct ry_out_slot *s);
void ry_slot_destroy(struct ry_mesh *m, struct ry_out_slot *s);

#endif
