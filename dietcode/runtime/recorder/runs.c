/* Machine and Run. */
#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

PyTypeObject *machine_type, *run_type;
static PyObject *limit_error;
static _Thread_local Run *current __attribute__((tls_model("initial-exec")));

Run *current_run(void) { return current; }

static void replace(PyObject **place, PyObject *value) {
  PyObject *before = *place;
  *place = value;
  Py_XDECREF(before);
}

/* The loops' own errors, which need not hold the GIL. */
int fail(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* tvm-ffi's error as Python's exception of that name. */
static void raise_ffi_error(void) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (!error) {
    PyErr_SetString(PyExc_RuntimeError, "a function of a library failed without an error");
    return;
  }
  const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
  PyObject *builtins = PyImport_ImportModule("builtins"), *kind = NULL, *type = NULL, *message;
  if (builtins) kind = PyUnicode_DecodeUTF8(cell->kind.data, (Py_ssize_t)cell->kind.size, "replace");
  if (kind) type = PyObject_GetAttr(builtins, kind);
  if (!type || !PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)PyExc_Exception))
    replace(&type, Py_NewRef(PyExc_RuntimeError));
  PyErr_Clear();
  message = PyUnicode_DecodeUTF8(cell->message.data, (Py_ssize_t)cell->message.size, "replace");
  if (message) PyErr_SetObject(type, message);
  Py_XDECREF(builtins), Py_XDECREF(kind), Py_DECREF(type), Py_XDECREF(message);
  TVMFFIObjectDecRef(error);
}

void *array_of(PyObject *integers, Py_ssize_t *length) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(integers, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) return NULL;
  int is_right = buffer.ndim == 1 && buffer.itemsize == 8 && buffer.format && strchr("ql", *buffer.format);
  int64_t *copy = is_right ? PyMem_Malloc(buffer.len + 8) : NULL;
  *length = buffer.len / 8;
  if (copy) memcpy(copy, buffer.buf, buffer.len);
  else if (is_right) PyErr_NoMemory();
  else PyErr_SetString(PyExc_TypeError, "integers: takes array('q')");
  PyBuffer_Release(&buffer);
  return copy;
}

/* ---- Machine ---- */

