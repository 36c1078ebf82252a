/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <inttypes.h>
#include <string.h>

enum field {
    RAIL_UP,
    RAIL_DRAINED,
    RAIL_RATE,
    RAIL_SENT,
    RAIL_RECEIVED,
    PAIR_SENT,
    PATH_UP,
    PATH_ACTIVE,
    PATH_EPOCH,
    CHANNEL_MOVES,
    CHANNEL_REPLAYED,
    PATH_SWITCH,
    FIELDS
};

static const struct {
    const char *name, *type, *suffix, *help;
} family[FIELDS] = {
    [RAIL_UP] = {"railyard_rail_up", "gauge", "", "1 if the port is up."},
    [RAIL_DRAINED] = {"railyard_rail_drained", "gauge", "", "1 if an operator drains the port."},
    [RAIL_RATE] = {"railyard_rail_rate_bytes_per_second", "gauge", "",
                   "Rate of the port, 0 if it is not limited."},
    [RAIL_SENT] = {"railyard_rail_sent_bytes", "counter", "_total", "Payload bytes sent."},
    [RAIL_RECEIVED] = {"railyard_rail_received_bytes", "counter", "_total",
                       "Payload bytes received."},
    [PAIR_SENT] = {"railyard_pair_sent_bytes", "counter", "_total",
                   "Payload bytes that a rail has sent to a peer."},
    [PATH_UP] = {"railyard_path_up", "gauge", "", "1 if the path may carry traffic."},
    [PATH_ACTIVE] = {"railyard_path_active", "gauge", "", "1 if its channel uses the path."},
    [PATH_EPOCH] = {"railyard_path_epoch", "gauge", "", "Generation of the path."},
    [CHANNEL_MOVES] = {"railyard_channel_moves", "counter", "_total",
                       "How often the channel has changed its path."},
    [CHANNEL_REPLAYED] = {"railyard_channel_replayed_messages", "counter", "_total",
                          "Messages sent again after failures."},
    [PATH_SWITCH] = {"railyard_path_last_switch_seconds", "gauge", "",
                     "From the failure seen to the first good completion elsewhere."},
};

static void put_name(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void put_rail(FILE *out, enum field f, uint64_t job, uint32_t pe,
                     const struct attached_rail *r)
{
    uint64_t value = f == RAIL_UP        ? strcmp(r->state, "down") != 0
                     : f == RAIL_DRAINED ? strcmp(r->state, "drained") == 0
                     : f == RAIL_RATE    ? r->rate_bps
                     : f == RAIL_SENT    ? r->tx_bytes
                                         : r->rx_bytes;
    fprintf(out, "%s%s{job=\"%016" PRIx64 "\",pe=\"%u\",rail=\"%u\",name=\"", family[f].name,
            family[f].suffix, job, pe, r->rail);
    put_name(out, r->name);
    fprintf(out, "\"} %" PRIu64 "\n", value);
}

static void put_sent(FILE *out, enum field f, uint64_t job, uint32_t pe,
                     const struct attached_sent *s)
{
    fprintf(out, "%s%s{job=\"%016" PRIx64 "\",pe=\"%u\",peer=\"%u\",rail=\"%u\"} %" PRIu64 "\n",
            family[f].name, family[f].suffix, job, pe, s->peer, s->rail, s->bytes);
}

static void put_path(FILE *out, enum field f, uint64_t job, uint32_t pe,
                     const struct attached_path *p)
{
    bool channel = f == CHANNEL_MOVES || f == CHANNEL_REPLAYED;
    if (channel && strcmp(p->use, "active") != 0)
        return; /* one line a channel */
    if (f == PATH_SWITCH && p->last_switch_us < 0)
        return;
    fprintf(out, "%s%s{job=\"%016" PRIx64 "\",pe=\"%u\",peer=\"%u\",channel=\"%u\"", family[f].name,
            family[f].suffix, job, pe, p->peer, p->channel);
    if (!channel)
        fprintf(out, ",rail=\"%u\",peer_rail=\"%u\",slot=\"%u\",role=\"%s\"", p->rail, p->peer_rail,
                p->slot, p->role);
    bool up = strcmp(p->health, "good") == 0 || strcmp(p->health, "suspected") == 0;
    uint64_t value = f == PATH_UP         ? up
                     : f == PATH_ACTIVE   ? strcmp(p->use, "active") == 0
                     : f == PATH_EPOCH    ? p->epoch
                     : f == CHANNEL_MOVES ? p->moves
                                          : p->replayed;
    if (f == PATH_SWITCH)
        fprintf(out, "} %.9f\n", p->last_switch_us * 1e-6);
    else
        fprintf(out, "} %" PRIu64 "\n", value);
}

void metrics_print(const struct attached_job *job, FILE *out)
{
    for (uint32_t f = 0; f < FIELDS; f++) {
        fprintf(out, "# TYPE %s %s\n# HELP %s %s\n", family[f].name, family[f].type, family[f].name,
                family[f].help);
        for (uint32_t i = 0; i < job->n_pes; i++) {
            const struct attached_pe *pe = &job->pes[i];
            for (uint32_t k = 0; f <= RAIL_RECEIVED && k < pe->n_rails; k++)
                put_rail(out, (enum field)f, job->id, pe->pe, &pe->rails[k]);
            for (uint32_t k = 0; f == PAIR_SENT && k < pe->n_sent; k++)
                put_sent(out, (enum field)f, job->id, pe->pe, &pe->sent[k]);
            for (uint32_t k = 0; f >= PATH_UP && k < pe->n_paths; k++)
                put_path(out, (enum field)f, job->id, pe->pe, &pe->paths[k]);
        }
    }
    fputs("# EOF\n", out);
}
