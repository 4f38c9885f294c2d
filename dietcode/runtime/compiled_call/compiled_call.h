/* The short way of a call, in C: what dietcode/runtime/lean_call.py does in Python.
 *
 * It takes only what it can check by itself; anything else is declined, which is NULL without an error, and goes the way
 * in Python, which says what is wrong. One file serves all versions of Python from 3.11 on, by the limited API. */
#ifndef DIETCODE_COMPILED_CALL_H
#define DIETCODE_COMPILED_CALL_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

enum { MAX_TENSORS = 16, MAX_OUTPUTS = 8, MAX_NDIM = 8, MAX_VALUES = 32 };
enum { SMALL_BYTES = 1 << 14 /* an output's alignment matters above it */ };

/* What a library asks of one of its tensors. */
typedef struct {
  int ndim;
  DLDataType dtype;
  const char *format; /* of the buffer protocol */
  PyObject *name, *packed_name, *packed_layout; /* the last two NULL for what comes as it is */
  struct {
    const void *data;
    int64_t num_bytes, of_storage;
  } last; /* of the last tensor of PyTorch's that was found to end in its storage */
} Expected;

typedef enum { PACKED, ARRAY, TORCH } Kind;

/* A tensor of one call: compact, on a CPU, of the dtype that is expected. Its memory is held by who holds the object. */
typedef struct {
  Kind kind;
  DLTensor tensor; /* without strides; its shape is below */
  int64_t shape[MAX_NDIM];
  int num_extents; /* of the shape before it was packed, which tells the shape variables */
  int64_t extents[MAX_NDIM];
} View;

/* What views need of Python. */
typedef struct {
  PyTypeObject *array, *packed; /* numpy.ndarray, dietcode.runtime.tensors.Packed */
  PyObject *empty, *aligned_empty;
} Arrays;

extern PyMethodDef instance_methods[]; /* of the module; instances.c */
PyObject *decode(PyObject *module, PyObject *args); /* results.c */

int start_tensors(void);
int start_calls(void);

/* CompiledCall, and one call of it: NULL without an error for what is declined; with one only where it is none of ours, as
 * KeyboardInterrupt. */
extern PyTypeObject *compiled_call_type;
PyObject *try_call(PyObject *compiled, PyObject *args, PyObject *named);

/* All return 0, or -1 for what is declined, with or without an error of Python's. */
int view_any(PyObject *tensor, Expected *expected, const Arrays *arrays, View *view);
int view_values(PyObject *tensor, Expected *expected, View *view); /* of PyTorch's, which may need a gradient */
int view_output(PyObject *out, Expected *expected, const Arrays *arrays, View *view);
int new_array(PyObject *shape, const Expected *expected, PyObject *dtype, const Arrays *arrays, PyObject **out, View *view);
int new_torch(int64_t *shape, const Expected *expected, PyObject **out, View *view);
int note_written(PyObject *tensors); /* a tuple of PyTorch's; tells it that they change */
int lies_at(PyObject *tensor, const void *address); /* whether a tensor of PyTorch begins there */
int is_traced(void); /* whether PyTorch records what is called, or that is not known */
int overlap(const View *one, const View *other);
int64_t num_bytes_of(const DLTensor *tensor);

#endif
