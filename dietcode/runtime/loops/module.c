/* What Python calls: functions of a module of tvm-ffi, of integers and addresses. */
#include "loops.h"

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
