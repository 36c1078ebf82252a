/* SPDX-License-Identifier: Apache-2.0 */
#include <railyard/status.h>

#include <stddef.h>

static const struct {
    ry_status status;
    const char *text;
} status_texts[] = {
    {RY_OK, "ok"},
    {RY_ERR_INVALID, "invalid argument"},
    {RY_ERR_RANGE, "out of range"},
    {RY_ERR_ACCESS, "remote access refused"},
    {RY_ERR_NOMEM, "out of memory"},
    {RY_ERR_AGAIN, "try again"},
    {RY_ERR_TIMEOUT, "timed out"},
    {RY_ERR_UNSUPPORTED, "not supported"},
    {RY_ERR_CANCELED, "canceled"},
    {RY_ERR_PATH, "path failed"},
    {RY_ERR_PATH_SILENT, "path is silent"},
    {RY_ERR_PATH_CLOSED, "path is closed"},
    {RY_ERR_RAIL, "rail failed"},
    {RY_ERR_RAIL_NONE, "no such rail"},
    {RY_ERR_PEER, "peer lost"},
    {RY_ERR_PEER_NOPATH, "no path to peer"},
    {RY_ERR_PEER_CONFIG, "peer has another configuration"},
    {RY_ERR_PEER_AUTH, "peer does not know the job secret"},
    {RY_ERR_CONTEXT, "context is broken"},
    {RY_ERR_SYSTEM, "operating system refused a resource"},
    {RY_ERR_BOOTSTRAP, "job could not be formed"},
};

const char *ry_status_text(int status)
{
    for (size_t i = 0; i < sizeof(status_texts) / sizeof(status_texts[0]); i++) {
        if (status_texts[i].status == status)
            return status_texts[i].text;
    }
    return "unknown status";
}

const char *ry_version(void)
{
    return RY_VERSION_TEXT;
}
