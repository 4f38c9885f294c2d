/* CompiledCall: the calls of one library, or of one with tensors bound. */
#include "compiled_call.h"

#include <string.h>

typedef struct {
  PyObject_HEAD
  PyObject *owned; /* a tuple, which keeps alive what all other fields point at */
  TVMFFIObjectHandle run, run_beside_torch;
  PyObject *shapes; /* by a Frame's key: its integers as bytes, and the outputs' shapes as a tuple of tuples */
  PyObject *output_dtypes; /* a tuple */
  Arrays arrays;
  int num_tensors, num_outputs, num_keywords, num_values, num_bound;
  Expected expected[MAX_TENSORS + MAX_OUTPUTS]; /* the outputs last */
  int into[MAX_OUTPUTS];                        /* the tensor that an output is written to, or -1 */
  PyObject *keywords[MAX_VALUES];
  PyObject *bound[MAX_TENSORS]; /* NULL for what comes with a call */
  View packed[MAX_TENSORS];     /* of those bound that are packed */
  PyObject *buffers, *kept;     /* dicts, or NULL: what the first has is as the second says, or nothing is called */
  PyObject *empty, *quiet;      /* tuples of dicts that have nothing, and of functions that say 0, or nothing is called */
} CompiledCall;

PyTypeObject *compiled_call_type;
static PyObject *out_text;

/* ---- A call ---- */

typedef struct {
  int num_held, num_key;
  PyObject *held[MAX_TENSORS], *out; /* strong: who passed them may let go of them meanwhile; a tuple of several */
  View views[MAX_TENSORS + MAX_OUTPUTS];
  int64_t key[MAX_TENSORS * MAX_NDIM + MAX_VALUES];
  int64_t integers[MAX_VALUES + MAX_OUTPUTS * MAX_NDIM]; /* values of the shape variables, extents of the outputs */
} Frame;

