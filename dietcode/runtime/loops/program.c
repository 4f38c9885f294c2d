/* A program: for each phase the calls of a library's functions, whose tensors are rows of buffers.
 *
 * Its description is integers:
 *   num_buffers, num_phases, of each phase: num_calls, of each call:
 *     function, num_tensors, num_values,      0 as a function: rows are moved, see run_move
 *     of each tensor: mode, buffer, bytes of a row, first buffer, DLPack's code, bits, number of axes, extents
 *     values
 *   num_fills, of each: buffer, bytes of a row            the row behind all nodes, of zeros
 *   num_copies, of each: source, target, positions, bytes of a row
 * An extent or value is three integers: of itself, for each node, for each row of the range. */
#include "loops.h"

#include <dlpack/dlpack.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tvm/ffi/extra/c_env_api.h>

enum { NUM_COEFFICIENTS = 3, MAX_NDIM = 8, MAX_CALL = 64 /* tensors and values of one */ };

/* What a tensor is: a whole buffer; the rows of a range; or the rows of the range before it, and for the first range
 * another buffer. */
typedef enum { WHOLE, ROWS, BEFORE, NUM_MODES } Mode;

typedef struct {
  Mode mode;
  int64_t buffer, row_bytes, first;
  DLDataType dtype;
  int32_t ndim;
  int64_t extents[MAX_NDIM][NUM_COEFFICIENTS];
} Tensor;

typedef struct {
  TVMFFIObjectHandle function;
  int64_t num_tensors, num_values;
  Tensor *tensors;
  int64_t (*values)[NUM_COEFFICIENTS];
} Call;

typedef struct {
  int64_t num_calls;
  Call *calls;
} Phase;

typedef struct {
  int64_t buffer, row_bytes;
} Fill;

typedef struct {
  int64_t source, target, positions, row_bytes;
} Copy;

struct Program {
  int64_t num_buffers, num_phases, num_fills, num_copies;
  Phase *phases;
  Fill *fills;
  Copy *copies;
};

/* ---- Reading a description ---- */

typedef struct {
  const int64_t *next, *end;
  int is_wrong;
} Reader;

static int64_t take(Reader *reader, int64_t low, int64_t high) {
  if (reader->next < reader->end && *reader->next >= low && *reader->next <= high) return *reader->next++;
  reader->is_wrong = 1;
  return low;
}

/* An array for a count that comes next; as many integers have to follow, so that no count is absurd. */
static void *take_array(Reader *reader, int64_t *count, size_t size) {
  *count = take(reader, 0, reader->end - reader->next);
  void *array = calloc(*count + 1, size);
  if (!array) reader->is_wrong = 1;
  if (reader->is_wrong) *count = 0;
  return array;
}

static void take_coefficients(Reader *reader, int64_t *coefficients) {
  for (int i = 0; i < NUM_COEFFICIENTS; i++) coefficients[i] = take(reader, INT64_MIN, INT64_MAX);
}

static void read_tensor(Reader *reader, Tensor *tensor, int64_t num_buffers) {
  tensor->mode = (Mode)take(reader, 0, NUM_MODES - 1);
  tensor->buffer = take(reader, 0, num_buffers - 1);
  tensor->row_bytes = take(reader, 0, INT64_MAX);
  tensor->first = take(reader, 0, num_buffers - 1);
  tensor->dtype.code = (uint8_t)take(reader, 0, UINT8_MAX);
  tensor->dtype.bits = (uint8_t)take(reader, 0, UINT8_MAX);
  tensor->dtype.lanes = 1;
  tensor->ndim = (int32_t)take(reader, 0, MAX_NDIM);
  for (int i = 0; i < tensor->ndim; i++) take_coefficients(reader, tensor->extents[i]);
}

/* Values of a move, the first coefficients of which count: the number of axes; of each its extent, the source's stride and
 * the target's; where the first elements are in a row of the source, and of the target; bytes from a row to the next of
 * each; the bits of what is written where there is no source. Strides and positions are in elements of 32 bits. */
enum { MOVE_AXIS = 3, MOVE_TAIL = 5 };

static int is_move(const Call *call) {
  int64_t num_axes = call->num_values > 0 ? call->values[0][0] : -1;
  int has_tensors = call->num_tensors >= 1 && call->num_tensors <= 3; /* target, source, the source's rows */
  return has_tensors && num_axes >= 1 && num_axes <= MAX_NDIM && call->num_values == 1 + MOVE_AXIS * num_axes + MOVE_TAIL;
}

