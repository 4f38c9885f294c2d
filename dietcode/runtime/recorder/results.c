/* What instances return: tensors are made of all handles that somebody has, and put in their place. */
#include "recorder.h"

#include <string.h>

/* As `calling.layout_of` counts them. LEAF has no handles; a RECORD is a tuple of its own class, MADE is made of its items. */
typedef enum { LEAF, TUPLE, RECORD, MADE, LIST, DICT, SET, DEQUE, OTHER } LayoutKind;

typedef struct {
  LayoutKind kind;
  int has_dict;
  PyObject *names; /* of slots, borrowed */
} Layout;

/* Of a value that cannot be changed, while its items are looked at. */
typedef struct {
  PyObject *value, *items, *made; /* counted; a tuple; a list once an item is another */
  Py_ssize_t at;
  LayoutKind kind;
} Frame;

typedef struct {
  PyObject *value, *result; /* counted, so that no other gets its address */
} Seen;

typedef struct {
  Run *run;
  PyObject *describe, *layouts, *names; /* by type; names: of the attributes of the last one that was looked at in full */
  PyTypeObject *type; /* whose layout was asked for last */
  Layout layout;
  Seen *seen;                   /* a table of a power of two */
  Frame *frames;
  PyObject **left; /* that can be changed and are not looked at yet; `seen` counts them */
  Py_ssize_t num_seen, seen_room, num_frames, frames_room, num_left, left_room;
} Walk;

static int grow_room(void **items, Py_ssize_t *room, size_t size) {
  Py_ssize_t more = 2 * *room + 64;
  void *made = PyMem_Realloc(*items, more * size);
  if (!made) return PyErr_NoMemory(), -1;
  *items = made;
  *room = more;
  return 0;
}

static Seen *place_of(const Walk *w, const PyObject *value) {
  size_t at = ((size_t)value >> 4) * 0x9E3779B97F4A7C15u >> 20;
  for (;; at++) {
    Seen *place = &w->seen[at & (w->seen_room - 1)];
    if (!place->value || place->value == value) return place;
  }
}

static int note_seen(Walk *w, PyObject *value, PyObject *result) {
  if (2 * w->num_seen >= w->seen_room) {
    Walk before = *w;
    w->seen_room = w->seen_room ? 4 * w->seen_room : 256;
    w->seen = PyMem_Calloc(w->seen_room, sizeof *w->seen);
    if (!w->seen) return w->seen = before.seen, w->seen_room = before.seen_room, PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < before.seen_room; i++)
      if (before.seen[i].value) *place_of(w, before.seen[i].value) = before.seen[i];
    PyMem_Free(before.seen);
  }
  *place_of(w, value) = (Seen){Py_NewRef(value), Py_NewRef(result)};
  w->num_seen++;
  return 0;
}

static int is_leaf(PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  return type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type || value == Py_None;
}

static int layout_of(Walk *w, PyObject *value, Layout *layout) {
  PyTypeObject *type = Py_TYPE(value);
  *layout = (Layout){LEAF, 0, NULL};
  if (is_leaf(value)) return 0;
  if (type == &PyTuple_Type) return layout->kind = TUPLE, 0;
  if (type == &PyList_Type) return layout->kind = LIST, 0;
  if (type == &PyDict_Type) return layout->kind = DICT, 0;
  if (type != w->type) {
    PyObject *found = PyDict_GetItemWithError(w->layouts, (PyObject *)type);
    if (!found && !PyErr_Occurred()) {
      PyObject *made = PyObject_CallFunctionObjArgs(w->describe, type, NULL);
      if (made && PyDict_SetItem(w->layouts, (PyObject *)type, made) == 0) found = made;
      Py_XDECREF(made); /* the dict has it */
    }
    Layout *own = &w->layout;
    w->type = NULL;
    if (!found || !PyArg_ParseTuple(found, "ipO!", &own->kind, &own->has_dict, &PyTuple_Type, &own->names)) return -1;
    w->type = type;
  }
  *layout = w->layout;
  return 0;
}

/* A value that `seen` counts. */
static int leave_for_later(Walk *w, PyObject *value) {
  if (w->num_left == w->left_room && grow_room((void **)&w->left, &w->left_room, sizeof *w->left) != 0) return -1;
  w->left[w->num_left++] = value;
  return 0;
}

