/* SPDX-License-Identifier: Apache-2.0 */
/* The test of masks as a function, for a schedule that runs it without its rule. */
int ry_test_mask_main(void);
#define main ry_test_mask_main
#include "test_mask.c"
