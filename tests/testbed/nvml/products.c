/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* The products, the one place that says what each GPU is. `nvml-double products` prints this table.
 *
 * H200-SXM5-141GB and H100-SXM5-80GB are as real boards answered (driver 580.159.04). The others come from published tables;
 * what no source says (memory of the large instances of H100-NVL, GH200-144 and B200, SMs of the larger ones of B200, VBIOS
 * and part numbers) is filled in so that the profile's name still follows from its memory.
 */
#include <string.h>
#include <strings.h>
#include "state.h"

#define MIB (1024ULL * 1024)
enum { VOLTA = 5, TURING = 6, AMPERE = 7, ADA = 8, HOPPER = 9, BLACKWELL = 10 };
enum { CONTROLLER_3D = 0x0302 };

/* index, id, name, slices, MiB, count, SM, CE, DEC, ENC, JPG, OFA, size, starts, gfx */
#define P(...) ROW(__VA_ARGS__)
#define ROW(index, id_, name_, slices_, mib_, count_, sm, ce, dec, enc, jpg, ofa, size_, starts_, gfx_) \
    [index] = {.id = id_, .name = name_, .slices = slices_, .mib = mib_, .count = count_, .sms = sm, .ces = ce, .decs = dec, \
               .encs = enc, .jpgs = jpg, .ofas = ofa, .size = size_, .starts = starts_, .gfx = gfx_}
#define AT_0 0x01u
#define AT_02 0x05u
#define AT_04 0x11u
#define AT_024 0x15u
#define AT_0246 0x55u
#define AT_0123 0x0fu
#define AT_0_TO_6 0x7fu

/* The eight slots that all data centre boards from the A100 on share, but for the A30: names, MiB and SMs differ. */
#define EIGHT_SLOTS(n1, m1, s1, nd, md, sd, n2, m2, s2, n3, n4, m34, s3, s4, n7, m7, s7, ENGINES) \
    .slots = 8, .profiles = { \
        P(0, 19, n1, 1, m1, 7, s1, ENGINES(1), 1, AT_0_TO_6, 0), \
        P(1, 14, n2, 2, m2, 3, s2, ENGINES(2), 2, AT_024, 0), \
        P(2, 9, n3, 3, m34, 2, s3, ENGINES(3), 4, AT_04, 0), \
        P(3, 5, n4, 4, m34, 1, s4, ENGINES(4), 4, AT_0, 0), \
        P(4, 0, n7, 7, m7, 1, s7, ENGINES(7), 8, AT_0, 0), \
        P(7, 20, n1 "+me", 1, m1, 1, s1, ENGINES(ME), 1, AT_0_TO_6, 0), \
        P(9, 15, nd, 1, md, 4, sd, ENGINES(DOUBLE), 2, AT_0246, 0), \
    }
/* CE, DEC, ENC, JPG, OFA of each shape */
#define AMPERE_ENGINES(shape) AMPERE_##shape
#define AMPERE_1 1, 0, 0, 0, 0
#define AMPERE_ME 1, 1, 0, 1, 1
#define AMPERE_DOUBLE 1, 1, 0, 0, 0
#define AMPERE_2 2, 1, 0, 0, 0
#define AMPERE_3 3, 2, 0, 0, 0
#define AMPERE_4 4, 2, 0, 0, 0
#define AMPERE_7 7, 5, 0, 1, 1
#define HOPPER_ENGINES(shape) HOPPER_##shape
#define HOPPER_1 1, 1, 0, 1, 0
#define HOPPER_ME 1, 1, 0, 1, 1
#define HOPPER_DOUBLE 1, 1, 0, 1, 0
#define HOPPER_2 2, 2, 0, 2, 0
#define HOPPER_3 3, 3, 0, 3, 0
#define HOPPER_4 4, 4, 0, 4, 0
#define HOPPER_7 8, 7, 0, 7, 1
#define BLACKWELL_ENGINES(shape) BLACKWELL_##shape
#define BLACKWELL_1 2, 1, 0, 1, 0
#define BLACKWELL_ME 2, 1, 0, 1, 1
#define BLACKWELL_DOUBLE 2, 1, 0, 1, 0
#define BLACKWELL_2 4, 2, 0, 2, 0
#define BLACKWELL_3 6, 3, 0, 3, 0
#define BLACKWELL_4 8, 4, 0, 4, 0
#define BLACKWELL_7 16, 7, 0, 7, 1

