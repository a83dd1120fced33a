/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* What the driver does with instances and modes. Works on the state in memory; knows nothing of files or callers. */
#include <stdio.h>
#include <string.h>
#include "state.h"

static uint mask(uint start, uint size) { return ((1u << size) - 1) << start; }

/* --- GPU instances --- */

static uint occupied(const struct gpu *gpu)
{
    uint slots = 0;
    for (uint id = 0; id < MAX_GIS; id++)
        if (gpu->gis[id].used)
            slots |= mask(gpu->gis[id].start, gpu->gis[id].size);
    return slots;
}

/* Ids follow a binary tree over the slots: 0 is the whole, 1 and 2 its halves, 3 to 6 the quarters, and so on. Some boards
 * number the halves the other way round (host->swapped_ids). */
uint gi_id(const struct host *host, const struct gpu *gpu, uint start, uint size)
{
    uint slots = gpu->product.slots, parts = slots / size, half = slots / 2;
    if (host->swapped_ids && size < slots)
        start = (start + half) % slots;
    return parts - 1 + start / size;
}

const struct profile *profile_by_id(const struct gpu *gpu, uint id, uint *index)
{
    for (uint i = 0; i < MAX_PROFILES; i++)
        if (*gpu->product.profiles[i].name && gpu->product.profiles[i].id == id) {
            if (index)
                *index = i;
            return &gpu->product.profiles[i];
        }
    return NULL;
}

uint gi_count(const struct gpu *gpu, uint profile_index)
{
    uint count = 0;
    for (uint id = 0; id < MAX_GIS; id++)
        count += gpu->gis[id].used && gpu->gis[id].profile == profile_index;
    return count;
}

struct engines { uint decs, encs, jpgs, ofas; };

/* The board's media engines: those of the profile that is the whole board. */
static struct engines engines_of_board(const struct gpu *gpu)
{
    struct engines all = {0};
    for (uint i = 0; i < MAX_PROFILES; i++) {
        const struct profile *p = &gpu->product.profiles[i];
        if (*p->name && p->size == gpu->product.slots && p->decs >= all.decs)
            all = (struct engines){p->decs, p->encs, p->jpgs, p->ofas};
    }
    return all;
}

/* How many more instances of a profile the media engines allow. */
static uint engine_room(const struct gpu *gpu, const struct profile *wanted)
{
    struct engines left = engines_of_board(gpu);
    for (uint id = 0; id < MAX_GIS; id++)
        if (gpu->gis[id].used) {
            const struct profile *p = &gpu->product.profiles[gpu->gis[id].profile];
            left.decs -= p->decs;
            left.encs -= p->encs;
            left.jpgs -= p->jpgs;
            left.ofas -= p->ofas;
        }
    uint room = MAX_GIS;
    const uint have[] = {left.decs, left.encs, left.jpgs, left.ofas};
    const uint need[] = {wanted->decs, wanted->encs, wanted->jpgs, wanted->ofas};
    for (uint i = 0; i < 4; i++)
        if (need[i] && have[i] / need[i] < room)
            room = have[i] / need[i];
    return room;
}

static uint smaller(uint a, uint b) { return a < b ? a : b; }

uint gi_capacity(const struct gpu *gpu, uint profile_index)
{
    const struct profile *p = &gpu->product.profiles[profile_index];
    uint busy = occupied(gpu), places = 0, exist = gi_count(gpu, profile_index);
    for (uint start = 0; start < gpu->product.slots; start++)
        places += (p->starts >> start & 1) && !(busy & mask(start, p->size));
    return exist >= p->count ? 0 : smaller(smaller(places, p->count - exist), engine_room(gpu, p));
}

/* How many (profile, start) pairs are still possible when these slots are taken. */
static uint freedom(const struct gpu *gpu, uint busy)
{
    uint pairs = 0;
    for (uint i = 0; i < MAX_PROFILES; i++)
        for (uint start = 0; *gpu->product.profiles[i].name && start < gpu->product.slots; start++)
            pairs += (gpu->product.profiles[i].starts >> start & 1) && !(busy & mask(start, gpu->product.profiles[i].size));
    return pairs;
}

