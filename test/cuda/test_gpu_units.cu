/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of dispatch and combine once in each of its kinds, small: for compute-sanitizer. */
#include <string.h>

#include "cuda/options.h"
#include "cuda/yard.h"

static uint64_t unit(ry_ep_mode mode, int kind, int split)
{
    struct yard y;
    ry_ep_attr a;
    uint64_t wrong;

    memset(&a, 0, sizeof(a));
    a.experts = 13;
    a.topk = 4;
    a.hidden = 256;
    a.tokens_max = 9;
    a.mode = mode;
    a.dtype = kind == 2 ? RY_BF16 : RY_FP8;
    a.scale = kind == 1 ? RY_SCALE_UE8M0 : RY_SCALE_F32;
    yard_open(&y, &a, 2, 1, 3, kind == 1 ? 8 : 4, 0);
    yard_draw(&y, 7, 9, 0, NULL, 0);
    yard_dispatch(&y, split ? RY_EP_SEND : RY_EP_BOTH);
    if (split)
        yard_dispatch(&y, RY_EP_RECV);
    yard_experts(&y);
    yard_combine(&y, split ? RY_EP_SEND : RY_EP_BOTH);
    if (split)
        yard_combine(&y, RY_EP_RECV);
    wrong = yard_check_dispatch(&y) + yard_check_combine(&y);
    yard_close(&y);
    return wrong;
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv, 0);
    uint64_t wrong = 0;

    if (!o.devices)
        return 77;
    for (int i = 0; i < 12; i++)
        wrong += unit((ry_ep_mode)(i & 1), i / 2 % 3, i / 6);
    printf("%s: 12 units, %llu wrong\n", wrong ? "FAIL" : "ok", (unsigned long long)wrong);
    return wrong != 0;
}
