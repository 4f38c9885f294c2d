/* The host part of a library for CUDA: picks machine code for the GPU at hand, and launches it on the caller's
 * current stream. It waits for nothing, copies nothing and allocates nothing.
 *
 * The driver is loaded when it is first needed, so that the library loads without one and reports that.
 * What describes this library is generated: sizes ahead of this text, and behind it images, kernels, categories.
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

static struct {
  int (*init)(unsigned);
  int (*version)(int*);
  int (*device)(int*, int);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*current)(void**);
  int (*push)(void*);
  int (*pop)(void**);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*set_attribute)(void*, int, int);
  int (*load_function)(void*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*launch_with)(const Config*, void*, void**, void**);
  int (*error_name)(int, const char**);
#if MAX_MAPS > 0
  int (*encode)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int,
                int, int, int);
#endif
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_driver_ready;

static int fail(const char* kind, const char* format, ...) {
  char message[512];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static int check(int status, const char* what) {
  const char* name = "unknown";
  if (status == 0) return 0;
  if (driver.error_name != NULL) driver.error_name(status, &name);
  return fail("RuntimeError", "%s: %s (%d)", what, name != NULL ? name : "unknown", status);
}

/* Whole or not at all; called with the lock held. */
static int open_driver(void) {
  static const struct {
    const char* name;
    void** place;
  } entries[] = {
      {"cuInit", (void**)&driver.init},
      {"cuDriverGetVersion", (void**)&driver.version},
      {"cuDeviceGet", (void**)&driver.device},
      {"cuDeviceGetAttribute", (void**)&driver.attribute},
      {"cuDevicePrimaryCtxRetain", (void**)&driver.retain},
      {"cuCtxGetCurrent", (void**)&driver.current},
      {"cuCtxPushCurrent_v2", (void**)&driver.push},
      {"cuCtxPopCurrent_v2", (void**)&driver.pop},
      {"cuModuleLoadData", (void**)&driver.load},
      {"cuModuleGetFunction", (void**)&driver.function},
      {"cuFuncSetAttribute", (void**)&driver.set_attribute},
      {"cuFuncLoad", (void**)&driver.load_function},
      {"cuLaunchKernel", (void**)&driver.launch},
      {"cuLaunchKernelEx", (void**)&driver.launch_with},
      {"cuGetErrorName", (void**)&driver.error_name},
#if MAX_MAPS > 0
      {"cuTensorMapEncodeTiled", (void**)&driver.encode},
#endif
  };
  int version = 0;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fail("RuntimeError", "no NVIDIA driver: libcuda.so.1 is not found; install one");
  for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); ++i) {
    *entries[i].place = dlsym(library, entries[i].name);
    if (*entries[i].place == NULL) return fail("RuntimeError", "the NVIDIA driver lacks %s", entries[i].name);
  }
  if (check(driver.init(0), "no GPU can be used: cuInit") != 0) return -1;
  if (check(driver.version(&version), "cuDriverGetVersion") != 0) return -1;
  if (version < MIN_DRIVER) {
    return fail("RuntimeError", "the NVIDIA driver is for CUDA %d.%d; this library needs one for %d.%d or newer",
                version / 1000, version % 1000 / 10, MIN_DRIVER / 1000, MIN_DRIVER % 1000 / 10);
  }
  atomic_store_explicit(&is_driver_ready, 1, memory_order_release);
  return 0;
}

static const Image* choose_image(int capability);

typedef struct {
  atomic_int is_ready;
  void* context;
  const Kernel* kernels; /* of the image that was loaded */
  void* functions[NUM_KERNELS];
  int can_overlap;
} Device;
static Device devices[MAX_DEVICES];