/* The start that the driver chooses itself, or NOBODY. */
static uint choose_start(struct host *host, const struct gpu *gpu, const struct profile *p)
{
    uint busy = occupied(gpu), best = NOBODY, most = 0;
    if (host->policy == SCRIPT && host->script_length) {
        uint start = host->script[0];
        memmove(host->script, host->script + 1, sizeof host->script - sizeof *host->script);
        host->script_length--;
        return start < 32 && (p->starts >> start & 1) && !(busy & mask(start, p->size)) ? start : NOBODY;
    }
    for (uint start = 0; start < gpu->product.slots; start++) {
        if (!(p->starts >> start & 1) || (busy & mask(start, p->size)))
            continue;
        uint left = host->policy == ASCENDING ? 0 : freedom(gpu, busy | mask(start, p->size));
        if (best == NOBODY || left > most) {
            best = start;
            most = left;
        }
    }
    return best;
}

int gi_create(struct host *host, struct gpu *gpu, uint profile_id, const Placement *where, uint *id)
{
    uint index, start;
    const struct profile *p = profile_by_id(gpu, profile_id, &index);
    if (!gpu->mig_current)
        return NOT_SUPPORTED;
    if (!p)
        return INVALID_ARGUMENT;
    if (where && (where->start >= gpu->product.slots || where->size != p->size || !(p->starts >> where->start & 1)))
        return INVALID_ARGUMENT;
    for (uint i = 0; i < MAX_PROCESSES; i++)
        if (gpu->processes[i].pid && gpu->processes[i].gi == NOBODY)
            return IN_USE;
    if (!gi_capacity(gpu, index))
        return INSUFFICIENT_RESOURCES;
    start = where ? where->start : choose_start(host, gpu, p);
    if (start == NOBODY || (occupied(gpu) & mask(start, p->size)))
        return INSUFFICIENT_RESOURCES;
    *id = gi_id(host, gpu, start, p->size);
    gpu->gis[*id] = (struct gpu_instance){.used = 1, .profile = index, .start = start, .size = p->size};
    return OK;
}

bool in_use(const struct gpu *gpu, uint gi, uint ci)
{
    for (uint i = 0; i < MAX_PROCESSES; i++) {
        const struct process *p = &gpu->processes[i];
        if (p->pid && (gi == NOBODY || p->gi == gi) && (ci == NOBODY || p->ci == ci))
            return true;
    }
    return false;
}

int gi_destroy(struct gpu *gpu, uint id)
{
    for (uint ci = 0; ci < MAX_CIS; ci++)
        if (gpu->gis[id].cis[ci].used)
            return IN_USE;
    if (in_use(gpu, id, NOBODY))
        return IN_USE;
    memset(&gpu->gis[id], 0, sizeof gpu->gis[id]);
    return OK;
}

/* --- Compute instances --- */

/* Profile index i of compute instances: its slices. Index 7 is the second kind of one slice. No product here answers 8. */
static const uint slices_of_index[] = {1, 2, 3, 4, 7, 8, 6, 1};

bool ci_profile(const struct gpu *gpu, const struct gpu_instance *gi, uint index, struct ci_profile *profile)
{
    const struct profile *p = &gpu->product.profiles[gi->profile];
    /* The instance of one slice and two slots has more SMs than a plain slice from Hopper on: index 7 fills it. Whether
     * index 0, of a plain slice's SMs, answers beside it is not known of real ones: gpu->narrow_in_wide. */
    bool wide = p->slices == 1 && p->size == 2 && p->sms > gpu->product.profiles[0].sms;
    if (index > 7 || (index == 7) > wide || (wide && index != 7 && !(index == 0 && gpu->narrow_in_wide)))
        return false;
    uint slices = slices_of_index[index], step = slices == 3 ? 4 : slices;
    if (slices > p->slices || (slices == 3 && p->slices == 4) || (slices == 6 && p->slices != 6))
        return false;
    *profile = (struct ci_profile){.slices = slices};
    for (uint start = 0; start + slices <= p->slices; start += step) {
        profile->starts |= 1u << start;
        profile->count++;
    }
    return true;
}

