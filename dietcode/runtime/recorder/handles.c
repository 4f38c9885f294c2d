/* Handle: a result that is noted, a row that was computed, or the tensor that was made of it. */
#include "recorder.h"

#include <string.h>
#include <structmember.h>

enum { MOST_FREE = 1 << 12 };

PyTypeObject *handle_type;
static PyTypeObject *tensor_type; /* for which isinstance takes handles, or NULL */
static PyObject *truths;          /* tensors of False and True */
static PyObject *make_tensor;     /* called where a handle's class is asked for and it has no tensor yet */
static size_t shadow_bytes;
static Handle *free_handles; /* linked by `weak` */
static int num_free;

PyObject *handle_of(Run *run, int32_t number, int32_t type, Dtype dtype) {
  Handle **place = (Handle **)run->handles_room.data + number, *self = free_handles;
  if (*place) return Py_NewRef((PyObject *)*place); /* a result that is returned twice */
  if (self) {
    free_handles = (Handle *)self->weak;
    num_free--;
    PyObject_Init((PyObject *)self, handle_type);
  } else if (!(self = PyObject_New(Handle, handle_type))) {
    return NULL;
  }
  self->run = run;
  self->tensor = self->weak = NULL;
  self->number = number;
  self->type = type;
  self->dtype = dtype;
  *place = self;
  run->num_live++;
  return (PyObject *)self;
}

static void free_handle(PyObject *object) {
  Handle *self = (Handle *)object;
  if (self->weak) PyObject_ClearWeakRefs(object);
  if (self->run) {
    ((Handle **)self->run->handles_room.data)[self->number] = NULL;
    self->run->num_live--;
  }
  Py_XDECREF(self->tensor);
  if (num_free < MOST_FREE) {
    self->weak = (PyObject *)free_handles;
    free_handles = self;
    num_free++;
  } else {
    PyObject_Free(self);
  }
  Py_DECREF(handle_type);
}

Run *run_of(const Handle *self) {
  if (!self->run) PyErr_SetString(PyExc_RuntimeError, "a handle of a call that is over, which was not made into a tensor");
  return self->run;
}

static PyObject *get_run(PyObject *self, void *none) {
  (void)none;
  PyObject *run = (PyObject *)((Handle *)self)->run;
  return Py_NewRef(run ? run : Py_None);
}

static PyObject *get_shape(PyObject *object, void *none) {
  (void)none;
  const Run *run = run_of((Handle *)object);
  return run ? Py_XNewRef(PyTuple_GetItem(run->machine->shapes, ((Handle *)object)->type)) : NULL;
}

static PyObject *get_computed(PyObject *object, void *none) {
  (void)none;
  const Handle *self = (Handle *)object;
  if (self->tensor) return Py_NewRef(Py_True);
  return run_of(self) ? PyBool_FromLong(is_computed(self->run->w, self->number)) : NULL;
}

static const char *row_of(const Handle *self) {
  const Run *run = run_of(self);
  if (!run || is_alive(run) != 0) return NULL;
  if (self->tensor || run->is_running || !is_computed(run->w, self->number)) {
    PyErr_SetString(PyExc_RuntimeError, "a handle that is not computed, or is a tensor, has no row");
    return NULL;
  }
  return run->w->tables[self->type].data + run->w->states[self->number] * run->w->machine->types[self->type].row_bytes;
}

static PyObject *get_row_address(PyObject *self, void *none) {
  (void)none;
  const char *row = row_of((Handle *)self);
  return row ? PyLong_FromVoidPtr((void *)row) : NULL;
}

static PyObject *get_tensor(PyObject *self, void *none) {
  (void)none;
  PyObject *tensor = ((Handle *)self)->tensor;
  return Py_NewRef(tensor ? tensor : Py_None);
}

static int set_tensor(PyObject *object, PyObject *value, void *none) {
  (void)none;
  Handle *self = (Handle *)object;
  PyObject *before = self->tensor, *tensor = value && value != Py_None ? value : NULL;
  if (tensor && tensor_type && !PyType_IsSubtype(Py_TYPE(tensor), tensor_type)) {
    PyErr_SetString(PyExc_TypeError, "tensor: takes a tensor, or None");
    return -1;
  }
  if (tensor && tensor_type) memcpy(self->shadow, (const char *)tensor + sizeof(PyObject), shadow_bytes);
  self->tensor = Py_XNewRef(tensor);
  Py_XDECREF(before);
  return 0;
}

static PyObject *number_of(float value, Dtype dtype) {
  if (dtype == FLOAT32) return PyFloat_FromDouble(value);
  return dtype == BOOL ? PyBool_FromLong(value != 0) : PyLong_FromDouble(value);
}

