/* Tensors that a program is given: looked at as those of a compiled call are. */
#include "recorder.h"

#undef PY_SSIZE_T_CLEAN
#undef Py_LIMITED_API
#define Kind ViewKind /* the machine has another one */
#include "../compiled_call/compiled_call.h"

#include <string.h>

struct Given {
  Expected expected;
  int64_t extents[MAX_NDIM];
};

Given *new_given(Dtype dtype, int ndim, const int64_t *extents) {
  static const DLDataType dtypes[NUM_DTYPES] = {{kDLFloat, 32, 1}, {kDLBool, 8, 1}, {kDLInt, 64, 1}, {kDLInt, 32, 1}};
  Given *given = ndim <= MAX_NDIM ? PyMem_Calloc(1, sizeof *given) : NULL;
  if (!given) return NULL;
  given->expected = (Expected){.ndim = ndim, .dtype = dtypes[dtype]};
  if (ndim) memcpy(given->extents, extents, ndim * sizeof *extents);
  return given;
}

const void *data_of(PyObject *tensor, Given *given) {
  static const char empty[1];
  View view;
  if (view_values(tensor, &given->expected, &view) != 0) return NULL;
  if (view.tensor.ndim && memcmp(view.shape, given->extents, view.tensor.ndim * sizeof *view.shape) != 0) return NULL;
  return num_bytes_of(&view.tensor) ? view.tensor.data : empty;
}

int are_exact(const void *data, Dtype dtype, int64_t count) {
  static const int64_t most = 1 << 24;
  int are = 1;
  for (int64_t i = 0; i < count && dtype == INT64; i++) are &= ((const int64_t *)data)[i] >= -most && ((const int64_t *)data)[i] <= most;
  for (int64_t i = 0; i < count && dtype == INT32; i++) are &= ((const int32_t *)data)[i] >= -most && ((const int32_t *)data)[i] <= most;
  return are;
}

void convert(const void *data, Dtype dtype, int64_t count, float *row) {
  for (int64_t i = 0; i < count && dtype == BOOL; i++) row[i] = ((const uint8_t *)data)[i] != 0;
  for (int64_t i = 0; i < count && dtype == INT64; i++) row[i] = (float)((const int64_t *)data)[i];
  for (int64_t i = 0; i < count && dtype == INT32; i++) row[i] = (float)((const int32_t *)data)[i];
}
