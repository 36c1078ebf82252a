/* SPDX-License-Identifier: Apache-2.0 */
/* What railyard tune --device cuda wrote down for an exchange of this shape. */
#include <railyard/tune.h>

#include "cuda/host/ep_inside.h"

uint32_t ry_gpu_ep_tuned(const ry_gpu_ep_attr *attr)
{
    const ry_ep_attr *e = &attr->ep;
    const ry_tune_shape shape = {.mode = e->mode == RY_EP_LL ? "ll" : "ht",
                                 .dtype = e->dtype == RY_FP8 ? "fp8" : "bf16",
                                 .device = "cuda",
                                 .pes = attr->n_pes,
                                 .nodes = attr->n_nodes ? attr->n_nodes : 1,
                                 .tokens = e->tokens_max,
                                 .hidden = e->hidden,
                                 .experts = e->experts,
                                 .topk = e->topk};
    ry_tune_choice choice;

    return ry_tune_load(NULL, &shape, &choice) == RY_OK ? choice.sms : 0;
}
