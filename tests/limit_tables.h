/* Limits of devices that need not be here: the planner is a pure function of them. */
#ifndef VKMHA_TESTS_LIMIT_TABLES_H
#define VKMHA_TESTS_LIMIT_TABLES_H

#include <vkmha/vkmha.h>

typedef struct vkmha_named_limits {
    const char *name;
    vkmha_limits limits;
} vkmha_named_limits;

#define VKMHA_MIB(count) ((uint64_t)(count) << 20)

static const vkmha_named_limits limit_tables[] = {
    {"Vulkan 1.1 minimum",
     {VKMHA_DEVICE_INTEGRATED, 0, 1, 128, {128, 128, 64}, {65535, 65535, 65535}, 16384, 128, 8,
      VKMHA_MIB(128), 16384, VKMHA_MIB(1024), 256, 256, 256, 0, UINT64_C(1) << 31, 1.0}},
    {"Raspberry Pi (V3D)",
     {VKMHA_DEVICE_INTEGRATED, 0, 16, 256, {256, 256, 256}, {65535, 65535, 65535}, 16384, 128, 8,
      VKMHA_MIB(1024), 65536, VKMHA_MIB(1024), 256, 256, 256, 0, UINT64_C(1) << 31, 1.0}},
    {"Mali",
     {VKMHA_DEVICE_INTEGRATED, VKMHA_CAPABILITY_SUBGROUP, 16, 384, {384, 384, 384},
      {65535, 65535, 65535}, 32768, 256, 35, VKMHA_MIB(256), 65536, VKMHA_MIB(2048), 64, 16, 64, 0,
      UINT64_C(1) << 31, 1.0}},
    {"Adreno",
     {VKMHA_DEVICE_INTEGRATED, VKMHA_CAPABILITY_SUBGROUP, 64, 1024, {1024, 1024, 64},
      {65535, 65535, 65535}, 32768, 128, 24, VKMHA_MIB(128), 65536, VKMHA_MIB(1024), 64, 64, 64, 0,
      UINT64_C(1) << 31, 1.0}},
    {"Apple (MoltenVK)",
     {VKMHA_DEVICE_INTEGRATED, VKMHA_CAPABILITY_SUBGROUP, 32, 1024, {1024, 1024, 1024},
      {1u << 30, 1u << 30, 1u << 30}, 32768, 4096, 31, VKMHA_MIB(4095), 65536, VKMHA_MIB(4096), 16,
      16, 16, 0, UINT64_C(1) << 31, 1.0}},
    {"desktop",
     {VKMHA_DEVICE_DISCRETE, VKMHA_CAPABILITY_SUBGROUP, 32, 1024, {1024, 1024, 64},
      {2147483647u, 65535, 65535}, 49152, 256, 1048576, VKMHA_MIB(4095), 65536, VKMHA_MIB(4095), 16,
      64, 64, 0, UINT64_C(1) << 35, 1.0}},
    {"lavapipe 22.3.6",
     {VKMHA_DEVICE_SOFTWARE, VKMHA_CAPABILITY_SUBGROUP, 8, 1024, {1024, 1024, 1024},
      {65535, 65535, 65535}, 32768, 128, 32, VKMHA_MIB(128), 65536, VKMHA_MIB(2048), 16, 16, 64,
      65535, UINT64_C(1) << 35, 1.0}},
};

enum { NUM_LIMIT_TABLES = sizeof(limit_tables) / sizeof(limit_tables[0]) };

#endif