#define A100_40 \
    EIGHT_SLOTS("1g.5gb", 4864, 14, "1g.10gb", 9856, 14, "2g.10gb", 9856, 28, "3g.20gb", "4g.20gb", 19968, 42, 56, "7g.40gb", \
                40192, 98, AMPERE_ENGINES)
#define A100_80 \
    EIGHT_SLOTS("1g.10gb", 9728, 14, "1g.20gb", 19968, 14, "2g.20gb", 19968, 28, "3g.40gb", "4g.40gb", 40192, 42, 56, \
                "7g.80gb", 80896, 98, AMPERE_ENGINES)
#define HOPPER_96 \
    EIGHT_SLOTS("1g.12gb", 11264, 16, "1g.24gb", 23552, 26, "2g.24gb", 23552, 32, "3g.48gb", "4g.48gb", 47616, 60, 64, \
                "7g.96gb", 95232, 132, HOPPER_ENGINES)

#define BOARD(key_, name_, arch_, major, minor, device, subsystem, cores_, bytes) \
    .key = key_, .name = name_, .brand = 14, .arch = arch_, .cc_major = major, .cc_minor = minor, .pci_device = 0x##device##10DE, \
    .pci_subsystem = 0x##subsystem##10DE, .pci_class = CONTROLLER_3D, .cores = cores_, .memory = bytes, .ecc = 1
#define POWER(minimum, maximum, draw, degrees) \
    .power_min = (minimum) * 1000, .power_max = (maximum) * 1000, .power_draw = draw, .temperature = degrees
#define AMPERE_BOARD .reserved = 400 * MIB, .bar1 = 131072 * MIB, .pcie_generation = 4, .gsp = 1, .clock_sm = 210, .rows = 640
#define HOPPER_BOARD .reserved = 480 * MIB, .bar1 = 131072 * MIB, .pcie_generation = 5, .gsp = 1, .clock_sm = 345, .rows = 2560
#define BLACKWELL_BOARD .reserved = 700 * MIB, .bar1 = 262144 * MIB, .pcie_generation = 5, .gsp = 1, .clock_sm = 120, .rows = 4096

