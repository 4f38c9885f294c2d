/* Tensors of a call: arrays of NumPy by the buffer protocol, tensors of PyTorch by DLPack's C exchange API. */
#include "compiled_call.h"

#include <string.h>

/* PyTorch, once the program has imported it; it is never unloaded. */
static struct {
  PyTypeObject *type, *parameter;
  const DLPackExchangeAPI *api;
  PyCFunction is_neg, untyped_storage, storage_offset; /* methods without arguments; to look them up costs a third more */
  PyObject *increment_version, *tracing_state, *forward_ad; /* the last one is what that module has */
} torch;

static struct {
  PyObject *current_level, *data, *forward_ad, *layout, *name, *requires_grad, *shape, *torch;
} texts;

int start_tensors(void) {
  texts.current_level = PyUnicode_InternFromString("_current_level");
  texts.forward_ad = PyUnicode_InternFromString("torch.autograd.forward_ad");
  texts.data = PyUnicode_InternFromString("data");
  texts.layout = PyUnicode_InternFromString("layout");
  texts.name = PyUnicode_InternFromString("name");
  texts.requires_grad = PyUnicode_InternFromString("requires_grad");
  texts.shape = PyUnicode_InternFromString("shape");
  texts.torch = PyUnicode_InternFromString("torch");
  return PyErr_Occurred() ? -1 : 0;
}

static int same_dtype(DLDataType one, DLDataType other) {
  return one.code == other.code && one.bits == other.bits && one.lanes == other.lanes;
}

int64_t num_bytes_of(const DLTensor *tensor) {
  int64_t num = tensor->dtype.bits / 8;
  for (int axis = 0; axis < tensor->ndim; axis++) num *= tensor->shape[axis];
  return num;
}

int overlap(const View *one, const View *other) {
  const char *first = one->tensor.data, *second = other->tensor.data;
  return first < second + num_bytes_of(&other->tensor) && second < first + num_bytes_of(&one->tensor);
}

/* Copies a shape, because another thread may change the original, and forgets strides that say no more than it. */
static int set_shape(View *view, int ndim, const int64_t *shape, const int64_t *strides) {
  int64_t compact = 1;
  for (int axis = ndim - 1; axis >= 0; axis--) {
    if (strides && shape[axis] != 1 && strides[axis] != compact) return -1;
    compact *= shape[axis];
    view->shape[axis] = view->extents[axis] = shape[axis];
  }
  view->tensor.ndim = view->num_extents = ndim;
  view->tensor.shape = view->shape;
  view->tensor.strides = NULL;
  view->tensor.byte_offset = 0;
  return 0;
}

/* ---- NumPy ---- */

static int view_array(PyObject *array, const Expected *expected, int is_written, View *view) {
  Py_buffer buffer;
  int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(array, &buffer, flags) != 0) return -1;
  int status = -1;
  if (buffer.ndim == expected->ndim && buffer.format && strcmp(buffer.format, expected->format) == 0) {
    int64_t shape[MAX_NDIM];
    for (int axis = 0; axis < buffer.ndim; axis++) shape[axis] = buffer.shape[axis];
    status = set_shape(view, buffer.ndim, shape, NULL);
  }
  view->kind = ARRAY;
  view->tensor.data = buffer.buf;
  view->tensor.device = (DLDevice){kDLCPU, 0};
  view->tensor.dtype = expected->dtype;
  PyBuffer_Release(&buffer); /* an array keeps its memory whether its buffer is held or not */
  return status;
}

int new_array(PyObject *shape, const Expected *expected, PyObject *dtype, const Arrays *arrays, PyObject **out, View *view) {
  int64_t num_bytes = expected->dtype.bits / 8;
  for (Py_ssize_t axis = 0; axis < PyTuple_Size(shape); axis++)
    num_bytes *= PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
  PyObject *make = num_bytes > SMALL_BYTES ? arrays->aligned_empty : arrays->empty;
  *out = PyObject_CallFunctionObjArgs(make, shape, dtype, NULL);
  return *out ? view_array(*out, expected, 1, view) : -1;
}

/* ---- Packed constants, which nobody changes ---- */

static int is_equal_attribute(PyObject *object, PyObject *name, PyObject *expected) {
  PyObject *value = PyObject_GetAttr(object, name);
  int is_equal = value ? PyObject_RichCompareBool(value, expected, Py_EQ) : 0;
  Py_XDECREF(value);
  return is_equal == 1;
}

