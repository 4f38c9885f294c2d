/* Fibers: greenlets that wait for values, and groups of calls that do not depend on each other.
 *
 * Where nobody waits, the owner of a group makes its calls in order. Only who waits looks for groups, and lets another
 * greenlet take the next call of one. Functions that may wait are called by Python alone: a switch copies frames of C. */
#include "recorder.h"

#include <string.h>
#include <structmember.h>

enum { MOST_FREE = 64, NUM_MODES = 4 };

typedef struct Fibers Fibers;
typedef struct Group Group;
typedef enum { PAIRS, ITEMS, INSTANCES } GroupKind; /* (function, arguments) | item | arguments */

struct Group {
  PyObject_HEAD
  Fibers *fibers;                              /* NULL when it is closed */
  Group *older, *newer;                        /* that have calls which nobody has begun */
  PyObject *calls, *function;                  /* a tuple; NULL for pairs */
  PyObject *taken, *errors;                    /* a list of results of calls that others made, a dict by number; or NULL */
  PyObject *waiter;                            /* the greenlet that goes on when all that were taken are done */
  int32_t next, count, own /* its owner's last */, num_open /* taken, and not done */;
  GroupKind kind;
  int is_listed;
};

typedef struct {
  PyObject **items;
  Py_ssize_t first, count, room;
} Line;

struct Fibers {
  PyObject_HEAD
  Run *run;
  PyObject *failure, *kept, *idle, *starter; /* kept: what each fiber has for itself, if not empty */
  PyObject *modes[NUM_MODES];                /* of PyTorch, in which all begin */
  Line ready, waiting;
  Group *oldest, *newest;
  char is_in_order, is_plain;
};

static PyTypeObject *fibers_type, *group_type;
static Group *free_groups; /* linked by `newer` */
static int num_free;

/* ---- Greenlets ---- */

static PyObject *(*current_greenlet)(void);
static PyObject *(*switch_greenlet)(PyObject *target, PyObject *args, PyObject *named);
static int import_greenlets(void) {
  void **api = current_greenlet ? NULL : PyCapsule_Import("greenlet._C_API", 0);
  if (current_greenlet || !api) return current_greenlet ? 0 : -1;
  switch_greenlet = (PyObject * (*)(PyObject *, PyObject *, PyObject *)) api[6]; /* as greenlet.h counts them */
  current_greenlet = (PyObject * (*)(void)) api[4];
  return 0;
}

/* Whose time passes: where a run is traced, that of the code of instances is added up. */
static void pause_clock(const Fibers *self) {
  Run *run = self->run;
  if (!run || !run->python_since) return;
  run->python_nsecs += now() - run->python_since;
  run->python_since = 0;
}

static void resume_clock(const Fibers *self) {
  if (self->run && self->run->is_traced) self->run->python_since = now();
}

/* Functions of other modules that say how a thread stands; called as directly as they allow. */
typedef struct {
  PyObject *callable;
  PyCFunction function; /* NULL where it has to be called by Python */
} Query;
static Query queries[NUM_MODES + 1]; /* the last: asyncio's running loop */

static PyObject *ask(const Query *query) {
  return query->function ? query->function(PyCFunction_GetSelf(query->callable), NULL) : PyObject_CallNoArgs(query->callable);
}

PyObject *watch(PyObject *module, PyObject *functions) {
  (void)module;
  if (!PyTuple_Check(functions) || PyTuple_Size(functions) != NUM_MODES + 1)
    return PyErr_Format(PyExc_TypeError, "watch: takes a tuple of %d functions", NUM_MODES + 1);
  for (int i = 0; i <= NUM_MODES; i++) {
    PyObject *one = PyTuple_GetItem(functions, i);
    int is_plain = Py_TYPE(one) == &PyCFunction_Type && PyCFunction_GetFlags(one) == METH_NOARGS;
    queries[i].function = is_plain ? PyCFunction_GetFunction(one) : NULL;
    queries[i].callable = Py_NewRef(one); /* for ever */
  }
  return Py_NewRef(Py_None);
}