/* Load the machine code on one device; called with the lock held. */
static int prepare(Device* device, int index) {
  int handle = 0, major = 0, minor = 0, status;
  void *module = NULL, *popped = NULL;
  const Image* image;
  if (!atomic_load_explicit(&is_driver_ready, memory_order_acquire) && open_driver() != 0) return -1;
  if (check(driver.device(&handle, index), "cuDeviceGet") != 0) return -1;
  if (check(driver.attribute(&major, CAPABILITY_MAJOR, handle), "cuDeviceGetAttribute") != 0) return -1;
  if (check(driver.attribute(&minor, CAPABILITY_MINOR, handle), "cuDeviceGetAttribute") != 0) return -1;
  image = choose_image(10 * major + minor);
  if (image == NULL) {
    return fail("RuntimeError", "cuda:%d is an sm_%d%d; this library holds code for " IMAGES_TEXT
                "; build it for that architecture", index, major, minor);
  }
  device->kernels = kernels[image - images];
  device->can_overlap = major >= OVERLAP_CAPABILITY;
  if (check(driver.retain(&device->context, handle), "cuDevicePrimaryCtxRetain") != 0) return -1;
  if (check(driver.push(device->context), "cuCtxPushCurrent") != 0) return -1;
  status = driver.load(&module, image->data);
  if (status == CAPTURE_UNSUPPORTED) {
    status = fail("RuntimeError", "cuda:%d: machine code cannot be loaded while a graph is captured; call "
                  "prepare(%d) before", index, index);
  } else {
    status = check(status, "cuModuleLoadData");
  }
  for (int i = 0; i < NUM_KERNELS && status == 0; ++i) {
    status = check(driver.function(&device->functions[i], module, kernel_names[i]), "cuModuleGetFunction");
    /* A module's functions are loaded when they are first launched, which waits for the GPU: not in a call. */
    if (status == 0) status = check(driver.load_function(device->functions[i]), "cuFuncLoad");
    const unsigned shared_bytes = device->kernels[i].shared_bytes;
    if (status != 0 || shared_bytes == 0) continue;
    if (driver.set_attribute(device->functions[i], MAX_SHARED_BYTES, (int)shared_bytes) != 0) {
      status = fail("RuntimeError", "cuda:%d, an sm_%d%d, gives a block less than the %u bytes of shared memory that %s "
                    "needs; build the library for that architecture", index, major, minor, shared_bytes,
                    kernel_names[i]);
    }
  }
  driver.pop(&popped);
  if (status == 0) atomic_store_explicit(&device->is_ready, 1, memory_order_release);
  return status;
}

static Device* device_of(int index) {
  int status = 0;
  if (index < 0 || index >= MAX_DEVICES) {
    fail("RuntimeError", "cuda:%d: no such device", index);
    return NULL;
  }
  if (!atomic_load_explicit(&devices[index].is_ready, memory_order_acquire)) {
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&devices[index].is_ready, memory_order_acquire)) {
      status = prepare(&devices[index], index);
    }
    pthread_mutex_unlock(&lock);
  }
  return status == 0 ? &devices[index] : NULL;
}

static const Image* choose_image(int capability) {
  const Image* best = NULL;
  for (int i = 0; i < NUM_IMAGES; ++i) {
    const Image* image = &images[i];
    int is_same = image->number / 10 == capability / 10 && image->number <= capability;
    int runs = image->is_exact ? image->number == capability
               : image->is_ptx ? image->number <= capability
                               : is_same;
    if (!runs) continue;
    /* Machine code before PTX, that of the very GPU before others, newer before older. */
    if (best == NULL || (best->is_ptx && !image->is_ptx) ||
        (best->is_ptx == image->is_ptx && (image->is_exact || image->number > best->number))) {
      best = image;
    }
  }
  return best;
}

static const DLTensor* tensor_of(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return (const DLTensor*)value->v_ptr;
  if (value->type_index == kTVMFFITensor) return (const DLTensor*)((char*)value->v_ptr + sizeof(TVMFFIObject));
  return NULL;
}

/* Checks what the caller's own checks may have missed; a wrong pointer would be a wrong answer. */
static int read_tensor(const TVMFFIAny* value, const Tensor* expected, const DLTensor** found) {
  const DLTensor* tensor = tensor_of(value);
  int64_t step = 1;
  *found = tensor;
  if (tensor == NULL) return fail("TypeError", "%s: no tensor", expected->name);
  if (tensor->device.device_type != CUDA) {
    return fail("ValueError", "%s: not on a GPU; this library runs on cuda", expected->name);
  }
  if (tensor->dtype.code != expected->dtype_code || tensor->dtype.bits != expected->dtype_bits ||
      tensor->dtype.lanes != 1) {
    return fail("TypeError", "%s: of another dtype than this library is for", expected->name);
  }
  if (tensor->ndim != expected->rank) {
    return fail("ValueError", "%s: %d dimensions; allowed: %d", expected->name, tensor->ndim, expected->rank);
  }
  for (int axis = tensor->ndim - 1; axis >= 0; --axis) {
    if (tensor->strides != NULL && tensor->shape[axis] != 1 && tensor->strides[axis] != step) {
      return fail("ValueError", "%s: not contiguous", expected->name);
    }
    step *= tensor->shape[axis];
  }
  if (((uintptr_t)tensor->data + tensor->byte_offset) % expected->alignment != 0) {
    return fail("ValueError", "%s: its address is no multiple of %d bytes; pass a copy, as of .clone()",
                expected->name, expected->alignment);
  }
  return 0;
}

static char* address_of(const DLTensor* tensor) { return (char*)tensor->data + tensor->byte_offset; }

static int64_t bytes_of(const DLTensor* tensor) {
  int64_t bytes = tensor->dtype.bits / 8;
  for (int axis = 0; axis < tensor->ndim; ++axis) bytes *= tensor->shape[axis];
  return bytes;
}

