/* What Python calls: functions of a module of tvm-ffi, of integers and addresses. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

int fail(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static int are_integers(const TVMFFIAny *args, int32_t num_args, int32_t wanted) {
  int are = num_args == wanted;
  for (int32_t i = 0; are && i < num_args; i++) are = args[i].type_index == kTVMFFIInt;
  return are;
}

static void *address(const TVMFFIAny *value) { return (void *)(intptr_t)value->v_int64; }

static int is_structure(const Structure *s) { return s->num_nodes >= 0 && s->num_nodes < INT32_MAX && s->num_columns >= 0; }

/* linearize(children, num_nodes, num_columns, order, positions, begins, roots, facts): facts [4] are what is found out, the
 * problem, its node, the number of levels and that of roots. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_linearize(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  if (!are_integers(args, num_args, 8)) return fail("TypeError", "linearize: takes eight integers");
  Structure structure = {.children = address(&args[0]), .num_nodes = args[1].v_int64, .num_columns = args[2].v_int64,
                         .order = address(&args[3]), .positions = address(&args[4]), .begins = address(&args[5]),
                         .roots = address(&args[6])};
  if (!is_structure(&structure)) return fail("ValueError", "linearize: more nodes than positions of 32 bits count");
  int64_t *facts = address(&args[7]);
  facts[0] = linearize(&structure);
  facts[1] = structure.node;
  facts[2] = structure.num_levels;
  facts[3] = structure.num_roots;
  return 0;
}

/* place_children(children, num_nodes, num_columns, order, positions, num_slots, out) */
TVM_FFI_DLL_EXPORT int __tvm_ffi_place_children(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  if (!are_integers(args, num_args, 7)) return fail("TypeError", "place_children: takes seven integers");
  Structure structure = {.children = address(&args[0]), .num_nodes = args[1].v_int64, .num_columns = args[2].v_int64,
                         .order = address(&args[3]), .positions = address(&args[4])};
  if (!is_structure(&structure)) return fail("ValueError", "place_children: more nodes than positions of 32 bits count");
  place_children(&structure, args[5].v_int64, address(&args[6]));
  return 0;
}

/* probe_sizes(facts): facts [2] are the vectors of a step and the floats of a vector. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_probe_sizes(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  if (!are_integers(args, num_args, 1)) return fail("TypeError", "probe_sizes: takes one integer");
  int64_t *facts = address(&args[0]);
  facts[0] = probe_chains();
  facts[1] = probe_lanes();
  return 0;
}

/* probe(sums, data, num_threads, steps, times): see `probe`; data is 0 for multiply-adds. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_probe(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  if (!are_integers(args, num_args, 5)) return fail("TypeError", "probe: takes five integers");
  int problem = probe(address(&args[0]), address(&args[1]), args[2].v_int64, args[3].v_int64, args[4].v_int64);
  return problem ? fail("RuntimeError", "probe: a thread cannot be begun") : 0;
}

static int run(void *program, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)result;
  if (!are_integers(args, num_args, 5)) return fail("TypeError", "a program: takes five integers");
  return run_program(program, address(&args[0]), address(&args[1]), args[2].v_int64, args[3].v_int64, args[4].v_int64);
}

/* program(description, length): a function of addresses [num_buffers], ranges [num_ranges, 3] with phase, begin and rows of
 * each, num_ranges, num_nodes and num_copied. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_program(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self;
  if (!are_integers(args, num_args, 2)) return fail("TypeError", "program: takes two integers");
  Program *program = make_program(address(&args[0]), args[1].v_int64);
  if (!program) return -1;
  if (TVMFFIFunctionCreate(program, run, free_program, &result->v_ptr) != 0) {
    free_program(program);
    return -1;
  }
  result->type_index = kTVMFFIFunction;
  result->zero_padding = 0;
  return 0;
}

/* ---- Machines ---- */

static void free_called(void *called) {
  Workplace *w = called;
  TVMFFIObjectHandle owner = w->owner;
  free_workplace(w);
  TVMFFIObjectDecRef(owner); /* the machine outlives its workplaces */
}

