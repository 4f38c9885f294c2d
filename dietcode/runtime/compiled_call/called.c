/* CalledInC: a base class whose calls begin with a CompiledCall. And the module. */
#include "compiled_call.h"

#include <structmember.h>

static PyObject *call_text;

typedef struct {
  PyObject_HEAD
  PyObject *compiled;
} CalledInC;

static PyObject *call_object(PyObject *self, PyObject *args, PyObject *named) {
  PyObject *compiled = ((CalledInC *)self)->compiled;
  if (compiled && Py_TYPE(compiled) == compiled_call_type) {
    Py_INCREF(compiled); /* it may be replaced meanwhile */
    PyObject *result = try_call(compiled, args, named);
    Py_DECREF(compiled);
    if (result || PyErr_Occurred()) return result;
  }
  PyObject *method = PyObject_GetAttr(self, call_text), *result = method ? PyObject_Call(method, args, named) : NULL;
  Py_XDECREF(method);
  return result;
}

/* A subclass writes its `__call__` in Python, for what is declined and for readers. Set in the usual way it would replace
 * the slot; here it is put into the class alone. */
static PyObject *init_subclass(PyObject *type, PyObject *args) {
  (void)args;
  PyObject *members = PyObject_GetAttrString(type, "__dict__");
  PyObject *function = members ? PyObject_GetItem(members, call_text) : NULL;
  int status = members ? 0 : -1;
  if (members && !function) PyErr_Clear(); /* it has none of its own */
  if (function) status = PyObject_DelAttr(type, call_text) || PyObject_GenericSetAttr(type, call_text, function) ? -1 : 0;
  PyType_Modified((PyTypeObject *)type);
  Py_XDECREF(members);
  Py_XDECREF(function);
  return status == 0 ? Py_NewRef(Py_None) : NULL;
}

static int visit_object(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((CalledInC *)self)->compiled);
  return 0;
}

static int clear_object(PyObject *self) {
  Py_CLEAR(((CalledInC *)self)->compiled);
  return 0;
}

static void free_object(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear_object(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef object_methods[] = {{"__init_subclass__", init_subclass, METH_NOARGS | METH_CLASS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyMemberDef object_members[] = {{"compiled", T_OBJECT, offsetof(CalledInC, compiled), 0, NULL}, {NULL, 0, 0, 0, NULL}};
static PyType_Slot object_slots[] = {{Py_tp_doc, "What is called by its CompiledCall, and where that declines by `__call__`."},
                                     {Py_tp_call, call_object},
                                     {Py_tp_methods, object_methods},
                                     {Py_tp_members, object_members},
                                     {Py_tp_traverse, visit_object},
                                     {Py_tp_clear, clear_object},
                                     {Py_tp_dealloc, free_object},
                                     {0, NULL}};
static PyType_Spec object_spec = {"dietcode.runtime.compiled_call.CalledInC", sizeof(CalledInC), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, object_slots};

/* ---- The module ---- */

PyMODINIT_FUNC PyInit_compiled_call(void) {
  static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "compiled_call", .m_size = -1,
                                           .m_methods = instance_methods};
  PyObject *module = PyModule_Create(&definition), *called = PyType_FromSpec(&object_spec);
  call_text = PyUnicode_InternFromString("__call__");
  if (module && called && start_tensors() == 0 && start_calls() == 0 && call_text &&
      PyModule_AddObjectRef(module, "CompiledCall", (PyObject *)compiled_call_type) == 0 &&
      PyModule_AddObjectRef(module, "CalledInC", called) == 0)
    return module;
  Py_XDECREF(module);
  return NULL;
}
