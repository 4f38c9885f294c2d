/* Nodes noted, and run by depth and block: the rows of one block's run lie together in the tables of their types. */
#include "machine.h"

#include <string.h>
#include <tvm/ffi/extra/c_env_api.h>

enum { PHASE_BITS = 24, MAX_DEPTH = (1 << PHASE_BITS) - 2 };

static int reserve_states(Workplace *w, int64_t more) {
  if (w->num_handles + more > INT32_MAX) {
    w->ending = NO_BYTES;
    return -1;
  }
  int64_t bytes = (w->num_handles + more) * (int64_t)sizeof *w->states;
  w->states = reserve(w, &w->states_room, bytes);
  w->makers = reserve(w, &w->makers_room, bytes);
  return w->states && w->makers ? 0 : -1;
}

static int reserve_rows(Workplace *w, int32_t type, int64_t more) {
  Table *table = &w->tables[type];
  int64_t wanted = table->num_rows + more;
  if (wanted <= table->capacity) return 0;
  if (wanted > w->machine->max_rows) {
    w->ending = NO_ROWS;
    w->detail = type;
    return -1;
  }
  Room room = {table->data, table->capacity_bytes};
  int64_t row_bytes = w->machine->types[type].row_bytes;
  if (!reserve(w, &room, wanted * row_bytes + 1)) return -1;
  table->data = room.data;
  table->capacity_bytes = room.capacity;
  table->capacity = row_bytes ? (room.capacity - 1) / row_bytes : w->machine->max_rows;
  if (table->capacity > w->machine->max_rows) table->capacity = w->machine->max_rows;
  return 0;
}

int32_t new_row(Workplace *w, int32_t type, const void *data) {
  Table *table = &w->tables[type];
  int64_t row_bytes = w->machine->types[type].row_bytes;
  if (reserve_rows(w, type, 1) != 0 || reserve_states(w, 1) != 0) return -1;
  memcpy(table->data + table->num_rows * row_bytes, data, row_bytes);
  w->states[w->num_handles] = (int32_t)table->num_rows++;
  return (int32_t)w->num_handles++;
}

/* The operands of the block that takes over a call, or 0 where one does not come from its source. A number stands for all that
 * was made of it by one call: what is noted with it. */
static int find_lowest(const Workplace *w, const Block *block, const int32_t *operands, int32_t *found) {
  const Node *nodes = w->nodes_room.data;
  const int32_t *pool = w->operands_room.data;
  for (int32_t k = 0, count = 0; k < block->num_operands; k++) {
    const Source *source = &block->sources[k];
    if (source->block < 0) {
      found[count++] = operands[k];
      continue;
    }
    if (w->states[operands[k]] >= 0) return 0; /* computed before */
    const Node *maker = &nodes[w->makers[operands[k]]];
    if (maker->block != source->block || operands[k] - maker->result != source->result) return 0;
    if (source->leader == k) found[count++] = pool[maker->operands];
    else if (w->makers[operands[k]] != w->makers[operands[source->leader]]) return 0;
  }
  return 1;
}

int32_t note(Workplace *w, const Node *node, const int32_t *operands) {
  const Block *block = &w->machine->blocks[node->block];
  int32_t lowest[MAX_OPERANDS], number = node->block;
  if (block->lowest >= 0 && find_lowest(w, block, operands, lowest)) {
    number = block->lowest;
    block = &w->machine->blocks[number];
    operands = lowest;
  }
  Node *nodes = reserve(w, &w->nodes_room, (w->num_nodes + 1) * (int64_t)sizeof *nodes);
  int64_t num_operands = w->num_operands + block->num_operands;
  int32_t *pool = reserve(w, &w->operands_room, num_operands * (int64_t)sizeof *pool);
  if (!nodes || (!pool && num_operands) || reserve_states(w, block->num_results) != 0) return -1;
  if (num_operands > INT32_MAX) {
    w->ending = NO_BYTES;
    return -1;
  }
  int32_t depth = block->phase << PHASE_BITS;
  for (int32_t k = 0; k < block->num_operands; k++) {
    int32_t state = w->states[operands[k]];
    pool[w->num_operands + k] = operands[k];
    if (-state > depth) depth = -state;
  }
  depth++;
  int32_t within = depth & ((1 << PHASE_BITS) - 1), phase = depth >> PHASE_BITS;
  if (within > MAX_DEPTH) return -1; /* and the call goes on */
  if (within > w->deepest[phase]) w->deepest[phase] = within;
  Node *own = &nodes[w->num_nodes++];
  *own = *node;
  own->block = number;
  own->depth = depth;
  own->operands = (int32_t)w->num_operands;
  own->result = (int32_t)w->num_handles;
  w->num_operands = num_operands;
  for (int32_t k = 0; k < block->num_results; k++) {
    w->makers[w->num_handles] = (int32_t)w->num_nodes - 1;
    w->states[w->num_handles++] = -depth;
  }
  return own->result;
}

