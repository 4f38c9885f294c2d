/* Block calls noted by Python's own code, and handles of their results.
 *
 * A site is a place of the source; what it calls is matched with the variants of the current run's machine, and noted. One
 * file serves Python 3.11 and later, by the limited API. */
#ifndef DIETCODE_RECORDER_H
#define DIETCODE_RECORDER_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../loops/machine.h"

/* As tensors are in Python; a row has float32 for each of them. */
typedef enum { FLOAT32, BOOL, INT64, INT32, NUM_DTYPES } Dtype;

typedef struct {
  PyObject_HEAD
  Machine *machine;
  PyObject *shapes, *kept; /* of the types; what has the memory that the description refers to */
} MachineObject;

typedef struct Handle Handle;
typedef struct Run Run;

/* A workplace, used by one call after another. */
struct Run {
  PyObject_HEAD
  MachineObject *machine;
  Workplace *w;
  PyObject *compute, *observe; /* NULL for none */
  PyObject *failure;           /* the exception that ended it, or NULL */
  PyObject *scheduler;         /* of its instances, or NULL */
  Run *before;                 /* the thread's current one before it began */
  Room handles_room;           /* of each number its handle, not counted, or NULL */
  int64_t num_known, num_live; /* numbers that have a place there; handles that somebody has */
  int64_t flush_nsecs;         /* that flushes took since it began */
  int64_t python_nsecs, python_since; /* that code of instances took where it is traced; since when it runs, or 0 */
  int64_t instances_nsecs, waits_flushed; /* that all of them took, and flushes until then */
  int64_t num_waits;
  int is_begun, is_running, is_traced;
};

enum { SHADOW_WORDS = 4 };

/* Its head is that of a PyTorch tensor once it has one: C code of PyTorch's, which takes it for a tensor by its __class__,
 * finds that one. */
struct Handle {
  PyObject_HEAD
  void *shadow[SHADOW_WORDS];
  Run *run; /* NULL when it is over; not counted: the run knows its handles */
  PyObject *tensor, *weak;
  int32_t number, type;
  Dtype dtype;
};

/* runs.c */
extern PyTypeObject *machine_type, *run_type;
int start_runs(PyObject *module);
Run *current_run(void);        /* of this thread, borrowed; NULL for none */
int compute_pending(Run *run); /* -1 with an error, here and below */
int fail_run(Run *run);        /* says what ended the workplace's call */
int is_alive(const Run *run);  /* -1 with the error that ended it */
int keep_failure(PyObject **place); /* of Python's error, which stays: -1 */
PyObject *flush_run(PyObject *run, PyObject *none);
Handle **reserve_handles(Run *run);
void *array_of(PyObject *integers, Py_ssize_t *length); /* int64, copied; NULL with an error */

/* handles.c */
extern PyTypeObject *handle_type;
int start_handles(PyObject *module);
PyObject *handle_of(Run *run, int32_t number, int32_t type, Dtype dtype); /* the one of a number */
Run *run_of(const Handle *self); /* NULL with an error when it is over */
PyObject *value_of(PyObject *module, PyObject *handle);
PyObject *gather(PyObject *run, PyObject *args);
PyObject *pretend(PyObject *module, PyObject *args);

/* greenlets.c */
int start_fibers(PyObject *module);
int wait_for(PyObject *handle); /* until it is computed */
PyObject *wait_in_python(PyObject *module, PyObject *handle);
PyObject *watch(PyObject *module, PyObject *functions);
PyObject *begin_calls(PyObject *module, PyObject *calls);
PyObject *begin_map(PyObject *module, PyObject *args);

/* results.c */
PyObject *settle(PyObject *run, PyObject *args);

/* given.c: tensors of PyTorch */
typedef struct Given Given;
Given *new_given(Dtype dtype, int ndim, const int64_t *extents);
const void *data_of(PyObject *tensor, Given *given); /* NULL for another dtype, shape or kind of tensor */
void convert(const void *data, Dtype dtype, int64_t count, float *row);
int are_exact(const void *data, Dtype dtype, int64_t count); /* as float32 */

/* variants.c */
typedef enum {
  ROOT, EQUAL, TENSOR_VALUE, INT_VALUE, FLOAT_VALUE, TUPLE_OF, LIST_OF, RECORD_OF, MADE_VALUE, ANY, SLICE_OF, ARGUMENT, CONSTANT,
  NUM_KINDS
} PatternKind;
enum { RESULT_OBJECT, RESULT_VALUE }; /* the first kinds of a result */
enum { MAX_PATTERNS = 1 << 12, MAX_LEAVES = 64, MAX_NOTES = 256, MAX_TREE_DEPTH = 16 };

/* A node of a tree in preorder. */
typedef struct {
  PatternKind kind;
  int32_t type, count /* items, or of a value its number */;
  Dtype dtype;
  int64_t num_ids; /* -1 for any */
  PyObject *object;
  Given *given;
} Pattern;

typedef struct {
  int32_t block, first, result; /* its operands, among all of the variant; its results, among all of these */
} Note;

typedef struct {
  int32_t refs;
  MachineObject *machine;
  PyObject *objects;
  int32_t num_args, num_patterns, num_shapes, num_leaves, num_notes, num_operands, num_results;
  Pattern *patterns, *shapes /* of what is returned */;
  Note *notes;
  int32_t *operands, *types /* of results */;
  int32_t leaves[MAX_LEAVES]; /* their patterns */
} Variant;
Variant *new_variant(MachineObject *machine, PyObject *words, PyObject *objects);
void drop_variant(Variant *variant);

/* sites.c */
extern PyTypeObject *site_type;
int start_sites(PyObject *module);

#endif
