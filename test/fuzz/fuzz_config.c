/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file as anyone may have written it. What is taken must survive being printed and
 * read again; what is refused must leave one line that names the place. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <railyard/config.h>

#include "host/config.h"
#include "host/config_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void print_and_read(const struct ry_config *c)
{
    static struct ry_config again;

    ry_config_defaults(&again);
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        char text[RY_CONFIG_TEXT], back[RY_CONFIG_TEXT];

        if (ry_settings[i].type == RY_SET_LAUNCH)
            continue;
        ry_setting_format(&ry_settings[i], c, text, sizeof(text));
        if (ry_config_set(&again, ry_settings[i].name, text, RY_FROM_CALL) < 0)
            abort();
        ry_setting_format(&ry_settings[i], &again, back, sizeof(back));
        if (strcmp(text, back) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    static struct ry_config c;
    char block[RY_CONFIG_JOB_BYTES];

    ry_config_defaults(&c);
    if (ry_config_parse(&c, (const char *)data, len_bytes, "file") < 0) {
        const char *why = ry_last_error();

        if (strncmp(why, "file:", 5) != 0 || strchr(why, '\n'))
            abort();
        return 0;
    }
    print_and_read(&c);
    ry_config_job(&c, block);
    if (memchr(block, '\0', sizeof(block)) == NULL)
        abort();
    return 0;
}