/* The tensors of a call in the library's order: by name, or by position those that are not bound. */
static int gather(CompiledCall *self, PyObject *args, PyObject *named, Frame *frame) {
  PyObject *out = named ? PyDict_GetItemWithError(named, out_text) : NULL;
  Py_ssize_t num_named = named ? PyDict_Size(named) : 0, num_args = PyTuple_Size(args);
  int by_position = self->num_bound >= 0, num_free = by_position ? self->num_tensors - self->num_bound : 0;
  if (num_args != num_free) return -1;
  if (num_named != (by_position ? 0 : self->num_tensors) + self->num_keywords + (out ? 1 : 0)) return -1;
  if (out && out != Py_None) frame->out = Py_NewRef(out);
  for (int i = 0, next = 0; i < self->num_tensors; i++) {
    PyObject *tensor = self->bound[i];
    if (!tensor) tensor = by_position ? PyTuple_GetItem(args, next++) : PyDict_GetItemWithError(named, self->expected[i].name);
    if (!tensor) return -1;
    frame->held[frame->num_held++] = Py_NewRef(tensor);
  }
  for (int i = 0; i < self->num_keywords; i++) {
    PyObject *value = PyDict_GetItemWithError(named, self->keywords[i]);
    if (!value || !PyLong_CheckExact(value)) return -1;
    frame->key[frame->num_key] = PyLong_AsLongLong(value);
    if (frame->key[frame->num_key++] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

static int has_other_buffers(CompiledCall *self) {
  PyObject *name, *kept;
  Py_ssize_t position = 0;
  while (self->kept && PyDict_Next(self->kept, &position, &name, &kept)) {
    PyObject *tensor = PyTuple_GetItem(kept, 0), *address = PyTuple_GetItem(kept, 1);
    if (PyDict_GetItemWithError(self->buffers, name) != tensor || !lies_at(tensor, PyLong_AsVoidPtr(address))) return 1;
  }
  return 0;
}

/* Whether somebody looks at calls: a hook, a mode, a transformation. */
static int is_looked_at(CompiledCall *self) {
  if (!self->kept) return 0;
  for (Py_ssize_t i = 0, count = PyTuple_Size(self->empty); i < count; i++)
    if (PyDict_Size(PyTuple_GetItem(self->empty, i)) != 0) return 1;
  for (Py_ssize_t i = 0, count = PyTuple_Size(self->quiet); i < count; i++) {
    PyObject *said = PyObject_CallNoArgs(PyTuple_GetItem(self->quiet, i));
    int is_something = said ? PyObject_IsTrue(said) : 1;
    Py_XDECREF(said);
    if (is_something) return 1;
  }
  return 0;
}

/* Looks at the tensors; returns how many are PyTorch's. */
static int look_at_tensors(CompiledCall *self, Frame *frame) {
  int num_torch = 0;
  if (is_looked_at(self) || has_other_buffers(self)) return -1;
  for (int i = 0; i < self->num_tensors; i++) {
    View *view = &frame->views[i];
    if (self->bound[i] && self->packed[i].tensor.data) {
      *view = self->packed[i];
      view->tensor.shape = view->shape;
    } else if (view_any(frame->held[i], &self->expected[i], &self->arrays, view) != 0) {
      return -1;
    }
    for (int axis = 0; axis < view->num_extents; axis++) frame->key[frame->num_key++] = view->extents[axis];
    num_torch += view->kind == TORCH;
  }
  return num_torch && is_traced() ? -1 : num_torch;
}

/* Whether what is written lies beside all tensors before it, but for the one that it is, and is of the same kind. */
static int lies_apart(const Frame *frame, int number, int itself) {
  const View *view = &frame->views[number];
  for (int i = 0; i < number; i++) {
    const View *other = &frame->views[i];
    if (i != itself && ((other->kind != PACKED && other->kind != view->kind) || overlap(view, other))) return 0;
  }
  return 1;
}

static int make_outputs(CompiledCall *self, Frame *frame, PyObject *shapes, int num_torch) {
  int64_t *extents = frame->integers + self->num_values;
  if (self->num_outputs > 1 && !(frame->out = PyTuple_New(self->num_outputs))) return -1;
  for (int i = 0; i < self->num_outputs; i++) {
    Expected *expected = &self->expected[self->num_tensors + i];
    View *view = &frame->views[self->num_tensors + i];
    PyObject *made = NULL, *dtype = PyTuple_GetItem(self->output_dtypes, i);
    int status, table = self->into[i];
    if (table >= 0) {
      made = Py_NewRef(frame->held[table]);
      status = view_output(made, expected, &self->arrays, view);
      if (status == 0 && !lies_apart(frame, self->num_tensors + i, table)) status = -1;
    } else if (num_torch) {
      status = new_torch(extents, expected, &made, view);
    } else {
      status = new_array(PyTuple_GetItem(shapes, i), expected, dtype, &self->arrays, &made, view);
    }
    if (self->num_outputs == 1) frame->out = made;
    else if (made && PyTuple_SetItem(frame->out, i, made) != 0) return -1;
    if (status != 0) return -1;
    extents += expected->ndim;
  }
  return 0;
}

static int take_outputs(CompiledCall *self, Frame *frame) {
  const int64_t *extents = frame->integers + self->num_values;
  int num_views = self->num_tensors, is_one = self->num_outputs == 1;
  if (!is_one && PyList_CheckExact(frame->out)) {
    PyObject *list = frame->out;
    frame->out = PyList_AsTuple(list);
    Py_DECREF(list);
  }
  if (!is_one && (!frame->out || !PyTuple_CheckExact(frame->out) || PyTuple_Size(frame->out) != self->num_outputs)) return -1;
  for (int i = 0; i < self->num_outputs; i++, num_views++) {
    Expected *expected = &self->expected[num_views];
    View *view = &frame->views[num_views];
    PyObject *out = is_one ? frame->out : PyTuple_GetItem(frame->out, i);
    if (self->into[i] >= 0 && out != frame->held[self->into[i]]) return -1;
    if (view_output(out, expected, &self->arrays, view) != 0) return -1;
    if (memcmp(view->shape, extents, expected->ndim * sizeof *extents) != 0) return -1;
    if (!lies_apart(frame, num_views, self->into[i])) return -1;
    extents += expected->ndim;
  }
  return frame->views[self->num_tensors].kind == TORCH && is_traced() ? -1 : 0;
}

/* The outputs, given or new; their shapes are what the long way found for these shapes before. */
static int settle_outputs(CompiledCall *self, Frame *frame, int num_torch) {
  PyObject *key = PyBytes_FromStringAndSize((char *)frame->key, frame->num_key * (Py_ssize_t)sizeof *frame->key);
  PyObject *known = key ? PyDict_GetItemWithError(self->shapes, key) : NULL;
  Py_XDECREF(key);
  char *integers = NULL;
  Py_ssize_t size = 0, wanted = self->num_values;
  for (int i = 0; i < self->num_outputs; i++) wanted += self->expected[self->num_tensors + i].ndim;
  wanted *= (Py_ssize_t)sizeof *frame->integers;
  if (!known || PyBytes_AsStringAndSize(PyTuple_GetItem(known, 0), &integers, &size) != 0 || size != wanted) return -1;
  memcpy(frame->integers, integers, size);
  if (frame->out) return take_outputs(self, frame);
  PyObject *shapes = Py_NewRef(PyTuple_GetItem(known, 1)); /* another thread may drop what is known */
  int status = make_outputs(self, frame, shapes, num_torch);
  Py_DECREF(shapes);
  return status;
}

/* Tells PyTorch of its tensors that change: those that are given, and tables. */
static int note_outputs(CompiledCall *self, Frame *frame, int are_given) {
  for (int i = 0; i < self->num_outputs; i++) are_given |= self->into[i] >= 0;
  if (!are_given || frame->views[self->num_tensors].kind != TORCH) return 0;
  if (self->num_outputs > 1) return note_written(frame->out);
  PyObject *one = PyTuple_Pack(1, frame->out);
  int status = one ? note_written(one) : -1;
  Py_XDECREF(one);
  return status;
}

static int run(TVMFFIObjectHandle function, CompiledCall *self, Frame *frame) {
  TVMFFIAny args[MAX_TENSORS + MAX_OUTPUTS + MAX_VALUES], answer = {.type_index = kTVMFFINone};
  int num_args = 0;
  memset(args, 0, sizeof args);
  for (int i = 0; i < self->num_tensors + self->num_outputs; i++) {
    args[num_args].type_index = kTVMFFIDLTensorPtr;
    args[num_args++].v_ptr = &frame->views[i].tensor;
  }
  for (int i = 0; i < self->num_values; i++) {
    args[num_args].type_index = kTVMFFIInt;
    args[num_args++].v_int64 = frame->integers[i];
  }
  PyThreadState *state = PyEval_SaveThread();
  int status = TVMFFIFunctionCall(function, args, num_args, &answer);
  PyEval_RestoreThread(state);
  TVMFFIObjectHandle error = NULL;
  if (status != 0) TVMFFIErrorMoveFromRaised(&error);
  if (error) TVMFFIObjectDecRef(error);
  if (status == 0 && answer.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(answer.v_obj);
  return status;
}

PyObject *try_call(PyObject *compiled, PyObject *args, PyObject *named) {
  CompiledCall *self = (CompiledCall *)compiled;
  Frame frame;
  frame.num_held = frame.num_key = 0;
  frame.out = NULL;
  int num_torch = gather(self, args, named, &frame) == 0 ? look_at_tensors(self, &frame) : -1;
  int are_given = frame.out != NULL;
  int is_ready = num_torch >= 0 && settle_outputs(self, &frame, num_torch) == 0 && note_outputs(self, &frame, are_given) == 0;
  int is_done = is_ready && run(num_torch ? self->run_beside_torch : self->run, self, &frame) == 0;
  for (int i = 0; i < frame.num_held; i++) Py_DECREF(frame.held[i]);
  if (is_done) return frame.out;
  Py_XDECREF(frame.out);
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  return NULL;
}

static PyObject *attempt(PyObject *self, PyObject *const *args, Py_ssize_t num_args) {
  if (num_args != 2 || !PyTuple_Check(args[0]) || !PyDict_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "attempt: takes a tuple of tensors, and a dict of what is named");
    return NULL;
  }
  PyObject *result = try_call(self, args[0], args[1]);
  return result || PyErr_Occurred() ? result : Py_NewRef(Py_NotImplemented);
}

/* ---- CompiledCall ---- */

static int read_handle(PyObject *function, TVMFFIObjectHandle *handle) {
  PyObject *address = PyObject_CallMethod(function, "__chandle__", NULL);
  *handle = address ? PyLong_AsVoidPtr(address) : NULL;
  Py_XDECREF(address);
  return *handle ? 0 : -1;
}

static int read_expected(PyObject *facts, Expected *expected) {
  int code, bits;
  if (!PyArg_ParseTuple(facts, "UiiiyOO", &expected->name, &expected->ndim, &code, &bits, &expected->format,
                        &expected->packed_name, &expected->packed_layout))
    return -1;
  expected->dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
  if (expected->packed_name == Py_None) expected->packed_name = NULL;
  if (expected->ndim >= 0 && expected->ndim <= MAX_NDIM) return 0;
  PyErr_Format(PyExc_ValueError, "%U: %d dimensions; allowed: up to %d", expected->name, expected->ndim, MAX_NDIM);
  return -1;
}

static int read_arguments(CompiledCall *self, PyObject *args) {
  PyObject *run, *beside_torch, *tensors, *keywords, *array, *packed, *into;
  if (!PyArg_ParseTuple(args, "(OO)O!O!iO!(OOOOO!O!)", &run, &beside_torch, &PyTuple_Type, &tensors, &PyTuple_Type, &keywords,
                        &self->num_values, &PyDict_Type, &self->shapes, &array, &packed, &self->arrays.empty,
                        &self->arrays.aligned_empty, &PyTuple_Type, &self->output_dtypes, &PyTuple_Type, &into))
    return -1;
  self->arrays.array = (PyTypeObject *)array;
  self->arrays.packed = (PyTypeObject *)packed;
  self->num_outputs = (int)PyTuple_Size(self->output_dtypes);
  self->num_tensors = (int)PyTuple_Size(tensors) - self->num_outputs;
  self->num_keywords = (int)PyTuple_Size(keywords);
  self->num_bound = -1;
  if (self->num_tensors < 0 || self->num_tensors > MAX_TENSORS || self->num_outputs < 1 || self->num_outputs > MAX_OUTPUTS ||
      self->num_keywords > MAX_VALUES || self->num_values < 0 || self->num_values > MAX_VALUES) {
    PyErr_SetString(PyExc_ValueError, "more tensors or shape variables than a compiled call takes");
    return -1;
  }
  for (int i = 0; i < self->num_tensors + self->num_outputs; i++)
    if (read_expected(PyTuple_GetItem(tensors, i), &self->expected[i]) != 0) return -1;
  for (int i = 0; i < self->num_keywords; i++) self->keywords[i] = PyTuple_GetItem(keywords, i);
  for (int i = 0; i < self->num_outputs; i++) {
    PyObject *number = PyTuple_GetItem(into, i); /* an error where there is none */
    long long table = number ? PyLong_AsLongLong(number) : -2;
    if (table < -1 || table >= self->num_tensors) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an output into no tensor");
      return -1;
    }
    self->into[i] = (int)table;
  }
  if (read_handle(run, &self->run) != 0) return -1;
  return read_handle(beside_torch, &self->run_beside_torch);
}

static PyObject *new_compiled(PyTypeObject *type, PyObject *args, PyObject *named) {
  (void)named;
  CompiledCall *self = (CompiledCall *)PyType_GenericAlloc(type, 0);
  if (!self) return NULL;
  self->owned = Py_NewRef(args);
  if (read_arguments(self, args) == 0) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static PyObject *bind_compiled(PyObject *whole, PyObject *values) {
  if (!PyDict_Check(values)) {
    PyErr_SetString(PyExc_TypeError, "bind: takes a dict of tensors by name");
    return NULL;
  }
  PyObject *copy = PyDict_Copy(values), *owned = copy ? PyTuple_Pack(2, whole, copy) : NULL;
  CompiledCall *self = owned ? (CompiledCall *)PyType_GenericAlloc(compiled_call_type, 0) : NULL;
  Py_XDECREF(copy);
  if (!self) {
    Py_XDECREF(owned);
    return NULL;
  }
  memcpy((char *)self + sizeof(PyObject), (char *)whole + sizeof(PyObject), sizeof *self - sizeof(PyObject));
  self->owned = owned;
  self->num_bound = 0;
  for (int i = 0; i < self->num_tensors; i++) {
    PyObject *value = self->bound[i] = PyDict_GetItemWithError(copy, self->expected[i].name);
    View *view = &self->packed[i];
    if (value) self->num_bound++;
    if (!value || Py_TYPE(value) != self->arrays.packed || view_any(value, &self->expected[i], &self->arrays, view) != 0)
      view->tensor.data = NULL;
    PyErr_Clear();
  }
  return (PyObject *)self;
}

static int are_of(PyObject *tuple, int (*is_one)(PyObject *)) {
  for (Py_ssize_t i = 0, count = PyTuple_Size(tuple); i < count; i++)
    if (!is_one(PyTuple_GetItem(tuple, i))) return 0;
  return 1;
}

static int is_dict(PyObject *object) { return PyDict_Check(object); }
static int is_address(PyObject *pair) {
  return PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && PyLong_Check(PyTuple_GetItem(pair, 1));
}

static PyObject *watch(PyObject *object, PyObject *args) {
  CompiledCall *self = (CompiledCall *)object;
  PyObject *buffers, *kept, *name, *pair, *copy, *owned, *empty, *quiet;
  Py_ssize_t position = 0;
  if (!PyArg_ParseTuple(args, "O!O!O!O!", &PyDict_Type, &buffers, &PyDict_Type, &kept, &PyTuple_Type, &empty, &PyTuple_Type,
                        &quiet))
    return NULL;
  int is_right = are_of(empty, is_dict) && are_of(quiet, PyCallable_Check);
  while (is_right && PyDict_Next(kept, &position, &name, &pair)) is_right = is_address(pair);
  if (!is_right) {
    PyErr_SetString(PyExc_TypeError, "watch: takes a dict, one of (tensor, address), a tuple of dicts, and one of functions");
    return NULL;
  }
  copy = PyDict_Copy(kept);
  owned = copy ? PyTuple_Pack(5, self->owned, buffers, copy, empty, quiet) : NULL;
  Py_XDECREF(copy);
  if (!owned) return NULL;
  Py_DECREF(self->owned); /* the new tuple has it */
  self->owned = owned;
  self->buffers = buffers;
  self->kept = copy;
  self->empty = empty;
  self->quiet = quiet;
  return Py_NewRef(Py_None);
}

static int visit_compiled(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((CompiledCall *)self)->owned);
  return 0;
}

static void free_compiled(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(((CompiledCall *)self)->owned);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMethodDef compiled_methods[] = {
    {"attempt", (PyCFunction)(void (*)(void))attempt, METH_FASTCALL, "attempt(tensors, named): a call, or NotImplemented"},
    {"bind", bind_compiled, METH_O, "bind(tensors): the same with these bound, by name"},
    {"watch", watch, METH_VARARGS, "watch(buffers, kept, empty, quiet): when to decline"},
    {NULL, NULL, 0, NULL}};
static PyType_Slot compiled_slots[] = {{Py_tp_new, new_compiled},
                                       {Py_tp_methods, compiled_methods},
                                       {Py_tp_traverse, visit_compiled},
                                       {Py_tp_dealloc, free_compiled},
                                       {0, NULL}};
static PyType_Spec compiled_spec = {"dietcode.runtime.compiled_call.CompiledCall", sizeof(CompiledCall), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, compiled_slots};

int start_calls(void) {
  out_text = PyUnicode_InternFromString("out");
  compiled_call_type = (PyTypeObject *)PyType_FromSpec(&compiled_spec);
  return out_text && compiled_call_type ? 0 : -1;
}
