/* SPDX-License-Identifier: Apache-2.0 */
#include <railyard/status.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "host/error.h"

static const struct {
    int status;
    const char *name;
    const char *text;
} status_texts[] = {
    {RY_OK, "RY_OK", "ok"},
    {RY_ERR_AGAIN, "RY_ERR_AGAIN", "not yet, call again"},
    {RY_ERR_INVALID, "RY_ERR_INVALID", "invalid argument"},
    {RY_ERR_NO_MEMORY, "RY_ERR_NO_MEMORY", "out of memory, heap or descriptors"},
    {RY_ERR_UNSUPPORTED, "RY_ERR_UNSUPPORTED", "not supported by this build or device"},
    {RY_ERR_EXISTS, "RY_ERR_EXISTS", "exists already"},
    {RY_ERR_NOT_FOUND, "RY_ERR_NOT_FOUND", "not found"},
    {RY_ERR_BUSY, "RY_ERR_BUSY", "in use"},
    {RY_ERR_TIMEOUT, "RY_ERR_TIMEOUT", "timed out"},
    {RY_ERR_LOCAL_ACCESS, "RY_ERR_LOCAL_ACCESS", "local key or bounds refused"},
    {RY_ERR_REMOTE_ACCESS, "RY_ERR_REMOTE_ACCESS", "remote key or bounds refused"},
    {RY_ERR_REQUEST, "RY_ERR_REQUEST", "request refused by the device"},
    {RY_ERR_PATH, "RY_ERR_PATH", "path failed"},
    {RY_ERR_RAIL, "RY_ERR_RAIL", "rail failed"},
    {RY_ERR_UNREACHABLE, "RY_ERR_UNREACHABLE", "no usable path to the peer"},
    {RY_ERR_PEER_LOST, "RY_ERR_PEER_LOST", "peer lost"},
    {RY_ERR_CONFIG, "RY_ERR_CONFIG", "bad or contradicting configuration"},
    {RY_ERR_AUTH, "RY_ERR_AUTH", "wrong job secret"},
    {RY_ERR_PROTOCOL, "RY_ERR_PROTOCOL", "message makes no sense"},
    {RY_ERR_SYSTEM, "RY_ERR_SYSTEM", "refused by the operating system"},
    {RY_ERR_DEVICE, "RY_ERR_DEVICE", "device missing or refusing"},
    {RY_ERR_STALLED, "RY_ERR_STALLED", "another initiator stopped in mid-submit"},
    {RY_ERR_LAUNCH, "RY_ERR_LAUNCH", "another PE ended while starting"},
};

static size_t find(int status)
{
    size_t n = sizeof(status_texts) / sizeof(status_texts[0]);
    size_t i = 0;

    while (i < n && status_texts[i].status != status)
        i++;
    return i < n ? i : SIZE_MAX;
}

const char *ry_status_name(int status)
{
    size_t i = find(status);

    return i == SIZE_MAX ? "RY_ERR_UNKNOWN" : status_texts[i].name;
}

const char *ry_status_text(int status)
{
    size_t i = find(status);

    return i == SIZE_MAX ? "unknown status" : status_texts[i].text;
}

const char *ry_version(void) { return RY_VERSION_TEXT; }

static _Thread_local char last_error[RY_ERROR_BYTES];

const char *ry_last_error(void) { return last_error; }

int ry_fail(int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    return status;
}
