/* What hosts call: functions of a module of tvm-ffi. */
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

/* A launch of clusters of blocks. */
static int launch_clusters(void* function, unsigned x, unsigned y, const Kernel* kernel, void* stream,
                           void** arguments) {
  Attribute attribute;
  Config config = config_of(kernel, x, y, stream, &attribute);
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
    unsigned x = (unsigned)launch->x;
    if (kernel->is_persistent && launch->x > device->most_blocks[launch->kernel]) {
      x = (unsigned)device->most_blocks[launch->kernel];
    }
    if (kernel->cluster > 1) {
      status = launch_clusters(device->functions[launch->kernel], x, (unsigned)launch->y, kernel, stream, arguments);
      continue;
    }
    if (i > 0 && overlaps[launch->kernel] && device->can_overlap) {
      status = launch_overlapping(device->functions[launch->kernel], launch, kernel, stream, arguments);
      continue;
    }
    status = check(driver.launch(device->functions[launch->kernel], x, (unsigned)launch->y, 1,
                                 kernel->threads, 1, 1, kernel->shared_bytes, stream, arguments, NULL),
                   "cuLaunchKernel");
  }
  if (switches) driver.pop(&popped);
  return status;
}