uint ci_sms(const struct gpu *gpu, const struct gpu_instance *gi, uint index, uint slices)
{
    const struct profile *p = &gpu->product.profiles[gi->profile];
    if (index == 0 && p->slices == 1 && p->size == 2)
        return gpu->product.profiles[0].sms;
    return slices == p->slices ? p->sms : p->sms * slices / p->slices & ~1u;
}

static uint ci_occupied(const struct gpu_instance *gi)
{
    uint slices = 0;
    for (uint id = 0; id < MAX_CIS; id++)
        if (gi->cis[id].used)
            slices |= mask(gi->cis[id].start, gi->cis[id].size);
    return slices;
}

uint ci_capacity(const struct gpu *gpu, const struct gpu_instance *gi, uint index)
{
    struct ci_profile profile;
    uint places = 0;
    if (!ci_profile(gpu, gi, index, &profile))
        return 0;
    for (uint start = 0; start < 8; start++)
        places += (profile.starts >> start & 1) && !(ci_occupied(gi) & mask(start, profile.slices));
    return places;
}

void ci_name(const struct gpu *gpu, const struct gpu_instance *gi, uint slices, char *name, size_t size)
{
    const struct profile *p = &gpu->product.profiles[gi->profile];
    if (slices == p->slices)
        snprintf(name, size, "MIG %s", p->name);
    else
        snprintf(name, size, "MIG %uc.%s", slices, p->name);
}

int ci_create(const struct gpu *gpu, struct gpu_instance *gi, uint profile_id, const Placement *where, uint *id)
{
    struct ci_profile profile;
    if (!ci_profile(gpu, gi, profile_id, &profile))
        return INVALID_ARGUMENT;
    if (where && (where->start >= 8 || where->size != profile.slices || !(profile.starts >> where->start & 1)))
        return INVALID_ARGUMENT;
    for (uint start = 0; start < 8; start++) {
        if (!(profile.starts >> start & 1) || (where && where->start != start) || (ci_occupied(gi) & mask(start, profile.slices)))
            continue;
        for (uint i = 0; i < MAX_CIS; i++)
            if (!gi->cis[i].used) {
                gi->cis[i] = (struct compute_instance){1, profile_id, start, profile.slices};
                *id = i;
                return OK;
            }
    }
    return INSUFFICIENT_RESOURCES;
}

int ci_destroy(struct gpu *gpu, uint gi, uint ci)
{
    if (in_use(gpu, gi, ci))
        return IN_USE;
    memset(&gpu->gis[gi].cis[ci], 0, sizeof gpu->gis[gi].cis[ci]);
    return OK;
}

/* --- MIG devices --- */

uint mig_devices_max(const struct gpu *gpu)
{
    return !gpu->mig_current ? 0 : gpu->product.slots == 8 ? 7 : gpu->product.slots;
}

bool mig_device(const struct gpu *gpu, uint number, uint *gi, uint *ci)
{
    for (*gi = 0; *gi < MAX_GIS; ++*gi)
        for (*ci = 0; gpu->gis[*gi].used && *ci < MAX_CIS; ++*ci)
            if (gpu->gis[*gi].cis[*ci].used && !number--)
                return true;
    return false;
}

/* 128 bits of a text, as a UUID of version 5 looks; the same text gives the same UUID again (FNV-1a, twice). */
static void uuid_of(const char *prefix, const char *text, char uuid[UUID_SIZE])
{
    u64 half[2] = {0xcbf29ce484222325ULL, 0x9ae16a3b2f90404fULL};
    for (uint i = 0; i < 2; i++)
        for (uint round = 0; round < 3; round++)
            for (const char *c = text; *c; c++)
                half[i] = (half[i] ^ (unsigned char)*c ^ round << 9) * 0x100000001b3ULL;
    snprintf(uuid, UUID_SIZE, "%s-%08x-%04x-5%03x-%04x-%012llx", prefix, (uint)(half[0] >> 32), (uint)(half[0] >> 16 & 0xffff),
             (uint)(half[0] & 0xfff), (uint)(half[1] >> 48 & 0x3fff) | 0x8000, half[1] & 0xffffffffffffULL);
}

