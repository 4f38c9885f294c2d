/* A machine made of its description, and its workplaces.
 *
 * The description is integers, in the order of Machine's fields:
 *   num_buffers, max_rows, entry
 *   num_types, of each: bytes of a row, number of elements, whether of integers
 *   num_constants, of each: kind, payload
 *   num_tensors, of each: type, address
 *   num_records, num_names, of each record the position of each name, -1 for none
 *   num_blocks, of each: phase, the most rows of a run, num_operands, num_results, num_temporaries,
 *     of each operand: type, table, positions, whether of numbers, how many are allowed; result: type, buffer;
 *     temporary: buffer, bytes of a row; the block that takes over its lowest calls, or -1, if so of each operand:
 *     block, result, leader, or -1 three times
 *   num_functions, of each: num_parameters, num_registers, num_instructions, num_lists,
 *     of each instruction: op, d, a, b, c, count, where its list begins; the lists;
 *     num_handlers, of each: where it begins and ends, its target, its register
 *   num_fixed, of each: buffer, address
 *   whether texts are made, num_text_words, the texts among the constants if so: the length of each, and its bytes */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const int64_t *next, *end;
  int is_wrong;
} Reader;

static int64_t take(Reader *reader) {
  if (reader->next < reader->end) return *reader->next++;
  reader->is_wrong = 1;
  return 0;
}

static void *take_array(Reader *reader, int64_t *count, size_t size) {
  *count = take(reader);
  if (*count < 0 || *count > reader->end - reader->next) reader->is_wrong = 1;
  void *array = reader->is_wrong ? NULL : calloc(*count + 1, size);
  if (!array) {
    reader->is_wrong = 1;
    *count = 0;
  }
  return array;
}

static void *make_array(Reader *reader, int64_t count, size_t size) {
  if (count < 0 || count > reader->end - reader->next) reader->is_wrong = 1;
  void *array = reader->is_wrong ? NULL : calloc(count + 1, size);
  if (!array) reader->is_wrong = 1;
  return array;
}

static void read_block(Reader *reader, Block *block) {
  block->phase = (int32_t)take(reader);
  block->max_batch = take(reader);
  int32_t num_operands = (int32_t)take(reader), num_results = (int32_t)take(reader), num_temporaries = (int32_t)take(reader);
  if ((block->operands = make_array(reader, num_operands, sizeof *block->operands))) block->num_operands = num_operands;
  if ((block->results = make_array(reader, num_results, sizeof *block->results))) block->num_results = num_results;
  if ((block->temporaries = make_array(reader, num_temporaries, sizeof *block->temporaries)))
    block->num_temporaries = num_temporaries;
  for (int32_t k = 0; k < block->num_operands; k++) {
    Operand *operand = &block->operands[k];
    operand->type = (int32_t)take(reader);
    operand->table = (int32_t)take(reader);
    operand->positions = (int32_t)take(reader);
    operand->is_ids = (int32_t)take(reader);
    operand->num_ids = take(reader);
  }
  for (int32_t k = 0; k < block->num_results; k++) {
    block->results[k].type = (int32_t)take(reader);
    block->results[k].buffer = (int32_t)take(reader);
  }
  for (int32_t k = 0; k < block->num_temporaries; k++) {
    block->temporaries[k].buffer = take(reader);
    block->temporaries[k].row_bytes = take(reader);
  }
  block->lowest = (int32_t)take(reader);
  if (block->lowest < 0 || !(block->sources = make_array(reader, num_operands, sizeof *block->sources))) return;
  for (int32_t k = 0; k < block->num_operands; k++) {
    block->sources[k].block = (int32_t)take(reader);
    block->sources[k].result = (int32_t)take(reader);
    block->sources[k].leader = (int32_t)take(reader);
  }
}