/* 1 where the thread's modes are those in which all begin: such values are single objects. */
static int are_modes(const Fibers *self) {
  int are = 1;
  for (int i = 0; i < NUM_MODES && are == 1; i++) {
    PyObject *one = ask(&queries[i]);
    are = one ? one == self->modes[i] : -1;
    Py_XDECREF(one);
  }
  return are;
}

static int is_in_loop(void) {
  PyObject *loop = ask(&queries[NUM_MODES]);
  Py_XDECREF(loop);
  return loop ? loop != Py_None : -1;
}

/* ---- Lines: each counts its objects ---- */

static int push(Line *line, PyObject *greenlet) {
  if (line->first + line->count == line->room) {
    Py_ssize_t room = line->count < line->room / 2 ? line->room : 2 * line->room + 16;
    PyObject **items = PyMem_Malloc(room * sizeof *items);
    if (!items) return PyErr_NoMemory(), -1;
    if (line->count) memcpy(items, line->items + line->first, line->count * sizeof *items);
    PyMem_Free(line->items);
    *line = (Line){items, 0, line->count, room};
  }
  line->items[line->first + line->count++] = Py_NewRef(greenlet);
  return 0;
}

static PyObject *pop(Line *line) {
  PyObject *found = line->items[line->first++];
  if (!--line->count) line->first = 0;
  return found;
}

/* ---- Groups ---- */

static void unlist(Group *group) {
  if (!group->is_listed) return;
  Fibers *self = group->fibers;
  *(group->older ? &group->older->newer : &self->oldest) = group->newer;
  *(group->newer ? &group->newer->older : &self->newest) = group->older;
  group->is_listed = 0;
}

static void close_group(Group *group) {
  unlist(group);
  Py_CLEAR(group->calls);
  Py_CLEAR(group->function);
  Py_CLEAR(group->taken);
  Py_CLEAR(group->errors);
  Py_CLEAR(group->waiter);
  Py_CLEAR(group->fibers);
  group->next = group->count = 0;
}

static void free_group(PyObject *object) {
  Group *group = (Group *)object;
  close_group(group);
  if (num_free < MOST_FREE) {
    group->newer = free_groups;
    free_groups = group;
    num_free++;
  } else {
    PyObject_Free(group);
  }
  Py_DECREF(group_type);
}

static int raise_failure(const Fibers *self) {
  PyErr_SetObject((PyObject *)Py_TYPE(self->failure), self->failure);
  return -1;
}

/* Of calls, which are taken over. */
static PyObject *new_group(Fibers *self, GroupKind kind, PyObject *function, PyObject *calls) {
  Group *group = free_groups;
  if (!calls) return NULL;
  if (self->failure) return Py_DECREF(calls), raise_failure(self), NULL;
  if (group) {
    free_groups = group->newer;
    num_free--;
    PyObject_Init((PyObject *)group, group_type);
  } else if (!(group = PyObject_New(Group, group_type))) {
    return Py_DECREF(calls), NULL;
  }
  memset((char *)group + sizeof(PyObject), 0, sizeof *group - sizeof(PyObject));
  group->fibers = (Fibers *)Py_NewRef((PyObject *)self);
  group->calls = calls;
  group->function = Py_XNewRef(function);
  group->count = (int32_t)PyTuple_Size(calls);
  group->kind = kind;
  group->own = -1;
  if (!group->count) return (PyObject *)group;
  group->older = self->newest;
  *(self->newest ? &self->newest->newer : &self->oldest) = group;
  self->newest = group;
  group->is_listed = 1;
  return (PyObject *)group;
}

static PyObject *next_own(PyObject *object) {
  Group *group = (Group *)object;
  if (group->next >= group->count) return NULL;
  group->own = group->next++;
  if (group->next == group->count) unlist(group);
  return Py_NewRef(PyTuple_GetItem(group->calls, group->own));
}

