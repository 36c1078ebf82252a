/* SPDX-License-Identifier: Apache-2.0 */
#include <railyard/status.h>

const char *ry_build(void) { return RY_BUILD_TEXT; }
