/* A driver for GPUs that are not there: what the launcher of a library asks of libcuda.so.1, with kernels that run on the CPU.
 *
 * Kernels are registered beforehand, by name. What was asked is written down for the tests to read.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../search_space/emulated_maps.h"

#define OK 0
#define NOT_FOUND 500
#define MAX_KERNELS 4096
#define MAX_SHARED_BYTES 8
#define CAPTURE_UNSUPPORTED 900

typedef void (*Body)(void**);
typedef int (*Emulate)(Body, unsigned, unsigned, unsigned, unsigned, void**, int, unsigned);
typedef struct {
  const char* name;
  Body body;
  Emulate emulate;
  unsigned max_shared; /* bytes that a launch may ask for */
} Kernel;

int driver_version = 13000, init_status, major_of[2] = {9, 8}, minor_of[2] = {0, 6};
int is_capturing; /* what waits for the GPU, or may, is refused and spoils the graph */
int num_overlapping; /* launches that may have begun while the one before ended */
int num_clustered;   /* launches of clusters */
unsigned last_grid;  /* blocks in x */
static unsigned cluster = 1; /* of the launch at hand */
int num_maps, num_calls, num_loads, num_loaded_functions, num_launches, depth, order, block_shared_bytes = 227 << 10;
const void* last_image;
void* last_stream;
void* last_context;
const char* last_kernel;
static void* current = (void*)0x100; /* the primary context of device 0 */
static void* stack[8];
static Kernel kernels[MAX_KERNELS];
static int num_kernels;

void register_kernel(const char* name, Body body, Emulate emulate) {
  kernels[num_kernels++] = (Kernel){strdup(name), body, emulate, 48 << 10};
}
void reset(void) {
  num_clustered = num_kernels = num_maps = num_calls = num_loads = num_loaded_functions = num_launches = order = is_capturing = 0;
  driver_version = 13000;
  block_shared_bytes = 227 << 10;
  init_status = OK;
  major_of[0] = 9, minor_of[0] = 0;
  major_of[1] = 8, minor_of[1] = 6;
}

#include "emulated_device.h"

int cuInit(unsigned flags) { return init_status; }
int cuDriverGetVersion(int* version) { return *version = driver_version, OK; }
int cuDeviceGet(int* device, int index) { return *device = index, index < 2 ? OK : 101; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute == 16 || attribute == 38) return *value = attribute == 16 ? NUM_SMS : 1 << 20, OK;
  if (attribute != 75 && attribute != 76) return 1;
  *value = attribute == 75 ? major_of[device] : minor_of[device];
  return OK;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return *context = (void*)(uintptr_t)(0x100 + device), OK;
}
int cuCtxGetDevice(int* device) { return *device = (int)((uintptr_t)current - 0x100), OK; }
int cuCtxSetCurrent(void* context) { return current = context, OK; }
int cuCtxGetCurrent(void** context) { return ++num_calls, *context = current, OK; }
int cuCtxPushCurrent_v2(void* context) {
  ++num_calls;
  stack[depth++] = current;
  current = context;
  return OK;
}
int cuCtxPopCurrent_v2(void** context) {
  ++num_calls;
  *context = current;
  current = stack[--depth];
  return OK;
}
int cuModuleLoadData(void** module, const void* image) {
  ++num_calls;
  if (is_capturing) return is_capturing = -1, CAPTURE_UNSUPPORTED;
  ++num_loads;
  last_image = image;
  return *module = module_of(image), OK;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (module != REGISTERED) return function_of(function, module, name);
  for (int i = 0; i < num_kernels; ++i) {
    if (strcmp(kernels[i].name, name) == 0) return *function = &kernels[i], OK;
  }
  return NOT_FOUND;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != MAX_SHARED_BYTES || value > block_shared_bytes) return 1;
  return ((Kernel*)function)->max_shared = (unsigned)value, OK;
}
int cuFuncLoad(void* function) {
  ++num_calls;
  if (is_capturing) return is_capturing = -1, CAPTURE_UNSUPPORTED;
  return ++num_loaded_functions, OK;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  const Kernel* kernel = function;
  if (z != 1 || ty != 1 || tz != 1 || shared > kernel->max_shared || extra != NULL || x == 0) return 1;
  ++num_calls;
  ++num_launches;
  last_stream = stream;
  last_context = current;
  last_kernel = kernel->name;
  last_grid = x;
  if (is_passed_over(stream, x * y, threads)) return OK;
  return kernel->emulate(kernel->body, x, y, threads, shared, arguments, order, cluster) == 0 ? OK : 719;
}
int cuTensorMapEncodeTiled(void* to, int type, uint32_t axes, void* address, const uint64_t* extents,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  ++num_maps;
  return encode_emulated_map(to, type, axes, address, extents, strides, box, steps, interleave, swizzle, promotion,
                             fill);
}
/* CUlaunchConfig, with one of the attributes that are known here: its number, and what it is set to. */
typedef struct {
  unsigned x, y, z, threads_x, threads_y, threads_z, shared;
  void* stream;
  struct {
    unsigned id, unused;
    unsigned value[3];
    char rest[52];
  }* attributes;
  unsigned num_attributes;
} Config;
/* The blocks of a cluster that is asked for; 0 where nothing of the kind may be. */
static unsigned cluster_of(const Config* config) {
  const unsigned* value = config->attributes->value;
  const int device = (int)((uintptr_t)current - 0x100);
  if (config->num_attributes != 1 || config->attributes->id != 4 || major_of[device] < 9) return 0;
  return value[0] >= 1 && value[0] <= 8 && value[1] == 1 && value[2] == 1 && config->x % value[0] == 0 ? value[0] : 0;
}
int cuLaunchKernelEx(const Config* config, void* function, void** arguments, void** extra) {
  const int device = (int)((uintptr_t)current - 0x100), is_clustered = cluster_of(config) != 0;
  if (!is_clustered) {
    if (config->num_attributes != 1 || config->attributes->id != 6 || config->attributes->value[0] != 1) return 1;
    if (major_of[device] < 9 || last_context != current || last_stream != config->stream) return 1;
  }
  num_overlapping += !is_clustered;
  num_clustered += is_clustered;
  cluster = is_clustered ? cluster_of(config) : 1;
  const int status = cuLaunchKernel(function, config->x, config->y, config->z, config->threads_x, config->threads_y,
                                    config->threads_z, config->shared, config->stream, arguments, extra);
  cluster = 1;
  return status;
}
int cuOccupancyMaxActiveClusters(int* count, void* function, const Config* config) {
  const unsigned size = cluster_of(config);
  if (size == 0) return 1;
  return *count = NUM_SMS / (int)size * (THREADS_OF_SM / (int)config->threads_x), OK;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  return *value = attribute == 3 ? 0 : 10 * attribute, OK; /* no stack */
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads, size_t shared) {
  return *blocks = 2048 / threads, OK;
}
int cuGetErrorName(int status, const char** name) {
  *name = status == 100 ? "CUDA_ERROR_NO_DEVICE" : status == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR";
  if (status == 2) *name = "CUDA_ERROR_OUT_OF_MEMORY";
  if (status == CAPTURE_UNSUPPORTED) *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
  return OK;
}
