/* Variants: how a site's arguments are matched, what is noted, and what is returned; read from integers, and checked.
 *
 * The integers are the arguments' number, of each a tree in preorder; the notes' number, of each its block, the operands'
 * number and these; the tree of the result. Of the trees' nodes, by kind:
 *   arguments: ROOT obj · EQUAL obj · TENSOR type ndim extents · INT type num_ids · FLOAT type · TUPLE n · LIST n · RECORD obj n
 *     · MADE type dtype ndim extents · ANY · SLICE, of three trees
 *   the result: 0 obj · 1 result dtype · TUPLE n · LIST n · RECORD obj n · ARGUMENT value · CONSTANT number dtype
 * An operand is the number of a value among the arguments, or -1 - the number of a result of an earlier note. */
#include "recorder.h"

#include <string.h>

typedef struct {
  const int64_t *next, *end;
  const char *wrong; /* what is, or NULL */
  Variant *variant;
} Reader;

static int64_t take(Reader *r, int64_t low, int64_t high, const char *what) {
  if (!r->wrong && r->next < r->end && *r->next >= low && *r->next <= high) return *r->next++;
  if (!r->wrong) r->wrong = what;
  return low;
}

static PyObject *take_object(Reader *r) {
  int64_t number = take(r, 0, PyTuple_Size(r->variant->objects) - 1, "the number of an object");
  return r->wrong ? NULL : PyTuple_GetItem(r->variant->objects, number);
}

static void check(Reader *r, int is_right, const char *what) {
  if (!r->wrong && !is_right) r->wrong = what;
}

static int is_comparable(PyObject *object) {
  return PyLong_CheckExact(object) || PyUnicode_CheckExact(object) || PyFloat_CheckExact(object) || PyBytes_CheckExact(object) ||
         PyBool_Check(object);
}

static int is_tuple_class(PyObject *object) {
  return PyType_Check(object) && PyType_IsSubtype((PyTypeObject *)object, &PyTuple_Type) && object != (PyObject *)&PyTuple_Type;
}

static void read_value(Reader *r, Pattern *p) {
  const Machine *m = r->variant->machine->machine;
  int64_t extents[MAX_TREE_DEPTH], num_elements = 1;
  p->type = (int32_t)take(r, 0, m->num_types - 1, "a type");
  if (r->wrong) return;
  const TensorType *type = &m->types[p->type];
  int is_int = p->kind == INT_VALUE, ndim = 0;
  if (p->kind == MADE_VALUE) p->dtype = (Dtype)take(r, BOOL, NUM_DTYPES - 1, "a dtype");
  if (is_int) p->num_ids = take(r, -1, INT32_MAX, "how many ids are allowed");
  if (p->kind == TENSOR_VALUE || p->kind == MADE_VALUE) ndim = (int)take(r, 0, 8, "the number of axes");
  for (int axis = 0; axis < ndim; axis++) num_elements *= extents[axis] = take(r, 0, INT32_MAX, "an extent");
  check(r, type->num_elements == num_elements && type->row_bytes == 4 * num_elements && type->is_int == is_int,
        "a value of another type");
  check(r, r->variant->num_leaves < MAX_LEAVES, "the number of values");
  if (r->wrong) return;
  r->variant->leaves[p->count = r->variant->num_leaves++] = (int32_t)(p - r->variant->patterns);
  if (p->kind != FLOAT_VALUE) check(r, (p->given = new_given(is_int ? INT64 : p->dtype, ndim, extents)) != NULL, "memory");
}

static Pattern *next_pattern(Reader *r, Pattern *patterns, int32_t *count, int depth, int64_t num_kinds) {
  check(r, depth <= MAX_TREE_DEPTH && *count < MAX_PATTERNS, "a tree's size");
  PatternKind kind = (PatternKind)take(r, 0, num_kinds - 1, "a kind");
  if (r->wrong) return NULL;
  Pattern *p = &patterns[(*count)++];
  *p = (Pattern){.kind = kind, .num_ids = -1};
  return p;
}

static void read_items(Reader *r, Pattern *p) {
  if (p->kind == RECORD_OF) check(r, (p->object = take_object(r)) && is_tuple_class(p->object), "a record's class");
  p->count = (int32_t)take(r, 0, MAX_PATTERNS, "the number of items");
}

static void read_argument(Reader *r, int depth) {
  Variant *v = r->variant;
  Pattern *p = next_pattern(r, v->patterns, &v->num_patterns, depth, ARGUMENT);
  if (!p) return;
  switch (p->kind) {
    case ROOT: p->object = take_object(r); break;
    case EQUAL: check(r, (p->object = take_object(r)) && is_comparable(p->object), "what is compared"); break;
    case ANY: break;
    case SLICE_OF: p->count = 3; break;
    case TUPLE_OF: case LIST_OF: case RECORD_OF: read_items(r, p); break;
    default: read_value(r, p); return;
  }
  for (int32_t i = 0; i < p->count && !r->wrong; i++) read_argument(r, depth + 1);
}