/* The next call that nobody has begun, as (group, number, function, arguments); NULL without an error for none. */
static PyObject *take_call(Fibers *self) {
  Group *group = self->oldest;
  if (!group || self->failure) return NULL;
  if (!group->taken && !(group->taken = PyList_New(group->count))) return NULL;
  PyObject *call = PyTuple_GetItem(group->calls, group->next), *found;
  if (group->kind == PAIRS)
    found = Py_BuildValue("OiOO", group, group->next, PyTuple_GetItem(call, 0), PyTuple_GetItem(call, 1));
  else
    found = Py_BuildValue(group->kind == ITEMS ? "OiO(O)" : "OiOO", group, group->next, group->function, call);
  if (!found) return NULL;
  group->num_open++;
  if (++group->next == group->count) unlist(group);
  return found;
}

static int keep_error(Group *group, int32_t number, PyObject *error) {
  if (!group->errors && !(group->errors = PyDict_New())) return -1;
  PyObject *key = PyLong_FromLong(number);
  int status = key ? PyDict_SetItem(group->errors, key, error) : -1;
  Py_XDECREF(key);
  return status;
}

/* fail(error): what the owner's last call raised is kept, unless it ends all. */
static PyObject *fail_own(PyObject *object, PyObject *error) {
  Group *group = (Group *)object;
  int is_kept = group->fibers && !group->fibers->failure && !group->fibers->run->failure &&
                PyType_IsSubtype(Py_TYPE(error), (PyTypeObject *)PyExc_Exception);
  if (is_kept) return keep_error(group, group->own, error) == 0 ? Py_NewRef(Py_None) : NULL;
  close_group(group);
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  return NULL;
}

/* put(number, result, error): of a call that was taken */
static PyObject *put(PyObject *object, PyObject *args) {
  Group *group = (Group *)object;
  int number;
  PyObject *result, *error = NULL;
  if (!PyArg_ParseTuple(args, "iO|O", &number, &result, &error)) return NULL;
  if (!group->fibers) return Py_NewRef(Py_None); /* it was abandoned */
  if (!group->taken || number < 0 || number >= group->count || PyList_GetItem(group->taken, number))
    return PyErr_Format(PyExc_ValueError, "put: %d is no call that was taken", number);
  if (PyList_SetItem(group->taken, number, Py_NewRef(result)) != 0) return NULL;
  if (error && keep_error(group, number, error) != 0) return NULL;
  if (--group->num_open == 0 && group->waiter) {
    PyObject *waiter = group->waiter;
    group->waiter = NULL;
    int status = push(&group->fibers->ready, waiter);
    Py_DECREF(waiter);
    if (status != 0) return NULL;
  }
  return Py_NewRef(Py_None);
}

/* ---- Switches ---- */

static int flush_fibers(Fibers *self) {
  PyObject *answer = flush_run((PyObject *)self->run, NULL);
  if (!answer) return keep_failure(&self->failure);
  Py_DECREF(answer);
  Line ready = self->ready;
  self->ready = self->waiting;
  self->waiting = ready;
  return 0;
}

/* The greenlet that goes on where nobody has to begin; NULL without an error where all have ended. */
static PyObject *next_ready(Fibers *self) {
  if (!self->ready.count && self->waiting.count && flush_fibers(self) != 0) return NULL;
  return self->ready.count ? pop(&self->ready) : NULL;
}

/* Lets others run until somebody comes back to this greenlet. */
static int leave(Fibers *self) {
  int is_call = !self->ready.count && self->oldest && !self->failure;
  PyObject *target, *given = is_call ? PyTuple_Pack(1, self) : PyTuple_New(0), *answer = NULL;
  if (is_call) { /* which the driver takes */
    Py_ssize_t count = PyList_Size(self->idle);
    target = Py_NewRef(count ? PyList_GetItem(self->idle, count - 1) : self->starter);
    if (count && PyList_SetSlice(self->idle, count - 1, count, NULL) != 0) Py_CLEAR(target);
  } else {
    target = next_ready(self);
    if (!target && !PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "an instance left its greenlet for another one; it has to come back");
  }
  int is_direct = target && given ? are_modes(self) : -1;
  if (is_direct == 1 && !(self->kept && PyDict_Size(self->kept))) answer = switch_greenlet(target, given, NULL);
  else if (is_direct >= 0) answer = PyObject_CallMethod((PyObject *)self, "leave_apart", "OO", target, given);
  Py_XDECREF(target);
  Py_XDECREF(given);
  Py_XDECREF(answer);
  return answer ? 0 : -1;
}