void mig_uuid(const struct gpu *gpu, uint gi, uint ci, char uuid[UUID_SIZE])
{
    char text[UUID_SIZE + 32];
    snprintf(text, sizeof text, "%.*s/%u/%u", UUID_SIZE, gpu->uuid, gi, ci);
    uuid_of("MIG", text, uuid);
}

void gpu_uuid(const char *seed, uint index, char uuid[UUID_SIZE])
{
    char text[128];
    snprintf(text, sizeof text, "%.100s#%u", seed, index);
    uuid_of("GPU", text, uuid);
}

/* --- Modes --- */

static void without_instances(struct gpu *gpu)
{
    memset(gpu->gis, 0, sizeof gpu->gis);
    memset(gpu->processes, 0, sizeof gpu->processes);
}

static void shift_minors(struct host *host)
{
    for (uint i = 0; host->shift_minors && i < host->count; i++)
        host->gpus[i].minor = (host->gpus[i].minor + 1) % host->count;
}

static void pending_becomes_current(struct host *host, struct gpu *gpu)
{
    if (gpu->mig_current != gpu->mig_pending) {
        gpu->mig_current = gpu->mig_pending;
        shift_minors(host);
    }
}

int mode_set(struct host *host, struct gpu *gpu, uint mode, uint *activation)
{
    if (!gpu->product.slots)
        return NOT_SUPPORTED;
    if (mode > 1)
        return INVALID_ARGUMENT;
    *activation = OK;
    gpu->mig_pending = mode;
    if (gpu->mig_current == mode)
        return OK;
    if (gpu->clients || in_use(gpu, NOBODY, NOBODY))
        *activation = IN_USE;
    else if (gpu->mode_change != IMMEDIATE)
        *activation = RESET_REQUIRED;
    else {
        without_instances(gpu);
        pending_becomes_current(host, gpu);
    }
    return OK;
}

const char *gpu_refuses_reset(const struct gpu *gpu)
{
    if (gpu->clients || in_use(gpu, NOBODY, NOBODY))
        return "In use by another client";
    return gpu->mode_change == NEEDS_REBOOT ? "Not Supported" : NULL;
}

void gpu_reset(struct host *host, struct gpu *gpu)
{
    without_instances(gpu);
    gpu->lost = 0;
    gpu->remap_pending = 0;
    gpu->ecc_current = gpu->ecc_pending;
    pending_becomes_current(host, gpu);
}

static void start_driver(struct host *host, bool boot)
{
    for (uint i = 0; i < host->count; i++) {
        struct gpu *gpu = &host->gpus[i];
        bool changes = gpu->mig_current != gpu->mig_pending && (boot || gpu->mode_change != NEEDS_REBOOT);
        without_instances(gpu);
        gpu->clients = gpu->lost = gpu->remap_pending = 0;
        gpu->ecc_current = gpu->ecc_pending;
        /* What the driver keeps in memory. After a boot the persistence daemon has started, which a reload does not. */
        gpu->power_limit = gpu->product.power_max;
        gpu->app_graphics = CLOCK_GRAPHICS;
        gpu->app_memory = gpu->product.clock_memory;
        gpu->compute_mode = 0;
        gpu->persistence = boot;
        if (changes)
            pending_becomes_current(host, gpu);
        else if (gpu->product.arch > 8) { /* Hopper and later keep the mode in the driver, Ampere on the board */
            if (gpu->mig_current == gpu->mig_pending)
                gpu->mig_pending = 0;
            gpu->mig_current = 0;
        }
    }
    host->driver_state = LOADED;
}

void driver_reload(struct host *host) { start_driver(host, false); }
void host_reboot(struct host *host) { start_driver(host, true); }
