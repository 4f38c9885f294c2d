/* Tensor maps of a driver that is not there: what `cuTensorMapEncodeTiled` is told, checked as the CUDA driver API
 * has it, and written down in the 128 bytes of a map for `emulated_bulk.h`. C and C++. */
#pragma once
#include <stdint.h>
#include <string.h>

#define MAP_MARK UINT64_C(0x70616d5f726f736e)
#define MAP_AXES 3

typedef struct {
  uint64_t mark, address, extents[MAP_AXES], strides[MAP_AXES]; /* strides in bytes, that of the first axis too */
  uint32_t box[MAP_AXES], axes, itemsize, swizzle;              /* a swizzle of 16 << swizzle bytes */
} EmulatedMap;

static inline int encode_emulated_map(void* to, int type, uint32_t axes, void* address, const uint64_t* extents,
                                      const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                      int interleave, int swizzle, int promotion, int fill) {
  EmulatedMap map;
  memset(&map, 0, sizeof(map));
  if ((uintptr_t)to % 64 != 0 || (uintptr_t)address % 16 != 0) return 1;
  if (type != 6 && type != 9) return 1; /* half precision */
  if (axes < 1 || axes > MAP_AXES || interleave != 0 || swizzle < 1 || swizzle > 3) return 1;
  if (promotion < 0 || promotion > 3 || fill != 0) return 1;
  map.mark = MAP_MARK, map.address = (uintptr_t)address, map.axes = axes, map.itemsize = 2, map.swizzle = swizzle;
  map.strides[0] = map.itemsize;
  for (uint32_t i = 0; i < axes; ++i) {
    map.extents[i] = extents[i], map.box[i] = box[i];
    if (extents[i] == 0 || extents[i] > UINT64_C(1) << 32 || box[i] == 0 || box[i] > 256 || steps[i] != 1) return 1;
    if (i == 0) continue;
    map.strides[i] = strides[i - 1];
    if (map.strides[i] % 16 != 0 || map.strides[i] >= UINT64_C(1) << 40) return 1;
    if (map.strides[i] < extents[i - 1] * map.strides[i - 1]) return 1;
  }
  if (box[0] * map.itemsize % 16 != 0 || box[0] * map.itemsize > 16u << swizzle) return 1;
  memcpy(to, &map, sizeof(map));
  return 0;
}