static void read_function(Reader *reader, Function *function) {
  function->num_parameters = (int32_t)take(reader);
  function->num_registers = (int32_t)take(reader);
  int64_t num_instructions = take(reader), num_lists = take(reader);
  function->code = make_array(reader, num_instructions, sizeof *function->code);
  function->lists = make_array(reader, num_lists, sizeof *function->lists);
  if (!function->code || !function->lists) return;
  function->num_instructions = (int32_t)num_instructions;
  for (int64_t k = 0; k < num_instructions; k++) {
    Instruction *one = &function->code[k];
    one->op = (int32_t)take(reader);
    one->d = (int32_t)take(reader);
    one->a = (int32_t)take(reader);
    one->b = (int32_t)take(reader);
    one->c = (int32_t)take(reader);
    one->count = (int32_t)take(reader);
    one->list = function->lists + take(reader);
  }
  for (int64_t k = 0; k < num_lists; k++) function->lists[k] = (int32_t)take(reader);
  int64_t num_handlers = take(reader);
  if (!(function->handlers = make_array(reader, num_handlers, sizeof *function->handlers))) return;
  function->num_handlers = (int32_t)num_handlers;
  for (int64_t k = 0; k < num_handlers; k++) {
    Handler *one = &function->handlers[k];
    one->begin = (int32_t)take(reader);
    one->end = (int32_t)take(reader);
    one->target = (int32_t)take(reader);
    one->d = (int32_t)take(reader);
  }
}

static void read_lookup(Reader *reader, Lookup *lookup) {
  int64_t length = take(reader);
  lookup->keys = make_array(reader, length, sizeof *lookup->keys);
  lookup->values = make_array(reader, length, sizeof *lookup->values);
  if (!lookup->keys || !lookup->values) return;
  lookup->length = length;
  for (int64_t k = 0; k < length; k++) {
    lookup->keys[k] = (int32_t)take(reader);
    lookup->values[k] = (int32_t)take(reader);
  }
}

static void read_machine(Reader *reader, Machine *m) {
  m->num_buffers = take(reader);
  m->max_rows = take(reader);
  m->entry = take(reader);
  m->empty_text = take(reader);
  m->types = take_array(reader, &m->num_types, sizeof *m->types);
  for (int64_t i = 0; i < m->num_types; i++) {
    m->types[i].row_bytes = take(reader);
    m->types[i].num_elements = take(reader);
    m->types[i].is_int = (int32_t)take(reader);
  }
  m->constants = take_array(reader, &m->num_constants, sizeof *m->constants);
  for (int64_t i = 0; i < m->num_constants; i++) {
    m->constants[i].kind = (int32_t)take(reader);
    m->constants[i].i = take(reader); /* a float's bits */
  }
  m->tensors = take_array(reader, &m->num_tensors, sizeof *m->tensors);
  for (int64_t i = 0; i < m->num_tensors; i++) {
    m->tensors[i].type = take(reader);
    m->tensors[i].address = take(reader);
  }
  m->num_records = take(reader);
  m->num_names = take(reader);
  if (m->num_names > 0 && m->num_records > (reader->end - reader->next) / m->num_names) reader->is_wrong = 1;
  m->field_of = make_array(reader, m->num_records * m->num_names, sizeof *m->field_of);
  for (int64_t i = 0; m->field_of && i < m->num_records * m->num_names; i++) m->field_of[i] = (int32_t)take(reader);
  m->blocks = take_array(reader, &m->num_blocks, sizeof *m->blocks);
  for (int64_t i = 0; i < m->num_blocks; i++) read_block(reader, &m->blocks[i]);
  m->functions = take_array(reader, &m->num_functions, sizeof *m->functions);
  for (int64_t i = 0; i < m->num_functions; i++) {
    read_function(reader, &m->functions[i]);
    m->num_handlers += m->functions[i].num_handlers;
  }
  m->lookups = take_array(reader, &m->num_lookups, sizeof *m->lookups);
  for (int64_t i = 0; i < m->num_lookups; i++) read_lookup(reader, &m->lookups[i]);
  m->fixed = take_array(reader, &m->num_fixed, sizeof *m->fixed);
  for (int64_t i = 0; i < m->num_fixed; i++) {
    m->fixed[i].buffer = take(reader);
    m->fixed[i].row_bytes = take(reader);
  }
  m->makes_texts = take(reader);
  m->texts = take_array(reader, &m->num_text_words, sizeof *m->texts);
  for (int64_t i = 0; i < m->num_text_words; i++) m->texts[i] = take(reader);
}

