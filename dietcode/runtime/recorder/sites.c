/* Site: a place of the source. A call whose arguments match a variant is noted; any other is left to Python. */
#include "recorder.h"

#include <string.h>

PyTypeObject *site_type;
static newfunc new_tuple;

typedef struct {
  PyObject_HEAD
  PyObject *on_miss;
  Variant **variants; /* the one that matched last comes first */
  Py_ssize_t num_variants;
} Site;

/* A value among the arguments. Its object is counted: others may change the list that it is in. */
typedef struct {
  PyObject *object;
  const void *data; /* of a tensor */
  int32_t number;   /* of a handle; then of any */
  union {
    int32_t i;
    float f;
  };
} Leaf;

typedef struct {
  Run *run;
  const Variant *variant;
  const Pattern *next;
  int32_t num_leaves;
  Leaf leaves[MAX_LEAVES];
} Match;

/* ---- Matching: 1, 0 for what does not match, -1 with an error ---- */

static Leaf *keep_leaf(Match *m, PyObject *arg) {
  Leaf *leaf = &m->leaves[m->num_leaves++];
  leaf->object = Py_NewRef(arg);
  leaf->number = -1;
  return leaf;
}

/* PyTorch's own errors say that it is no such tensor. */
static int no_tensor(void) {
  if (!PyErr_Occurred()) return 0;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  PyErr_Clear();
  return 0;
}

static int match_tensor(Match *m, const Pattern *p, PyObject *arg) {
  PyObject *tensor = arg;
  if (Py_TYPE(arg) == handle_type) {
    const Handle *handle = (const Handle *)arg;
    if (!handle->tensor) {
      if (handle->run != m->run || handle->type != p->type || handle->dtype != p->dtype) return 0;
      keep_leaf(m, arg)->number = handle->number;
      return 1;
    }
    tensor = handle->tensor;
  }
  const void *data = data_of(tensor, p->given);
  if (!data) return no_tensor();
  if (p->kind == MADE_VALUE && !are_exact(data, p->dtype, m->run->w->machine->types[p->type].num_elements)) return 0;
  keep_leaf(m, arg)->data = data;
  return 1;
}

static int match_int(Match *m, const Pattern *p, PyObject *arg) {
  int64_t value;
  if (PyLong_CheckExact(arg)) {
    int overflow;
    value = PyLong_AsLongLongAndOverflow(arg, &overflow);
    if (overflow) return 0;
  } else {
    PyObject *tensor = Py_TYPE(arg) == handle_type ? ((Handle *)arg)->tensor : arg;
    const void *data = tensor ? data_of(tensor, p->given) : NULL;
    if (!data) return no_tensor();
    memcpy(&value, data, sizeof value);
  }
  if (value < INT32_MIN || value > INT32_MAX) return 0;
  if (p->num_ids >= 0 && (value < 0 || value >= p->num_ids)) return 0;
  keep_leaf(m, arg)->i = (int32_t)value;
  return 1;
}

static int match_float(Match *m, PyObject *arg) {
  if (!PyFloat_CheckExact(arg) && !PyLong_CheckExact(arg)) return 0;
  double value = PyFloat_AsDouble(arg);
  if (value == -1 && PyErr_Occurred()) return no_tensor();
  keep_leaf(m, arg)->f = (float)value;
  return 1;
}

static int match_equal(const Pattern *p, PyObject *arg) {
  if (arg == p->object) return 1;
  if (Py_TYPE(arg) != Py_TYPE(p->object) || PyBool_Check(arg)) return 0;
  if (!PyFloat_CheckExact(arg)) return PyObject_RichCompareBool(arg, p->object, Py_EQ);
  double one = PyFloat_AsDouble(arg), other = PyFloat_AsDouble(p->object);
  return memcmp(&one, &other, sizeof one) == 0;
}

static int match(Match *m, PyObject *arg);

static int match_slice(Match *m, PyObject *arg) {
  static const char *const names[] = {"start", "stop", "step"};
  int status = Py_TYPE(arg) == &PySlice_Type;
  for (int i = 0; i < 3 && status == 1; i++) {
    PyObject *part = PyObject_GetAttrString(arg, names[i]);
    status = part ? match(m, part) : -1;
    Py_XDECREF(part);
  }
  return status;
}

static int match_items(Match *m, const Pattern *p, PyObject *arg) {
  int is_list = p->kind == LIST_OF;
  if (Py_TYPE(arg) != (p->kind == RECORD_OF ? (PyTypeObject *)p->object : is_list ? &PyList_Type : &PyTuple_Type)) return 0;
  if (Py_SIZE(arg) != p->count) return 0;
  int status = 1;
  for (int32_t i = 0; i < p->count && status == 1; i++) {
    PyObject *item = is_list ? PyList_GetItem(arg, i) : PyTuple_GetItem(arg, i);
    status = item ? match(m, item) : no_tensor(); /* a list that became shorter */
  }
  return status;
}

