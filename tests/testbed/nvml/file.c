/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* The state in its file: see state.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "state.h"

#define MAGIC "NVMLDBL1"

struct header {
    char magic[8];
    uint size; /* of struct host: another build's state is refused, not misread */
    unsigned char active;
};

static off_t place(uint copy) { return 4096 + (off_t)copy * sizeof(struct host); }

static bool put(int file, const void *data, size_t size, off_t at)
{
    return pwrite(file, data, size, at) == (ssize_t)size;
}

const char *state_create(const char *path, const struct host *host)
{
    char beside[4096];
    struct header header = {.magic = MAGIC, .size = sizeof *host};
    if (snprintf(beside, sizeof beside, "%s.new.%d", path, (int)getpid()) >= (int)sizeof beside)
        return "the path is too long";
    int file = open(beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return strerror(errno);
    bool written = put(file, &header, sizeof header, 0) && put(file, host, sizeof *host, place(0)) &&
                   !ftruncate(file, place(2)) && !fchmod(file, 0666) && !rename(beside, path);
    const char *why = written ? NULL : strerror(errno);
    close(file);
    if (!written)
        unlink(beside);
    return why;
}

const char *state_path(void)
{
    static const char host[] = "/var/lib/nvml-double/state"; /* as hardware: whatever environment a program has */
    const char *given = getenv("NVML_DOUBLE_STATE");
    if (given && *given)
        return given;
    return access(host, F_OK) == 0 ? host : NULL;
}

const char *state_open(struct state *state, const char *path)
{
    struct header header;
    *state = (struct state){.file = open(path, O_RDWR | O_CLOEXEC)};
    if (state->file < 0)
        return strerror(errno);
    while (flock(state->file, LOCK_EX))
        if (errno != EINTR)
            goto failed;
    if (pread(state->file, &header, sizeof header, 0) != sizeof header || memcmp(header.magic, MAGIC, sizeof header.magic) ||
        header.size != sizeof *state->host || header.active > 1) {
        state_close(state);
        return "not a state file of this build: make it anew with nvml-double create";
    }
    state->active = header.active;
    state->host = malloc(sizeof *state->host);
    state->before = malloc(sizeof *state->before);
    if (!state->host || !state->before)
        goto failed;
    /* What lies behind the last GPU is neither read nor written. */
    const size_t fixed = offsetof(struct host, gpus);
    if (pread(state->file, state->host, fixed, place(state->active)) != (ssize_t)fixed || state->host->count > MAX_GPUS)
        goto failed;
    state->size = fixed + state->host->count * sizeof *state->host->gpus;
    if (pread(state->file, state->host, state->size, place(state->active)) != (ssize_t)state->size)
        goto failed;
    memcpy(state->before, state->host, state->size);
    return NULL;
failed:
    state_close(state);
    return "the state file cannot be read";
}

const char *state_publish(struct state *state)
{
    unsigned char active = !state->active;
    if (!memcmp(state->before, state->host, state->size))
        return NULL;
    if (!put(state->file, state->host, state->size, place(active)) ||
        !put(state->file, &active, 1, offsetof(struct header, active)))
        return strerror(errno);
    state->active = active;
    memcpy(state->before, state->host, state->size);
    return NULL;
}

void state_close(struct state *state)
{
    free(state->host);
    free(state->before);
    if (state->file >= 0)
        close(state->file);
    *state = (struct state){.file = -1};
}

void write_log(const char *function, bool writes, const char *arguments, int code, const char *name, const char *made)
{
    const char *path = getenv("NVML_DOUBLE_LOG");
    char line[1024];
    if (!path || !*path)
        return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    int size = snprintf(line, sizeof line,
                        "{\"pid\":%d,\"function\":\"%s\",\"write\":%s,\"arguments\":{%s},\"result\":%d,\"name\":\"%s\",\"made\":{%s}}\n",
                        (int)getpid(), function, writes ? "true" : "false", arguments, code, name, made);
    if (file < 0 || write(file, line, size) != size)
        fprintf(stderr, "nvml-double: the log %s cannot be written\n", path);
    if (file >= 0)
        close(file);
}