/* Leaves, to come back from a line, or for a group when what was taken of it is done. */
static int leave_for(Fibers *self, Line *line, Group *group) {
  PyObject *own = current_greenlet();
  int status = own ? 0 : -1;
  if (own && line) status = push(line, own);
  else if (own) group->waiter = Py_NewRef(own);
  Py_XDECREF(own);
  return status == 0 ? leave(self) : -1;
}

static int wait_among(Fibers *self, Handle *handle) {
  while (!handle->tensor && handle->run && !is_computed(handle->run->w, handle->number)) {
    if (self->failure) return raise_failure(self);
    int is_alone = self->is_in_order ? 1 : is_in_loop();
    if (is_alone < 0) return -1;
    if (is_alone) {
      PyObject *answer = flush_run((PyObject *)self->run, NULL);
      Py_XDECREF(answer);
      if (!answer) return -1;
    } else if (self->ready.count || self->oldest) {
      if (leave_for(self, &self->waiting, NULL) != 0) return -1;
    } else if (flush_fibers(self) != 0) {
      return -1;
    }
  }
  return 0;
}

/* What is among no instances, or of a call around this one, whose instances cannot run now, is computed at once. */
int wait_for(PyObject *object) {
  Handle *handle = (Handle *)object;
  Run *run = handle->run;
  if (handle->tensor || (run && is_computed(run->w, handle->number))) return 0;
  if (!run) return run_of(handle) ? 0 : -1;
  int is_among = run == current_run() && run->scheduler && PyObject_TypeCheck(run->scheduler, fibers_type), status;
  Py_INCREF(object);
  PyObject *kept = Py_NewRef(is_among ? run->scheduler : (PyObject *)run), *answer = NULL;
  if (is_among) {
    run->num_waits++;
    pause_clock((Fibers *)kept);
    status = wait_among((Fibers *)kept, handle);
    resume_clock((Fibers *)kept);
  } else {
    answer = flush_run((PyObject *)run, NULL);
    status = answer ? 0 : -1;
  }
  Py_XDECREF(answer);
  Py_DECREF(kept);
  Py_DECREF(object);
  return status;
}

PyObject *wait_in_python(PyObject *module, PyObject *handle) {
  (void)module;
  if (Py_TYPE(handle) != handle_type) return PyErr_Format(PyExc_TypeError, "wait: takes a handle");
  return wait_for(handle) == 0 ? Py_NewRef(Py_None) : NULL;
}

/* ---- The end of a group ---- */

/* Results in order: those of others where they stand, the owner's own in what is left. */
static PyObject *merged(Group *group, PyObject *own) {
  Py_ssize_t at = 0;
  for (int32_t i = 0; i < group->count; i++) {
    if (PyList_GetItem(group->taken, i)) continue;
    PyObject *one = PyList_GetItem(own, at++);
    if (!one || PyList_SetItem(group->taken, i, Py_NewRef(one)) != 0) return NULL;
  }
  return Py_NewRef(group->taken);
}

static int raise_first(const Group *group, PyObject *results) {
  for (int32_t i = 0; i < group->count; i++) {
    PyObject *key = PyLong_FromLong(i), *error = key ? PyDict_GetItemWithError(group->errors, key) : NULL;
    Py_XDECREF(key);
    if (error && group->kind != INSTANCES) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    if (PyErr_Occurred() || (error && PyList_SetItem(results, i, Py_NewRef(error)) != 0)) return -1;
  }
  return 0;
}