const struct product products[] = {
    {
        BOARD("A30", "NVIDIA A30", AMPERE, 8, 0, 20B7, 1532, 3584, 24576 * MIB), AMPERE_BOARD, POWER(100, 165, 30000, 32),
        .vbios = "92.00.66.00.08", .nvlinks = 4, .clock_memory = 1215,
        .slots = 4, .profiles = {
            P(0, 14, "1g.6gb", 1, 5952, 4, 14, 1, 1, 0, 0, 0, 1, AT_0123, 0),
            P(1, 5, "2g.12gb", 2, 11968, 2, 28, 2, 2, 0, 0, 0, 2, AT_02, 0),
            P(3, 0, "4g.24gb", 4, 24000, 1, 56, 4, 4, 0, 1, 1, 4, AT_0, 0),
            P(7, 21, "1g.6gb+me", 1, 5952, 1, 14, 1, 1, 0, 1, 1, 1, AT_0123, 0),
            P(8, 6, "2g.12gb+me", 2, 11968, 1, 28, 2, 2, 0, 1, 1, 2, AT_02, 0),
        },
    },
    {
        BOARD("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", AMPERE, 8, 0, 20B0, 134F, 6912, 40960 * MIB), AMPERE_BOARD,
        POWER(100, 400, 52000, 31), .vbios = "92.00.19.00.01", .nvlinks = 12, .clock_memory = 1215, A100_40,
    },
    {
        BOARD("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", AMPERE, 8, 0, 20F1, 145F, 6912, 40960 * MIB), AMPERE_BOARD,
        POWER(150, 250, 34000, 30), .vbios = "92.00.25.00.08", .nvlinks = 12, .clock_memory = 1215, A100_40,
    },
    {
        BOARD("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", AMPERE, 8, 0, 20B2, 1463, 6912, 81920 * MIB), AMPERE_BOARD,
        POWER(100, 400, 60000, 31), .vbios = "92.00.9E.00.0A", .nvlinks = 12, .clock_memory = 1593, A100_80,
    },
    {
        BOARD("A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", AMPERE, 8, 0, 20B5, 1533, 6912, 81920 * MIB), AMPERE_BOARD,
        POWER(150, 300, 44000, 33), .vbios = "92.00.A0.00.05", .nvlinks = 12, .clock_memory = 1512, A100_80,
    },
    {
        BOARD("H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", HOPPER, 9, 0, 2330, 16C1, 16896, 85520809984), HOPPER_BOARD,
        POWER(200, 700, 71539, 33), .vbios = "96.00.CF.00.01", .part = "692-2G520-0200-502",
        .inforom = "G520.0200.00.05", .nvlinks = 18, .clock_memory = 2619,
        EIGHT_SLOTS("1g.10gb", 9984, 16, "1g.20gb", 20096, 26, "2g.20gb", 20096, 32, "3g.40gb", "4g.40gb", 40448, 60, 64,
                    "7g.80gb", 81152, 132, HOPPER_ENGINES),
    },
    {
        BOARD("H100-PCIE-80GB", "NVIDIA H100 PCIe", HOPPER, 9, 0, 2331, 1626, 14592, 81559 * MIB), HOPPER_BOARD,
        POWER(200, 350, 49000, 34), .vbios = "96.00.30.00.01", .nvlinks = 18, .clock_memory = 1593,
        EIGHT_SLOTS("1g.10gb", 9984, 14, "1g.20gb", 20096, 14, "2g.20gb", 20096, 30, "3g.40gb", "4g.40gb", 40448, 46, 62,
                    "7g.80gb", 81152, 114, HOPPER_ENGINES),
    },
    {
        BOARD("H100-NVL-94GB", "NVIDIA H100 NVL", HOPPER, 9, 0, 2321, 1839, 16896, 95830 * MIB), HOPPER_BOARD,
        POWER(200, 400, 61000, 35), .vbios = "96.00.88.00.01", .nvlinks = 18, .clock_memory = 2619,
        EIGHT_SLOTS("1g.12gb", 11008, 16, "1g.24gb", 22144, 26, "2g.24gb", 22144, 32, "3g.47gb", "4g.47gb", 47360, 60, 64,
                    "7g.94gb", 94848, 132, HOPPER_ENGINES),
    },
    {
        BOARD("H100-SXM5-96GB", "NVIDIA H100 SXM5 96GB", HOPPER, 9, 0, 233D, 17C6, 16896, 97871 * MIB), HOPPER_BOARD,
        POWER(200, 700, 72000, 33), .vbios = "96.00.A1.00.01", .nvlinks = 18, .clock_memory = 2619, HOPPER_96,
    },
    {
        BOARD("H200-SXM5-141GB", "NVIDIA H200", HOPPER, 9, 0, 2335, 18BF, 16896, 150754820096),
        .reserved = 644939776, .bar1 = 262144 * MIB, .pcie_generation = 5, .gsp = 1, .clock_sm = 360, .rows = 3072,
        POWER(200, 700, 94768, 39), .vbios = "96.00.A5.00.1A", .part = "692-2G520-0282-000", .inforom = "G520.0282.02.02",
        .nvlinks = 18, .clock_memory = 3201,
        EIGHT_SLOTS("1g.18gb", 16384, 16, "1g.35gb", 33280, 26, "2g.35gb", 33280, 32, "3g.71gb", "4g.71gb", 71424, 60, 64,
                    "7g.141gb", 143360, 132, HOPPER_ENGINES),
    },
    {
        BOARD("GH200-96GB", "NVIDIA GH200 480GB", HOPPER, 9, 0, 2342, 16EB, 16896, 97871 * MIB), HOPPER_BOARD,
        POWER(100, 900, 98000, 33), .vbios = "96.00.84.00.0F", .nvlinks = 18, .clock_memory = 2619, .addressing = 2, HOPPER_96,
    },
    {
        BOARD("GH200-144GB", "NVIDIA GH200 144G HBM3e", HOPPER, 9, 0, 2348, 18D2, 16896, 146831 * MIB), HOPPER_BOARD,
        POWER(100, 900, 98000, 33), .vbios = "96.00.A6.00.0A", .nvlinks = 18, .clock_memory = 3201, .addressing = 2,
        EIGHT_SLOTS("1g.18gb", 17920, 16, "1g.36gb", 36096, 26, "2g.36gb", 36096, 32, "3g.72gb", "4g.72gb", 72960, 60, 64,
                    "7g.144gb", 146176, 132, HOPPER_ENGINES),
    },
    {
        BOARD("B200-180GB", "NVIDIA B200", BLACKWELL, 10, 0, 2901, 1999, 18944, 183359 * MIB), BLACKWELL_BOARD,
        POWER(200, 1000, 140000, 30), .vbios = "97.00.82.00.10", .nvlinks = 18, .clock_memory = 3996,
        EIGHT_SLOTS("1g.23gb", 22528, 18, "1g.45gb", 45312, 30, "2g.45gb", 45312, 36, "3g.90gb", "4g.90gb", 90880, 70, 72,
                    "7g.180gb", 181760, 148, BLACKWELL_ENGINES),
    },
    {
        BOARD("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", BLACKWELL, 12, 0, 2BB5, 204E, 24064, 97887 * MIB),
        BLACKWELL_BOARD, POWER(300, 600, 32000, 28), .vbios = "98.02.55.00.00", .clock_memory = 405,
        .slots = 4, .profiles = {
            P(0, 14, "1g.24gb", 1, 24192, 4, 46, 1, 1, 1, 1, 0, 1, AT_0123, 0),
            P(1, 5, "2g.48gb", 2, 48512, 2, 94, 2, 2, 2, 2, 0, 2, AT_02, 0),
            P(3, 0, "4g.96gb", 4, 97280, 1, 188, 4, 4, 4, 4, 1, 4, AT_0, 0),
            P(7, 21, "1g.24gb+me", 1, 24192, 1, 46, 1, 1, 1, 1, 1, 1, AT_0123, 0),
            P(10, 47, "1g.24gb+gfx", 1, 24192, 4, 46, 1, 1, 1, 1, 0, 1, AT_0123, 1),
            P(11, 35, "2g.48gb+gfx", 2, 48512, 2, 94, 2, 2, 2, 2, 0, 2, AT_02, 1),
            P(12, 32, "4g.96gb+gfx", 4, 97280, 1, 188, 4, 4, 4, 4, 1, 4, AT_0, 1),
            P(13, 67, "1g.24gb-me", 1, 24192, 4, 46, 1, 0, 0, 0, 0, 1, AT_0123, 0),
            P(14, 66, "2g.48gb-me", 2, 48512, 2, 94, 2, 0, 0, 0, 0, 2, AT_02, 0),
            P(15, 65, "1g.24gb+me.all", 1, 24192, 1, 46, 1, 4, 4, 4, 1, 1, AT_0123, 0),
            P(16, 64, "2g.48gb+me.all", 2, 48512, 1, 94, 2, 4, 4, 4, 1, 2, AT_02, 0),
        },
    },
    {
        BOARD("T4", "Tesla T4", TURING, 7, 5, 1EB8, 12A2, 2560, 15360 * MIB), .reserved = 300 * MIB, .bar1 = 256 * MIB,
        .pcie_generation = 3, .gsp = 1, .clock_sm = 300, .clock_memory = 405, POWER(60, 70, 9000, 34), .vbios = "90.04.38.00.03",
    },
    {
        BOARD("L4", "NVIDIA L4", ADA, 8, 9, 27B8, 16CA, 7424, 23034 * MIB), .reserved = 450 * MIB, .bar1 = 32768 * MIB,
        .pcie_generation = 4, .gsp = 1, .clock_sm = 210, .clock_memory = 405, .rows = 96, POWER(40, 72, 11000, 36),
        .vbios = "95.04.29.00.06",
    },
    {
        BOARD("L40S", "NVIDIA L40S", ADA, 8, 9, 26B9, 1851, 18176, 46068 * MIB), .reserved = 600 * MIB, .bar1 = 65536 * MIB,
        .pcie_generation = 4, .gsp = 1, .clock_sm = 210, .clock_memory = 405, .rows = 192, POWER(100, 350, 34000, 31),
        .vbios = "95.02.66.00.02",
    },
    {
        BOARD("V100-SXM2-16GB", "Tesla V100-SXM2-16GB", VOLTA, 7, 0, 1DB1, 1212, 5120, 16384 * MIB), .reserved = 250 * MIB,
        .bar1 = 16384 * MIB, .pcie_generation = 3, .nvlinks = 6, .clock_sm = 135, .clock_memory = 877,
        POWER(150, 300, 42000, 35), .vbios = "88.00.4F.00.09",
    },
};

const uint product_count = sizeof products / sizeof *products;

const struct product *find_product(const char *key)
{
    for (uint i = 0; i < product_count; i++)
        if (!strcasecmp(products[i].key, key))
            return &products[i];
    return NULL;
}