/* 1 with what stands for a value, 0 where that begins a frame, -1 with an error. */
static int begin_value(Walk *w, PyObject *value, PyObject **result) {
  Layout layout;
  *result = value;
  if (Py_TYPE(value) == handle_type) {
    if (((Handle *)value)->tensor) *result = ((Handle *)value)->tensor; /* of a call around this one it has none */
    return Py_INCREF(*result), 1;
  }
  if (layout_of(w, value, &layout) != 0) return -1;
  if (layout.kind == LEAF) return Py_INCREF(value), 1;
  const Seen *seen = w->seen_room ? place_of(w, value) : NULL;
  if (seen && seen->value) return *result = Py_NewRef(seen->result), 1;
  if (layout.kind >= LIST) {
    if (note_seen(w, value, value) != 0 || leave_for_later(w, value) != 0) return -1;
    return Py_INCREF(value), 1;
  }
  if (w->num_frames == w->frames_room && grow_room((void **)&w->frames, &w->frames_room, sizeof *w->frames) != 0) return -1;
  PyObject *items = layout.kind == TUPLE ? Py_NewRef(value) : PySequence_Tuple(value);
  if (!items) return -1;
  w->frames[w->num_frames++] = (Frame){Py_NewRef(value), items, NULL, 0, layout.kind};
  return 0;
}

static PyObject *built(const Frame *frame) {
  PyObject *items = PyList_AsTuple(frame->made), *args, *made = NULL;
  if (!items || frame->kind == TUPLE) return items;
  PyTypeObject *type = Py_TYPE(frame->value);
  newfunc new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
  if (frame->kind == MADE) made = PyObject_CallFunctionObjArgs((PyObject *)type, items, NULL);
  else if ((args = PyTuple_Pack(1, items))) made = new(type, args, NULL), Py_DECREF(args);
  Py_DECREF(items);
  PyObject *own = made ? PyObject_GenericGetDict(frame->value, NULL) : NULL;
  PyObject *other = own ? PyObject_GenericGetDict(made, NULL) : NULL;
  if (made && !own) PyErr_Clear(); /* its class has none */
  if (own && (!other || PyDict_Update(other, own) != 0)) Py_CLEAR(made);
  Py_XDECREF(own);
  Py_XDECREF(other);
  return made;
}

static void pop_frame(Walk *w) {
  Frame *frame = &w->frames[--w->num_frames];
  Py_DECREF(frame->value);
  Py_DECREF(frame->items);
  Py_XDECREF(frame->made);
}

static int take_item(Frame *frame, PyObject *item) {
  if (!frame->made && item == PyTuple_GetItem(frame->items, frame->at)) {
    Py_DECREF(item);
  } else if (!frame->made && !(frame->made = PySequence_List(frame->items))) {
    return Py_DECREF(item), -1;
  } else if (PyList_SetItem(frame->made, frame->at, item) != 0) {
    return -1;
  }
  frame->at++;
  return 0;
}

/* What stands for a value, which may be itself. Not recursive: results may be deep. */
static PyObject *plain(Walk *w, PyObject *value) {
  PyObject *result = NULL;
  int status = begin_value(w, value, &result);
  while (status == 0 || (status == 1 && w->num_frames)) {
    Frame *frame = &w->frames[w->num_frames - 1];
    if (status == 1 && take_item(frame, result) != 0) {
      status = -1;
    } else if (frame->at < PyTuple_Size(frame->items)) {
      status = begin_value(w, PyTuple_GetItem(frame->items, frame->at), &result);
    } else {
      result = frame->made ? built(frame) : Py_NewRef(frame->value);
      status = result && note_seen(w, frame->value, result) == 0 ? 1 : -1;
      if (status == 1 && frame->kind != TUPLE) status = leave_for_later(w, result) == 0 ? 1 : -1; /* its attributes */
      if (status < 0) Py_XDECREF(result);
      pop_frame(w);
    }
  }
  while (w->num_frames) pop_frame(w); /* after an error */
  return status == 1 ? result : NULL;
}

/* 1 where another stands for an item; -1 with an error. The item is borrowed. */
static int replace_item(Walk *w, PyObject *item, PyObject **result) {
  *result = item ? plain(w, item) : NULL;
  if (!*result) return -1;
  if (*result != item) return 1;
  Py_DECREF(*result);
  return 0;
}

