/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* The host that the double plays: its GPUs, their instances, the processes on them, and the faults asked for.
 *
 * The state file holds a header and two copies of `struct host`. Who changes it writes the copy that is not in use and then
 * flips one byte of the header, all under flock; a process killed at any point leaves the old state or the new one. Every call
 * opens the file anew, so forks, threads and replaced files need no care. */
#ifndef NVML_DOUBLE_STATE_H
#define NVML_DOUBLE_STATE_H

#include <stdbool.h>
#include "api.h"

#define MAX_GPUS 16
#define MAX_PROFILES 18 /* indexes 0..17; this generation of the library answers 0..16 */
#define MAX_GIS 15      /* ids 0..14: a binary tree over eight slots */
#define MAX_CIS 8
#define MAX_PROCESSES 16
#define MAX_FAULTS 32
#define MAX_SCRIPT 16
#define NOBODY 0xffffffffu /* no GPU instance, no compute instance */

/* A GPU instance profile. What lies at index i of a product's table is NVML's profile index i. */
struct profile {
    char name[28]; /* without "MIG "; empty: not on this product */
    uint id, slices, count, sms, ces, decs, encs, jpgs, ofas, mib, gfx;
    uint size;   /* memory slots */
    uint starts; /* bit s: may start at slot s */
};

/* What a GPU is; copied into the state, so that a test can change any of it. */
struct product {
    char key[32], name[64], vbios[24], part[24], inforom[24];
    uint brand, arch, cc_major, cc_minor, pci_device, pci_subsystem, pci_class, cores;
    u64 memory, reserved, bar1;
    uint power_min, power_max, power_draw, temperature; /* milliwatts, degrees */
    uint nvlinks, pcie_generation, ecc, gsp, clock_sm, clock_memory, rows; /* rows: banks of the row remapper */
    uint slots;                                                             /* memory slots of MIG; 0: not capable */
    uint addressing;                                                        /* 0 none, 1 HMM, 2 ATS */
    struct profile profiles[MAX_PROFILES];
};

struct compute_instance { uint used, profile, start, size; };

struct gpu_instance {
    uint used, profile, start, size;
    struct compute_instance cis[MAX_CIS];
};

enum process_kind { COMPUTE = 0, GRAPHICS = 1, MPS = 2 };

struct process {
    uint pid, kind, gi, ci;
    u64 memory;
};

enum { CLOCK_GRAPHICS = 1980 }; /* MHz: the highest, and what applications are given unless told otherwise */
enum mode_change { IMMEDIATE = 0, NEEDS_RESET = 1, NEEDS_REBOOT = 2 };

struct gpu {
    struct product product;
    char uuid[UUID_SIZE], serial[32];
    uint domain, bus, device, minor, persistence, ecc_current, ecc_pending, compute_mode, virtualization, display;
    uint mig_current, mig_pending, mode_change, clients, lost, power_limit, module_id, narrow_in_wide, app_graphics, app_memory;
    u64 ecc_corrected, ecc_uncorrected;
    uint remapped_correctable, remapped_uncorrectable, remap_pending, remap_failed;
    uint fabric_state, fabric_status, clique, xid;
    unsigned char cluster[16];
    struct gpu_instance gis[MAX_GIS]; /* by GPU instance id */
    struct process processes[MAX_PROCESSES];
};

enum fault_when { BEFORE = 0, AFTER = 1 };
enum { KILL = -9 };

/* The `nth` matching call from now on, and the `times - 1` that follow, answer with `code` before or after their effect. */
struct fault {
    char function[64]; /* a name, a name's beginning with *, or `writes` for every call that may change something */
    uint nth, times, when, used;
    int code; /* of NVML; KILL ends the process with SIGKILL */
};

enum permissions { ROOT_ONLY = 0, DENY = 1, ALLOW = 2 };
enum driver_state { LOADED = 0, UNLOADED = 1, MISMATCH = 2 };
enum policy { SPREAD = 0, ASCENDING = 1, SCRIPT = 2 };

struct host {
    char driver[32], nvml[32];
    uint cuda, permissions, driver_state, policy, swapped_ids, profiles_without_mig, profile_count, shift_minors, count;
    uint script[MAX_SCRIPT], script_length;
    struct fault faults[MAX_FAULTS];
    struct gpu gpus[MAX_GPUS];
};

/* --- products.c --- */
extern const struct product products[];
extern const uint product_count;
const struct product *find_product(const char *key);

/* --- codes.c --- */
const char *code_name(int code);
const char *code_text(int code);
bool code_by_name(const char *name, int *code);

/* --- file.c: the state in its file --- */
struct state {
    int file;
    uint active;
    struct host *host, *before;
    size_t size;
};
const char *state_create(const char *path, const struct host *host);
const char *state_path(void); /* NVML_DOUBLE_STATE, else a test host's own place; NULL without either */
const char *state_open(struct state *state, const char *path); /* locks; NULL, or why not */
const char *state_publish(struct state *state);                /* makes changes of state->host the state */
void state_close(struct state *state);
/* One line of JSON to the file that NVML_DOUBLE_LOG names; arguments and made are the insides of objects. */
void write_log(const char *function, bool writes, const char *arguments, int code, const char *name, const char *made);

/* --- geometry.c: what the driver does; each answers with a code of NVML --- */
uint gi_id(const struct host *host, const struct gpu *gpu, uint start, uint size);
const struct profile *profile_by_id(const struct gpu *gpu, uint id, uint *index);
uint gi_count(const struct gpu *gpu, uint profile_index);
uint gi_capacity(const struct gpu *gpu, uint profile_index);
int gi_create(struct host *host, struct gpu *gpu, uint profile_id, const Placement *where, uint *id);
int gi_destroy(struct gpu *gpu, uint id);

struct ci_profile { uint slices, count, starts; };
bool ci_profile(const struct gpu *gpu, const struct gpu_instance *gi, uint index, struct ci_profile *profile);
uint ci_sms(const struct gpu *gpu, const struct gpu_instance *gi, uint index, uint slices);
uint ci_capacity(const struct gpu *gpu, const struct gpu_instance *gi, uint index);
void ci_name(const struct gpu *gpu, const struct gpu_instance *gi, uint slices, char *name, size_t size);
int ci_create(const struct gpu *gpu, struct gpu_instance *gi, uint profile_id, const Placement *where, uint *id);
int ci_destroy(struct gpu *gpu, uint gi, uint ci);

uint mig_devices_max(const struct gpu *gpu);
bool mig_device(const struct gpu *gpu, uint number, uint *gi, uint *ci); /* in order of their ids */
void mig_uuid(const struct gpu *gpu, uint gi, uint ci, char uuid[UUID_SIZE]);
void gpu_uuid(const char *seed, uint index, char uuid[UUID_SIZE]);

int mode_set(struct host *host, struct gpu *gpu, uint mode, uint *activation);
const char *gpu_refuses_reset(const struct gpu *gpu); /* NULL, or why */
void gpu_reset(struct host *host, struct gpu *gpu);
void driver_reload(struct host *host);
void host_reboot(struct host *host);
bool in_use(const struct gpu *gpu, uint gi, uint ci); /* NOBODY: anywhere in what contains it */

#endif