/* ---- A run of a block ---- */

int check_patience(Workplace *w) {
  int64_t time = now();
  if (time < w->patient_until) return 0;
  w->patient_until = time + PATIENCE_NSECS;
  if (TVMFFIEnvCheckSignals() == 0) return 0;
  w->ending = RAISED;
  return -1;
}

/* Numbers in the place of positions. One that is no row of what they are rows of ends its instance, and 0 stands for it. */
static void read_ids(Workplace *w, const Operand *operand, const Node *nodes, const int32_t *order, int64_t count, int32_t *ids) {
  const int32_t *numbers = (const int32_t *)w->tables[operand->type].data;
  for (int64_t i = 0; i < count; i++) {
    ids[i] = numbers[ids[i]];
    if (operand->num_ids < 0 || (ids[i] >= 0 && ids[i] < operand->num_ids)) continue;
    const Node *node = &nodes[order[i]];
    Failure failure = {F_ID, node->function, node->pc, node->block, ids[i], operand->num_ids};
    fail_instance(w, node->instance, &failure);
    ids[i] = 0;
  }
}

static int prepare_run(Workplace *w, const Block *block, const Node *nodes, const int32_t *order, int64_t count) {
  int64_t row = (count * (int64_t)sizeof(int32_t) + 63) / 64 * 64, wanted = row * block->num_operands;
  for (int32_t k = 0; k < block->num_temporaries; k++) wanted += (count * block->temporaries[k].row_bytes + 63) / 64 * 64;
  char *scratch = reserve(w, &w->scratch_room, wanted + 64);
  if (!scratch) return -1;
  for (int32_t k = 0; k < block->num_operands; k++, scratch += row) {
    const Operand *operand = &block->operands[k];
    int32_t *positions = (int32_t *)scratch;
    for (int64_t i = 0; i < count; i++)
      positions[i] = w->states[((const int32_t *)w->operands_room.data)[nodes[order[i]].operands + k]];
    if (operand->is_ids) read_ids(w, operand, nodes, order, count, positions);
    w->addresses[operand->positions] = (int64_t)(intptr_t)positions;
  }
  for (int32_t k = 0; k < block->num_temporaries; k++) {
    w->addresses[block->temporaries[k].buffer] = (int64_t)(intptr_t)scratch;
    scratch += (count * block->temporaries[k].row_bytes + 63) / 64 * 64;
  }
  for (int32_t k = 0; k < block->num_results; k++) {
    int32_t type = block->results[k].type;
    if (reserve_rows(w, type, count) != 0) return -1;
    int64_t first = w->tables[type].num_rows;
    w->tables[type].num_rows += count;
    for (int64_t i = 0; i < count; i++) w->states[nodes[order[i]].result + k] = (int32_t)(first + i);
  }
  return 0;
}

/* The tables have grown as far as they will for this run: now they stay where they are. */
static void find_tables(Workplace *w, const Block *block, int64_t count) {
  for (int32_t k = 0; k < block->num_operands; k++)
    if (!block->operands[k].is_ids)
      w->addresses[block->operands[k].table] = (int64_t)(intptr_t)w->tables[block->operands[k].type].data;
  for (int32_t k = block->num_results - 1; k >= 0; k--) {
    int32_t type = block->results[k].type;
    int64_t later = 0; /* rows of other results of this type, which come behind */
    for (int32_t other = k + 1; other < block->num_results; other++) later += block->results[other].type == type;
    int64_t first = w->tables[type].num_rows - (later + 1) * count;
    w->addresses[block->results[k].buffer] =
        (int64_t)(intptr_t)(w->tables[type].data + first * w->machine->types[type].row_bytes);
  }
}

