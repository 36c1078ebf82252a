/* SPDX-License-Identifier: Apache-2.0 */
/* A gate over text. Words are tokens; a token's features are bytes of the hash of its word and,
 * weaker, of the word with the one before it; an expert's logit is their product with a seeded
 * projection and a bias of its own. Frequent words and large biases make some experts several
 * times as busy as the mean; as in training, biases are then moved a little until no expert is
 * far busier than that and few are idle. All of it is integer arithmetic but for one IEEE
 * division a weight, so every machine routes alike. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/token.h"
#include "ep/routing.h"
#include "ep/validate.h"
#include "host/error.h"

enum {
    FEATURES = 16,
    WORD_SHARE = 3,    /* weight of the word's own hash; the pair's is 1 */
    BIAS_MAX = 150000, /* about two standard deviations of the product */
    BIAS_STEP = 6000,
    BUSY_HALVES = 7, /* 3.5 times the mean is what balancing aims at */
    IDLE_SHARE = 8,  /* an expert with less than 1/8 of the mean is raised */
    ROUNDS = 24,
    WORK_MAX = 1 << 26,   /* products that balancing may cost, whatever the number of experts */
    HALVING = 24000,      /* a logit lower by this much halves the weight */
    WEIGHT_ONE = 1 << 24, /* the greatest weight before they are made to sum to 1 */
};

struct ry_gate {
    uint32_t experts, topk;
    size_t words;
    uint64_t *word;     /* [words] hash */
    int32_t *bias;      /* [experts] */
    int8_t *projection; /* [experts][FEATURES] */
};

static bool in_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Hashes (FNV-1a, then mixed) of the words of text, in order; letters count as small. Returns how
 * many; word may be NULL to count only. */
static size_t words_hash(const unsigned char *text, size_t bytes, uint64_t *word)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes;) {
        uint64_t hash = 0xcbf29ce484222325u;
        size_t start = i;
        for (; i < bytes && in_word(text[i]); i++) {
            unsigned char c = text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i];
            hash = (hash ^ c) * 0x100000001b3u;
        }
        if (i == start) {
            i++;
            continue;
        }
        if (word)
            word[count] = ry_mix64(hash);
        count++;
    }
    return count;
}

static void model_fill(struct ry_gate *g, uint64_t seed)
{
    for (uint32_t e = 0; e < g->experts; e++) {
        uint64_t expert = ry_mix64(ry_mix64(seed) + e);
        uint64_t u = ry_mix64(expert) >> 48; /* cubed, so that few experts have a large bias */
        uint64_t cubed = u * u * u >> 32;
        g->bias[e] = (int32_t)(cubed * BIAS_MAX >> 16);
        for (uint32_t d = 0; d < FEATURES; d++)
            g->projection[e * FEATURES + d] =
                (int8_t)(ry_mix64(expert + 1 + d / 8) >> (8 * (d % 8)) & 0xff);
    }
}

/* Moves the biases of experts far too busy or nearly idle, on words spread over the text. */
static void balance(struct ry_gate *g, int32_t *ids, float *weights, uint32_t *load)
{
    uint64_t sample = WORK_MAX / ((uint64_t)g->experts * FEATURES * ROUNDS);
    sample = sample < g->words ? sample : g->words;
    uint64_t mean_by_experts = sample * g->topk; /* the mean load times the number of experts */
    if (mean_by_experts < g->experts)
        return; /* too few for a mean load of one, so counts would say nothing */
    for (int round = 0; round < ROUNDS; round++) {
        memset(load, 0, g->experts * sizeof(*load));
        for (uint64_t t = 0; t < sample; t++) {
            ry_gate_route(g, t * g->words / sample, ids, weights);
            for (uint32_t k = 0; k < g->topk; k++)
                load[ids[k]]++;
        }
        for (uint32_t e = 0; e < g->experts; e++) {
            uint64_t scaled = (uint64_t)load[e] * g->experts;
            if (2 * scaled > BUSY_HALVES * mean_by_experts)
                g->bias[e] -= BIAS_STEP;
            else if (scaled * IDLE_SHARE < mean_by_experts)
                g->bias[e] += BIAS_STEP;
        }
    }
}

static bool gate_alloc(struct ry_gate *g)
{
    g->word = malloc(g->words * sizeof(*g->word));
    g->bias = malloc(g->experts * sizeof(*g->bias));
    g->projection = malloc((size_t)g->experts * FEATURES);
    return g->word && g->bias && g->projection;
}