PyObject *value_of(PyObject *module, PyObject *object) {
  (void)module;
  const Handle *self = (Handle *)object;
  if (Py_TYPE(object) != handle_type) return PyErr_Format(PyExc_TypeError, "value: takes a handle");
  if (self->tensor) return PyObject_CallMethod(self->tensor, "item", NULL);
  const char *row = row_of(self);
  if (!row) return NULL;
  if (self->run->w->machine->types[self->type].num_elements != 1)
    return PyErr_Format(PyExc_ValueError, "value: takes a handle of one element");
  float value = *(const float *)row;
  return number_of(value, self->dtype);
}

/* Borrowed; made at once, so that no other instance runs. */
static PyObject *tensor_of(PyObject *self) {
  if (!((Handle *)self)->tensor) {
    PyObject *answer = make_tensor ? PyObject_CallFunctionObjArgs(make_tensor, self, NULL) : Py_NewRef(Py_None);
    Py_XDECREF(answer);
    if (!answer) return NULL;
    if (!((Handle *)self)->tensor) return PyErr_Format(PyExc_RuntimeError, "a handle whose tensor was not made");
  }
  return ((Handle *)self)->tensor;
}

static PyObject *get_class(PyObject *self, void *none) {
  (void)none;
  if (!tensor_type) return Py_NewRef((PyObject *)Py_TYPE(self));
  return tensor_of(self) ? Py_NewRef((PyObject *)tensor_type) : NULL;
}

/* ---- Numbers ---- */

/* Of a handle that is waited for. Where it is no such number, PyTorch says what is wrong. */
static PyObject *converted(PyObject *self, PyObject *(*convert)(PyObject *)) {
  PyObject *value = wait_for(self) == 0 ? value_of(NULL, self) : NULL, *found = value ? convert(value) : NULL;
  Py_XDECREF(value);
  if (found || !make_tensor) return found;
  if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) return NULL;
  PyErr_Clear();
  PyObject *tensor = tensor_of(self);
  return tensor ? convert(tensor) : NULL;
}

static PyObject *itself(PyObject *value) {
  return Py_TYPE(value) == &PyFloat_Type || PyLong_Check(value) ? Py_NewRef(value) : PyObject_CallMethod(value, "item", NULL);
}

static PyObject *item(PyObject *self, PyObject *none) {
  (void)none;
  return converted(self, itself);
}

static PyObject *as_float(PyObject *self) { return converted(self, PyNumber_Float); }
static PyObject *as_int(PyObject *self) { return converted(self, PyNumber_Long); }

static PyObject *as_index(PyObject *object) {
  const Handle *self = (const Handle *)object;
  PyObject *shape = get_shape(object, NULL);
  int is_number = shape && !self->tensor && self->dtype != FLOAT32 && PyTuple_Size(shape) == 0;
  Py_XDECREF(shape);
  if (is_number) return converted(object, PyNumber_Long);
  PyErr_Clear();
  PyObject *tensor = wait_for(object) == 0 ? tensor_of(object) : NULL;
  return tensor ? PyNumber_Index(tensor) : NULL;
}

static PyObject *truth(PyObject *value) {
  int is = PyObject_IsTrue(value);
  return is < 0 ? NULL : PyBool_FromLong(is);
}

static int as_bool(PyObject *self) {
  PyObject *found = converted(self, truth);
  int is = found ? PyObject_IsTrue(found) : -1;
  Py_XDECREF(found);
  return is;
}

/* Of one whole number with another it is Python's. Its answer is a tensor of its own: others may change it in place. */
static PyObject *compare(PyObject *object, PyObject *other, int how) {
  const Handle *self = (const Handle *)object;
  if (!truths) return Py_NewRef(Py_NotImplemented);
  PyObject *shape = self->dtype == INT64 && !self->tensor && PyLong_CheckExact(other) ? get_shape(object, NULL) : NULL;
  int is_number = shape && PyTuple_Size(shape) == 0, overflow = 0;
  Py_XDECREF(shape);
  PyErr_Clear();
  if (is_number) PyLong_AsLongLongAndOverflow(other, &overflow); /* which PyTorch refuses */
  if (!is_number || overflow) return PyObject_CallMethod(object, "compared", "iO", how, other);
  PyObject *value = as_int(object);
  int is = value ? PyObject_RichCompareBool(value, other, how) : -1;
  Py_XDECREF(value);
  return is < 0 ? NULL : PyObject_CallMethod(PyTuple_GetItem(truths, is), "clone", NULL);
}

static Py_hash_t hash(PyObject *self) { return (Py_hash_t)((size_t)self >> 4 | (size_t)self << (8 * sizeof self - 4)); }

/* Nested lists of a row; `row` goes on behind what was read. */
static PyObject *lists_of(const float **row, Dtype dtype, PyObject *shape, Py_ssize_t axis) {
  if (axis == PyTuple_Size(shape)) return number_of(*(*row)++, dtype);
  Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
  PyObject *made = count < 0 ? NULL : PyList_New(count);
  for (Py_ssize_t i = 0; made && i < count; i++) {
    PyObject *one = lists_of(row, dtype, shape, axis + 1);
    if (!one || PyList_SetItem(made, i, one) != 0) Py_CLEAR(made);
  }
  return made;
}

