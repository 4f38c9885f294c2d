/* Instances of a program as words, in C: what `dietcode.runtime.programs.instances` does in Python.
 *
 * Anything but numbers, texts, lists, tuples, tensors and objects of known classes is asked for in Python. */
#include "compiled_call.h"

#include <stdlib.h>
#include <string.h>

enum { K_NONE, K_BOOL, K_INT, K_FLOAT, K_TEXT, K_TUPLE, K_LIST, K_RECORD, K_TENSOR }; /* as the machine has them */
enum { TYPE_SHIFT = 8, MAX_TYPES = 64, FIRST_ROOM = 256 };
static const int64_t OWN_TEXTS = INT64_C(1) << 32;

typedef struct {
  int64_t *data;
  size_t count, capacity;
} Words;

/* Numbers of objects by their address. */
typedef struct {
  PyObject **keys;
  int64_t *values;
  size_t count, capacity; /* a power of two */
} Numbers;

typedef struct {
  Words roots, objects, tensors;
  Numbers numbers, tensor_numbers;
  PyObject **waiting; /* owned: every object, in the order of their numbers */
  Words stack; /* numbers of those whose items are not written yet, in pairs with 0 */
  size_t num_waiting, waiting_capacity, num_types;
  Expected types[MAX_TYPES];
  int64_t shapes[MAX_TYPES][MAX_NDIM];
  int64_t numbers_of_types[MAX_TYPES];
  Arrays arrays;
  int beside_torch;
  PyObject *texts, *own_texts, *records, *other, *kept;
} Writer;

/* ---- What grows ---- */

static int no_memory(void) {
  PyErr_NoMemory();
  return -1;
}

static int push(Words *words, int64_t first, int64_t second) {
  if (words->count + 2 > words->capacity) {
    size_t capacity = words->capacity ? 2 * words->capacity : FIRST_ROOM;
    int64_t *data = realloc(words->data, capacity * sizeof *data);
    if (!data) return no_memory();
    words->data = data;
    words->capacity = capacity;
  }
  words->data[words->count++] = first;
  words->data[words->count++] = second;
  return 0;
}