void free_machine(void *made) {
  Machine *m = made;
  for (int64_t i = 0; i < m->num_blocks; i++) {
    free(m->blocks[i].operands);
    free(m->blocks[i].results);
    free(m->blocks[i].temporaries);
    free(m->blocks[i].sources);
  }
  for (int64_t i = 0; i < m->num_functions; i++) {
    free(m->functions[i].code);
    free(m->functions[i].lists);
    free(m->functions[i].handlers);
  }
  for (int64_t i = 0; i < m->num_lookups; i++) free(m->lookups[i].keys), free(m->lookups[i].values);
  free(m->types), free(m->constants), free(m->tensors), free(m->field_of), free(m->blocks), free(m->functions), free(m->lookups), free(m->fixed), free(m->texts);
  if (m->program) free_program(m->program);
  free(m);
}

Machine *make_machine(const int64_t *description, int64_t length, Program *program) {
  Reader reader = {description, description + length, 0};
  Machine *m = calloc(1, sizeof *m);
  if (!m) {
    free_program(program);
    fail("MemoryError", "no memory for a machine");
    return NULL;
  }
  m->program = program;
  read_machine(&reader, m);
  if (!reader.is_wrong && reader.next == reader.end) return m;
  free_machine(m);
  fail("ValueError", "the description of a machine is wrong, or has no memory");
  return NULL;
}

/* ---- Workplaces ---- */

void free_workplace(Workplace *w) {
  Room *rooms[] = {&w->states_room,  &w->nodes_room,   &w->operands_room, &w->sorted_room,   &w->counts_room, &w->scratch_room,
                   &w->output_room,  &w->objects_room, &w->trace_room,    &w->failures_room, &w->results_room,
                   &w->kept_room,    &w->visits_room,  &w->marks_room,   &w->texts_room,    &w->slots_room,
                   &w->makers_room};
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
  for (int64_t i = 0; w->tables && i < w->machine->num_types; i++) free(w->tables[i].data);
  for (int64_t i = 0; w->type_rows && i < w->machine->num_types; i++) free(w->type_rows[i].data);
  free_fibers(w);
  free_arena(w);
  free(w->tables), free(w->type_rows), free(w->type_counts), free(w->block_counts), free(w->addresses);
  free(w);
}

Workplace *make_workplace(const Machine *m) {
  Workplace *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->machine = m;
  w->max_bytes = INT64_MAX;
  w->tables = calloc(m->num_types + 1, sizeof *w->tables);
  w->type_rows = calloc(m->num_types + 1, sizeof *w->type_rows);
  w->type_counts = calloc(m->num_types + 1, sizeof *w->type_counts);
  w->block_counts = calloc(m->num_blocks + 1, sizeof *w->block_counts);
  w->addresses = calloc(m->num_buffers + 1, sizeof *w->addresses);
  int is_made = w->tables && w->type_rows && w->type_counts && w->block_counts && w->addresses;
  for (int64_t i = 0; is_made && i < m->num_fixed; i++) w->addresses[m->fixed[i].buffer] = m->fixed[i].row_bytes;
  for (int64_t i = 0; is_made && i < m->num_tensors; i++)
    is_made = new_row(w, (int32_t)m->tensors[i].type, (const void *)(intptr_t)m->tensors[i].address) == i;
  if (is_made) return w;
  free_workplace(w);
  return NULL;
}

/* Constant tensors stay: they are the first handles, and the first rows of their tables. */
void reset_tables(Workplace *w) {
  const Machine *m = w->machine;
  w->ending = DONE;
  w->detail = w->num_traced = w->num_nodes = w->num_operands = 0;
  w->num_handles = m->num_tensors;
  for (int64_t i = 0; i < m->num_types; i++) w->tables[i].num_rows = w->tables[i].num_kept = 0;
  for (int64_t i = 0; i < m->num_tensors; i++) w->tables[m->tensors[i].type].num_rows++;
  memset(w->deepest, 0, sizeof w->deepest);
  memset(w->block_counts, 0, m->num_blocks * sizeof *w->block_counts);
  w->patient_until = now() + PATIENCE_NSECS;
}