/* finish(results): of the owner's own calls; gives all, once the others are done */
static PyObject *finish(PyObject *object, PyObject *own) {
  Group *group = (Group *)object;
  int status = PyList_Check(own) && group->fibers ? 0 : -1;
  Fibers *self = status == 0 ? (Fibers *)Py_NewRef((PyObject *)group->fibers) : NULL;
  if (self) pause_clock(self);
  if (status != 0) PyErr_SetString(PyExc_TypeError, "finish: takes a list, once");
  while (status == 0 && group->num_open) status = leave_for(group->fibers, NULL, group);
  PyObject *results = status == 0 ? group->taken ? merged(group, own) : Py_NewRef(own) : NULL;
  if (results && group->errors && raise_first(group, results) != 0) Py_CLEAR(results);
  PyObject *found = results && group->kind == PAIRS ? PyList_AsTuple(results) : Py_XNewRef(results);
  Py_XDECREF(results);
  if (self && group->kind != INSTANCES) resume_clock(self);
  if (self && group->kind == INSTANCES && self->run->is_traced) {
    self->run->instances_nsecs += now();
    self->run->waits_flushed = self->run->flush_nsecs;
  }
  close_group(group);
  Py_XDECREF((PyObject *)self);
  return found;
}

static Fibers *current_fibers(void) {
  const Run *run = current_run();
  PyObject *found = run ? run->scheduler : NULL;
  return found && PyObject_TypeCheck(found, fibers_type) && !((Fibers *)found)->is_plain ? (Fibers *)found : NULL;
}

PyObject *begin_calls(PyObject *module, PyObject *calls) {
  (void)module;
  Fibers *self = current_fibers();
  if (!self || PyTuple_Size(calls) <= 0) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
  return new_group(self, PAIRS, NULL, Py_NewRef(calls));
}

PyObject *begin_map(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *function, *items;
  if (!PyArg_ParseTuple(args, "OO", &function, &items)) return NULL;
  Fibers *self = current_fibers();
  return self ? new_group(self, ITEMS, function, PySequence_Tuple(items)) : Py_NewRef(Py_None);
}

static PyMethodDef group_methods[] = {{"fail", fail_own, METH_O, "fail(error): of the owner's last call"},
                                      {"put", put, METH_VARARGS, "put(number, result, error): of a call that was taken"},
                                      {"finish", finish, METH_O, "finish(results): all results, once all are done"},
                                      {NULL, NULL, 0, NULL}};
static PyType_Slot group_slots[] = {{Py_tp_dealloc, free_group},
                                    {Py_tp_iter, PyObject_SelfIter},
                                    {Py_tp_iternext, next_own},
                                    {Py_tp_methods, group_methods},
                                    {0, NULL}};
static PyType_Spec group_spec = {"dietcode.runtime.recorder.Group", sizeof(Group), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, group_slots};

/* ---- Fibers ---- */

