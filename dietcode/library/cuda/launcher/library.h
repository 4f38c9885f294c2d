/* The host part of a library for CUDA: picks machine code for the GPU at hand, and launches it on the caller's
 * current stream. It waits for nothing, copies nothing and allocates nothing.
 *
 * These files are one text, in this order: library.h, driver.c, devices.c, tensors.c, calls.c. What describes a
 * library is generated: sizes ahead of them, and behind them images, kernels, categories.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#define MAX_DEVICES 64
#define MAX_ARGUMENTS (NUM_TENSORS + MAX_REGIONS + NUM_DYNAMIC + MAX_MAPS)
#define MAX_AXES 3 /* of a tensor map */
#define L2_PROMOTION 3 /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B */
#define CUDA 2 /* DLPack's kDLCUDA */
#define CAPABILITY_MAJOR 75
#define CAPABILITY_MINOR 76
#define MAX_SHARED_BYTES 8 /* of a function: what a launch may ask for */
#define CAPTURE_UNSUPPORTED 900
#define MAY_OVERLAP 6 /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
#define CLUSTER 4 /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
#define NUM_SMS 16 /* of a device */
#define OVERLAP_CAPABILITY 9 /* major; older GPUs have no functions that wait for others */

typedef struct {
  int number;        /* 86 for sm_86 */
  int is_exact;      /* runs on that number alone, as sm_90a does */
  int is_ptx;
  const void* data;
} Image;

typedef struct {
  const char* name;
  int dtype_code, dtype_bits, rank, alignment;
} Tensor;

typedef struct {
  int index, outer; /* the axis is of outer·index elements, the outer extent fixed; outer is -1 for none */
} Axis;

typedef struct {
  int axis, output, kernel; /* indices; no kernel, where a window is of `dilation` elements */
  int64_t stride, dilation, padding;
} Window;

typedef struct {
  int tensor; /* as a launch's tensors */
  int type, swizzle, axes;
  uint64_t extents[MAX_AXES], strides[MAX_AXES]; /* strides in bytes, of all axes but the first */
  uint32_t box[MAX_AXES];
} Map;

typedef struct {
  int64_t x, y;
  int kernel; /* index into kernel_names */
  int num_tensors;
  const int* tensors; /* indices into the tensors and, behind them, regions of the workspace */
#if MAX_MAPS > 0
  Map maps[MAX_MAPS];
#endif
} Launch;

typedef struct { /* CUlaunchAttribute */
  unsigned id;
  char unused[4];
  union {
    char all[64];
    int is_allowed;
    unsigned cluster[3]; /* blocks in x, y, z */
  } value;
} Attribute;

typedef struct { /* CUlaunchConfig */
  unsigned x, y, z, threads_x, threads_y, threads_z, shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned num_attributes;
} Config;

typedef struct {
  unsigned threads, shared_bytes; /* that a launch asks for */
  int maps; /* tensor maps that it takes */
  int cluster; /* blocks of a cluster, along x */
  int is_persistent; /* launched with no more blocks than the device runs at a time */
} Kernel;

typedef struct {
  int launches;
  int64_t first[MAX_REGIONS]; /* where regions of the workspace begin, in floats */
  int64_t workspace;          /* floats of all of them */
} Plan;

/* Generated, at the end of the file. */
static const Image images[NUM_IMAGES];
static const char* const kernel_names[NUM_KERNELS];
static const Kernel kernels[NUM_IMAGES][NUM_KERNELS];
static const char overlaps[NUM_KERNELS]; /* may begin while the launch before it ends */
static const Tensor tensors[NUM_TENSORS];
static const int into[NUM_OUTPUTS]; /* the input that an output is written to rows of; -1 for none */
static const Axis axes[NUM_TENSORS][MAX_RANK];
static const Window windows[NUM_WINDOWS + 1];
#ifdef UNEVEN_PADDING
static const int64_t more_after[NUM_WINDOWS];
#endif
static const int64_t fixed[NUM_INDICES]; /* extents; 0 for those that come from a call's tensors */
static const int dynamic[NUM_DYNAMIC + 1];
static int64_t select_category(const int64_t* values);
static Plan plan(int64_t category, const int64_t* extents, const uintptr_t* addresses, Launch* launches);
