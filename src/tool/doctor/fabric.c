/* SPDX-License-Identifier: Apache-2.0 */
/* What the fabric does to traffic: pauses, congestion marks, one path of a bond for all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* Sums the growth of counters whose name holds `part`; *port gets the one that grew most. */
static unsigned long long growth(struct ry_doctor *doctor, const char *const *parts, char *port,
                                 size_t cap, unsigned *seen)
{
    char *text = ry_facts_text(doctor->facts, "facts/counters"), *rest = NULL;
    unsigned long long sum = 0, most = 0;
    *seen = 0;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[64], counter[64];
        unsigned long long before, after;
        if (sscanf(line, "%63s %63s %llu %llu", name, counter, &before, &after) != 4)
            continue;
        for (const char *const *part = parts; *part; part++) {
            if (!strstr(counter, *part))
                continue;
            (*seen)++;
            if (after <= before)
                continue;
            sum += after - before;
            if (after - before > most) {
                most = after - before;
                snprintf(port, cap, "%s", name);
            }
        }
    }
    free(text);
    return sum;
}

static void check_pause(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const parts[] = {"_pause", NULL};
    char port[64] = "", interface[64] = "";
    unsigned seen;
    if (ry_needs_port(doctor, result))
        return;
    unsigned long long frames = growth(doctor, parts, port, sizeof port, &seen);
    if (!seen) {
        ry_say(result, RY_VERDICT_NA, "no pause counters here");
    } else if (!frames) {
        ry_say(result, RY_VERDICT_OK, "no pause frames just now");
    } else {
        char device[64];
        snprintf(device, sizeof device, "%.*s", (int)strcspn(port, ":"), port);
        ry_doctor_interface(doctor, device, interface, sizeof interface);
        ry_say(result, RY_VERDICT_WARN,
               "%llu pause frames in a moment, most on %s: receivers or "
               "switches cannot keep up",
               frames, port);
        ry_fix(result, "sudo mlnx_qos -i %s --pfc 0,0,0,1,0,0,0,0 --trust dscp", interface);
    }
}

static void check_congestion(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const parts[] = {"ecn_marked", "cnp_", NULL};
    char port[64] = "", interface[64] = "";
    unsigned seen;
    if (ry_needs_port(doctor, result))
        return;
    unsigned long long marks = growth(doctor, parts, port, sizeof port, &seen);
    if (!seen) {
        ry_say(result, RY_VERDICT_NA, "no congestion counters here");
    } else if (!marks) {
        ry_say(result, RY_VERDICT_OK, "no congestion marks just now");
    } else {
        char device[64];
        snprintf(device, sizeof device, "%.*s", (int)strcspn(port, ":"), port);
        ry_doctor_interface(doctor, device, interface, sizeof interface);
        ry_say(result, RY_VERDICT_WARN,
               "%llu congestion marks in a moment, most on %s: several "
               "senders meet in one port",
               marks, port);
        ry_fix(result,
               "railyard topo   # one rail per GPU? then set ECN thresholds on the switch "
               "and on %s",
               interface);
    }
}

static void check_loss(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const parts[] = {"out_of_sequence", "packet_seq_err", "ack_timeout",
                                        "discards", NULL};
    char port[64] = "";
    unsigned seen;
    if (ry_needs_port(doctor, result))
        return;
    unsigned long long lost = growth(doctor, parts, port, sizeof port, &seen);
    if (!seen) {
        ry_say(result, RY_VERDICT_NA, "no loss counters here");
    } else if (!lost) {
        ry_say(result, RY_VERDICT_OK, "no packets lost just now");
    } else {
        ry_say(result, RY_VERDICT_WARN, "%llu lost or repeated packets in a moment, most on %s",
               lost, port);
        ry_fix(result, "sudo mlxlink -d %.*s -c   # errors of cable and module",
               (int)strcspn(port, ":"), port);
    }
}

/* How a bond of mlx5 ports spreads queue pairs: by queue, or by a hash of the packet header. */
static void check_bond(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned bonds = 0;
    char interface[64];
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (!port->is_bond)
            continue;
        bonds++;
        ry_doctor_interface(doctor, port->device, interface, sizeof interface);
        char *slaves = ry_facts_textf(doctor->facts, "sys/class/net/%s/bonding/slaves", interface);
        char slave[64] = "";
        if (slaves)
            sscanf(slaves, "%63s", slave);
        if (!ry_is_plain(slave))
            slave[0] = '\0';
        free(slaves);
        char *mode = ry_facts_textf(doctor->facts,
                                    "sys/class/net/%s/compat/devlink/lag_port_select_mode", slave);
        int hash = mode && strstr(mode, "hash") != NULL;
        free(mode);
        if (!hash)
            continue;
        ry_say(result, RY_VERDICT_FAIL,
               "%s spreads by a hash of the header, and GPU-initiated "
               "queue pairs have one fixed UDP source port: all take one port of the bond",
               port->device);
        ry_fix(result,
               "echo queue_affinity | sudo tee "
               "/sys/class/net/%s/compat/devlink/lag_port_select_mode",
               slave);
        return;
    }
    ry_say(result, bonds ? RY_VERDICT_OK : RY_VERDICT_NA,
           bonds ? "bonds spread queue pairs over their ports" : "no bond");
}

const struct ry_check ry_checks_fabric[] = {
    {"pause", "facts/counters",
     "Pause frames of priority flow control (PFC) stop a sender. A few are normal under bursts; a "
     "count that grows all the time says that a receiver is slow or a switch queue is wrong.",
     check_pause},
    {"congestion", "facts/counters",
     "Switches mark packets (ECN) when a queue grows, and receivers answer with notifications "
     "(CNP) that slow the sender. Growth under load means that several flows share a port.",
     check_congestion},
    {"loss", "facts/counters",
     "Packets out of sequence, answers that time out and discards point at a bad cable, or at a "
     "fabric that drops because flow control is not set up on every hop.",
     check_loss},
    {"bond-hash", "sys/class/net/*/bonding, compat/devlink/lag_port_select_mode",
     "A bond that chooses its port by a hash of the packet header needs different headers. Queue "
     "pairs made by NVSHMEM's IBGDA all have the same UDP source port, so that one port of the "
     "bond "
     "carries all. queue_affinity chooses by queue pair instead.",
     check_bond},
    {NULL, NULL, NULL, NULL},
};
