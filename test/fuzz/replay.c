/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a libFuzzer target once for every file of the folders given, where libFuzzer itself is not
 * there. Empty input is always tried. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

enum { SEED_BYTES_MAX = 1 << 20 };

static int replay_file(const char *path, uint8_t *buffer)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "replay: cannot open %s: %s\n", path, strerror(errno));
        return 1;
    }
    size_t len = fread(buffer, 1, SEED_BYTES_MAX, file);
    fclose(file);
    /* a block of exactly its size, so that AddressSanitizer sees the first byte beyond it */
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        return 1;
    memcpy(exact, buffer, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

static int replay_folder(const char *folder, uint8_t *buffer, int *count)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "replay: cannot open %s: %s\n", folder, strerror(errno));
        return 1;
    }
    int failed = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        failed |= replay_file(path, buffer);
        ++*count;
    }
    closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    uint8_t *buffer = calloc(1, SEED_BYTES_MAX);
    if (!buffer)
        return 1;
    int failed = 0;
    int count = 0;
    LLVMFuzzerTestOneInput(buffer, 0);
    for (int i = 1; i < argc; i++)
        failed |= replay_folder(argv[i], buffer, &count);
    free(buffer);
    printf("%d seeds\n", count);
    return failed || count == 0;
}
