/* Instances of a program as words, in C: what `dietcode.runtime.programs.instances` does in Python.
 *
 * Anything but numbers, texts, lists, tuples, tensors and objects of known classes is asked for in Python. */
#include "compiled_call.h"

#include <stdlib.h>
#include <string.h>

enum { K_NONE, K_BOOL, K_INT, K_FLOAT, K_TEXT, K_TUPLE, K_LIST, K_RECORD, K_TENSOR }; /* as the machine has them */
enum { TYPE_SHIFT = 8, MAX_TYPES = 64, FIRST_ROOM = 256, MAX_SPARE = 4, MAX_WASTEFUL = 64, WASTE = 8 };
enum { NUM_MET = 16, NUM_NEXT = 8, NUM_CLASSES = 16 }; /* powers of two */
enum { LINE_BYTES = 64, MANAGED_DICT = 1 << 4, FIRST_UNKNOWN = 0x030F0000 }; /* of types' flags, and of Python's versions */
static const int64_t OWN_TEXTS = INT64_C(1) << 32;

typedef struct {
  int64_t *data;
  size_t count, capacity;
} Words;

typedef struct {
  PyObject *key;
  uint32_t round, number; /* of an earlier round: free */
} Entry;

/* Numbers of objects by their address. */
typedef struct {
  Entry *entries;
  size_t count, capacity; /* a power of two */
  uint32_t round;
} Numbers;

/* A value that was met, owned, and the offset of its two words. */
typedef struct {
  PyObject *value;
  size_t at;
  int from_place;
} Met;

/* A class of objects with its record; both owned, so that its address stays its own. */
typedef struct {
  PyObject *type, *record, *names;
  int64_t number, num_fields;
  int is_place; /* whether an object's attributes are its own */
  int has_values; /* whether pointers to its attributes lie before it */
} Class;

/* What one call at a time writes to. Its memory is kept for later calls: fresh memory costs more than what is written. */
typedef struct Writer Writer;
struct Writer {
  Words words, tensors; /* the roots' values come before those of objects */
  Numbers numbers, tensor_numbers;
  PyObject **waiting; /* owned: every object, in the order of their numbers */
  Words stack; /* numbers of those whose items are not read yet, in pairs with 0 */
  size_t num_waiting, waiting_capacity, num_types;
  Met met[NUM_MET]; /* a ring: fetched from memory meanwhile */
  size_t first_met, num_met;
  int64_t next[NUM_NEXT]; /* a ring: numbers of objects whose attributes are fetched meanwhile */
  size_t first_next, num_next;
  Class classes[NUM_CLASSES]; /* of the call, by address; others have no type */
  int num_wasteful; /* calls in a row that used little of the memory */
  Expected types[MAX_TYPES];
  int64_t shapes[MAX_TYPES][MAX_NDIM];
  int64_t numbers_of_types[MAX_TYPES];
  Arrays arrays;
  int beside_torch;
  PyObject *texts, *own_texts, *records, *other, *kept;
};

static struct {
  Writer *writers[MAX_SPARE];
  int count;
} spare;

/* ---- What grows ---- */

static int no_memory(void) {
  PyErr_NoMemory();
  return -1;
}

/* Room for `count` words, of which the first has this offset. */
static int extend(Words *words, size_t count, size_t *at) {
  *at = words->count;
  if (words->count + count > words->capacity) {
    size_t capacity = words->capacity ? 2 * words->capacity : FIRST_ROOM;
    if (capacity < words->count + count) capacity = words->count + count;
    int64_t *data = capacity <= SIZE_MAX / sizeof *data ? realloc(words->data, capacity * sizeof *data) : NULL;
    if (!data) return no_memory();
    words->data = data;
    words->capacity = capacity;
  }
  words->count += count;
  return 0;
}

static int push(Words *words, int64_t first, int64_t second) {
  size_t at;
  if (extend(words, 2, &at) != 0) return -1;
  words->data[at] = first;
  words->data[at + 1] = second;
  return 0;
}

