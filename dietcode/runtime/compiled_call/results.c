/* Results of a program, of the machine's words: what `dietcode.runtime.programs.results` does in Python. */
#include "compiled_call.h"

#include <stdlib.h>
#include <string.h>

enum { K_NONE, K_BOOL, K_INT, K_FLOAT, K_TEXT, K_TUPLE, K_LIST, K_RECORD, K_TENSOR }; /* as the machine has them */
enum { TYPE_SHIFT = 8, KIND_MASK = 255 };
static const int64_t OWN_TEXTS = INT64_C(1) << 32;

typedef struct {
  const int64_t *words;
  int64_t num_words, num_objects;
  int64_t *begins; /* of each object's words: record, length, values */
  int64_t *stack, *next_items; /* of tuples that wait for others in them */
  PyObject **made; /* owned; NULL before there is one */
  int8_t *kinds;
  PyObject *constants, *texts, *tensors, *records;
} Decoder;

static int64_t kind_of(const int64_t *value) { return value[0] & KIND_MASK; }
static int is_object(int64_t kind) { return kind == K_TUPLE || kind == K_LIST || kind == K_RECORD; }

/* Where objects begin, and what each of them is. */
static int find_objects(Decoder *d, int64_t num_roots) {
  int64_t count = 0;
  for (int64_t at = 2 * num_roots; at < d->num_words; at += 2 + 2 * d->words[at + 1]) count++;
  d->num_objects = count;
  d->begins = malloc((count + 1) * sizeof *d->begins);
  d->stack = malloc((count + 1) * sizeof *d->stack);
  d->next_items = calloc(count + 1, sizeof *d->next_items);
  d->made = calloc(count + 1, sizeof *d->made);
  d->kinds = calloc(count + 1, sizeof *d->kinds);
  if (!d->begins || !d->stack || !d->next_items || !d->made || !d->kinds) {
    PyErr_NoMemory();
    return -1;
  }
  count = 0;
  for (int64_t at = 0; at < d->num_words;) {
    int64_t end = 2 * num_roots;
    if (at >= end) {
      d->begins[count++] = at;
      end = at + 2 + 2 * d->words[at + 1];
      at += 2;
    }
    for (; at < end; at += 2)
      if (is_object(kind_of(d->words + at))) d->kinds[d->words[at + 1]] = (int8_t)kind_of(d->words + at);
  }
  return 0;
}

/* A new reference; a tuple in it has been made. */
static PyObject *value_of(const Decoder *d, const int64_t *value) {
  int64_t kind = kind_of(value), number = value[1];
  PyObject *list;
  double own;
  switch (kind) {
    case K_NONE: return Py_NewRef(Py_None);
    case K_BOOL: return PyBool_FromLong(number != 0);
    case K_INT: return PyLong_FromLongLong(number);
    case K_FLOAT:
      memcpy(&own, &number, sizeof own);
      return PyFloat_FromDouble(own);
    case K_TEXT:
      list = number >= OWN_TEXTS ? d->texts : d->constants;
      return Py_XNewRef(PyTuple_GetItem(list, number >= OWN_TEXTS ? number - OWN_TEXTS : number));
    case K_TENSOR:
      list = PyTuple_GetItem(d->tensors, value[0] >> TYPE_SHIFT);
      return list ? Py_XNewRef(PyList_GetItem(list, number)) : NULL;
    default: return Py_NewRef(d->made[number]);
  }
}

/* Lists and objects are there before what is in them. */
static int make_shells(Decoder *d) {
  PyObject *nothing = PyTuple_New(0);
  for (int64_t n = 0; n < d->num_objects && nothing; n++) {
    const int64_t *words = d->words + d->begins[n];
    if (d->kinds[n] == K_LIST) d->made[n] = PyList_New(words[1]);
    if (d->kinds[n] == K_RECORD) {
      PyObject *record = PyTuple_GetItem(d->records, words[0]), *cls = record ? PyTuple_GetItem(record, 0) : NULL;
      newfunc make = cls ? (newfunc)PyType_GetSlot((PyTypeObject *)cls, Py_tp_new) : NULL;
      d->made[n] = make ? make((PyTypeObject *)cls, nothing, NULL) : NULL;
    }
    if (!d->made[n] && d->kinds[n] != K_TUPLE) {
      Py_DECREF(nothing);
      return -1;
    }
  }
  Py_XDECREF(nothing);
  return nothing ? 0 : -1;
}