static void read_call(Reader *reader, Call *call, int64_t num_buffers) {
  int64_t function = take(reader, 0, INT64_MAX);
  call->num_tensors = take(reader, 0, MAX_CALL);
  call->num_values = take(reader, 0, MAX_CALL - call->num_tensors);
  call->tensors = calloc(call->num_tensors + 1, sizeof *call->tensors);
  call->values = calloc(call->num_values + 1, sizeof *call->values);
  if (!call->tensors || !call->values) reader->is_wrong = 1;
  for (int64_t i = 0; i < call->num_tensors && !reader->is_wrong; i++) read_tensor(reader, &call->tensors[i], num_buffers);
  for (int64_t i = 0; i < call->num_values && !reader->is_wrong; i++) take_coefficients(reader, call->values[i]);
  if (!function && !is_move(call)) reader->is_wrong = 1;
  if (reader->is_wrong || !function) return;
  call->function = (TVMFFIObjectHandle)(intptr_t)function;
  TVMFFIObjectIncRef(call->function);
}

void free_program(void *made) {
  Program *program = made;
  for (int64_t i = 0; i < program->num_phases; i++) {
    Phase *phase = &program->phases[i];
    for (int64_t j = 0; j < phase->num_calls; j++) {
      if (phase->calls[j].function) TVMFFIObjectDecRef(phase->calls[j].function);
      free(phase->calls[j].tensors);
      free(phase->calls[j].values);
    }
    free(phase->calls);
  }
  free(program->phases);
  free(program->fills);
  free(program->copies);
  free(program);
}

Program *make_program(const int64_t *description, int64_t length) {
  Reader reader = {description, description + length, 0};
  Program *program = calloc(1, sizeof *program);
  if (!program) {
    fail("MemoryError", "no memory for a program");
    return NULL;
  }
  program->num_buffers = take(&reader, 0, INT32_MAX);
  program->phases = take_array(&reader, &program->num_phases, sizeof *program->phases);
  for (int64_t i = 0; i < program->num_phases && !reader.is_wrong; i++) {
    Phase *phase = &program->phases[i];
    phase->calls = take_array(&reader, &phase->num_calls, sizeof *phase->calls);
    for (int64_t j = 0; j < phase->num_calls && !reader.is_wrong; j++)
      read_call(&reader, &phase->calls[j], program->num_buffers);
  }
  program->fills = take_array(&reader, &program->num_fills, sizeof *program->fills);
  for (int64_t i = 0; i < program->num_fills; i++) {
    program->fills[i].buffer = take(&reader, 0, program->num_buffers - 1);
    program->fills[i].row_bytes = take(&reader, 0, INT64_MAX);
  }
  program->copies = take_array(&reader, &program->num_copies, sizeof *program->copies);
  for (int64_t i = 0; i < program->num_copies; i++) {
    Copy *copy = &program->copies[i];
    copy->source = take(&reader, 0, program->num_buffers - 1);
    copy->target = take(&reader, 0, program->num_buffers - 1);
    copy->positions = take(&reader, 0, program->num_buffers - 1);
    copy->row_bytes = take(&reader, 0, INT64_MAX);
  }
  if (!reader.is_wrong && reader.next == reader.end) return program;
  free_program(program);
  fail("ValueError", "the description of a program is wrong, or has no memory");
  return NULL;
}

/* ---- Running it ---- */

/* One call with its arguments, on the caller's stack: a thread may run a program while another one does. */
typedef struct {
  DLTensor tensors[MAX_CALL];
  int64_t shapes[MAX_CALL][MAX_NDIM];
  TVMFFIAny args[MAX_CALL];
} Frame;

typedef struct {
  int64_t num_nodes, begin, rows, before; /* the begin of the range before, -1 for none */
} Range;

static int64_t value_of(const int64_t *coefficients, const Range *range) {
  return coefficients[0] + coefficients[1] * range->num_nodes + coefficients[2] * range->rows;
}

static char *rows_of(const Tensor *tensor, const int64_t *addresses, const Range *range) {
  int is_first = tensor->mode == BEFORE && range->before < 0;
  int64_t row = tensor->mode == ROWS ? range->begin : tensor->mode == BEFORE && !is_first ? range->before : 0;
  return (char *)(intptr_t)addresses[is_first ? tensor->first : tensor->buffer] + row * tensor->row_bytes;
}

/* Moves elements along some axes, the last of them in a loop of its own. */
static void move_axes(const int64_t (*axes)[NUM_COEFFICIENTS], int64_t num_axes, const uint32_t *source, uint32_t *target) {
  int64_t extent = axes[0][0], from = axes[1][0], to = axes[2][0];
  if (num_axes == 1 && from == 1 && to == 1) {
    memcpy(target, source, extent * sizeof *target);
    return;
  }
  for (int64_t i = 0; i < extent; i++, source += from, target += to) {
    if (num_axes == 1)
      *target = *source;
    else
      move_axes(axes + MOVE_AXIS, num_axes - 1, source, target);
  }
}