static int match(Match *m, PyObject *arg) {
  const Pattern *p = m->next++;
  switch (p->kind) {
    case ROOT: return arg == p->object;
    case EQUAL: return match_equal(p, arg);
    case TENSOR_VALUE: case MADE_VALUE: return match_tensor(m, p, arg);
    case INT_VALUE: return match_int(m, p, arg);
    case FLOAT_VALUE: return match_float(m, arg);
    case TUPLE_OF: case LIST_OF: case RECORD_OF: return match_items(m, p, arg);
    case SLICE_OF: return match_slice(m, arg);
    default: return 1;
  }
}

static int match_all(Match *m, PyObject *const *args, Py_ssize_t num_args) {
  int status = num_args == m->variant->num_args;
  for (Py_ssize_t i = 0; i < num_args && status == 1; i++) status = match(m, args[i]);
  return status;
}

/* ---- Noting ---- */

static int make_row(Match *m, Leaf *leaf, const Pattern *p) {
  Workplace *w = m->run->w;
  const void *data = p->kind == INT_VALUE ? (const void *)&leaf->i : p->kind == FLOAT_VALUE ? (const void *)&leaf->f : leaf->data;
  if (p->kind == MADE_VALUE) {
    int64_t count = w->machine->types[p->type].num_elements;
    float *row = reserve(w, &w->scratch_room, 4 * count + 1);
    if (!row) return -1;
    convert(leaf->data, p->dtype, count, row);
    data = row;
  }
  leaf->number = new_row(w, p->type, data);
  return leaf->number < 0 ? -1 : 0;
}

static int note_all(Match *m, int32_t *results) {
  const Variant *v = m->variant;
  Workplace *w = m->run->w;
  for (int32_t i = 0; i < m->num_leaves; i++)
    if (m->leaves[i].number < 0 && make_row(m, &m->leaves[i], &v->patterns[v->leaves[i]]) != 0) return fail_run(m->run);
  for (int32_t i = 0; i < v->num_notes; i++) {
    const Note *one = &v->notes[i];
    const Block *block = &w->machine->blocks[one->block];
    const Node node = {.block = one->block};
    int32_t operands[MAX_OPERANDS];
    for (int32_t k = 0; k < block->num_operands; k++) {
      int32_t own = v->operands[one->first + k];
      operands[k] = own < 0 ? results[-1 - own] : m->leaves[own].number;
    }
    int32_t first = note(w, &node, operands);
    if (first < 0 && w->ending == DONE) { /* a chain of more blocks than depths count; rows stay where they are */
      if (compute_pending(m->run) != 0) return -1;
      first = note(w, &node, operands);
    }
    if (first < 0) return fail_run(m->run);
    for (int32_t k = 0; k < block->num_results; k++) results[one->result + k] = first + k;
  }
  return reserve_handles(m->run) ? 0 : fail_run(m->run);
}

static PyObject *build(Match *m, const int32_t *results);

static PyObject *build_items(Match *m, const Pattern *p, const int32_t *results) {
  int is_list = p->kind == LIST_OF;
  PyObject *made = is_list ? PyList_New(p->count) : PyTuple_New(p->count);
  for (int32_t i = 0; made && i < p->count; i++) {
    PyObject *item = build(m, results);
    if (!item || (is_list ? PyList_SetItem : PyTuple_SetItem)(made, i, item) != 0) Py_CLEAR(made);
  }
  if (!made || p->kind != RECORD_OF) return made;
  PyObject *args = PyTuple_Pack(1, made), *record = args ? new_tuple((PyTypeObject *)p->object, args, NULL) : NULL;
  Py_XDECREF(args);
  Py_DECREF(made);
  return record;
}

/* A row of its own each time: what a function makes anew may be changed in place. */
static PyObject *copy_constant(Match *m, const Pattern *p) {
  Workplace *w = m->run->w;
  int64_t bytes = w->machine->types[p->type].row_bytes;
  char *row = reserve(w, &w->scratch_room, bytes + 1); /* its table may move */
  if (row) memcpy(row, w->tables[p->type].data + w->states[p->count] * bytes, bytes);
  int32_t number = row ? new_row(w, p->type, row) : -1;
  if (number < 0 || !reserve_handles(m->run)) return fail_run(m->run), NULL;
  return handle_of(m->run, number, p->type, p->dtype);
}

static PyObject *build(Match *m, const int32_t *results) {
  const Pattern *p = m->next++;
  switch ((int)p->kind) {
    case RESULT_OBJECT: return Py_NewRef(p->object);
    case RESULT_VALUE: return handle_of(m->run, results[p->type], m->variant->types[p->type], p->dtype);
    case CONSTANT: return copy_constant(m, p);
    case ARGUMENT: return Py_NewRef(m->leaves[p->type].object);
    default: return build_items(m, p, results);
  }
}

static PyObject *record(Match *m) {
  int32_t few[64], *results = few;
  if (m->variant->num_results > 64) results = PyMem_Malloc(m->variant->num_results * sizeof *results);
  if (!results) return PyErr_NoMemory();
  m->next = m->variant->shapes;
  PyObject *made = note_all(m, results) == 0 ? build(m, results) : NULL;
  if (results != few) PyMem_Free(results);
  return made;
}