static int put_in_list(Walk *w, PyObject *list) {
  int status = 0;
  for (Py_ssize_t i = 0; i < PyList_Size(list) && status >= 0; i++) {
    PyObject *result;
    status = replace_item(w, PyList_GetItem(list, i), &result);
    if (status == 1) status = PyList_SetItem(list, i, result);
  }
  return status;
}

static int put_in_keys(PyObject *dict, PyObject *items) {
  PyObject *answer = PyObject_CallMethod(dict, "clear", NULL);
  int status = answer ? 0 : -1;
  Py_XDECREF(answer);
  for (Py_ssize_t i = 0; i < PyList_Size(items) && status == 0; i++) {
    PyObject *pair = PyList_GetItem(items, i);
    status = PyObject_SetItem(dict, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
  }
  return status;
}

static int put_in_dict(Walk *w, PyObject *dict) {
  PyObject *key, *value, *result;
  Py_ssize_t at = 0;
  int status = 0, are_other = 0;
  while (status >= 0 && PyDict_Next(dict, &at, &key, &value)) {
    Py_INCREF(key);
    status = replace_item(w, value, &result);
    if (status == 1) status = PyDict_SetItem(dict, key, result), Py_DECREF(result);
    if (status >= 0 && (Py_TYPE(key) == handle_type || PyTuple_Check(key))) {
      status = replace_item(w, key, &result);
      if (status == 1) are_other = 1, Py_DECREF(result);
    }
    Py_DECREF(key);
  }
  if (status < 0 || !are_other) return status;
  PyObject *items = PyDict_Items(dict);
  status = items ? put_in_list(w, items) : -1;
  if (status >= 0) status = put_in_keys(dict, items);
  Py_XDECREF(items);
  return status;
}

static int put_in_items(Walk *w, PyObject *value, LayoutKind kind) {
  PyObject *items = PySequence_List(value), *before = items ? PyList_AsTuple(items) : NULL;
  int status = before ? put_in_list(w, items) : -1;
  int are_other = 0;
  for (Py_ssize_t i = 0; status >= 0 && i < PyList_Size(items); i++) {
    PyObject *item = PyList_GetItem(items, i);
    if (item == PyTuple_GetItem(before, i)) continue;
    are_other = 1;
    if (kind == DEQUE) status = PySequence_SetItem(value, i, item);
  }
  if (status >= 0 && are_other && kind == SET) {
    status = PySet_Clear(value);
    for (Py_ssize_t i = 0; status >= 0 && i < PyList_Size(items); i++) status = PySet_Add(value, PyList_GetItem(items, i));
  }
  Py_XDECREF(items);
  Py_XDECREF(before);
  return status;
}

static int put_in_names(Walk *w, PyObject *value, PyObject *names, Py_ssize_t *num_looked_at) {
  int status = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(names) && status >= 0; i++) {
    PyObject *name = PyTuple_GetItem(names, i), *item = PyObject_GenericGetAttr(value, name), *result;
    if (!item && !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear(); /* one that is not set */
    if (!item) continue;
    *num_looked_at += !is_leaf(item);
    status = replace_item(w, item, &result);
    if (status == 1) status = PyObject_GenericSetAttr(value, name, result), Py_DECREF(result);
    Py_DECREF(item);
  }
  return status;
}

typedef struct {
  PyObject *value;
  Py_ssize_t count; /* -1 where one is a dict, which may be that of the object */
} Held;

static int count_held(PyObject *item, void *arg) {
  Held *held = arg;
  if (PyDict_CheckExact(item)) return held->count = -1;
  held->count += !is_leaf(item) && item != (PyObject *)Py_TYPE(held->value);
  return 0;
}

/* To ask for the dict of an object makes one. Where the names of the last one of its type lead to as many objects as the
 * collector of garbage finds, there is no other. */
static int put_in_attributes(Walk *w, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  PyObject *names = PyDict_GetItemWithError(w->names, (PyObject *)type); /* of objects that are collected */
  Held held = {value, 0};
  Py_ssize_t num_looked_at = 0;
  if (names) {
    ((traverseproc)PyType_GetSlot(type, Py_tp_traverse))(value, count_held, &held);
    Py_INCREF(names);
    int status = put_in_names(w, value, names, &num_looked_at);
    Py_DECREF(names);
    if (status < 0 || num_looked_at == held.count) return status;
  }
  PyObject *dict = PyErr_Occurred() ? NULL : PyObject_GenericGetDict(value, NULL), *keys = dict ? PySequence_Tuple(dict) : NULL;
  int status = keys ? put_in_dict(w, dict) : -1;
  if (status >= 0 && PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC)) status = PyDict_SetItem(w->names, (PyObject *)type, keys);
  Py_XDECREF(keys);
  Py_XDECREF(dict);
  return status;
}

