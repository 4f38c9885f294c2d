/* Fibers: instructions run one after the other until a number is waited for. Frames are on the fiber's own stack. */
#include "machine.h"

#include <string.h>

enum { MAX_ACTIVATIONS = 1000000, BUDGET = 1 << 16 /* instructions between two looks at limits */, ITEMS_A_STEP = 16, NUM_KINDS = 16 /* records follow */ };

/* ---- Limits ---- */

static int spend(Workplace *w, int64_t steps) {
  w->num_steps += steps;
  if (w->num_steps > w->max_steps) {
    w->ending = NO_STEPS;
    return -1;
  }
  return check_patience(w);
}

/* ---- What instructions do with objects ---- */

static int has_items(const Value *v) { return v->kind == V_LIST || v->kind == V_TUPLE; }

/* The number of an item, of which negative ones count from the end. */
static FailureKind find_item(const Value *object, const Value *index, int64_t *found) {
  if (!has_items(object) || (index->kind != V_INT && index->kind != V_BOOL)) return F_KINDS;
  int64_t length = object->object->length;
  *found = index->i < 0 ? index->i + length : index->i;
  return *found >= 0 && *found < length ? FINE : F_INDEX;
}

static FailureKind clamp(const Value *index, int64_t length, int64_t otherwise, int64_t *found) {
  if (index->kind != V_NONE && index->kind != V_INT && index->kind != V_BOOL) return F_KINDS;
  *found = index->kind == V_NONE ? otherwise : index->i < 0 ? index->i + length : index->i;
  if (*found < 0) *found = 0;
  if (*found > length) *found = length;
  return FINE;
}

static FailureKind cut(Workplace *w, const Value *a, const Value *from, const Value *to, Value *out) {
  int64_t begin, end;
  if (!has_items(a)) return F_KINDS;
  FailureKind problem = clamp(from, a->object->length, 0, &begin);
  if (!problem) problem = clamp(to, a->object->length, a->object->length, &end);
  if (problem) return problem;
  Object *made = new_object(w, end > begin ? end - begin : 0, 0);
  if (!made) return FINE;
  memcpy(made->items, a->object->items + begin, made->length * sizeof *made->items);
  *out = (Value){.kind = a->kind, .object = made};
  return FINE;
}

static FailureKind pop(const Value *list, const Value *index, Value *out) {
  int64_t at;
  if (list->kind != V_LIST) return F_KINDS;
  if (!list->object->length) return F_EMPTY;
  Value last = {.kind = V_INT, .i = -1};
  FailureKind problem = find_item(list, index->kind == V_NONE ? &last : index, &at);
  if (problem) return problem;
  Value *item = list->object->items + at;
  *out = *item;
  memmove(item, item + 1, (list->object->length - at - 1) * sizeof *item);
  list->object->length--;
  return FINE;
}

static Value *field_of(const Machine *m, const Value *record, int32_t name) {
  if (record->kind != V_RECORD) return NULL;
  int32_t at = m->field_of[record->object->record * m->num_names + name];
  return at < 0 ? NULL : &record->object->items[at];
}

/* The handles of a block's operands; numbers get rows of their own. FINE where the call ends, too. */
static FailureKind take_operands(Workplace *w, const Block *block, const Value *r, const int32_t *registers, int32_t *handles,
                                 Failure *failure) {
  for (int32_t k = 0; k < block->num_operands; k++) {
    const Operand *operand = &block->operands[k];
    const TensorType *type = &w->machine->types[operand->type];
    const Value *value = &r[registers[k]];
    int is_int = value->kind == V_INT || value->kind == V_BOOL;
    if (value->kind == V_TENSOR && value->type == operand->type) {
      handles[k] = (int32_t)value->i;
      continue;
    }
    failure->b = k;
    failure->c = value->kind | (int64_t)value->type << 8;
    if (type->num_elements != 1 || type->row_bytes != 4) return F_OPERAND;
    if (type->is_int) {
      if (!is_int) return F_OPERAND;
      int64_t most = operand->num_ids >= 0 ? operand->num_ids : INT64_C(1) << 31;
      int64_t least = operand->num_ids >= 0 ? 0 : INT32_MIN;
      failure->b = value->i;
      failure->c = operand->num_ids;
      if (value->i < least || value->i >= most) return F_ID;
      int32_t number = (int32_t)value->i;
      handles[k] = new_row(w, operand->type, &number);
    } else {
      if (!is_int && value->kind != V_FLOAT) return F_OPERAND;
      float number = value->kind == V_FLOAT ? (float)value->f : (float)value->i;
      handles[k] = new_row(w, operand->type, &number);
    }
    if (handles[k] < 0) return FINE;
  }
  return FINE;
}

