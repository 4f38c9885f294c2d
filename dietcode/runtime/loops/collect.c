/* Rows that nothing can read any more are given up while a call goes on: those that are left move together.
 *
 * Between two runs no node is noted, so rows are read by values alone: in registers of fibers that wait, in what these
 * refer to, and in results of instances that are done. Registers that are not read again count too. */
#include "machine.h"

#include <string.h>

enum { LEAST_BYTES = 1 << 20 }; /* a table below it is not worth looking through everything */

typedef struct {
  int32_t handle, type;
} Kept;

typedef struct {
  Workplace *w;
  uint8_t *is_kept; /* of each handle */
  int64_t num_kept, num_waiting;
} Collector;

/* Whether a table has grown to twice what it had to keep before, and is large, or near its limit. */
static int is_full(const Workplace *w, int64_t type) {
  const Table *table = &w->tables[type];
  int64_t max_rows = w->machine->max_rows;
  int is_large = table->num_rows * w->machine->types[type].row_bytes >= LEAST_BYTES || table->num_rows >= max_rows / 2;
  return is_large && table->num_rows >= 2 * table->num_kept;
}

/* Objects and tasks wait until what is in them is looked at: they may be nested deeply. */
static int visit(Collector *c, const Value *value) {
  Workplace *w = c->w;
  int is_object = value->kind == V_TUPLE || value->kind == V_LIST || value->kind == V_RECORD;
  if (value->kind == V_TENSOR && !c->is_kept[value->i]) {
    Kept *kept = reserve(w, &w->kept_room, (c->num_kept + 1) * (int64_t)sizeof *kept);
    if (!kept) return -1;
    c->is_kept[value->i] = 1;
    kept[c->num_kept++] = (Kept){(int32_t)value->i, value->type};
  }
  if (!is_object && value->kind != V_TASK) return 0;
  int32_t *round = is_object ? &value->object->round : &value->task->round;
  if (*round == w->round) return 0;
  Value *waiting = reserve(w, &w->visits_room, (c->num_waiting + 1) * (int64_t)sizeof *waiting);
  if (!waiting) return -1;
  *round = w->round;
  waiting[c->num_waiting++] = *value;
  return 0;
}

static int visit_all(Collector *c, const Value *values, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (visit(c, &values[i]) != 0) return -1;
  while (c->num_waiting) {
    Value one = ((Value *)c->w->visits_room.data)[--c->num_waiting];
    const Value *inner = one.kind == V_TASK ? one.task->arguments : one.object->items;
    int64_t length = one.kind == V_TASK ? one.task->function->num_parameters : one.object->length;
    if (one.kind == V_TASK && one.task->state != NEW) {
      inner = &one.task->result;
      length = one.task->state == OVER || one.task->state == FAILED;
    }
    for (int64_t i = 0; i < length; i++)
      if (visit(c, &inner[i]) != 0) return -1;
  }
  return 0;
}

static int visit_roots(Collector *c) {
  Workplace *w = c->w;
  for (int64_t i = 0; i < w->num_instances; i++)
    if (w->failures[i].kind == FINE && visit_all(c, &w->results[i], 1) != 0) return -1;
  for (const Fiber *fiber = w->all; fiber; fiber = fiber->next_all) {
    if (!fiber->num_activations || w->failures[fiber->instance].kind != FINE) continue;
    const Activation *top = (const Activation *)fiber->activations.data + fiber->num_activations - 1;
    if (visit_all(c, fiber->stack.data, top->base + top->function->num_registers) != 0) return -1;
  }
  for (const Task *task = w->first_task; task; task = task->next)
    if (task->state == NEW && visit_all(c, task->arguments, task->function->num_parameters) != 0) return -1;
  return 0;
}

static int move_together(Collector *c, int32_t type) {
  Workplace *w = c->w;
  Table *table = &w->tables[type];
  const Kept *kept = w->kept_room.data;
  int64_t row_bytes = w->machine->types[type].row_bytes, count = 0;
  int32_t *owners = reserve(w, &w->scratch_room, (table->num_rows + 1) * (int64_t)sizeof *owners);
  if (!owners) return -1;
  memset(owners, 0xff, table->num_rows * sizeof *owners);
  for (int64_t i = 0; i < c->num_kept; i++)
    if (kept[i].type == type) owners[w->states[kept[i].handle]] = kept[i].handle;
  for (int64_t row = 0; row < table->num_rows; row++) {
    if (owners[row] < 0) continue;
    if (row != count) memcpy(table->data + count * row_bytes, table->data + row * row_bytes, row_bytes);
    w->states[owners[row]] = (int32_t)count++;
  }
  table->num_rows = table->num_kept = count;
  return 0;
}

int collect_rows(Workplace *w) {
  const Machine *m = w->machine;
  int is_needed = 0;
  for (int64_t type = 0; type < m->num_types && w->waiting.first; type++) is_needed |= is_full(w, type);
  if (!is_needed) return 0;
  Collector c = {.w = w, .is_kept = reserve(w, &w->marks_room, w->num_handles + 1)};
  if (!c.is_kept) return -1;
  memset(c.is_kept, 0, w->num_handles);
  w->round++;
  for (int64_t i = 0; i < m->num_tensors; i++) { /* constants stay, and come first */
    Value constant = {.kind = V_TENSOR, .type = (int32_t)m->tensors[i].type, .i = i};
    if (visit(&c, &constant) != 0) return -1;
  }
  if (visit_roots(&c) != 0) return -1;
  for (int64_t type = 0; type < m->num_types; type++)
    if (move_together(&c, (int32_t)type) != 0) return -1;
  return 0;
}