/* Extents of all indices, from shapes that fit each other. */
static int read_extents(const DLTensor* const* found, int64_t* extents) {
  for (int i = 0; i < NUM_INDICES; ++i) extents[i] = -1;
  for (int i = 0; i < NUM_TENSORS; ++i) {
    for (int at = 0; at < tensors[i].rank; ++at) {
      Axis axis = axes[i][at];
      int64_t extent = found[i]->shape[at], *index = &extents[axis.index];
      int64_t outer = axis.outer < 0 ? 1 : fixed[axis.outer];
      if (axis.outer >= 0) extents[axis.outer] = outer;
      if (*index == -1) *index = fixed[axis.index] ? fixed[axis.index] : extent / outer;
      if (*index * outer != extent) {
        return fail("ValueError", "%s: extent %lld of axis %d; allowed: %lld", tensors[i].name, (long long)extent,
                    at, (long long)(*index * outer));
      }
    }
  }
  for (int i = 0; i < NUM_WINDOWS; ++i) {
    const Window* window = &windows[i];
    int64_t span = window->kernel < 0 ? window->dilation : window->dilation * (extents[window->kernel] - 1) + 1;
    int64_t room = extents[window->axis] + 2 * window->padding - span;
#ifdef UNEVEN_PADDING
    room += more_after[i]; /* of padding than before the axis */
#endif
    int64_t places = room < 0 ? 0 : room / window->stride + 1;
    if (extents[window->output] != places) {
      return fail("ValueError", "%s: %lld places of a window; allowed: %lld", tensors[NUM_TENSORS - 1].name,
                  (long long)extents[window->output], (long long)places);
    }
  }
  return 0;
}

/* The tensors of a call, on one GPU, the outputs last. */
static int read_tensors(const TVMFFIAny* args, const DLTensor** found) {
  for (int i = 0; i < NUM_TENSORS; ++i) {
    if (read_tensor(&args[i], &tensors[i], &found[i]) != 0) return -1;
    if (found[i]->device.device_id != found[0]->device.device_id) {
      return fail("ValueError", "%s: on cuda:%d, but %s is on cuda:%d; move one of them", tensors[i].name,
                  found[i]->device.device_id, tensors[0].name, found[0]->device.device_id);
    }
  }
  for (int k = 0; k < NUM_OUTPUTS; ++k) {
    const int at = NUM_TENSORS - NUM_OUTPUTS + k;
    const char *output = address_of(found[at]), *end = output + bytes_of(found[at]);
    if (into[k] >= 0 && output != address_of(found[into[k]])) {
      return fail("ValueError", "%s: another tensor than %s, whose rows are written", tensors[at].name,
                  tensors[into[k]].name);
    }
    for (int i = 0; i < at; ++i) {
      const char* other = address_of(found[i]);
      if (i != into[k] && other < end && output < other + bytes_of(found[i])) {
        return fail("ValueError", "%s: overlaps %s; pass memory of its own", tensors[at].name, tensors[i].name);
      }
    }
  }
  return 0;
}

/* select(variables...) -> category */
TVM_FFI_DLL_EXPORT int __tvm_ffi_select(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t values[NUM_VARIABLES + 1];
  if (num_args != NUM_VARIABLES) return fail("TypeError", "select: %d arguments", num_args);
  for (int i = 0; i < NUM_VARIABLES; ++i) values[i] = args[i].v_int64;
  result->type_index = kTVMFFIInt;
  result->v_int64 = select_category(values);
  return 0;
}

/* prepare(device): loads the machine code now, so that no call does. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_prepare(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  if (num_args != 1) return fail("TypeError", "prepare: %d arguments", num_args);
  return device_of((int)args[0].v_int64) == NULL ? -1 : 0;
}

/* What a call launches; nothing, where it has nothing to compute. */
static int read_call(const TVMFFIAny* args, const TVMFFIAny* variables, const DLTensor** found, int64_t* extents,
                     Launch* launches, Plan* result) {
  int64_t values[NUM_VARIABLES + 1];
  uintptr_t addresses[NUM_TENSORS];
  if (read_tensors(args, found) != 0 || read_extents(found, extents) != 0) return -1;
  *result = (Plan){0};
  for (int i = 0; i < NUM_INDICES; ++i) {
    if (extents[i] == 0) return 0;
  }
  for (int i = 0; i < NUM_VARIABLES; ++i) values[i] = variables[i].v_int64;
  for (int i = 0; i < NUM_TENSORS; ++i) addresses[i] = (uintptr_t)address_of(found[i]);
  *result = plan(select_category(values), extents, addresses, launches);
  return 0;
}