/* ---- Calls ---- */

static void move_to_front(Site *self, Py_ssize_t at) {
  Variant *one = self->variants[at];
  memmove(self->variants + 1, self->variants, at * sizeof *self->variants);
  self->variants[0] = one;
}

static PyObject *miss(PyObject *self, PyObject *const *args, Py_ssize_t num_args) {
  PyObject *given = PyTuple_New(num_args), *result = NULL;
  for (Py_ssize_t i = 0; given && i < num_args; i++)
    if (PyTuple_SetItem(given, i, Py_NewRef(args[i])) != 0) Py_CLEAR(given);
  PyObject *on_miss = Py_NewRef(((Site *)self)->on_miss);
  if (given) result = PyObject_CallFunctionObjArgs(on_miss, self, given, NULL);
  Py_DECREF(on_miss);
  Py_XDECREF(given);
  return result;
}

/* While PyTorch looks at a tensor, other threads may change the list of variants. */
static PyObject *call(PyObject *object, PyObject *const *args, Py_ssize_t num_args) {
  Site *self = (Site *)object;
  Match m; /* its leaves are many, and not set before they are needed */
  m.run = current_run();
  if (!m.run || m.run->is_running) return miss(object, args, num_args);
  if (is_alive(m.run) != 0) return NULL;
  int status = 0;
  PyObject *result = NULL;
  for (Py_ssize_t at = 0; at < self->num_variants && status == 0; at++) {
    Variant *one = self->variants[at];
    if (one->machine != m.run->machine) continue;
    one->refs++;
    m.variant = one;
    m.next = one->patterns;
    m.num_leaves = 0;
    status = match_all(&m, args, num_args);
    if (status == 1 && at && at < self->num_variants && self->variants[at] == one) move_to_front(self, at);
    if (status == 1) result = record(&m);
    for (int32_t i = 0; i < m.num_leaves; i++) Py_DECREF(m.leaves[i].object);
    drop_variant(one);
  }
  return status == 0 ? miss(object, args, num_args) : result;
}

static PyMethodDef call_method = {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "call(*arguments)"};

static PyObject *get_call(PyObject *self, void *none) {
  (void)none;
  return PyCFunction_New(&call_method, self);
}

static PyObject *add(PyObject *object, PyObject *args) {
  Site *self = (Site *)object;
  PyObject *machine, *words, *objects;
  if (!PyArg_ParseTuple(args, "O!OO!", machine_type, &machine, &words, &PyTuple_Type, &objects)) return NULL;
  Variant *made = new_variant((MachineObject *)machine, words, objects);
  if (!made) return NULL;
  Variant **variants = PyMem_Realloc(self->variants, (self->num_variants + 1) * sizeof *variants);
  if (!variants) return drop_variant(made), PyErr_NoMemory();
  self->variants = variants;
  variants[self->num_variants++] = made;
  return Py_NewRef(Py_None);
}

static int clear_site(PyObject *object) {
  Site *self = (Site *)object;
  Variant **variants = self->variants;
  Py_ssize_t count = self->num_variants;
  self->variants = NULL;
  self->num_variants = 0;
  for (Py_ssize_t i = 0; i < count; i++) drop_variant(variants[i]);
  PyMem_Free(variants);
  return 0;
}

static PyObject *clear(PyObject *self, PyObject *none) {
  (void)none;
  clear_site(self);
  return Py_NewRef(Py_None);
}

/* ---- Site ---- */

static PyObject *new_site(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"on_miss", NULL};
  PyObject *on_miss;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O", names, &on_miss)) return NULL;
  Site *self = (Site *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self) self->on_miss = Py_NewRef(on_miss);
  return (PyObject *)self;
}

static int visit_site(PyObject *object, visitproc visit, void *arg) {
  const Site *self = (const Site *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->on_miss);
  for (Py_ssize_t i = 0; i < self->num_variants; i++)
    if (self->variants[i]->refs == 1) Py_VISIT(self->variants[i]->objects);
  return 0;
}

static void free_site(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear_site(object);
  Py_CLEAR(((Site *)object)->on_miss);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyMethodDef site_methods[] = {{"add", add, METH_VARARGS, "add(machine, words, objects): a variant"},
                                     {"clear", clear, METH_NOARGS, "clear(): forget all variants"},
                                     {NULL, NULL, 0, NULL}};
static PyGetSetDef site_getters[] = {{"call", get_call, NULL, "the function that notes a call", NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot site_slots[] = {{Py_tp_new, new_site},       {Py_tp_dealloc, free_site},    {Py_tp_traverse, visit_site},
                                   {Py_tp_clear, clear_site},   {Py_tp_methods, site_methods}, {Py_tp_getset, site_getters},
                                   {0, NULL}};
static PyType_Spec site_spec = {"dietcode.runtime.recorder.Site", sizeof(Site), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                site_slots};

int start_sites(PyObject *module) {
  new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
  site_type = (PyTypeObject *)PyType_FromSpec(&site_spec);
  return site_type ? PyModule_AddType(module, site_type) : -1;
}
