/* The tensors of a call, and the extents of all indices. */
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