static PyObject *new_machine(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"description", "program", "shapes", "kept", NULL};
  PyObject *description, *program, *shapes, *kept = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, named, "OOO!|O", names, &description, &program, &PyTuple_Type, &shapes, &kept))
    return NULL;
  MachineObject *self = (MachineObject *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  self->shapes = Py_NewRef(shapes);
  self->kept = Py_NewRef(kept);
  Py_ssize_t length = 0, program_length = 0;
  int64_t *words = array_of(description, &length), *program_words = words ? array_of(program, &program_length) : NULL;
  if (program_words) {
    Program *made = make_program(program_words, program_length);
    self->machine = made ? make_machine(words, length, made) : NULL; /* which has the program, or frees it */
    if (!self->machine) raise_ffi_error();
  }
  PyMem_Free(words), PyMem_Free(program_words);
  if (self->machine && PyTuple_Size(shapes) != self->machine->num_types)
    PyErr_Format(PyExc_ValueError, "shapes: takes one of each of %lld types", (long long)self->machine->num_types);
  if (!PyErr_Occurred()) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static void free_object(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static void free_machine_object(PyObject *object) {
  MachineObject *self = (MachineObject *)object;
  if (self->machine) free_machine(self->machine);
  Py_CLEAR(self->shapes);
  Py_CLEAR(self->kept);
  free_object(object);
}

static PyObject *get_member(PyObject *self, void *offset) {
  PyObject *found = *(PyObject **)((char *)self + (intptr_t)offset);
  return Py_NewRef(found ? found : Py_None);
}

static PyGetSetDef machine_getters[] = {
    {"shapes", get_member, NULL, "of the types", (void *)offsetof(MachineObject, shapes)},
    {"kept", get_member, NULL, "has the memory of constants", (void *)offsetof(MachineObject, kept)},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot machine_slots[] = {{Py_tp_new, new_machine},
                                      {Py_tp_dealloc, free_machine_object},
                                      {Py_tp_getset, machine_getters},
                                      {0, NULL}};
static PyType_Spec machine_spec = {"dietcode.runtime.recorder.Machine", sizeof(MachineObject), 0, Py_TPFLAGS_DEFAULT,
                                   machine_slots};

/* ---- What ends a run ---- */

int is_alive(const Run *run) {
  if (!run->failure) return 0;
  PyErr_SetObject((PyObject *)Py_TYPE(run->failure), run->failure);
  return -1;
}

int keep_failure(PyObject **place) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  replace(place, Py_XNewRef(value));
  PyErr_Restore(type, value, traceback);
  return -1;
}

int fail_run(Run *run) {
  Workplace *w = run->w;
  if (PyErr_Occurred()) return keep_failure(&run->failure);
  if (w->ending == RAISED) {
    raise_ffi_error();
  } else {
    const char *limit = w->ending == NO_ROWS ? "rows" : "bytes";
    PyObject *args = Py_BuildValue("sL", limit, (long long)(w->ending == NO_ROWS ? w->detail : w->max_bytes));
    if (args) PyErr_SetObject(limit_error, args);
    Py_XDECREF(args);
  }
  return keep_failure(&run->failure);
}

/* ---- A run's nodes ---- */

static PyObject *operand_numbers(const Workplace *w, const Node *node) {
  const int32_t *operands = (const int32_t *)w->operands_room.data + node->operands;
  int32_t count = w->machine->blocks[node->block].num_operands;
  PyObject *numbers = PyTuple_New(count);
  for (int32_t k = 0; numbers && k < count; k++) {
    PyObject *number = PyLong_FromLong(operands[k]);
    if (!number || PyTuple_SetItem(numbers, k, number) != 0) Py_CLEAR(numbers);
  }
  return numbers;
}

static int observe_nodes(Run *run) {
  const Node *nodes = run->w->nodes_room.data;
  PyObject *noted = PyList_New(0);
  for (int64_t i = 0; noted && i < run->w->num_nodes; i++) {
    PyObject *numbers = operand_numbers(run->w, &nodes[i]);
    PyObject *one = numbers ? Py_BuildValue("iiNi", nodes[i].block, nodes[i].depth, numbers, nodes[i].result) : NULL;
    if (!one || PyList_Append(noted, one) != 0) Py_CLEAR(noted);
    Py_XDECREF(one);
  }
  PyObject *answer = noted ? PyObject_CallFunctionObjArgs(run->observe, noted, NULL) : NULL;
  Py_XDECREF(noted);
  Py_XDECREF(answer);
  return answer ? 0 : -1;
}

static int compute_in_python(Workplace *w, int64_t depth, int64_t number, int64_t count) {
  const Block *block = &w->machine->blocks[number];
  PyObject *operands = PyTuple_New(block->num_operands), *results = PyTuple_New(block->num_results), *answer = NULL;
  for (int32_t k = 0; operands && k < block->num_operands; k++) {
    const Operand *one = &block->operands[k];
    long long table = one->is_ids ? 0 : w->addresses[one->table];
    PyObject *pair = Py_BuildValue("LL", table, (long long)w->addresses[one->positions]);
    if (!pair || PyTuple_SetItem(operands, k, pair) != 0) Py_CLEAR(operands);
  }
  for (int32_t k = 0; results && k < block->num_results; k++) {
    PyObject *address = PyLong_FromLongLong(w->addresses[block->results[k].buffer]);
    if (!address || PyTuple_SetItem(results, k, address) != 0) Py_CLEAR(results);
  }
  PyObject *compute = Py_NewRef(((Run *)w->owner)->compute);
  if (operands && results)
    answer = PyObject_CallFunction(compute, "LLLOO", (long long)number, (long long)depth, (long long)count, operands, results);
  Py_DECREF(compute), Py_XDECREF(operands), Py_XDECREF(results), Py_XDECREF(answer);
  return answer ? 0 : -2;
}

int compute_pending(Run *run) {
  Workplace *w = run->w;
  int status = 0;
  if (is_alive(run) != 0) return -1;
  if (run->is_running) {
    PyErr_SetString(PyExc_RuntimeError, "a run that computes already: another thread, or what it calls, asks for a value");
    return -1;
  }
  if (!w->num_nodes) return 0;
  run->is_running = 1;
  w->compute = run->compute ? compute_in_python : NULL;
  int64_t begin = now();
  w->patient_until = begin + PATIENCE_NSECS;
  if (run->observe) status = observe_nodes(run);
  if (status == 0 && w->compute) {
    status = flush(w);
  } else if (status == 0) {
    Py_BEGIN_ALLOW_THREADS
    status = flush(w);
    Py_END_ALLOW_THREADS
  }
  run->is_running = 0;
  run->flush_nsecs += now() - begin;
  return status == 0 ? 0 : fail_run(run);
}

static int visit_handles(Collector *c) {
  const Run *run = c->w->owner;
  Handle **handles = run->handles_room.data;
  for (int64_t i = 0; i < run->num_known; i++)
    if (handles[i] && !handles[i]->tensor && keep_row(c, i, handles[i]->type) != 0) return -1;
  return 0;
}

Handle **reserve_handles(Run *run) {
  int64_t count = run->w->num_handles;
  Handle **handles = reserve(run->w, &run->handles_room, (count + 1) * (int64_t)sizeof *handles);
  if (!handles) return NULL;
  memset(handles + run->num_known, 0, (count - run->num_known) * sizeof *handles);
  run->num_known = count;
  return handles;
}

static void detach_handles(Run *run) {
  Handle **handles = run->handles_room.data;
  for (int64_t i = 0; i < run->num_known; i++)
    if (handles[i]) handles[i]->run = NULL;
  run->num_known = run->num_live = 0;
}

/* ---- Run ---- */

static PyObject *new_run(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"machine", "max_bytes", NULL};
  MachineObject *machine;
  long long max_bytes;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O!L", names, machine_type, &machine, &max_bytes)) return NULL;
  Run *self = (Run *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  self->machine = (MachineObject *)Py_NewRef((PyObject *)machine);
  if (!(self->w = make_workplace(machine->machine))) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->w->owner = self;
  self->w->max_bytes = max_bytes;
  return (PyObject *)self;
}

static PyObject *begin(PyObject *object, PyObject *none) {
  (void)none;
  Run *self = (Run *)object;
  if (self->is_begun) return PyErr_Format(PyExc_RuntimeError, "a run that has begun; end it, or make another one");
  Workplace *w = self->w;
  reset_tables(w);
  w->is_traced = self->is_traced;
  self->flush_nsecs = self->python_nsecs = self->python_since = 0;
  self->instances_nsecs = self->waits_flushed = self->num_waits = 0;
  w->failures = reserve(w, &w->failures_room, sizeof *w->failures); /* of ids, which were checked: none fails */
  Py_CLEAR(self->failure);
  if (!w->failures) return fail_run(self), NULL;
  memset(w->failures, 0, sizeof *w->failures);
  self->is_begun = 1;
  self->before = current;
  current = (Run *)Py_NewRef(object);
  return Py_NewRef(Py_None);
}

static PyObject *end(PyObject *object, PyObject *none) {
  (void)none;
  Run *self = (Run *)object;
  if (current != self || self->is_running)
    return PyErr_Format(PyExc_RuntimeError, "a run that is not this thread's current one, or computes: it cannot end");
  detach_handles(self);
  self->is_begun = 0;
  current = self->before;
  self->before = NULL;
  Py_DECREF(self);
  return Py_NewRef(Py_None);
}

PyObject *flush_run(PyObject *object, PyObject *none) {
  (void)none;
  Run *self = (Run *)object;
  if (compute_pending(self) != 0) return NULL;
  if (collect_rows(self->w, visit_handles) != 0) return fail_run(self), NULL;
  return Py_NewRef(Py_None);
}

static PyObject *live(PyObject *object, PyObject *none) {
  (void)none;
  Run *self = (Run *)object;
  Handle **handles = self->handles_room.data;
  PyObject *found = PyList_New(0);
  for (int64_t i = 0; found && i < self->num_known; i++)
    if (handles[i] && PyList_Append(found, (PyObject *)handles[i]) != 0) Py_CLEAR(found);
  return found;
}

static PyObject *get_traced(PyObject *object, void *none) {
  (void)none;
  const Workplace *w = ((Run *)object)->w;
  const Traced *traced = w->trace_room.data;
  PyObject *found = PyList_New(0);
  for (int64_t i = 0; found && i < w->num_traced; i++) {
    const Traced *t = &traced[i];
    PyObject *one = Py_BuildValue("LLLL", (long long)t->depth, (long long)t->block, (long long)t->rows, (long long)t->nsecs);
    if (!one || PyList_Append(found, one) != 0) Py_CLEAR(found);
    Py_XDECREF(one);
  }
  return found;
}

static PyObject *get_flush_nsecs(PyObject *self, void *none) {
  (void)none;
  return PyLong_FromLongLong(((Run *)self)->flush_nsecs);
}

static PyObject *get_num_pending(PyObject *self, void *none) {
  (void)none;
  return PyLong_FromLongLong(((Run *)self)->w->num_nodes);
}

static PyObject *get_times(PyObject *object, void *none) {
  (void)none;
  const Run *self = (Run *)object;
  return Py_BuildValue("LLLL", (long long)self->python_nsecs, (long long)self->instances_nsecs,
                       (long long)self->waits_flushed, (long long)self->num_waits);
}

static PyObject *get_is_traced(PyObject *self, void *none) {
  (void)none;
  return PyBool_FromLong(((Run *)self)->is_traced);
}

static int set_is_traced(PyObject *self, PyObject *value, void *none) {
  (void)none;
  int is = value ? PyObject_IsTrue(value) : 0;
  if (is >= 0) ((Run *)self)->is_traced = is;
  return is < 0 ? -1 : 0;
}

static int set_member(PyObject *self, PyObject *value, void *offset) {
  replace((PyObject **)((char *)self + (intptr_t)offset), value && value != Py_None ? Py_NewRef(value) : NULL);
  return 0;
}

static int set_callable(PyObject *self, PyObject *value, void *offset) {
  if (value && value != Py_None && !PyCallable_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "takes a function, or None");
    return -1;
  }
  return set_member(self, value, offset);
}

static int visit_run(PyObject *object, visitproc visit, void *arg) {
  Run *self = (Run *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->compute);
  Py_VISIT(self->observe);
  Py_VISIT(self->failure);
  Py_VISIT(self->scheduler);
  return 0;
}

static int clear_run(PyObject *object) {
  Run *self = (Run *)object;
  Py_CLEAR(self->compute);
  Py_CLEAR(self->observe);
  Py_CLEAR(self->failure);
  Py_CLEAR(self->scheduler);
  return 0;
}

static void free_run(PyObject *object) {
  Run *self = (Run *)object;
  PyObject_GC_UnTrack(object);
  clear_run(object);
  detach_handles(self);
  if (self->w) free_workplace(self->w);
  free(self->handles_room.data);
  Py_CLEAR(self->machine);
  free_object(object);
}

static PyMethodDef run_methods[] = {{"begin", begin, METH_NOARGS, "begin(): be this thread's current run"},
                                    {"end", end, METH_NOARGS, "end(): give the thread back the run of before"},
                                    {"flush", flush_run, METH_NOARGS, "flush(): run what is noted"},
                                    {"gather", gather, METH_VARARGS, "gather(handles, address): copy rows of one type"},
                                    {"settle", settle, METH_VARARGS, "settle(results, make, describe): with tensors for handles"},
                                    {"live", live, METH_NOARGS, "live(): the handles that somebody has"},
                                    {NULL, NULL, 0, NULL}};
static PyGetSetDef run_getters[] = {
    {"machine", get_member, NULL, "whose blocks it runs", (void *)offsetof(Run, machine)},
    {"compute", get_member, set_callable, "in the program's place", (void *)offsetof(Run, compute)},
    {"observe", get_member, set_callable, "takes what is run", (void *)offsetof(Run, observe)},
    {"scheduler", get_member, set_member, "of its instances", (void *)offsetof(Run, scheduler)},
    {"failure", get_member, NULL, "the exception that ended it", (void *)offsetof(Run, failure)},
    {"is_traced", get_is_traced, set_is_traced, "from the next begin on", NULL},
    {"flush_nsecs", get_flush_nsecs, NULL, "of what was computed since it began", NULL},
    {"times", get_times, NULL, "of the instances, where it is traced", NULL},
    {"traced", get_traced, NULL, "(depth, block, rows, nsecs) of each run of a block", NULL},
    {"num_pending", get_num_pending, NULL, "noted and not run", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot run_slots[] = {{Py_tp_new, new_run},         {Py_tp_dealloc, free_run},   {Py_tp_traverse, visit_run},
                                  {Py_tp_clear, clear_run},     {Py_tp_methods, run_methods}, {Py_tp_getset, run_getters},
                                  {0, NULL}};
static PyType_Spec run_spec = {"dietcode.runtime.recorder.Run", sizeof(Run), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               run_slots};

int start_runs(PyObject *module) {
  limit_error = PyErr_NewException("dietcode.runtime.recorder.LimitError", PyExc_MemoryError, NULL);
  machine_type = (PyTypeObject *)PyType_FromSpec(&machine_spec);
  run_type = (PyTypeObject *)PyType_FromSpec(&run_spec);
  if (!limit_error || !machine_type || !run_type) return -1;
  if (PyModule_AddObjectRef(module, "LimitError", limit_error) != 0) return -1;
  return PyModule_AddType(module, machine_type) != 0 || PyModule_AddType(module, run_type) != 0 ? -1 : 0;
}