/* All bits of an address are mixed: objects that were made one after the other lie at regular distances. */
static size_t position_of(const Numbers *numbers, const PyObject *key) {
  uint64_t bits = (uint64_t)(uintptr_t)key;
  bits = (bits ^ bits >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
  size_t mask = numbers->capacity - 1, at = (size_t)(bits ^ bits >> 33) & mask;
  while (numbers->entries[at].round == numbers->round && numbers->entries[at].key != key) at = (at + 1) & mask;
  return at;
}

static int grow(Numbers *numbers) {
  Numbers old = *numbers;
  size_t capacity = old.capacity ? 2 * old.capacity : FIRST_ROOM;
  Entry *entries = calloc(capacity, sizeof *entries);
  if (!entries) return no_memory();
  *numbers = (Numbers){entries, old.count, capacity, 1};
  for (size_t i = 0; i < old.capacity; i++) {
    if (old.entries[i].round != old.round) continue;
    Entry *entry = &entries[position_of(numbers, old.entries[i].key)];
    *entry = old.entries[i];
    entry->round = 1;
  }
  free(old.entries);
  return 0;
}

static void forget_all(Numbers *numbers) {
  numbers->count = 0;
  if (++numbers->round) return;
  numbers->round = 1;
  if (numbers->capacity) memset(numbers->entries, 0, numbers->capacity * sizeof *numbers->entries);
}

/* An object's number, where it has one; otherwise `number` is it from now on. */
static int find_or_add(Numbers *numbers, PyObject *key, int64_t number, int64_t *found) {
  if (number > (int64_t)UINT32_MAX) return no_memory();
  if (2 * (numbers->count + 1) > numbers->capacity && grow(numbers) != 0) return -1;
  Entry *entry = &numbers->entries[position_of(numbers, key)];
  if (entry->round != numbers->round) {
    *entry = (Entry){key, numbers->round, (uint32_t)number};
    numbers->count++;
  }
  *found = entry->number;
  return 0;
}

/* ---- Values ---- */

static int say(Writer *w, size_t at, int64_t kind, int64_t number) {
  w->words.data[at] = kind;
  w->words.data[at + 1] = number;
  return 0;
}

/* An object that comes from one place alone is met once, and needs no number that can be found. `met` has a reference
 * too; an object whose attributes are computed may give the same one twice, and is no place in this sense. */
static int is_met_once(PyObject *value, int from_place) { return from_place && Py_REFCNT(value) <= 2; }

static int write_object(Writer *w, size_t at, PyObject *value, int64_t kind, int from_place) {
  int64_t number = (int64_t)w->num_waiting;
  if (!is_met_once(value, from_place) && find_or_add(&w->numbers, value, number, &number) != 0) return -1;
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
  return say(w, at, kind, number);
}

static int write_text(Writer *w, size_t at, PyObject *text) {
  PyObject *known = PyDict_GetItemWithError(w->texts, text);
  if (!known && PyErr_Occurred()) return -1;
  if (known) return say(w, at, K_TEXT, PyLong_AsLongLong(known));
  known = PyDict_GetItemWithError(w->own_texts, text);
  if (known) return say(w, at, K_TEXT, PyLong_AsLongLong(known));
  int64_t number = OWN_TEXTS + PyDict_Size(w->own_texts);
  PyObject *made = PyErr_Occurred() ? NULL : PyLong_FromLongLong(number);
  int status = made ? PyDict_SetItem(w->own_texts, text, made) : -1;
  Py_XDECREF(made);
  return status == 0 ? say(w, at, K_TEXT, number) : -1;
}

static int add_tensor(Writer *w, size_t at, PyObject *value, PyObject *kept, int64_t type, int64_t address) {
  int64_t next = (int64_t)w->tensors.count / 2, number;
  if (find_or_add(&w->tensor_numbers, value, next, &number) != 0) return -1;
  if (number == next && (push(&w->tensors, type, address) != 0 || PyList_Append(w->kept, value) != 0)) return -1;
  if (number == next && kept != value && PyList_Append(w->kept, kept) != 0) return -1;
  return say(w, at, K_TENSOR, number);
}

/* 1 for a tensor of one of the program's types that lies as it should, 0 for all else. */
static int write_tensor(Writer *w, size_t at, PyObject *value) {
  View view;
  for (size_t i = 0; i < w->num_types; i++) {
    int status = view_any(value, &w->types[i], &w->arrays, &view);
    if (PyErr_Occurred()) PyErr_Clear();
    if (status != 0 || memcmp(view.shape, w->shapes[i], w->types[i].ndim * sizeof *view.shape) != 0) continue;
    w->beside_torch |= view.kind == TORCH;
    return add_tensor(w, at, value, value, w->numbers_of_types[i], (int64_t)(intptr_t)view.tensor.data) == 0 ? 1 : -1;
  }
  return 0;
}

/* What Python says of a value: kind and number, what has to be kept, and whether it is PyTorch's. */
static int write_other(Writer *w, size_t at, PyObject *value, int from_place) {
  long long kind, number;
  int is_torch, status = -1;
  PyObject *kept, *said = PyObject_CallFunctionObjArgs(w->other, value, NULL);
  if (said && PyArg_ParseTuple(said, "LLOp", &kind, &number, &kept, &is_torch)) {
    w->beside_torch |= is_torch;
    if (kind == K_LIST && kept != Py_None) status = write_object(w, at, kept, kind, 0); /* what a tensor is as */
    else if (kind == K_RECORD || kind == K_LIST || kind == K_TUPLE) status = write_object(w, at, value, kind, from_place);
    else if ((kind & 255) == K_TENSOR) status = add_tensor(w, at, value, kept, kind >> TYPE_SHIFT, number);
    else if (kind == K_TEXT) status = write_text(w, at, kept);
    else status = say(w, at, kind, number);
  }
  Py_XDECREF(said);
  return status;
}

/* ---- Classes ---- */

static void forget_class(Class *own) {
  Py_CLEAR(own->type);
  Py_CLEAR(own->record);
}

/* The class of an object that has a record; NULL for others, or with an error. */
static Class *class_of(Writer *w, PyObject *value) {
  PyObject *type = (PyObject *)Py_TYPE(value);
  Class *own = &w->classes[((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % NUM_CLASSES];
  if (own->type == type) return own;
  PyObject *record = PyDict_GetItemWithError(w->records, type);
  if (!record) return NULL;
  PyObject *number = PyTuple_GetItem(record, 0), *names = PyTuple_GetItem(record, 1), *is_place = PyTuple_GetItem(record, 2);
  Py_ssize_t num_fields = names && is_place ? PyTuple_Size(names) : -1;
  if (num_fields < 0) return NULL;
  int has_values = Py_Version < FIRST_UNKNOWN && PyType_GetFlags(Py_TYPE(value)) & MANAGED_DICT;
  Class old = *own;
  *own = (Class){.type = Py_NewRef(type), .record = Py_NewRef(record), .names = names, .has_values = has_values,
                 .number = PyLong_AsLongLong(number), .num_fields = num_fields, .is_place = is_place == Py_True};
  forget_class(&old);
  return own;
}

static int write_value(Writer *w, size_t at, PyObject *value, int from_place) {
  PyTypeObject *type = Py_TYPE(value);
  if (value == Py_None) return say(w, at, K_NONE, 0);
  if (type == &PyLong_Type) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? write_other(w, at, value, from_place) : say(w, at, K_INT, number);
  }
  if (type == &PyFloat_Type) {
    double number = PyFloat_AsDouble(value);
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return say(w, at, K_FLOAT, bits);
  }
  if (type == &PyBool_Type) return say(w, at, K_BOOL, value == Py_True);
  if (type == &PyUnicode_Type) return write_text(w, at, value);
  if (type == &PyList_Type) return write_object(w, at, value, K_LIST, from_place);
  if (type == &PyTuple_Type) return write_object(w, at, value, K_TUPLE, from_place);
  if (class_of(w, value)) return write_object(w, at, value, K_RECORD, from_place);
  if (PyErr_Occurred()) return -1;
  int is_tensor = write_tensor(w, at, value);
  return is_tensor ? (is_tensor > 0 ? 0 : -1) : write_other(w, at, value, from_place);
}

/* ---- Objects ----
 *
 * Objects that do not fit the caches take several times as long as others, unless they are fetched while others are read
 * (Cher, Hosking, Vitek: Software prefetching for mark-sweep garbage collection, 2004). An object goes from `stack` to
 * `next` as its attributes begin to be fetched, and what these are to `met` as that begins to be. */

static int write_oldest(Writer *w) {
  Met one = w->met[w->first_met];
  w->first_met = (w->first_met + 1) % NUM_MET;
  w->num_met--;
  int status = write_value(w, one.at, one.value, one.from_place);
  Py_DECREF(one.value);
  return status;
}

/* Takes over the reference to a value. */
static int meet(Writer *w, PyObject *value, size_t at, int from_place) {
  __builtin_prefetch((const char *)value - LINE_BYTES / 2); /* an address alone: nothing is read */
  if (w->num_met == NUM_MET && write_oldest(w) != 0) {
    Py_DECREF(value);
    return -1;
  }
  w->met[(w->first_met + w->num_met++) % NUM_MET] = (Met){value, at, from_place};
  return 0;
}

/* Begins to fetch what an object's items are read from. Only an address is guessed here: nothing depends on it. */
static int begin_next(Writer *w) {
  int64_t own = w->stack.data[w->stack.count -= 2];
  PyObject *value = w->waiting[own];
  const void *const *fields = (const void *const *)value;
  Class *found = class_of(w, value);
  if (found && found->has_values) {
    __builtin_prefetch(fields[-4]); /* 3.11 */
    __builtin_prefetch(fields[-3]); /* 3.12; and a dict of its own */
  } else if (!found && PyErr_Occurred()) {
    return -1;
  }
  if (Py_TYPE(value) == &PyList_Type) __builtin_prefetch(fields[3]);
  else __builtin_prefetch((const char *)value + LINE_BYTES);
  w->next[(w->first_next + w->num_next++) % NUM_NEXT] = own;
  return 0;
}

static int begin_object(Writer *w, int64_t record, int64_t length, int64_t number, size_t *at) {
  if (extend(&w->words, 4 + 2 * (size_t)length, at) != 0) return -1;
  int64_t *words = &w->words.data[*at];
  words[0] = record, words[1] = length, words[2] = number, words[3] = 0;
  memset(words + 4, 0, 2 * (size_t)length * sizeof *words);
  *at += 4;
  return 0;
}

/* The record, length and number of the object that has been fetched for the longest time; its items are met. */
static int read_items(Writer *w) {
  int64_t own = w->next[w->first_next];
  w->first_next = (w->first_next + 1) % NUM_NEXT;
  w->num_next--;
  PyObject *value = w->waiting[own];
  size_t at;
  Class *found = class_of(w, value);
  if (!found) {
    if (PyErr_Occurred()) return -1;
    int is_list = PyList_Check(value);
    Py_ssize_t count = is_list ? PyList_Size(value) : PyTuple_Size(value);
    if (count < 0 || begin_object(w, 0, count, own, &at) != 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++, at += 2) {
      PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
      if (!item) return -1; /* a list that another thread has made shorter */
      if (meet(w, Py_NewRef(item), at, 1) != 0) return -1;
    }
    return 0;
  }
  Class cls = *found; /* it may be another's meanwhile */
  PyObject *record = Py_NewRef(cls.record);
  int status = begin_object(w, cls.number, cls.num_fields, own, &at);
  for (Py_ssize_t i = 0; i < cls.num_fields && status == 0; i++, at += 2) {
    PyObject *item = PyObject_GetAttr(value, PyTuple_GetItem(cls.names, i));
    status = item ? meet(w, item, at, cls.is_place) : -1;
  }
  Py_DECREF(record);
  return status;
}

/* Until nothing waits any more. Depth first: what lies together was mostly made together. */
static int read_objects(Writer *w) {
  for (;;) {
    int status = 0;
    if (w->stack.count && w->num_next < NUM_NEXT) status = begin_next(w);
    else if (w->num_next && (w->stack.count || w->num_met <= NUM_MET / 2)) status = read_items(w);
    else if (w->num_met) status = write_oldest(w);
    else if (w->num_next) status = read_items(w);
    else return 0;
    if (status != 0) return -1;
  }
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
  size_t at = 0;
  for (Py_ssize_t i = 0; i < PyList_Size(instances); i++) {
    PyObject *instance = Py_NewRef(PyList_GetItem(instances, i));
    int status = 0;
    if (is_alone) forget_all(&w->numbers);
    for (Py_ssize_t k = 0; k < num_parameters && status == 0; k++, at += 2) {
      PyObject *value = num_parameters == 1 ? instance : PyTuple_GetItem(instance, k);
      status = value ? meet(w, Py_NewRef(value), at, num_parameters == 1) : -1;
    }
    if (status == 0) status = read_objects(w);
    Py_DECREF(instance);
    if (status == 0) continue;
    set_instance(on_error, i);
    return -1;
  }
  return 0;
}

/* ---- Writers ---- */

static void free_writer(Writer *w) {
  free(w->words.data), free(w->tensors.data), free(w->stack.data), free(w->waiting);
  free(w->numbers.entries), free(w->tensor_numbers.entries);
  free(w);
}

static Writer *take_writer(void) {
  Writer *w = spare.count ? spare.writers[--spare.count] : calloc(1, sizeof *w);
  if (!w) return NULL;
  w->words.count = w->tensors.count = w->stack.count = w->num_waiting = w->num_types = 0;
  w->num_met = w->num_next = 0;
  w->beside_torch = 0;
  forget_all(&w->numbers), forget_all(&w->tensor_numbers);
  return w;
}

/* One that has been much larger than what calls need, for many calls, is given up. */
static void give_back(Writer *w) {
  w->num_wasteful = WASTE * w->words.count < w->words.capacity ? w->num_wasteful + 1 : 0;
  if (spare.count < MAX_SPARE && w->num_wasteful < MAX_WASTEFUL) spare.writers[spare.count++] = w;
  else free_writer(w);
}

static const char CAPSULE[] = "dietcode.written_instances";

static void end_capsule(PyObject *capsule) {
  Writer *w = PyCapsule_GetPointer(capsule, CAPSULE);
  if (w) give_back(w);
}

static int begin_roots(Writer *w, Py_ssize_t num_roots) {
  size_t at;
  if (extend(&w->words, 2 * (size_t)num_roots, &at) != 0) return -1;
  if (num_roots) memset(w->words.data, 0, 2 * (size_t)num_roots * sizeof *w->words.data);
  return 0;
}

static PyObject *result_of(Writer *w, PyObject *own_texts, PyObject *kept) {
  PyObject *capsule = PyCapsule_New(w, CAPSULE, end_capsule), *is_torch = w->beside_torch ? Py_True : Py_False;
  if (capsule)
    return Py_BuildValue("N(nn)n(nn)OOO", capsule, (Py_ssize_t)(intptr_t)w->words.data, (Py_ssize_t)w->words.count,
                         (Py_ssize_t)w->num_waiting, (Py_ssize_t)(intptr_t)w->tensors.data, (Py_ssize_t)w->tensors.count,
                         own_texts, is_torch, kept);
  give_back(w);
  return NULL;
}

/* Gives up all references; what is met no more is no one's. */
static void forget_objects(Writer *w) {
  for (; w->num_met; w->num_met--, w->first_met = (w->first_met + 1) % NUM_MET) Py_DECREF(w->met[w->first_met].value);
  for (int i = 0; i < NUM_CLASSES; i++) forget_class(&w->classes[i]);
  for (size_t i = 0; i < w->num_waiting; i++) {
    if (i + NUM_MET < w->num_waiting) __builtin_prefetch(w->waiting[i + NUM_MET], 1);
    Py_DECREF(w->waiting[i]);
  }
}

/* encode(instances, num_parameters, is_alone, texts, records, types, array, (other, on_error)): what holds the words, their
 * address and number, the number of objects, the tensors' words in the same way, own texts, whether a tensor is PyTorch's,
 * what is kept. */
static PyObject *encode(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *instances, *types, *array, *on_error, *own_texts = PyDict_New(), *kept = PyList_New(0), *result = NULL;
  Py_ssize_t num_parameters;
  int is_alone, is_right;
  Writer *w = own_texts && kept ? take_writer() : NULL;
  if (!w) {
    Py_XDECREF(own_texts), Py_XDECREF(kept);
    return PyErr_NoMemory();
  }
  is_right = PyArg_ParseTuple(args, "O!npO!O!O!O(OO)", &PyList_Type, &instances, &num_parameters, &is_alone, &PyDict_Type,
                              &w->texts, &PyDict_Type, &w->records, &PyTuple_Type, &types, &array, &w->other, &on_error);
  if (is_right) {
    w->arrays.array = (PyTypeObject *)array;
    w->own_texts = own_texts;
    w->kept = kept;
    is_right = read_types(w, types) == 0 && begin_roots(w, num_parameters * PyList_Size(instances)) == 0 &&
               write_instances(w, instances, num_parameters, is_alone, on_error) == 0;
  }
  forget_objects(w);
  if (is_right) result = result_of(w, own_texts, kept);
  else give_back(w);
  Py_DECREF(own_texts), Py_DECREF(kept);
  return result;
}

PyMethodDef instance_methods[] = {
    {"encode", encode, METH_VARARGS, "encode(…): instances of a program as words"},
    {"decode", decode, METH_VARARGS, "decode(…): results of a program"},
    {NULL, NULL, 0, NULL},
};