/* Tuples in a tuple are made first: none is in itself, but by a list or an object. */
static int make_tuple(Decoder *d, int64_t number) {
  int64_t depth = 0;
  d->stack[depth++] = number;
  while (depth) {
    int64_t n = d->stack[depth - 1], length = d->words[d->begins[n] + 1], waits_for = -1;
    const int64_t *items = d->words + d->begins[n] + 2;
    for (int64_t k = d->next_items[n]; k < length && waits_for < 0; d->next_items[n] = ++k)
      if (kind_of(items + 2 * k) == K_TUPLE && !d->made[items[2 * k + 1]]) waits_for = items[2 * k + 1];
    if (waits_for >= 0) {
      d->stack[depth++] = waits_for;
      continue;
    }
    PyObject *tuple = PyTuple_New(length);
    for (int64_t k = 0; k < length && tuple; k++) {
      PyObject *item = value_of(d, items + 2 * k);
      if (!item || PyTuple_SetItem(tuple, k, item) != 0) {
        Py_DECREF(tuple);
        tuple = NULL;
      }
    }
    if (!tuple) return -1;
    d->made[n] = tuple;
    depth--;
  }
  return 0;
}

static int fill(const Decoder *d, int64_t n) {
  const int64_t *words = d->words + d->begins[n], *items = words + 2;
  if (d->kinds[n] == K_RECORD && PyDict_Check(d->made[n])) return 0; /* when all that is in it is there */
  PyObject *names = d->kinds[n] == K_RECORD ? PyTuple_GetItem(PyTuple_GetItem(d->records, words[0]), 1) : NULL;
  for (int64_t k = 0; k < words[1]; k++) {
    PyObject *item = value_of(d, items + 2 * k), *name = names ? PyTuple_GetItem(names, k) : NULL;
    if (!item || (names && !name)) {
      Py_XDECREF(item);
      return -1;
    }
    if (!names) {
      if (PyList_SetItem(d->made[n], k, item) != 0) return -1;
      continue;
    }
    int status = PyObject_SetAttr(d->made[n], name, item);
    Py_DECREF(item);
    if (status != 0) return -1;
  }
  return 0;
}

/* A dict of the lists that are its record's fields. */
static int fill_dict(const Decoder *d, int64_t n) {
  const int64_t *words = d->words + d->begins[n];
  PyObject *lists[2] = {NULL, NULL};
  int status = words[1] == 2 ? 0 : -1;
  for (int k = 0; k < 2 && status == 0; k++)
    if (!(lists[k] = value_of(d, words + 2 + 2 * k))) status = -1;
  Py_ssize_t count = status == 0 ? PyList_Size(lists[0]) : -1;
  if (count < 0 || PyList_Size(lists[1]) != count) status = -1;
  for (Py_ssize_t i = 0; i < count && status == 0; i++) {
    PyObject *key = PyList_GetItem(lists[0], i), *value = PyList_GetItem(lists[1], i);
    status = key && value ? PyDict_SetItem(d->made[n], key, value) : -1;
  }
  Py_XDECREF(lists[0]), Py_XDECREF(lists[1]);
  if (status != 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a dict whose keys and values are no lists of one length");
  return status;
}

static PyObject *all_of(Decoder *d, int64_t num_roots) {
  if (find_objects(d, num_roots) != 0 || make_shells(d) != 0) return NULL;
  for (int64_t n = d->num_objects - 1; n >= 0; n--) /* inner ones mostly have larger numbers */
    if (d->kinds[n] == K_TUPLE && !d->made[n] && make_tuple(d, n) != 0) return NULL;
  for (int64_t n = 0; n < d->num_objects; n++)
    if (d->kinds[n] != K_TUPLE && fill(d, n) != 0) return NULL;
  for (int64_t n = 0; n < d->num_objects; n++)
    if (d->kinds[n] == K_RECORD && PyDict_Check(d->made[n]) && fill_dict(d, n) != 0) return NULL;
  PyObject *found = PyList_New(num_roots);
  for (int64_t i = 0; i < num_roots && found; i++) {
    PyObject *value = value_of(d, d->words + 2 * i);
    if (value && PyList_SetItem(found, i, value) == 0) continue;
    Py_DECREF(found);
    found = NULL;
  }
  return found;
}

/* decode(address of the words, how many, number of results, constants, own texts, tensors by type, (class, fields) of each
 * record): a list. The words are the machine's own, and right. */
PyObject *decode(PyObject *module, PyObject *args) {
  (void)module;
  Decoder d = {0};
  long long address, num_words, num_roots;
  if (!PyArg_ParseTuple(args, "LLLO!O!O!O!", &address, &num_words, &num_roots, &PyTuple_Type, &d.constants, &PyTuple_Type,
                        &d.texts, &PyTuple_Type, &d.tensors, &PyTuple_Type, &d.records))
    return NULL;
  d.words = (const int64_t *)(intptr_t)address;
  d.num_words = num_words;
  int collects = PyGC_Disable(); /* all that is made stays: to look through it again and again takes longer than to make it */
  PyObject *found = all_of(&d, num_roots);
  for (int64_t n = 0; d.made && n < d.num_objects; n++) Py_XDECREF(d.made[n]);
  free(d.begins), free(d.stack), free(d.next_items), free(d.made), free(d.kinds);
  if (collects) PyGC_Enable();
  return found;
}
