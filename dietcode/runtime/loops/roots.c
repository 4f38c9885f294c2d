/* Values that read rows: in registers of fibers that wait, in what these refer to, and in results of instances that are
 * done. Registers that are not read again count too. */
#include "machine.h"

/* Objects and tasks wait until what is in them is looked at: they may be nested deeply. */
static int visit(Collector *c, const Value *value) {
  Workplace *w = c->w;
  int is_object = value->kind == V_TUPLE || value->kind == V_LIST || value->kind == V_RECORD;
  if (value->kind == V_TENSOR) return keep_row(c, value->i, value->type);
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

int visit_roots(Collector *c) {
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