static void read_result(Reader *r, int depth) {
  Variant *v = r->variant;
  Pattern *p = next_pattern(r, v->shapes, &v->num_shapes, depth, NUM_KINDS);
  if (!p) return;
  switch ((int)p->kind) {
    case RESULT_OBJECT: p->object = take_object(r); break;
    case RESULT_VALUE:
      p->type = (int32_t)take(r, 0, v->num_results - 1, "the number of a result");
      p->dtype = (Dtype)take(r, FLOAT32, NUM_DTYPES - 1, "a dtype");
      check(r, !v->machine->machine->types[v->types[p->type]].is_int, "a result of integers");
      break;
    case ARGUMENT: p->type = (int32_t)take(r, 0, v->num_leaves - 1, "the number of a value"); break;
    case CONSTANT:
      p->count = (int32_t)take(r, 0, v->machine->machine->num_tensors - 1, "the number of a constant");
      p->dtype = (Dtype)take(r, FLOAT32, NUM_DTYPES - 1, "a dtype");
      if (!r->wrong) p->type = (int32_t)v->machine->machine->tensors[p->count].type;
      break;
    case TUPLE_OF: case LIST_OF: case RECORD_OF:
      read_items(r, p);
      for (int32_t i = 0; i < p->count && !r->wrong; i++) read_result(r, depth + 1);
      break;
    default: check(r, 0, "a kind");
  }
}

static void read_operand(Reader *r, const Operand *operand) {
  Variant *v = r->variant;
  int32_t own = (int32_t)take(r, -v->num_results, v->num_leaves - 1, "an operand");
  if (r->wrong) return;
  Pattern *p = own < 0 ? NULL : &v->patterns[v->leaves[own]];
  check(r, (p ? p->type : v->types[-1 - own]) == operand->type, "an operand of another type");
  check(r, !operand->is_ids || p, "ids that are computed");
  if (operand->is_ids && p && operand->num_ids >= 0 && (p->num_ids < 0 || p->num_ids > operand->num_ids))
    p->num_ids = operand->num_ids;
  v->operands[v->num_operands++] = own;
}

static void read_note(Reader *r) {
  Variant *v = r->variant;
  const Machine *m = v->machine->machine;
  int64_t number = take(r, 0, m->num_blocks - 1, "a block");
  if (r->wrong) return;
  const Block *block = &m->blocks[number];
  take(r, block->num_operands, block->num_operands, "the number of operands");
  check(r, block->num_operands <= MAX_OPERANDS && v->num_results + block->num_results <= MAX_PATTERNS, "a block's size");
  v->notes[v->num_notes++] = (Note){(int32_t)number, v->num_operands, v->num_results};
  for (int32_t k = 0; k < block->num_operands && !r->wrong; k++) read_operand(r, &block->operands[k]);
  for (int32_t k = 0; k < block->num_results && !r->wrong; k++) v->types[v->num_results++] = block->results[k].type;
}

static void read_variant(Reader *r) {
  Variant *v = r->variant;
  v->num_args = (int32_t)take(r, 0, MAX_PATTERNS, "the number of arguments");
  for (int32_t i = 0; i < v->num_args && !r->wrong; i++) read_argument(r, 1);
  int64_t num_notes = take(r, 0, MAX_NOTES, "the number of notes");
  for (int64_t i = 0; i < num_notes && !r->wrong; i++) read_note(r);
  read_result(r, 1);
  check(r, r->next == r->end, "what is behind the result");
}

void drop_variant(Variant *v) {
  if (--v->refs > 0) return;
  for (int32_t i = 0; i < v->num_patterns; i++) PyMem_Free(v->patterns[i].given);
  Py_DECREF(v->machine), Py_DECREF(v->objects);
  PyMem_Free(v->patterns), PyMem_Free(v->shapes), PyMem_Free(v->notes), PyMem_Free(v->operands), PyMem_Free(v->types);
  PyMem_Free(v);
}

/* No more than one of each for an integer; results are checked as they come. */
static int make_arrays(Variant *v, Py_ssize_t length) {
  v->patterns = PyMem_Calloc(length + 1, sizeof *v->patterns);
  v->shapes = PyMem_Calloc(length + 1, sizeof *v->shapes);
  v->notes = PyMem_Calloc(MAX_NOTES, sizeof *v->notes);
  v->operands = PyMem_Calloc(length + 1, sizeof *v->operands);
  v->types = PyMem_Calloc(MAX_PATTERNS, sizeof *v->types);
  return v->patterns && v->shapes && v->notes && v->operands && v->types ? 0 : -1;
}

Variant *new_variant(MachineObject *machine, PyObject *words, PyObject *objects) {
  Py_ssize_t length = 0;
  int64_t *own = array_of(words, &length);
  Variant *v = own ? PyMem_Calloc(1, sizeof *v) : NULL;
  if (!v) return PyMem_Free(own), NULL;
  v->refs = 1;
  v->machine = (MachineObject *)Py_NewRef((PyObject *)machine);
  v->objects = Py_NewRef(objects);
  Reader reader = {own, own + length, make_arrays(v, length) == 0 ? NULL : "memory", v};
  read_variant(&reader);
  Py_ssize_t at = reader.next - own;
  PyMem_Free(own);
  if (!reader.wrong) return v;
  PyErr_Format(PyExc_ValueError, "a variant: word %zd: wrong: %s", at, reader.wrong);
  drop_variant(v);
  return NULL;
}