/* Writes elements of each row: those of a row of the source, which is the same, or at a position; or one number. */
static void run_move(const Call *call, const int64_t *addresses, const Range *range) {
  int64_t num_axes = call->values[0][0];
  const int64_t(*axes)[NUM_COEFFICIENTS] = call->values + 1, (*tail)[NUM_COEFFICIENTS] = axes + MOVE_AXIS * num_axes;
  char *target = rows_of(&call->tensors[0], addresses, range) + tail[1][0] * 4;
  uint32_t filler = (uint32_t)tail[4][0];
  const char *source = call->num_tensors > 1 ? rows_of(&call->tensors[1], addresses, range) + tail[0][0] * 4 : (char *)&filler;
  const int32_t *positions = call->num_tensors > 2 ? (int32_t *)rows_of(&call->tensors[2], addresses, range) : NULL;
  for (int64_t row = 0; row < range->rows; row++) {
    const char *from = source + (positions ? positions[row] : row) * tail[2][0];
    move_axes(axes, num_axes, (const uint32_t *)from, (uint32_t *)(target + row * tail[3][0]));
  }
}

static int run_call(const Call *call, const int64_t *addresses, const Range *range, Frame *frame) {
  TVMFFIAny answer = {.type_index = kTVMFFINone};
  for (int64_t i = 0; i < call->num_tensors; i++) {
    const Tensor *tensor = &call->tensors[i];
    DLTensor *given = &frame->tensors[i];
    given->data = rows_of(tensor, addresses, range);
    given->device = (DLDevice){kDLCPU, 0};
    given->ndim = tensor->ndim;
    given->dtype = tensor->dtype;
    given->shape = frame->shapes[i];
    given->strides = NULL;
    given->byte_offset = 0;
    for (int axis = 0; axis < tensor->ndim; axis++) frame->shapes[i][axis] = value_of(tensor->extents[axis], range);
    frame->args[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = given};
  }
  for (int64_t i = 0; i < call->num_values; i++)
    frame->args[call->num_tensors + i] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value_of(call->values[i], range)};
  int status = TVMFFIFunctionCall(call->function, frame->args, (int32_t)(call->num_tensors + call->num_values), &answer);
  if (status == 0 && answer.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(answer.v_obj);
  return status;
}

static int64_t now_nsecs(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void copy_rows(const Copy *copy, const int64_t *addresses, int64_t count) {
  const char *source = (const char *)(intptr_t)addresses[copy->source];
  const int32_t *positions = (const int32_t *)(intptr_t)addresses[copy->positions];
  char *target = (char *)(intptr_t)addresses[copy->target];
  for (int64_t i = 0; i < count; i++)
    memcpy(target + i * copy->row_bytes, source + positions[i] * copy->row_bytes, copy->row_bytes);
}

int run_program(const Program *program, const int64_t *addresses, const int64_t *ranges, int64_t num_ranges, int64_t num_nodes,
                int64_t num_copied) {
  Frame frame;
  Range range = {num_nodes, 0, 0, -1};
  int64_t patient_until = now_nsecs() + PATIENCE_NSECS;
  for (int64_t i = 0; i < program->num_fills; i++) {
    const Fill *fill = &program->fills[i];
    memset((char *)(intptr_t)addresses[fill->buffer] + num_nodes * fill->row_bytes, 0, fill->row_bytes);
  }
  for (int64_t i = 0; i < num_ranges; i++, ranges += 3) {
    if (ranges[0] < 0 || ranges[0] >= program->num_phases) return fail("ValueError", "a range of no phase");
    const Phase *phase = &program->phases[ranges[0]];
    range.begin = ranges[1];
    range.rows = ranges[2];
    for (int64_t j = 0; j < phase->num_calls; j++) {
      const Call *call = &phase->calls[j];
      int status = 0;
      if (call->function)
        status = run_call(call, addresses, &range, &frame);
      else
        run_move(call, addresses, &range);
      if (status != 0) return status;
    }
    range.before = range.begin;
    int64_t now = now_nsecs();
    if (now < patient_until) continue;
    if (TVMFFIEnvCheckSignals() != 0) return -2; /* Python has its error, as KeyboardInterrupt */
    patient_until = now + PATIENCE_NSECS;
  }
  for (int64_t i = 0; i < program->num_copies; i++) copy_rows(&program->copies[i], addresses, num_copied);
  return 0;
}