static int view_packed(PyObject *packed, const Expected *expected, const Arrays *arrays, View *view) {
  static const Expected panels = {.ndim = 4, .dtype = {kDLFloat, 32, 1}, .format = "f"};
  if (!is_equal_attribute(packed, texts.name, expected->packed_name)) return -1;
  if (!is_equal_attribute(packed, texts.layout, expected->packed_layout)) return -1;
  PyObject *data = PyObject_GetAttr(packed, texts.data), *shape = data ? PyObject_GetAttr(packed, texts.shape) : NULL;
  int status = -1;
  if (data && shape && Py_TYPE(data) == arrays->array && PyTuple_Check(shape) && PyTuple_Size(shape) == expected->ndim)
    status = view_array(data, &panels, 0, view);
  for (int axis = 0; status == 0 && axis < expected->ndim; axis++) {
    view->extents[axis] = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
    if (view->extents[axis] == -1) status = -1;
  }
  view->kind = PACKED;
  view->num_extents = expected->ndim;
  Py_XDECREF(data); /* the packed constant has it, and is not changed */
  Py_XDECREF(shape);
  return status;
}

/* ---- PyTorch ---- */

static PyCFunction find_method(PyObject *tensor, const char *name) {
  PyObject *method = PyObject_GetAttrString(tensor, name);
  PyTypeObject *type = method ? Py_TYPE(method) : NULL;
  int is_plain = type == &PyCFunction_Type && PyCFunction_GetFlags(method) == METH_NOARGS;
  PyCFunction found = is_plain ? PyCFunction_GetFunction(method) : NULL;
  Py_XDECREF(method);
  return found;
}

static int find_torch(void) {
  if (torch.type) return 0;
  PyObject *module = PyImport_GetModule(texts.torch);
  PyObject *type = module ? PyObject_GetAttrString(module, "Tensor") : NULL;
  PyObject *inner = type ? PyObject_GetAttrString(module, "_C") : NULL;
  PyObject *capsule = inner ? PyObject_GetAttrString(type, "__dlpack_c_exchange_api__") : NULL; /* newer ones have it */
  if (capsule && !torch.api) {
    const DLPackExchangeAPI *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (api && api->header.version.major == DLPACK_MAJOR_VERSION && api->dltensor_from_py_object_no_sync) torch.api = api;
  }
  PyObject *nn = torch.api && !torch.parameter ? PyObject_GetAttrString(module, "nn") : NULL;
  if (nn) torch.parameter = (PyTypeObject *)PyObject_GetAttrString(nn, "Parameter");
  Py_XDECREF(nn);
  PyObject *any = torch.api && !torch.is_neg ? PyObject_CallNoArgs(type) : NULL;
  if (any) {
    torch.untyped_storage = find_method(any, "untyped_storage");
    torch.storage_offset = find_method(any, "storage_offset");
    torch.is_neg = torch.untyped_storage && torch.storage_offset ? find_method(any, "is_neg") : NULL;
  }
  Py_XDECREF(any);
  if (torch.api && !torch.increment_version) torch.increment_version = PyObject_GetAttrString(inner, "_increment_version");
  if (torch.api && !torch.tracing_state) torch.tracing_state = PyObject_GetAttrString(inner, "_get_tracing_state");
  PyObject *forward_ad = torch.api && !torch.forward_ad ? PyImport_GetModule(texts.forward_ad) : NULL;
  if (forward_ad) torch.forward_ad = Py_XNewRef(PyModule_GetDict(forward_ad));
  Py_XDECREF(forward_ad);
  if (torch.parameter && torch.is_neg && torch.increment_version && torch.tracing_state && torch.forward_ad) torch.type = (PyTypeObject *)Py_NewRef(type);
  Py_XDECREF(module), Py_XDECREF(type), Py_XDECREF(inner), Py_XDECREF(capsule);
  return torch.type ? 0 : -1;
}

/* Whether a call answered this object, which lives for ever; an error is no answer. */
static int was(PyObject *answer, PyObject *object) {
  Py_XDECREF(answer);
  return answer == object;
}

/* Whether calls are recorded, or tensors may carry tangents: which none has where no level is entered, level -1. */
int is_traced(void) {
  PyObject *level = PyDict_GetItemWithError(torch.forward_ad, texts.current_level);
  if (!level || PyLong_AsLong(level) != -1) return 1;
  return !was(PyObject_CallNoArgs(torch.tracing_state), Py_None);
}

/* A gradient that was recorded with the values of before is refused then, not computed from those that come. */
int note_written(PyObject *tensors) {
  PyObject *none = PyObject_CallFunctionObjArgs(torch.increment_version, tensors, NULL);
  Py_XDECREF(none);
  return none ? 0 : -1;
}