int ry_gate_open(const unsigned char *text, size_t bytes, const ry_routing_attr *attr,
                 struct ry_gate **out)
{
    struct ry_gate *g = calloc(1, sizeof(*g));
    int32_t *ids = malloc(attr->topk * sizeof(*ids));
    float *weights = malloc(attr->topk * sizeof(*weights));
    uint32_t *load = malloc(attr->experts * sizeof(*load));
    size_t words = words_hash(text, bytes, NULL);
    int status = RY_OK;
    if (g)
        *g = (struct ry_gate){.experts = attr->experts, .topk = attr->topk, .words = words};
    if (words == 0)
        status = ry_fail(RY_ERR_INVALID, "the text of the gate has no words; give another text");
    else if (!g || !ids || !weights || !load || !gate_alloc(g))
        status = ry_fail(RY_ERR_NO_MEMORY, "no memory for a gate of %u experts", attr->experts);
    if (status == RY_OK) {
        words_hash(text, bytes, g->word);
        model_fill(g, attr->seed);
        balance(g, ids, weights, load);
        *out = g;
    } else {
        ry_gate_close(g);
    }
    free(load);
    free(weights);
    free(ids);
    return status;
}

void ry_gate_close(struct ry_gate *g)
{
    if (!g)
        return;
    free(g->projection);
    free(g->bias);
    free(g->word);
    free(g);
}

uint64_t ry_gate_tokens(const struct ry_gate *g)
{
    return g->words;
}

static void features_make(const struct ry_gate *g, uint64_t token, int32_t *features)
{
    uint64_t word = g->word[token];
    uint64_t pair = ry_mix64(word ^ g->word[(token + g->words - 1) % g->words] << 1);
    for (uint32_t d = 0; d < FEATURES; d++) {
        uint32_t shift = 8 * (d % 8);
        int32_t own = (int8_t)(ry_mix64(word + d / 8) >> shift & 0xff);
        int32_t context = (int8_t)(ry_mix64(pair + d / 8) >> shift & 0xff);
        features[d] = WORD_SHARE * own + context;
    }
}

static int32_t logit(const struct ry_gate *g, uint32_t expert, const int32_t *features)
{
    int32_t sum = g->bias[expert];
    for (uint32_t d = 0; d < FEATURES; d++)
        sum += features[d] * g->projection[expert * FEATURES + d];
    return sum;
}

/* Inserts an expert into the list of the best, greatest logit first, lower id first among equals.
 * Returns the new length. */
static uint32_t best_insert(int32_t *ids, int32_t *logits, uint32_t length, uint32_t topk,
                            int32_t id, int32_t value)
{
    uint32_t at = length;
    if (length == topk && value <= logits[topk - 1])
        return length;
    if (length == topk)
        at = topk - 1;
    for (; at > 0 && logits[at - 1] < value; at--) {
        ids[at] = ids[at - 1];
        logits[at] = logits[at - 1];
    }
    ids[at] = id;
    logits[at] = value;
    return length < topk ? length + 1 : topk;
}

/* 2^(-below / HALVING) * WEIGHT_ONE, straight between powers of two; at least 1. */
static uint32_t weight_raw(int64_t below)
{
    int64_t halvings = below / HALVING;
    int64_t rest = below % HALVING;
    int64_t raw = WEIGHT_ONE - WEIGHT_ONE / 2 * rest / HALVING;
    raw = halvings < 24 ? raw >> halvings : 0;
    return raw > 0 ? (uint32_t)raw : 1;
}

void ry_gate_route(const struct ry_gate *g, uint64_t token, int32_t *ids, float *weights)
{
    int32_t features[FEATURES];
    int32_t logits[RY_EP_TOPK_MAX];
    uint64_t sum = 0;
    uint32_t length = 0;
    features_make(g, token, features);
    for (uint32_t e = 0; e < g->experts; e++)
        length = best_insert(ids, logits, length, g->topk, (int32_t)e, logit(g, e, features));
    for (uint32_t k = 0; k < g->topk; k++)
        sum += weight_raw((int64_t)logits[0] - logits[k]);
    for (uint32_t k = 0; k < g->topk; k++)
        weights[k] = (float)weight_raw((int64_t)logits[0] - logits[k]) / (float)sum;
}
