/* SPDX-License-Identifier: Apache-2.0 */
/* The picture: one panel a PE, one line a rail (bytes a second), faults as marks with their name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timeline.h"

enum { WIDTH = 960, LEFT = 90, RIGHT = 150, TOP = 56, PANEL = 120, GAP = 26, STEPS = 120 };

static const char *const colours[] = {"#1b6ca8", "#c8553d", "#2e7d4f", "#8e5aa8",
                                      "#b07d12", "#008b8b", "#a83a6b", "#5b6770"};

struct scale {
    double end_s;
    double most; /* bytes a second */
};

static double x_of(const struct scale *s, double at_s)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (s->end_s > 0 ? at_s / s->end_s : 0);
}

/* Bytes that rail k had sent at a moment, between the points that were taken. */
static double bytes_at(const struct ry_track *t, uint32_t k, double at_s)
{
    uint32_t i = 0;
    if (t->n == 0)
        return 0;
    while (i < t->n && (double)t->point[i].at_s < at_s)
        i++;
    if (i == 0)
        return (double)t->point[0].bytes[k];
    if (i == t->n)
        return (double)t->point[t->n - 1].bytes[k];
    const struct ry_track_point *a = &t->point[i - 1], *b = &t->point[i];
    double span = (double)b->at_s - (double)a->at_s;
    double part = span > 0 ? (at_s - (double)a->at_s) / span : 1;
    return (double)a->bytes[k] + part * ((double)b->bytes[k] - (double)a->bytes[k]);
}

static double rate_at(const struct ry_track *t, uint32_t k, const struct scale *s, uint32_t step)
{
    double width = s->end_s / STEPS;
    return width > 0 ? (bytes_at(t, k, width * (step + 1)) - bytes_at(t, k, width * step)) / width
                     : 0;
}

static void measure(const struct ry_run *run, struct scale *s)
{
    *s = (struct scale){0};
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_track *t = &run->reports[i].track;
        if (t->n > 0 && (double)t->point[t->n - 1].at_s > s->end_s)
            s->end_s = (double)t->point[t->n - 1].at_s;
    }
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        for (uint32_t k = 0; k < r->n_rails; k++) {
            for (uint32_t step = 0; step < STEPS; step++)
                s->most = fmax(s->most, rate_at(&r->track, k, s, step));
        }
    }
    if (s->most <= 0)
        s->most = 1;
}

/* Names come from outside: what XML takes for more than text goes. */
static void put_text(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    for (; *text; text++)
        fputc(strchr("<>&\"'", *text) ? ' ' : *text, out);
    fputs("</text>\n", out);
}

static void put_line(FILE *out, const struct ry_report *r, uint32_t k, const struct scale *s,
                     double bottom)
{
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
            colours[k % 8]);
    for (uint32_t step = 0; step < STEPS; step++)
        fprintf(out, "%.1f,%.1f ", x_of(s, s->end_s * (step + 0.5) / STEPS),
                bottom - PANEL * rate_at(&r->track, k, s, step) / s->most);
    fputs("\"/>\n", out);
}

static void put_faults(FILE *out, const struct ry_report *r, const struct scale *s, double top)
{
    for (uint32_t i = 0; i < r->n_faults; i++) {
        const ry_fault_record *f = &r->faults[i];
        double x = x_of(s, fmin(f->at_us * 1e-6, s->end_s));
        char label[64];
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-dasharray=\"4 3\"/>\n",
                x, top, x, top + PANEL, colours[f->rail % 8]);
        snprintf(label, sizeof label, "%s rail%u", f->kind, f->rail);
        if (i < 12)
            put_text(out, x + 3, top + 10 + 11 * (i % 6), "font-size=\"9\"", label);
        if (f->failback_us >= 0) {
            double back = x_of(s, fmin((f->at_us + f->failback_us) * 1e-6, s->end_s));
            fprintf(out,
                    "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#2e7d4f\" "
                    "stroke-dasharray=\"1 3\"/>\n",
                    back, top, back, top + PANEL);
        }
    }
}

static void put_panel(FILE *out, const struct ry_run *run, uint32_t pe, const struct scale *s)
{
    const struct ry_report *r = &run->reports[pe];
    double top = TOP + (double)pe * (PANEL + GAP);
    char label[96], rate[32];
    fprintf(out,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#f7f8fa\" "
            "stroke=\"#d5d9de\"/>\n",
            LEFT, top, WIDTH - LEFT - RIGHT, PANEL);
    snprintf(label, sizeof label, "pe%u", pe);
    put_text(out, 16, top + PANEL / 2.0, "font-weight=\"bold\"", label);
    snprintf(label, sizeof label, "%s/s", ry_bytes_text(s->most, rate, sizeof rate));
    put_text(out, LEFT - 4, top + 10, "font-size=\"9\" text-anchor=\"end\"", label);
    put_text(out, LEFT - 4, top + PANEL, "font-size=\"9\" text-anchor=\"end\"", "0");
    for (uint32_t k = 0; k < r->n_rails; k++) {
        char style[64];
        put_line(out, r, k, s, top + PANEL);
        snprintf(style, sizeof style, "font-size=\"10\" fill=\"%s\"", colours[k % 8]);
        snprintf(label, sizeof label, "rail%u %.24s", k, r->rails[k].name);
        put_text(out, WIDTH - RIGHT + 8, top + 12 + 14 * k, style, label);
    }
    put_faults(out, r, s, top);
}

char *ry_timeline_svg(const struct ry_run *run, const char *title)
{
    char *text = NULL, label[64];
    size_t len;
    struct scale s;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return NULL;
    measure(run, &s);
    double bottom = TOP + (double)run->n_pes * (PANEL + GAP);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, bottom + 30);
    put_text(out, LEFT, 24, "font-weight=\"bold\"", title);
    put_text(out, LEFT, 42, "font-size=\"10\"",
             "bytes a second that each rail sent; dashed: a fault, dotted: traffic is back");
    for (uint32_t i = 0; i < run->n_pes; i++)
        put_panel(out, run, i, &s);
    for (uint32_t i = 0; i <= 5; i++) {
        snprintf(label, sizeof label, "%.3g s", s.end_s * i / 5);
        put_text(out, x_of(&s, s.end_s * i / 5), bottom, "font-size=\"10\"", label);
    }
    fputs("</svg>\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