/* What is returned of a type: its rows one after the other. */
static int copy_returned(const Workplace *w, int64_t type, char *target) {
  if (type < 0 || type >= w->machine->num_types) return fail("ValueError", "a workplace: no such type");
  int64_t row_bytes = w->machine->types[type].row_bytes;
  const int32_t *rows = w->type_rows[type].data;
  for (int64_t i = 0; i < w->type_counts[type]; i++)
    memcpy(target + i * row_bytes, w->tables[type].data + rows[i] * row_bytes, row_bytes);
  return 0;
}

/* workplace(words, num_instances, num_objects, tensors, num_tensors, max_bytes, max_steps, is_traced, facts, texts): a call; facts
 * [10] are how it ended, a detail, the failures, the words of the results and their number, how many tensors of each type
 * they have, what was traced and how much, the texts that were made and how many.
 * workplace(type, target): copies the tensors of a type that the last call returned. */
static int call_workplace(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)result;
  Workplace *w = self;
  if (are_integers(args, num_args, 2)) return copy_returned(w, args[0].v_int64, address(&args[1]));
  if (!are_integers(args, num_args, 10)) return fail("TypeError", "a workplace: takes ten integers, or two");
  Input input = {address(&args[0]), args[1].v_int64, args[2].v_int64, address(&args[3]), args[4].v_int64, address(&args[9])};
  if (input.num_instances < 0 || input.num_instances >= INT32_MAX) return fail("ValueError", "a workplace: too many instances");
  int status = run_machine(w, &input, args[5].v_int64, args[6].v_int64, args[7].v_int64 != 0);
  int64_t facts[] = {w->ending, w->detail, (int64_t)(intptr_t)w->failures, (int64_t)(intptr_t)w->output_room.data, w->num_words,
                     (int64_t)(intptr_t)w->type_counts, (int64_t)(intptr_t)w->trace_room.data, w->num_traced,
                     (int64_t)(intptr_t)((Text *)w->texts_room.data + w->num_given), w->num_texts - w->num_given};
  memcpy(address(&args[8]), facts, sizeof facts);
  return status;
}

static int give_function(void *self, TVMFFISafeCallType call, void (*deleter)(void *), TVMFFIAny *result) {
  if (TVMFFIFunctionCreate(self, call, deleter, &result->v_ptr) != 0) return -1;
  result->type_index = kTVMFFIFunction;
  result->zero_padding = 0;
  return 0;
}

typedef struct {
  Machine *machine;
  TVMFFIObjectHandle handle; /* of the function that it is; not counted */
} NamedMachine;

static void free_named(void *self) {
  free_machine(((NamedMachine *)self)->machine);
  free(self);
}

/* A machine is a function that makes a workplace. */
static int call_machine(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)args;
  NamedMachine *named = self;
  if (num_args != 0) return fail("TypeError", "a machine: takes nothing");
  Workplace *w = make_workplace(named->machine);
  if (!w) return fail("MemoryError", "no memory for a workplace");
  w->owner = named->handle;
  if (give_function(w, call_workplace, free_called, result) != 0) {
    free_workplace(w);
    return -1;
  }
  TVMFFIObjectIncRef(named->handle);
  return 0;
}

/* machine(description, length, program, its length): the program has a phase for each block. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_machine(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self;
  if (!are_integers(args, num_args, 4)) return fail("TypeError", "machine: takes four integers");
  Program *program = make_program(address(&args[2]), args[3].v_int64);
  Machine *machine = program ? make_machine(address(&args[0]), args[1].v_int64, program) : NULL;
  if (!machine) return -1;
  NamedMachine *named = calloc(1, sizeof *named);
  if (!named || (named->machine = machine, give_function(named, call_machine, free_named, result) != 0)) {
    free_machine(machine);
    free(named);
    return named ? -1 : fail("MemoryError", "no memory for a machine");
  }
  named->handle = result->v_ptr;
  return 0;
}
