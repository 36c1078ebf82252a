/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of the host room in a world with one thread: whoever finds one taken by another coroutine
 * lets that one run. These stand before the C library's own, in this program alone. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "sim/world.h"

enum { TURN_NS = 60 };

static void turn(int rc)
{
    if (rc != EBUSY || !ry_sim || !ry_sim->running)
        abort(); /* nobody is there who could let it go */
    ry_sim_sleep(TURN_NS);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    int rc;

    while ((rc = pthread_mutex_trylock(m)) != 0)
        turn(rc);
    return 0;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    int rc;

    while ((rc = pthread_rwlock_trywrlock(l)) != 0)
        turn(rc);
    return 0;
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
    int rc;

    while ((rc = pthread_rwlock_tryrdlock(l)) != 0)
        turn(rc);
    return 0;
}