static PyObject *new_fibers(PyTypeObject *type, PyObject *args, PyObject *named) {
  (void)named; /* those of Python's subclass */
  if (import_greenlets() != 0) return NULL;
  Fibers *self = (Fibers *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  PyObject *run = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
  if (self && (!run || Py_TYPE(run) != run_type || !queries[0].callable)) {
    PyErr_SetString(PyExc_TypeError, "Fibers: takes a run, once `watch` has its functions");
    Py_CLEAR(self);
  }
  if (self) self->run = (Run *)Py_NewRef(run);
  return (PyObject *)self;
}

/* begin(function, arguments, idle, starter): the instances, in the modes of now */
static PyObject *begin_instances(PyObject *object, PyObject *args) {
  Fibers *self = (Fibers *)object;
  PyObject *function, *arguments, *idle, *starter;
  if (!PyArg_ParseTuple(args, "OO!O!O", &function, &PyTuple_Type, &arguments, &PyList_Type, &idle, &starter)) return NULL;
  if (self->starter) return PyErr_Format(PyExc_RuntimeError, "fibers that have begun");
  self->idle = Py_NewRef(idle);
  self->starter = Py_NewRef(starter);
  for (int i = 0; i < NUM_MODES; i++)
    if (!(self->modes[i] = ask(&queries[i]))) return NULL;
  if (self->run->is_traced) self->run->instances_nsecs = -now();
  resume_clock(self);
  return new_group(self, INSTANCES, function, Py_NewRef(arguments));
}

static PyObject *take(PyObject *self, PyObject *none) {
  (void)none;
  pause_clock((Fibers *)self);
  PyObject *found = take_call((Fibers *)self);
  if (found) resume_clock((Fibers *)self);
  return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyObject *next_in_python(PyObject *self, PyObject *none) {
  (void)none;
  pause_clock((Fibers *)self);
  PyObject *found = next_ready((Fibers *)self);
  return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static int visit_fibers(PyObject *object, visitproc visit, void *arg) {
  Fibers *self = (Fibers *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->run);
  Py_VISIT(self->failure);
  Py_VISIT(self->kept);
  Py_VISIT(self->idle);
  Py_VISIT(self->starter);
  for (Py_ssize_t i = 0; i < self->ready.count; i++) Py_VISIT(self->ready.items[self->ready.first + i]);
  for (Py_ssize_t i = 0; i < self->waiting.count; i++) Py_VISIT(self->waiting.items[self->waiting.first + i]);
  return 0;
}

static int clear_fibers(PyObject *object) {
  Fibers *self = (Fibers *)object;
  while (self->ready.count) Py_DECREF(pop(&self->ready));
  while (self->waiting.count) Py_DECREF(pop(&self->waiting));
  Py_CLEAR(self->run);
  Py_CLEAR(self->failure);
  Py_CLEAR(self->kept);
  Py_CLEAR(self->idle);
  Py_CLEAR(self->starter);
  return 0;
}

static void free_fibers_object(PyObject *object) {
  Fibers *self = (Fibers *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear_fibers(object);
  for (int i = 0; i < NUM_MODES; i++) Py_CLEAR(self->modes[i]);
  PyMem_Free(self->ready.items);
  PyMem_Free(self->waiting.items);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMemberDef fibers_members[] = {
    {"run", T_OBJECT, offsetof(Fibers, run), READONLY, "in which they note"},
    {"failure", T_OBJECT, offsetof(Fibers, failure), 0, "the exception that ends all of them, or None"},
    {"kept", T_OBJECT, offsetof(Fibers, kept), 0, "what each has for itself: a dict, or None"},
    {"is_in_order", T_BOOL, offsetof(Fibers, is_in_order), 0, "whether nobody begins before the one before has ended"},
    {"is_plain", T_BOOL, offsetof(Fibers, is_plain), 0, "whether groups are calls one after the other"},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef fibers_methods[] = {{"begin", begin_instances, METH_VARARGS, "begin(function, arguments, idle, starter)"},
                                       {"take", take, METH_NOARGS, "take(): the next call that nobody has begun, or None"},
                                       {"next", next_in_python, METH_NOARGS, "next(): the greenlet that goes on, or None"},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot fibers_slots[] = {{Py_tp_new, new_fibers},         {Py_tp_dealloc, free_fibers_object},
                                     {Py_tp_traverse, visit_fibers},  {Py_tp_clear, clear_fibers},
                                     {Py_tp_members, fibers_members}, {Py_tp_methods, fibers_methods},
                                     {0, NULL}};
static PyType_Spec fibers_spec = {"dietcode.runtime.recorder.Fibers", sizeof(Fibers), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, fibers_slots};

int start_fibers(PyObject *module) {
  group_type = (PyTypeObject *)PyType_FromSpec(&group_spec);
  fibers_type = (PyTypeObject *)PyType_FromSpec(&fibers_spec);
  if (!group_type || !fibers_type || PyModule_AddType(module, group_type) != 0) return -1;
  return PyModule_AddType(module, fibers_type);
}
