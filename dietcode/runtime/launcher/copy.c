/* Copies of a tensor into memory of the same extents, both in any layout, by as many threads as pay. */
#include "launcher.h"

#include <string.h>

enum { MOST_AXES = 16, LINE = 64 };

/* `rows` pieces of `run` bytes, which lie one after the other on both sides; axes are those that lead from piece to piece. */
typedef struct {
  char *to;
  const char *from;
  int num_axes;
  int64_t extents[MOST_AXES], to_strides[MOST_AXES], from_strides[MOST_AXES]; /* strides in bytes */
  int64_t rows, run;
} Copy;

/* Joins axes whose elements follow each other on both sides, and takes the innermost as the run. */
static void join_axes(Copy *copy) {
  int kept = 0;
  for (int axis = 0; axis < copy->num_axes; axis++) {
    if (copy->extents[axis] == 1) continue;
    int64_t extent = copy->extents[axis], to = copy->to_strides[axis], from = copy->from_strides[axis];
    int joins = kept && copy->to_strides[kept - 1] == to * extent && copy->from_strides[kept - 1] == from * extent;
    kept += !joins;
    copy->extents[kept - 1] = joins ? copy->extents[kept - 1] * extent : extent;
    copy->to_strides[kept - 1] = to;
    copy->from_strides[kept - 1] = from;
  }
  if (kept && copy->to_strides[kept - 1] == copy->run && copy->from_strides[kept - 1] == copy->run)
    copy->run *= copy->extents[--kept];
  copy->num_axes = kept;
  copy->rows = 1;
  for (int axis = 0; axis < kept; axis++) copy->rows *= copy->extents[axis];
}

/* Copies bytes begin…end of all, counted from piece to piece. */
static void copy_bytes(const Copy *copy, int64_t begin, int64_t end) {
  int64_t row = begin / copy->run, skipped = begin % copy->run, at[MOST_AXES], rest = row;
  char *to = copy->to;
  const char *from = copy->from;
  for (int axis = copy->num_axes; axis-- > 0; rest /= copy->extents[axis]) {
    at[axis] = rest % copy->extents[axis];
    to += at[axis] * copy->to_strides[axis];
    from += at[axis] * copy->from_strides[axis];
  }
  while (begin < end) {
    int64_t size = copy->run - skipped < end - begin ? copy->run - skipped : end - begin;
    memcpy(to + skipped, from + skipped, (size_t)size);
    begin += size;
    skipped = 0;
    for (int axis = copy->num_axes; axis-- > 0;) {
      to += copy->to_strides[axis];
      from += copy->from_strides[axis];
      if (++at[axis] < copy->extents[axis]) break;
      to -= at[axis] * copy->to_strides[axis];
      from -= at[axis] * copy->from_strides[axis];
      at[axis] = 0;
    }
  }
}

static int copy_part(int task, Environment *environment, void *data) {
  const Copy *copy = data;
  int64_t total = copy->rows * copy->run, count = environment->num_task;
  int64_t part = (total / count + LINE) / LINE * LINE; /* whole lines */
  int64_t begin = task * part, end = begin + part < total ? begin + part : total;
  if (begin < end) copy_bytes(copy, begin, end);
  return 0;
}

static const DLTensor *tensor_of(const TVMFFIAny *value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return value->v_ptr;
  if (value->type_index != kTVMFFITensor) return NULL;
  return (const DLTensor *)((const char *)value->v_obj + sizeof(TVMFFIObject));
}

/* copy(to, from, kind): tensors of the same extents and elements, which share no memory. Copies of equal `kind` count as of
 * one shape where the threads are chosen. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_copy(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  const DLTensor *to = num_args == 3 ? tensor_of(&args[0]) : NULL, *from = to ? tensor_of(&args[1]) : NULL;
  if (!from || args[2].type_index != kTVMFFIInt) return fail("TypeError", "copy: takes two tensors and an integer");
  int is_alike = to->ndim == from->ndim && to->ndim <= MOST_AXES && to->dtype.bits == from->dtype.bits &&
                 to->dtype.lanes == 1 && from->dtype.lanes == 1 && to->dtype.bits % 8 == 0 &&
                 to->device.device_type == kDLCPU && from->device.device_type == kDLCPU;
  Copy copy = {.num_axes = to->ndim, .run = to->dtype.bits / 8};
  int64_t to_dense = copy.run, from_dense = copy.run; /* strides where none are given */
  for (int axis = is_alike ? to->ndim : 0; axis-- > 0;) {
    int64_t extent = copy.extents[axis] = to->shape[axis];
    is_alike = is_alike && extent == from->shape[axis];
    copy.to_strides[axis] = to->strides ? to->strides[axis] * (to->dtype.bits / 8) : to_dense;
    copy.from_strides[axis] = from->strides ? from->strides[axis] * (to->dtype.bits / 8) : from_dense;
    to_dense *= extent;
    from_dense *= extent;
  }
  if (!is_alike) return fail("ValueError", "copy: the tensors differ in extents or elements, or have more than 16 axes");
  copy.to = (char *)to->data + to->byte_offset;
  copy.from = (const char *)from->data + from->byte_offset;
  join_axes(&copy);
  return copy.rows ? launch(copy_part, &copy, 0) : 0;
}