static int put_in(Walk *w, PyObject *value) {
  Layout layout;
  Py_ssize_t num_looked_at = 0;
  int status = layout_of(w, value, &layout);
  if (status == 0 && layout.kind == LIST) status = put_in_list(w, value);
  else if (status == 0 && layout.kind == DICT) status = put_in_dict(w, value);
  else if (status == 0 && layout.kind > DICT && layout.kind != OTHER) status = put_in_items(w, value, layout.kind);
  if (status >= 0 && layout.names) status = put_in_names(w, value, layout.names, &num_looked_at);
  return status >= 0 && layout.has_dict ? put_in_attributes(w, value) : status;
}

/* ---- Tensors ---- */

static int set_tensors(PyObject *handles, PyObject *tensors) {
  PyObject *name = PyUnicode_FromString("tensor");
  Py_ssize_t count = PyList_Size(handles);
  int status = name && tensors && PySequence_Size(tensors) == count ? 0 : -1;
  for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
    PyObject *one = PySequence_GetItem(tensors, i);
    status = one ? PyObject_GenericSetAttr(PyList_GetItem(handles, i), name, one) : -1;
    Py_XDECREF(one);
  }
  Py_XDECREF(name);
  return status;
}

/* All that one type and dtype have in common are made at once: make(handles) gives a tuple. */
static int make_tensors(Run *run, PyObject *make) {
  int64_t num_types = run->w->machine->num_types, num_groups = num_types * NUM_DTYPES;
  PyObject **groups = PyMem_Calloc(num_groups + 1, sizeof *groups);
  Handle **handles = run->handles_room.data;
  int status = groups ? 0 : (PyErr_NoMemory(), -1);
  for (int64_t i = 0; status == 0 && i < run->num_known; i++) {
    if (!handles[i] || handles[i]->tensor) continue;
    PyObject **group = &groups[handles[i]->type * NUM_DTYPES + handles[i]->dtype];
    if (!*group && !(*group = PyList_New(0))) status = -1;
    else status = PyList_Append(*group, (PyObject *)handles[i]);
  }
  for (int64_t i = 0; status == 0 && i < num_groups; i++) {
    PyObject *tensors = groups[i] ? PyObject_CallFunctionObjArgs(make, run, groups[i], NULL) : NULL;
    if (groups[i]) status = set_tensors(groups[i], tensors);
    Py_XDECREF(tensors);
  }
  for (int64_t i = 0; groups && i < num_groups; i++) Py_XDECREF(groups[i]);
  PyMem_Free(groups);
  return status;
}

PyObject *settle(PyObject *object, PyObject *args) {
  Walk w = {.run = (Run *)object};
  PyObject *results, *make;
  if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &results, &make, &w.describe)) return NULL;
  if (!w.run->num_live) return Py_NewRef(Py_None);
  int status = make_tensors(w.run, make);
  if (status == 0) status = (w.layouts = PyDict_New()) && (w.names = PyDict_New()) ? put_in_list(&w, results) : -1;
  while (status >= 0 && w.num_left && w.run->num_live) status = put_in(&w, w.left[--w.num_left]);
  for (Py_ssize_t i = 0; i < w.seen_room; i++) {
    Py_XDECREF(w.seen[i].value);
    Py_XDECREF(w.seen[i].result);
  }
  PyMem_Free(w.seen), PyMem_Free(w.frames), PyMem_Free(w.left);
  Py_XDECREF(w.layouts);
  Py_XDECREF(w.names);
  return status >= 0 ? Py_NewRef(Py_None) : NULL;
}
