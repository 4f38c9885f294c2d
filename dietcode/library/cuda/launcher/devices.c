/* Devices: which machine code each of them runs, loaded once. */
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

typedef struct {
  atomic_int is_ready;
  void* context;
  const Kernel* kernels; /* of the image that was loaded */
  void* functions[NUM_KERNELS];
  int most_blocks[NUM_KERNELS]; /* of a persistent grid */
  int can_overlap;
} Device;
static Device devices[MAX_DEVICES];

/* A launch of whole clusters, which are asked for where they are of more than one block. */
static Config config_of(const Kernel* kernel, unsigned x, unsigned y, void* stream, Attribute* attribute) {
  *attribute = (Attribute){CLUSTER, {0}, {.cluster = {(unsigned)kernel->cluster, 1, 1}}};
  return (Config){x, y, 1, kernel->threads, 1, 1, kernel->shared_bytes, stream, attribute, 1};
}

/* How many blocks of a persistent grid a device runs at a time, in whole clusters. */
static int count_blocks(const Kernel* kernel, void* function, int handle, int* blocks) {
#if HAS_PERSISTENT
  int count = 0, sms = 1;
  if (kernel->cluster > 1) {
    Attribute attribute;
    Config config = config_of(kernel, (unsigned)kernel->cluster, 1, NULL, &attribute);
    if (check(driver.resident_clusters(&count, function, &config), "cuOccupancyMaxActiveClusters") != 0) return -1;
  } else {
    if (check(driver.attribute(&sms, NUM_SMS, handle), "cuDeviceGetAttribute") != 0) return -1;
    if (check(driver.resident_blocks(&count, function, (int)kernel->threads, kernel->shared_bytes),
              "cuOccupancyMaxActiveBlocksPerMultiprocessor") != 0) {
      return -1;
    }
  }
  *blocks = count * sms * kernel->cluster;
  if (*blocks <= 0) return fail("RuntimeError", "the GPU runs no block of %u threads", kernel->threads);
#endif
  return 0;
}

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
    if (status != 0) continue;
    if (shared_bytes > 0 && driver.set_attribute(device->functions[i], MAX_SHARED_BYTES, (int)shared_bytes) != 0) {
      status = fail("RuntimeError", "cuda:%d, an sm_%d%d, gives a block less than the %u bytes of shared memory that %s "
                    "needs; build the library for that architecture", index, major, minor, shared_bytes,
                    kernel_names[i]);
    }
    if (status == 0 && device->kernels[i].is_persistent) {
      status = count_blocks(&device->kernels[i], device->functions[i], handle, &device->most_blocks[i]);
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