static int run_block(Workplace *w, const Node *nodes, const int32_t *order, int64_t count) {
  int64_t number = nodes[*order].block;
  const Block *block = &w->machine->blocks[number];
  if (prepare_run(w, block, nodes, order, count) != 0) return -1;
  find_tables(w, block, count);
  int64_t range[3] = {number, 0, count}, begin = w->is_traced ? now() : 0;
  int status = w->compute ? w->compute(w, nodes[*order].depth, number, count)
                          : run_program(w->machine->program, w->addresses, range, 1, 0, 0);
  if (status != 0) {
    w->ending = RAISED;
    w->detail = status;
    return -1;
  }
  if (w->is_traced) {
    Traced *traced = reserve(w, &w->trace_room, (w->num_traced + 1) * (int64_t)sizeof *traced);
    if (!traced) return -1;
    traced[w->num_traced++] = (Traced){nodes[*order].depth, number, count, now() - begin};
  }
  return check_patience(w);
}

/* Nodes of one depth, by block; each block's in the order in which they were noted. */
static int run_depth(Workplace *w, const Node *nodes, int32_t *order, int32_t *sorted, int64_t count) {
  int64_t *counts = w->block_counts, begin = 0;
  int32_t first = nodes[order[0]].block;
  int is_one = 1;
  for (int64_t i = 0; i < count; i++) {
    counts[nodes[order[i]].block]++;
    is_one &= nodes[order[i]].block == first;
  }
  for (int64_t block = 0; block < w->machine->num_blocks && !is_one; block++) {
    int64_t many = counts[block];
    counts[block] = begin;
    begin += many;
  }
  for (int64_t i = 0; i < count && !is_one; i++) sorted[counts[nodes[order[i]].block]++] = order[i];
  if (is_one) counts[first] = 0;
  else memset(counts, 0, w->machine->num_blocks * sizeof *counts);
  if (!is_one) order = sorted;
  for (int64_t at = 0; at < count;) {
    int64_t end = at + 1, most = at + w->machine->blocks[nodes[order[at]].block].max_batch;
    while (end < count && end < most && nodes[order[end]].block == nodes[order[at]].block) end++;
    if (run_block(w, nodes, order + at, end - at) != 0) return -1;
    at = end;
  }
  return 0;
}

int flush(Workplace *w) {
  const Node *nodes = w->nodes_room.data;
  int64_t num_nodes = w->num_nodes, bases[128], total = 0;
  if (!num_nodes) return 0;
  for (int phase = 0; phase < 128; phase++) { /* the depths of all phases as one row of numbers */
    bases[phase] = total - 1;
    total += w->deepest[phase];
  }
  int64_t *counts = reserve(w, &w->counts_room, (total + 1) * (int64_t)sizeof *counts);
  int32_t *order = reserve(w, &w->sorted_room, 2 * num_nodes * (int64_t)sizeof *order);
  if (!counts || !order) return -1;
  memset(counts, 0, (total + 1) * sizeof *counts);
#define LEVEL(node) (bases[(node).depth >> PHASE_BITS] + ((node).depth & ((1 << PHASE_BITS) - 1)))
  for (int64_t i = 0; i < num_nodes; i++) counts[LEVEL(nodes[i]) + 1]++;
  for (int64_t level = 0; level < total; level++) counts[level + 1] += counts[level];
  for (int64_t i = 0; i < num_nodes; i++) order[counts[LEVEL(nodes[i])]++] = (int32_t)i;
  for (int64_t level = 0, begin = 0; level < total; level++) { /* each count is the end of its level now */
    int64_t end = counts[level];
    if (end > begin && run_depth(w, nodes, order + begin, order + num_nodes + begin, end - begin) != 0) return -1;
    begin = end;
  }
#undef LEVEL
  w->num_nodes = w->num_operands = 0;
  memset(w->deepest, 0, sizeof w->deepest);
  return 0;
}
