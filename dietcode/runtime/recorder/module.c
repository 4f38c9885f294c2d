/* The module `recorder`. */
#include "recorder.h"

extern int start_tensors(void); /* of the compiled call */

static PyObject *get_current(PyObject *module, PyObject *none) {
  (void)module, (void)none;
  PyObject *run = (PyObject *)current_run();
  return Py_NewRef(run ? run : Py_None);
}

static PyMethodDef methods[] = {{"value", value_of, METH_O, "value(handle): the number that a computed handle is"},
                                {"pretend", pretend, METH_VARARGS, "pretend(cls, num_bytes, make): pass as tensors"},
                                {"current", get_current, METH_NOARGS, "current(): this thread's current run, or None"},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dietcode.runtime.recorder", NULL, -1, methods, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyObject *PyInit_recorder(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module && (start_tensors() || start_runs(module) || start_handles(module) || start_sites(module))) Py_CLEAR(module);
  return module;
}
