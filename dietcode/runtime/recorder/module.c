/* The module `recorder`. */
#include "recorder.h"

extern int start_tensors(void); /* of the compiled call */

static PyObject *get_current(PyObject *module, PyObject *none) {
  (void)module, (void)none;
  PyObject *run = (PyObject *)current_run();
  return Py_NewRef(run ? run : Py_None);
}

/* What unwinds the stack ends here: a greenlet does not keep the frames of who started it, and each error of
   PyTorch's C++ takes a backtrace. */
static __attribute__((noinline)) PyObject *call_at_bottom(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *rest = PyTuple_GetSlice(args, 1, PY_SSIZE_T_MAX), *result = NULL;
  if (rest && PyTuple_Size(args) > 0) {
#if defined(__linux__) && defined(__x86_64__)
    __asm__ volatile(".cfi_undefined rip" ::: "memory");
#elif defined(__linux__) && defined(__aarch64__)
    __asm__ volatile(".cfi_undefined x30" ::: "memory");
#endif
    result = PyObject_Call(PyTuple_GetItem(args, 0), rest, NULL);
  } else if (rest) {
    PyErr_SetString(PyExc_TypeError, "call_at_bottom: given nothing; allowed: a function and its arguments");
  }
  Py_XDECREF(rest);
  return result;
}

static PyMethodDef methods[] = {{"value", value_of, METH_O, "value(handle): the number that a computed handle is"},
                                {"pretend", pretend, METH_VARARGS, "pretend(cls, num_bytes, make, truths): pass as tensors"},
                                {"current", get_current, METH_NOARGS, "current(): this thread's current run, or None"},
                                {"call_at_bottom", call_at_bottom, METH_VARARGS, "call_at_bottom(function, *args): at the bottom of a greenlet"},
                                {"wait", wait_in_python, METH_O, "wait(handle): let others run until it is computed"},
                                {"watch", watch, METH_O, "watch(functions): that say how a thread stands"},
                                {"begin_calls", begin_calls, METH_O, "begin_calls(pairs): a group, or None"},
                                {"begin_map", begin_map, METH_VARARGS, "begin_map(function, items): a group, or None"},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dietcode.runtime.recorder", NULL, -1, methods, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyObject *PyInit_recorder(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module && (start_tensors() || start_runs(module) || start_handles(module) || start_sites(module) || start_fibers(module))) Py_CLEAR(module);
  return module;
}
