/* SPDX-License-Identifier: Apache-2.0 */
#define RY_LEAN_OFF 1
#include "lean.cu"