static void set_torch(View *view, const DLTensor *given) {
  view->kind = TORCH;
  view->tensor.data = (char *)given->data + given->byte_offset;
  view->tensor.device = given->device;
  view->tensor.dtype = given->dtype;
}

/* Whether a tensor ends in its storage, which may have been made shorter: neither PyTorch nor DLPack looks at that. Where
 * it begins is asked for where address or storage are not those of the last call, since that takes half of the time. */
static int ends_in_storage(PyObject *tensor, Expected *expected, const View *view) {
  PyObject *storage = torch.untyped_storage(tensor, NULL);
  int64_t of_storage = storage ? PyObject_Size(storage) : -1, num_bytes = num_bytes_of(&view->tensor);
  Py_XDECREF(storage);
  if (of_storage < num_bytes) return 0;
  if (view->tensor.data == expected->last.data && of_storage == expected->last.of_storage &&
      num_bytes <= expected->last.num_bytes)
    return 1;
  PyObject *offset = torch.storage_offset(tensor, NULL);
  int64_t first = offset ? PyLong_AsLongLong(offset) : -1;
  Py_XDECREF(offset);
  if (first < 0 || first * (view->tensor.dtype.bits / 8) + num_bytes > of_storage) return 0;
  expected->last.data = view->tensor.data, expected->last.num_bytes = num_bytes, expected->last.of_storage = of_storage;
  return 1;
}

/* What only stands for a tensor, as in PyTorch's FakeTensorMode, has none. */
static int has_memory(const View *view) { return view->tensor.data || num_bytes_of(&view->tensor) == 0; }

int view_values(PyObject *tensor, Expected *expected, View *view) {
  DLTensor given;
  if (find_torch() != 0 || (Py_TYPE(tensor) != torch.type && Py_TYPE(tensor) != torch.parameter)) return -1;
  if (!was(torch.is_neg(tensor, NULL), Py_False)) return -1;
  if (torch.api->dltensor_from_py_object_no_sync(tensor, &given) != 0) return -1;
  if (given.device.device_type != kDLCPU || !same_dtype(given.dtype, expected->dtype)) return -1;
  if (given.ndim != expected->ndim || set_shape(view, given.ndim, given.shape, given.strides) != 0) return -1;
  set_torch(view, &given);
  return has_memory(view) && ends_in_storage(tensor, expected, view) ? 0 : -1;
}

static int view_torch(PyObject *tensor, Expected *expected, View *view) {
  if (find_torch() != 0 || Py_TYPE(tensor) != torch.type) return -1;
  return was(PyObject_GetAttr(tensor, texts.requires_grad), Py_False) ? view_values(tensor, expected, view) : -1;
}

int lies_at(PyObject *tensor, const void *address) {
  DLTensor given;
  if (find_torch() != 0 || Py_TYPE(tensor) != torch.type) return 0;
  if (torch.api->dltensor_from_py_object_no_sync(tensor, &given) != 0) return 0;
  return (char *)given.data + given.byte_offset == address;
}

static void ignore_error(void *context, const char *kind, const char *message) { (void)context, (void)kind, (void)message; }

int new_torch(int64_t *shape, const Expected *expected, PyObject **out, View *view) {
  DLManagedTensorVersioned *made = NULL;
  void *object = NULL;
  DLTensor wanted = {.device = {kDLCPU, 0}, .ndim = expected->ndim, .dtype = expected->dtype, .shape = shape};
  if (torch.api->managed_tensor_allocator(&wanted, &made, NULL, ignore_error) != 0) return -1;
  set_shape(view, expected->ndim, shape, NULL);
  set_torch(view, &made->dl_tensor);
  if (!has_memory(view)) {
    made->deleter(made);
    return -1;
  }
  if (torch.api->managed_tensor_to_py_object_no_sync(made, &object) != 0) return -1;
  *out = object;
  return 0;
}

/* ---- Any of them ---- */

int view_any(PyObject *tensor, Expected *expected, const Arrays *arrays, View *view) {
  PyTypeObject *type = Py_TYPE(tensor);
  if (type == arrays->packed) return expected->packed_name ? view_packed(tensor, expected, arrays, view) : -1;
  if (expected->packed_name) return -1;
  if (type == arrays->array) return view_array(tensor, expected, 0, view);
  return view_torch(tensor, expected, view);
}

int view_output(PyObject *out, Expected *expected, const Arrays *arrays, View *view) {
  if (Py_TYPE(out) == arrays->array) return view_array(out, expected, 1, view);
  return view_torch(out, expected, view);
}
