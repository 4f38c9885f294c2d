/* The driver: loaded when it is first needed, so that a library loads without one and reports that. */
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
#if HAS_PERSISTENT
  int (*resident_blocks)(int*, void*, int, size_t);
  int (*resident_clusters)(int*, void*, const Config*);
#endif
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
#if HAS_PERSISTENT
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", (void**)&driver.resident_blocks},
      {"cuOccupancyMaxActiveClusters", (void**)&driver.resident_clusters},
#endif
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