/* All bits of an address are mixed: objects that were made one after the other lie at regular distances. */
static size_t position_of(const Numbers *numbers, const PyObject *key) {
  uint64_t bits = (uint64_t)(uintptr_t)key;
  bits = (bits ^ bits >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
  size_t mask = numbers->capacity - 1, at = (size_t)(bits ^ bits >> 33) & mask;
  while (numbers->keys[at] && numbers->keys[at] != key) at = (at + 1) & mask;
  return at;
}

static int grow(Numbers *numbers) {
  Numbers old = *numbers;
  size_t capacity = old.capacity ? 2 * old.capacity : FIRST_ROOM;
  PyObject **keys = calloc(capacity, sizeof *keys);
  int64_t *values = calloc(capacity, sizeof *values);
  if (!keys || !values) {
    free(keys), free(values);
    return no_memory();
  }
  *numbers = (Numbers){keys, values, old.count, capacity};
  for (size_t i = 0; i < old.capacity; i++) {
    if (!old.keys[i]) continue;
    size_t at = position_of(numbers, old.keys[i]);
    keys[at] = old.keys[i];
    values[at] = old.values[i];
  }
  free(old.keys), free(old.values);
  return 0;
}

/* An object's number, where it has one; otherwise `number` is it from now on. */
static int find_or_add(Numbers *numbers, PyObject *key, int64_t number, int64_t *found) {
  if (2 * (numbers->count + 1) > numbers->capacity && grow(numbers) != 0) return -1;
  size_t at = position_of(numbers, key);
  if (!numbers->keys[at]) {
    numbers->keys[at] = key;
    numbers->values[at] = number;
    numbers->count++;
  }
  *found = numbers->values[at];
  return 0;
}

/* ---- Values ---- */

static int write_value(Writer *w, Words *words, PyObject *value);

static int write_object(Writer *w, Words *words, PyObject *value, int64_t kind) {
  int64_t number;
  if (find_or_add(&w->numbers, value, (int64_t)w->num_waiting, &number) != 0) return -1;
  if (number == (int64_t)w->num_waiting) {
    if (w->num_waiting == w->waiting_capacity) {
      size_t capacity = w->waiting_capacity ? 2 * w->waiting_capacity : FIRST_ROOM;
      PyObject **waiting = realloc(w->waiting, capacity * sizeof *waiting);
      if (!waiting) return no_memory();
      w->waiting = waiting;
      w->waiting_capacity = capacity;
    }
    w->waiting[w->num_waiting++] = Py_NewRef(value);
    if (push(&w->stack, number, 0) != 0) return -1;
  }
  return push(words, kind, number);
}

static int write_text(Writer *w, Words *words, PyObject *text) {
  PyObject *known = PyDict_GetItemWithError(w->texts, text);
  if (!known && PyErr_Occurred()) return -1;
  if (known) return push(words, K_TEXT, PyLong_AsLongLong(known));
  known = PyDict_GetItemWithError(w->own_texts, text);
  if (known) return push(words, K_TEXT, PyLong_AsLongLong(known));
  int64_t number = OWN_TEXTS + PyDict_Size(w->own_texts);
  PyObject *made = PyErr_Occurred() ? NULL : PyLong_FromLongLong(number);
  int status = made ? PyDict_SetItem(w->own_texts, text, made) : -1;
  Py_XDECREF(made);
  return status == 0 ? push(words, K_TEXT, number) : -1;
}

static int add_tensor(Writer *w, Words *words, PyObject *value, PyObject *kept, int64_t type, int64_t address) {
  int64_t next = (int64_t)w->tensors.count / 2, number;
  if (find_or_add(&w->tensor_numbers, value, next, &number) != 0) return -1;
  if (number == next && (push(&w->tensors, type, address) != 0 || PyList_Append(w->kept, value) != 0)) return -1;
  if (number == next && kept != value && PyList_Append(w->kept, kept) != 0) return -1;
  return push(words, K_TENSOR, number);
}

/* 1 for a tensor of one of the program's types that lies as it should, 0 for all else. */
static int write_tensor(Writer *w, Words *words, PyObject *value) {
  View view;
  for (size_t i = 0; i < w->num_types; i++) {
    int status = view_any(value, &w->types[i], &w->arrays, &view);
    if (PyErr_Occurred()) PyErr_Clear();
    if (status != 0 || memcmp(view.shape, w->shapes[i], w->types[i].ndim * sizeof *view.shape) != 0) continue;
    w->beside_torch |= view.kind == TORCH;
    return add_tensor(w, words, value, value, w->numbers_of_types[i], (int64_t)(intptr_t)view.tensor.data) == 0 ? 1 : -1;
  }
  return 0;
}

/* What Python says of a value: kind and number, what has to be kept, and whether it is PyTorch's. */
static int write_other(Writer *w, Words *words, PyObject *value) {
  long long kind, number;
  int is_torch, status = -1;
  PyObject *kept, *said = PyObject_CallFunctionObjArgs(w->other, value, NULL);
  if (said && PyArg_ParseTuple(said, "LLOp", &kind, &number, &kept, &is_torch)) {
    w->beside_torch |= is_torch;
    if (kind == K_RECORD || kind == K_LIST || kind == K_TUPLE) status = write_object(w, words, value, kind);
    else if ((kind & 255) == K_TENSOR) status = add_tensor(w, words, value, kept, kind >> TYPE_SHIFT, number);
    else if (kind == K_TEXT) status = write_text(w, words, kept);
    else status = push(words, kind, number);
  }
  Py_XDECREF(said);
  return status;
}

static int write_value(Writer *w, Words *words, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  if (value == Py_None) return push(words, K_NONE, 0);
  if (type == &PyLong_Type) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? write_other(w, words, value) : push(words, K_INT, number);
  }
  if (type == &PyFloat_Type) {
    double number = PyFloat_AsDouble(value);
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return push(words, K_FLOAT, bits);
  }
  if (type == &PyBool_Type) return push(words, K_BOOL, value == Py_True);
  if (type == &PyUnicode_Type) return write_text(w, words, value);
  if (type == &PyList_Type) return write_object(w, words, value, K_LIST);
  if (type == &PyTuple_Type) return write_object(w, words, value, K_TUPLE);
  if (PyDict_GetItemWithError(w->records, (PyObject *)type)) return write_object(w, words, value, K_RECORD);
  if (PyErr_Occurred()) return -1;
  int is_tensor = write_tensor(w, words, value);
  return is_tensor ? (is_tensor > 0 ? 0 : -1) : write_other(w, words, value);
}

/* An object's record, length, number and items. */
static int write_items(Writer *w, int64_t own) {
  Words *words = &w->objects;
  PyObject *value = w->waiting[own];
  PyObject *record = PyDict_GetItemWithError(w->records, (PyObject *)Py_TYPE(value));
  if (!record) {
    if (PyErr_Occurred()) return -1;
    int is_list = PyList_Check(value);
    Py_ssize_t count = is_list ? PyList_Size(value) : PyTuple_Size(value);
    if (count < 0 || push(words, 0, count) != 0 || push(words, own, 0) != 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
      PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
      if (!item) return -1; /* a list that another thread has made shorter */
      Py_INCREF(item);
      int status = write_value(w, words, item);
      Py_DECREF(item);
      if (status != 0) return -1;
    }
    return 0;
  }
  PyObject *names = PyTuple_GetItem(record, 1), *number = PyTuple_GetItem(record, 0);
  Py_ssize_t count = names ? PyTuple_Size(names) : -1;
  if (count < 0 || push(words, PyLong_AsLongLong(number), count) != 0 || push(words, own, 0) != 0) return -1;
  Py_INCREF(names); /* the dict may be cleared meanwhile */
  int status = 0;
  for (Py_ssize_t i = 0; i < count && status == 0; i++) {
    PyObject *item = PyObject_GetAttr(value, PyTuple_GetItem(names, i));
    status = item ? write_value(w, words, item) : -1;
    Py_XDECREF(item);
  }
  Py_DECREF(names);
  return status;
}

/* ---- A call ---- */