static const void *elements_of(const Workplace *w, const Value *tensor) {
  return w->tables[tensor->type].data + w->states[tensor->i] * w->machine->types[tensor->type].row_bytes;
}

/* A tensor's only element, or a number as it is, as an int, a float or a bool. */
static FailureKind take_number(const Workplace *w, const Value *given, int32_t as, Value *out) {
  Value number = *given;
  if (given->kind == V_TENSOR) {
    const TensorType *type = &w->machine->types[given->type];
    if (type->num_elements != 1) return F_ELEMENTS;
    if (type->is_int) number = (Value){.kind = V_INT, .i = *(const int32_t *)elements_of(w, given)};
    else number = (Value){.kind = V_FLOAT, .f = *(const float *)elements_of(w, given)};
  }
  return number.kind == V_INT || number.kind == V_FLOAT || number.kind == V_BOOL ? apply_unary(w, as, &number, out) : F_KINDS;
}

/* Where a tensor's first largest element is, which is one that is no number if there is; or all elements as a list. */
static FailureKind take_numbers(Workplace *w, const Value *given, int32_t op, Value *out) {
  if (given->kind != V_TENSOR) return F_KINDS;
  const TensorType *type = &w->machine->types[given->type];
  const float *floats = elements_of(w, given);
  const int32_t *ints = elements_of(w, given);
  if (op == I_VALUES) {
    Object *list = new_object(w, type->num_elements, 0);
    for (int64_t i = 0; list && i < list->length; i++)
      list->items[i] = type->is_int ? (Value){.kind = V_INT, .i = ints[i]} : (Value){.kind = V_FLOAT, .f = floats[i]};
    if (list) *out = (Value){.kind = V_LIST, .object = list};
    return FINE;
  }
  if (!type->num_elements) return F_ELEMENTS;
  int64_t best = 0;
  for (int64_t i = 1; i < type->num_elements; i++)
    if (type->is_int ? ints[i] > ints[best] : floats[best] == floats[best] && !(floats[i] <= floats[best])) best = i;
  *out = (Value){.kind = V_INT, .i = best};
  return FINE;
}

/* ---- The loop ---- */