static PyObject *tolist(PyObject *object, PyObject *none) {
  (void)none;
  const Handle *self = (const Handle *)object;
  if (wait_for(object) != 0) return NULL;
  if (self->tensor) return PyObject_CallMethod(self->tensor, "tolist", NULL);
  const float *row = (const float *)row_of(self);
  return row ? lists_of(&row, self->dtype, PyTuple_GetItem(self->run->machine->shapes, self->type), 0) : NULL;
}

PyObject *pretend(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *class, *make, *both;
  Py_ssize_t num_bytes;
  if (!PyArg_ParseTuple(args, "O!nOO!", &PyType_Type, &class, &num_bytes, &make, &PyTuple_Type, &both)) return NULL;
  num_bytes -= sizeof(PyObject);
  if (num_bytes < 0 || num_bytes > (Py_ssize_t)sizeof(((Handle *)0)->shadow))
    return PyErr_Format(PyExc_ValueError, "pretend: tensors of this PyTorch are too large: %zd bytes", num_bytes);
  Py_XDECREF(make_tensor);
  Py_XDECREF(truths);
  make_tensor = Py_NewRef(make);
  truths = Py_NewRef(both);
  shadow_bytes = (size_t)num_bytes;
  tensor_type = (PyTypeObject *)Py_NewRef(class); /* for ever, as that of PyTorch */
  return Py_NewRef(Py_None);
}

/* Not by `__getitem__` of Python's, which makes a sequence of a class: PyTorch would look into one of no dimensions. */
static PyObject *get_item(PyObject *self, PyObject *key) {
  PyObject *name = PyUnicode_FromString("item_at");
  PyObject *found = name ? PyObject_CallMethodObjArgs(self, name, key, NULL) : NULL;
  Py_XDECREF(name);
  return found;
}

PyObject *gather(PyObject *object, PyObject *args) {
  Run *run = (Run *)object;
  PyObject *handles;
  long long address;
  if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &handles, &address)) return NULL;
  char *target = (char *)(intptr_t)address;
  for (Py_ssize_t i = 0, type = -1; i < PyList_Size(handles); i++) {
    const Handle *one = (const Handle *)PyList_GetItem(handles, i);
    if (Py_TYPE((PyObject *)one) != handle_type || one->run != run || (i && one->type != type))
      return PyErr_Format(PyExc_ValueError, "gather: takes handles of this run that have one type");
    const char *row = row_of(one);
    if (!row) return NULL;
    int64_t num_bytes = run->w->machine->types[type = one->type].row_bytes;
    memcpy(target, row, num_bytes);
    target += num_bytes;
  }
  return Py_NewRef(Py_None);
}

static PyMemberDef handle_members[] = {
    {"number", T_INT, offsetof(Handle, number), READONLY, "in its run"},
    {"type_number", T_INT, offsetof(Handle, type), READONLY, "of its machine's types"},
    {"dtype_code", T_INT, offsetof(Handle, dtype), READONLY, "0 float32, 1 bool, 2 int64, 3 int32"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyGetSetDef handle_getters[] = {{"__class__", get_class, NULL, "for isinstance", NULL},
                                       {"run", get_run, NULL, "None when it is over", NULL},
                                       {"type_shape", get_shape, NULL, "of its type", NULL},
                                       {"computed", get_computed, NULL, "whether it has a row or a tensor", NULL},
                                       {"row_address", get_row_address, NULL, "until its run is flushed again", NULL},
                                       {"tensor", get_tensor, set_tensor, "that it was made into, or None", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef handle_methods[] = {{"item", item, METH_NOARGS, "item(): its number"},
                                       {"tolist", tolist, METH_NOARGS, "tolist(): nested lists of its numbers"},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot handle_slots[] = {
    {Py_tp_dealloc, free_handle},      {Py_tp_members, handle_members}, {Py_tp_getset, handle_getters},
    {Py_tp_methods, handle_methods},   {Py_mp_subscript, get_item},     {Py_nb_bool, as_bool},
    {Py_nb_float, as_float},           {Py_nb_int, as_int},             {Py_nb_index, as_index},
    {Py_tp_richcompare, compare},      {Py_tp_hash, hash},
    {0, NULL}};
static PyType_Spec handle_spec = {"dietcode.runtime.recorder.Handle", sizeof(Handle), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, handle_slots};

int start_handles(PyObject *module) {
  handle_type = (PyTypeObject *)PyType_FromSpec(&handle_spec);
  return handle_type ? PyModule_AddType(module, handle_type) : -1;
}