static int read_types(Writer *w, PyObject *types) {
  Py_ssize_t count = PyTuple_Size(types);
  for (Py_ssize_t i = 0; i < count && w->num_types < MAX_TYPES; i++) {
    Expected *expected = &w->types[w->num_types];
    PyObject *shape;
    int code;
    if (!PyArg_ParseTuple(PyTuple_GetItem(types, i), "iyO!", &code, &expected->format, &PyTuple_Type, &shape)) return -1;
    expected->ndim = (int)PyTuple_Size(shape);
    expected->dtype = (DLDataType){(uint8_t)code, 32, 1};
    if (expected->ndim > MAX_NDIM || (!expected->ndim && code == kDLInt)) continue; /* a number, which Python reads */
    for (int axis = 0; axis < expected->ndim; axis++)
      w->shapes[w->num_types][axis] = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
    w->numbers_of_types[w->num_types++] = i;
  }
  return PyErr_Occurred() ? -1 : 0;
}

/* Says which instance it is that has what is wrong. */
static void set_instance(PyObject *on_error, Py_ssize_t instance) {
  PyObject *type, *value, *traceback, *number = NULL, *made = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  number = PyLong_FromSsize_t(instance);
  if (number && value) made = PyObject_CallFunctionObjArgs(on_error, number, value, NULL);
  Py_XDECREF(number);
  if (made && PyExceptionInstance_Check(made)) {
    PyErr_SetObject((PyObject *)Py_TYPE(made), made);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
  } else {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
  }
  Py_XDECREF(made);
}

static int write_instances(Writer *w, PyObject *instances, Py_ssize_t num_parameters, int is_alone, PyObject *on_error) {
  for (Py_ssize_t i = 0; i < PyList_Size(instances); i++) {
    PyObject *instance = Py_NewRef(PyList_GetItem(instances, i));
    int status = 0;
    if (is_alone && w->numbers.capacity) {
      memset(w->numbers.keys, 0, w->numbers.capacity * sizeof *w->numbers.keys);
      w->numbers.count = 0;
    }
    if (num_parameters == 1) status = write_value(w, &w->roots, instance);
    for (Py_ssize_t k = 0; num_parameters > 1 && k < num_parameters && status == 0; k++) {
      PyObject *value = PyTuple_GetItem(instance, k);
      status = value ? write_value(w, &w->roots, value) : -1;
    }
    while (status == 0 && w->stack.count) { /* depth first: what lies together was mostly made together */
      w->stack.count -= 2;
      status = write_items(w, w->stack.data[w->stack.count]);
    }
    Py_DECREF(instance);
    if (status == 0) continue;
    set_instance(on_error, i);
    return -1;
  }
  return 0;
}

static PyObject *joined(const Words *first, const Words *second) {
  size_t bytes = first->count * sizeof *first->data, more = second ? second->count * sizeof *second->data : 0;
  PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(bytes + more));
  char *data = made ? PyBytes_AsString(made) : NULL;
  if (data && bytes) memcpy(data, first->data, bytes);
  if (data && more) memcpy(data + bytes, second->data, more);
  return made;
}

/* encode(instances, num_parameters, is_alone, texts, records, types, array, (other, on_error)): words, number of objects,
 * tensors, own texts, whether a tensor is PyTorch's, what is kept. */
static PyObject *encode(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *instances, *types, *array, *on_error, *result = NULL;
  Py_ssize_t num_parameters;
  int is_alone;
  Writer *w = calloc(1, sizeof *w);
  if (!w) return PyErr_NoMemory();
  if (PyArg_ParseTuple(args, "O!npO!O!O!O(OO)", &PyList_Type, &instances, &num_parameters, &is_alone, &PyDict_Type, &w->texts,
                       &PyDict_Type, &w->records, &PyTuple_Type, &types, &array, &w->other, &on_error)) {
    w->arrays.array = (PyTypeObject *)array;
    w->own_texts = PyDict_New();
    w->kept = PyList_New(0);
    if (w->own_texts && w->kept && read_types(w, types) == 0 &&
        write_instances(w, instances, num_parameters, is_alone, on_error) == 0) {
      PyObject *words = joined(&w->roots, &w->objects), *tensors = joined(&w->tensors, NULL);
      if (words && tensors)
        result = Py_BuildValue("OnOOOO", words, (Py_ssize_t)w->num_waiting, tensors, w->own_texts,
                               w->beside_torch ? Py_True : Py_False, w->kept);
      Py_XDECREF(words), Py_XDECREF(tensors);
    }
  }
  for (size_t i = 0; i < w->num_waiting; i++) Py_DECREF(w->waiting[i]);
  Py_XDECREF(w->own_texts), Py_XDECREF(w->kept);
  free(w->roots.data), free(w->objects.data), free(w->tensors.data), free(w->stack.data), free(w->waiting);
  free(w->numbers.keys), free(w->numbers.values), free(w->tensor_numbers.keys), free(w->tensor_numbers.values);
  free(w);
  return result;
}

PyMethodDef instance_methods[] = {{"encode", encode, METH_VARARGS, "encode(…): instances of a program as words"},
                                  {NULL, NULL, 0, NULL}};