/* Until the fiber is done or waits; -1 where the call ends. */
static int run_fiber(Workplace *w, Fiber *fiber) {
  const Machine *m = w->machine;
  Activation *top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
  const Function *function = top->function;
  int64_t pc = top->pc, budget = BUDGET, at;
  Value *r = (Value *)fiber->stack.data + top->base, *field, value = {0};
  FailureKind problem = FINE;
  Failure failure = {0};
  int truth;
  for (;;) {
    if (--budget == 0) {
      if (spend(w, BUDGET) != 0) return -1;
      budget = BUDGET;
    }
    const Instruction *i = &function->code[pc++];
    switch ((Opcode)i->op) {
      case I_CONST: r[i->d] = m->constants[i->a]; break;
      case I_TENSOR: r[i->d] = (Value){.kind = V_TENSOR, .type = (int32_t)m->tensors[i->a].type, .i = i->a}; break;
      case I_MOVE: r[i->d] = r[i->a]; break;
      case I_JUMP: pc = i->a; break;
      case I_ELSE:
        if (r[i->a].kind == V_BOOL) truth = r[i->a].i != 0;
        else if ((problem = truth_of(w, &r[i->a], &truth)) != FINE) failure.b = r[i->a].kind;
        if (!problem && !truth) pc = i->b;
        break;
      case I_UNARY:
        failure.a = i->b, failure.b = r[i->a].kind;
        problem = apply_unary(w, i->b, &r[i->a], &r[i->d]);
        break;
      case I_BINARY: {
        const Value *a = &r[i->a], *b = &r[i->b];
        if (a->kind == V_INT && b->kind == V_INT && i->c == B_LT) {
          r[i->d] = (Value){.kind = V_BOOL, .i = a->i < b->i};
          break;
        }
        failure.a = i->c, failure.b = a->kind, failure.c = b->kind;
        if (i->c == B_FIND && a->kind == V_LIST) { /* long lists count for more: limits are looked at in time */
          int64_t steps = a->object->length / ITEMS_A_STEP;
          budget = steps < budget ? budget - steps : 1;
        }
        problem = apply_binary(w, i->c, a, b, &r[i->d]);
        break;
      }
      case I_CALL: {
        const Function *called = &m->functions[i->b];
        int64_t base = top->base;
        if (fiber->num_activations >= MAX_ACTIVATIONS) {
          problem = F_DEPTH;
          failure.a = MAX_ACTIVATIONS;
          break;
        }
        top->pc = pc;
        Value *entered = enter(w, fiber, called, NULL, base + function->num_registers, i->d);
        if (!entered) return -1;
        r = (Value *)fiber->stack.data + base;
        for (int32_t k = 0; k < i->count; k++) entered[k] = r[i->list[k]];
        top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
        function = called, r = entered, pc = 0;
        break;
      }
      case I_RETURN: {
        Value result = r[i->a];
        int32_t d = top->d;
        if (top->task) end_task(w, top->task, &result);
        if (--fiber->num_activations == 0) {
          fiber->next = w->idle;
          w->idle = fiber;
          return spend(w, BUDGET - budget);
        }
        top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
        function = top->function, pc = top->pc;
        r = (Value *)fiber->stack.data + top->base;
        r[d] = result;
        break;
      }
      case I_TUPLE: case I_LIST: case I_RECORD: {
        Object *made = new_object(w, i->count, i->a);
        if (!made) return -1;
        for (int32_t k = 0; k < i->count; k++) made->items[k] = r[i->list[k]];
        r[i->d] = (Value){.kind = i->op == I_TUPLE ? V_TUPLE : i->op == I_LIST ? V_LIST : V_RECORD, .object = made};
        break;
      }
      case I_GET:
        failure.a = r[i->b].i, failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        if ((problem = find_item(&r[i->a], &r[i->b], &at)) == FINE) r[i->d] = r[i->a].object->items[at];
        else if (problem == F_INDEX) failure.b = r[i->a].object->length;
        break;
      case I_PUT:
        failure.a = r[i->b].i, failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        problem = r[i->a].kind == V_LIST ? find_item(&r[i->a], &r[i->b], &at) : F_KINDS;
        if (problem == FINE) r[i->a].object->items[at] = r[i->c];
        else if (problem == F_INDEX) failure.b = r[i->a].object->length;
        break;
      case I_SLICE:
        failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        problem = cut(w, &r[i->a], &r[i->b], &r[i->c], &r[i->d]);
        break;
      case I_APPEND: {
        Object *list = r[i->a].object;
        failure.b = r[i->a].kind;
        if (r[i->a].kind != V_LIST) {
          problem = F_KINDS;
          break;
        }
        if (grow_list(w, list, list->length + 1) != 0) return -1;
        list->items[list->length++] = r[i->b];
        break;
      }
      case I_POP:
        failure.a = r[i->b].i, failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        value = r[i->a];
        if ((problem = pop(&value, &r[i->b], &r[i->d])) == F_INDEX) failure.b = value.object->length;
        break;
      case I_APART:
        value = r[i->a];
        failure.b = value.kind;
        if (!has_items(&value)) {
          problem = F_KINDS;
        } else if (value.object->length != i->count) {
          problem = F_APART;
          failure.a = i->count, failure.b = value.object->length;
        } else {
          for (int32_t k = 0; k < i->count; k++) r[i->list[k]] = value.object->items[k];
        }
        break;
      case I_LEN:
        failure.b = r[i->a].kind;
        if (has_items(&r[i->a])) r[i->d] = (Value){.kind = V_INT, .i = r[i->a].object->length};
        else problem = F_KINDS;
        break;
      case I_FIELD: case I_SETFIELD:
        if (!(field = field_of(m, &r[i->a], i->b))) {
          problem = F_FIELD;
          failure.a = i->b, failure.b = r[i->a].kind;
          failure.c = r[i->a].kind == V_RECORD ? r[i->a].object->record : 0;
        } else if (i->op == I_FIELD) {
          r[i->d] = *field;
        } else {
          *field = r[i->c];
        }
        break;
      case I_BLOCK: {
        const Block *block = &m->blocks[i->b];
        int32_t handles[MAX_OPERANDS];
        failure.a = i->b;
        if ((problem = take_operands(w, block, r, i->list + block->num_results, handles, &failure)) != FINE) break;
        Node node = {.block = i->b, .instance = fiber->instance, .pc = (int32_t)pc - 1,
                     .function = (int32_t)(function - m->functions)};
        int32_t result = w->ending == DONE ? note(w, &node, handles) : -1;
        if (result < 0 && w->ending != DONE) return -1;
        if (result < 0) problem = F_LONG;
        for (int32_t k = 0; k < block->num_results && !problem; k++)
          if (i->list[k] >= 0) r[i->list[k]] = (Value){.kind = V_TENSOR, .type = block->results[k].type, .i = result + k};
        break;
      }
      case I_VALUE: case I_ARGMAX: case I_VALUES:
        value = r[i->a];
        failure.b = value.kind;
        if (value.kind == V_TENSOR && !is_computed(w, value.i)) {
          top->pc = pc - 1; /* once more when it is there */
          enqueue(&w->waiting, fiber);
          return spend(w, BUDGET - budget);
        }
        failure.a = value.type;
        problem = i->op == I_VALUE ? take_number(w, &value, i->b, &r[i->d]) : take_numbers(w, &value, i->op, &r[i->d]);
        break;
      case I_SPAWN: {
        Task *task = new_task(w, fiber->instance, &m->functions[i->b], r, i->list);
        if (!task) return -1;
        r[i->d] = (Value){.kind = V_TASK, .task = task};
        break;
      }
      case I_WAIT: {
        Task *task = r[i->a].task;
        failure.b = r[i->a].kind;
        if (r[i->a].kind != V_TASK) {
          problem = F_KINDS;
        } else if (task->state == OVER) {
          r[i->d] = task->result;
        } else if (task->state == FAILED) { /* as it failed there */
          problem = (FailureKind)task->failure->kind;
          value = task->result;
          failure = *task->failure;
        } else if (task->state == NEW && fiber->num_activations < MAX_ACTIVATIONS) { /* as a call */
          top->pc = pc;
          r = begin_task(w, fiber, task, top->base + function->num_registers, i->d);
          if (!r) return -1;
          top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
          function = task->function, pc = 0;
        } else {
          top->pc = pc - 1;
          fiber->next = task->waiters;
          task->waiters = fiber;
          return spend(w, BUDGET - budget);
        }
        break;
      }
      case I_RAISE: problem = F_RAISED, failure.a = i->a; break;
      case I_THROW:
        value = r[i->a];
        failure.b = value.kind;
        if (value.kind == V_RECORD) problem = F_THROWN;
        else problem = value.kind == V_INT && is_thrown(value.i) ? (FailureKind)value.i : F_KINDS; /* once more */
        break;
      case I_FORMAT:
        failure.b = r[i->a].kind;
        problem = format_text(w, &r[i->a], i->b, &r[i->d]);
        break;
      case I_ROUNDED:
        failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        problem = round_to(&r[i->a], &r[i->b], &r[i->d]);
        break;
      case I_ORDER:
        failure.b = r[i->a].kind, failure.c = r[i->b].kind;
        problem = order_values(w, &r[i->a], &r[i->b], &r[i->d]);
        break;
      case I_JOIN: {
        int32_t wrong = V_NONE;
        problem = join_texts(w, r, i->list, i->count, &wrong, &r[i->d]);
        failure.b = wrong;
        break;
      }
      case I_CHARACTERS: case I_PARSED: case I_ORDINAL:
        failure.b = r[i->a].kind;
        problem = take_apart(w, i->op, &r[i->a], &r[i->d]);
        break;
      case I_CHARACTER:
        failure.b = r[i->a].kind;
        problem = spell(w, &r[i->a], &r[i->d]);
        break;
      case I_CONCATENATE: {
        int32_t wrong;
        problem = join_items(w, &r[i->a], &wrong, &r[i->d]);
        failure.b = wrong;
        break;
      }
      case I_KIND:
        r[i->d] = (Value){.kind = V_INT, .i = r[i->a].kind == V_RECORD ? NUM_KINDS + r[i->a].object->record : r[i->a].kind};
        break;
      case I_AS: {
        Value none = {.kind = V_NONE}, copy = {0};
        failure.b = r[i->a].kind;
        if ((problem = cut(w, &r[i->a], &none, &none, &copy)) != FINE || w->ending != DONE) break;
        copy.kind = i->b;
        r[i->d] = copy;
        break;
      }
      case I_LOOKUP: {
        const Value *found;
        failure.b = r[i->a].kind;
        if ((problem = look_up(m, &m->lookups[i->b], &r[i->a], &found)) == FINE) r[i->d] = found ? *found : r[i->c];
        break;
      }
    }
    if (problem) {
      if (i->op != I_WAIT || problem == F_KINDS) { /* a task's is where it happened */
        failure.function = function - m->functions;
        failure.pc = pc - 1;
      }
      failure.kind = problem;
      int found = unwind(w, fiber, pc - 1, &value, &failure);
      if (found < 0) return -1;
      if (!found) return spend(w, BUDGET - budget);
      top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
      function = top->function, pc = top->pc;
      r = (Value *)fiber->stack.data + top->base;
      problem = FINE;
      failure = (Failure){0};
    }
    if (w->ending != DONE) return -1;
  }
}

int run_fibers(Workplace *w) {
  for (;;) {
    Task *task = w->ready.first ? NULL : next_task(w);
    if (!task && !w->ready.first) return 0;
    Fiber *fiber = task ? new_fiber(w, task) : dequeue(&w->ready);
    if (!fiber) return -1;
    if (w->failures[fiber->instance].kind == FINE && run_fiber(w, fiber) != 0) return -1;
  }
}
