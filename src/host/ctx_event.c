/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the application, and the log, what happened to rails, channels and peers. */
#include <stdio.h>

#include "host/ctx.h"
#include "host/fault_plan.h"

enum { QUIET_NS = 1000000000 }; /* one line a second and rail is enough for a person */

static const char *rail_name(const struct ry_mesh *m, uint32_t rail)
{
    return rail < m->hello.rails ? m->hello.rail[rail].name : "?";
}

static void describe(const struct ry_mesh *m, const ry_event *ev, char *text, size_t len)
{
    const char *from = rail_name(m, ev->rail), *to = rail_name(m, ev->to_rail);

    switch (ev->type) {
    case RY_EVENT_SWITCH:
        snprintf(text, len, "channel %u to pe %u switched from rail %s to %s, %llu replayed",
                 ev->channel, ev->peer, from, to, (unsigned long long)ev->replayed);
        break;
    case RY_EVENT_RETURN:
        snprintf(text, len, "channel %u to pe %u returned from rail %s to %s", ev->channel,
                 ev->peer, from, to);
        break;
    case RY_EVENT_RAIL_DOWN:
        snprintf(text, len, "rail %s is down: its traffic moves to other rails", from);
        break;
    case RY_EVENT_RAIL_UP:
        snprintf(text, len, "rail %s is up again: its traffic returns after probes", from);
        break;
    case RY_EVENT_PEER_LOST:
        snprintf(text, len, "pe %u is lost", ev->peer);
        break;
    case RY_EVENT_PEER_JOINED:
        snprintf(text, len, "pe %u joined again", ev->peer);
        break;
    case RY_EVENT_UNREACHABLE:
        snprintf(text, len, "pe %u is unreachable: channel %u has no path left, last rail %s",
                 ev->peer, ev->channel, from);
        break;
    }
}

/* Level of the line: a switch is worth a warning once a second and rail, else it is detail. */
static enum ry_debug level_of(struct ry_ctx *ctx, const ry_event *ev)
{
    uint32_t rail = ev->rail % RY_RAILS_MAX;

    if (ev->type == RY_EVENT_RETURN || ev->type == RY_EVENT_RAIL_UP)
        return RY_DEBUG_INFO;
    if (ev->type != RY_EVENT_SWITCH)
        return RY_DEBUG_WARN;
    if (ctx->told_ns[rail] && ev->at_ns - ctx->told_ns[rail] < QUIET_NS)
        return RY_DEBUG_INFO;
    ctx->told_ns[rail] = ev->at_ns;
    return RY_DEBUG_WARN;
}

void ry_ctx_event(void *arg, const struct ry_mesh *m, int type, uint32_t peer, uint32_t channel,
                  uint32_t rail, uint32_t to_rail, const struct ry_channel *ch)
{
    struct ry_ctx *ctx = arg;
    char text[256] = "";
    ry_event ev = {.type = (enum ry_event_type)type,
                   .peer = peer,
                   .channel = channel,
                   .rail = rail,
                   .to_rail = to_rail,
                   .at_ns = ry_now(&m->env),
                   .detect_ns = ch ? ry_ld_acq64(&ch->failed_ns) : 0,
                   .replayed = ch ? ry_ld_acq64(&ch->last_replayed) : 0};

    describe(m, &ev, text, sizeof(text));
    ev.text = text;
    pthread_mutex_lock(&ctx->lock);
    ry_log(&ctx->log, level_of(ctx, &ev), "%s", text);
    ry_fault_saw(ctx, &ev);
    if (ctx->event_cb)
        ctx->event_cb(ctx->event_arg, &ev);
    pthread_mutex_unlock(&ctx->lock);
}

void ry_on_event(ry_ctx *ctx, ry_event_cb cb, void *arg)
{
    pthread_mutex_lock(&ctx->lock);
    ctx->event_cb = cb;
    ctx->event_arg = arg;
    pthread_mutex_unlock(&ctx->lock);
}