/* workspace(inputs..., outputs..., variables...) -> bytes that `run` needs at its workspace address */
TVM_FFI_DLL_EXPORT int __tvm_ffi_workspace(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const DLTensor* found[NUM_TENSORS];
  int64_t extents[NUM_INDICES + 1];
  Launch launches[MAX_LAUNCHES];
  Plan planned;
  result->type_index = kTVMFFIInt;
  if (num_args != NUM_TENSORS + NUM_VARIABLES) return fail("TypeError", "workspace: %d arguments", num_args);
  if (read_call(args, args + NUM_TENSORS, found, extents, launches, &planned) != 0) return -1;
  result->v_int64 = planned.workspace * (int64_t)sizeof(float);
  return 0;
}

/* What a launch copies in bulk: maps of these tensors, as the kernel takes them by value. */
static int make_maps(const Launch* launch, int count, void* const* addresses, uint64_t (*made)[16],
                     void** arguments) {
  int status = 0;
#if MAX_MAPS > 0
  static const uint32_t every[MAX_AXES] = {1, 1, 1};
  for (int k = 0; k < count && status == 0; ++k) {
    const Map* map = &launch->maps[k];
    status = check(driver.encode(made[k], map->type, (uint32_t)map->axes, addresses[map->tensor], map->extents,
                                 map->strides, map->box, every, 0, map->swizzle, L2_PROMOTION, 0),
                   "cuTensorMapEncodeTiled");
    arguments[k] = made[k];
  }
#endif
  return status;
}

/* A launch that may begin while the one before it in the stream, of the same call, ends. */
static int launch_overlapping(void* function, const Launch* launch, const Kernel* kernel, void* stream,
                              void** arguments) {
  Attribute attribute = {MAY_OVERLAP, {0}, {.is_allowed = 1}};
  Config config = {(unsigned)launch->x, (unsigned)launch->y, 1, kernel->threads, 1, 1, kernel->shared_bytes, stream,
                   &attribute, 1};
  return check(driver.launch_with(&config, function, arguments, NULL), "cuLaunchKernelEx");
}

/* run(inputs..., outputs..., workspace address, variables...) */
TVM_FFI_DLL_EXPORT int __tvm_ffi_run(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const DLTensor* found[NUM_TENSORS];
  void* addresses[NUM_TENSORS + MAX_REGIONS];
  int64_t extents[NUM_INDICES + 1];
  Launch launches[MAX_LAUNCHES];
  Plan planned;
  void *stream, *current = NULL, *popped = NULL;
  float* workspace;
  Device* device;
  int index, status = 0, switches;
  result->type_index = kTVMFFINone;
  if (num_args != NUM_TENSORS + 1 + NUM_VARIABLES) return fail("TypeError", "run: %d arguments", num_args);
  if (read_call(args, args + NUM_TENSORS + 1, found, extents, launches, &planned) != 0) return -1;
  if (planned.launches == 0) return 0;
  workspace = (float*)(uintptr_t)args[NUM_TENSORS].v_int64;
  if (planned.workspace > 0 && workspace == NULL) return fail("ValueError", "run: no workspace");
  for (int i = 0; i < NUM_TENSORS; ++i) addresses[i] = address_of(found[i]);
  for (int i = 0; i < MAX_REGIONS; ++i) addresses[NUM_TENSORS + i] = workspace + planned.first[i];
  index = found[0]->device.device_id;
  device = device_of(index);
  if (device == NULL) return -1;
  stream = TVMFFIEnvGetStream(CUDA, index);
  if (check(driver.current(&current), "cuCtxGetCurrent") != 0) return -1;
  switches = current != device->context;
  if (switches && check(driver.push(device->context), "cuCtxPushCurrent") != 0) return -1;
  for (int i = 0; i < planned.launches && status == 0; ++i) {
    const Launch* launch = &launches[i];
    const Kernel* kernel = &device->kernels[launch->kernel];
    _Alignas(128) uint64_t maps[MAX_MAPS + 1][16];
    void* arguments[MAX_ARGUMENTS];
    int at = 0;
    for (int k = 0; k < launch->num_tensors; ++k) arguments[at++] = &addresses[launch->tensors[k]];
    for (int k = 0; k < NUM_DYNAMIC; ++k) arguments[at++] = &extents[dynamic[k]];
    if (make_maps(launch, kernel->maps, addresses, maps, arguments + at) != 0) {
      status = -1;
      break;
    }
    if (launch->x > INT32_MAX) {
      status = fail("ValueError", "run: %lld blocks; allowed: %d", (long long)launch->x, INT32_MAX);
      break;
    }
    if (i > 0 && overlaps[launch->kernel] && device->can_overlap) {
      status = launch_overlapping(device->functions[launch->kernel], launch, kernel, stream, arguments);
      continue;
    }
    status = check(driver.launch(device->functions[launch->kernel], (unsigned)launch->x, (unsigned)launch->y, 1,
                                 kernel->threads, 1, 1, kernel->shared_bytes, stream, arguments, NULL),
                   "cuLaunchKernel");
  }
  if (switches) driver.pop(&popped);
  return status;
}
