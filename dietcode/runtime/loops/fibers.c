/* Fibers and tasks. A fiber has a stack of its own; a task runs on that of who waits for it, if nobody has begun it. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

void enqueue(Queue *queue, Fiber *fiber) {
  fiber->next = NULL;
  if (queue->last) queue->last->next = fiber;
  else queue->first = fiber;
  queue->last = fiber;
}

Fiber *dequeue(Queue *queue) {
  Fiber *fiber = queue->first;
  queue->first = fiber->next;
  if (!queue->first) queue->last = NULL;
  return fiber;
}

Task *new_task(Workplace *w, int32_t instance, const Function *function, const Value *values, const int32_t *registers) {
  Task *task = allocate(w, sizeof *task + function->num_parameters * (int64_t)sizeof *values);
  if (!task) return NULL;
  *task = (Task){.function = function, .instance = instance, .state = NEW};
  for (int32_t i = 0; i < function->num_parameters; i++) task->arguments[i] = values[registers ? registers[i] : i];
  if (w->last_task) w->last_task->next = task;
  else w->first_task = task;
  w->last_task = task;
  return task;
}

Task *next_task(Workplace *w) {
  Task *task = w->first_task;
  while (task && (task->state != NEW || w->failures[task->instance].kind != FINE)) task = task->next;
  w->first_task = task ? task->next : NULL;
  if (!w->first_task) w->last_task = NULL;
  return task;
}

static Fiber *idle_fiber(Workplace *w) {
  Fiber *fiber = w->idle;
  if (fiber) {
    w->idle = fiber->next;
    return fiber;
  }
  fiber = (int64_t)sizeof *fiber <= w->max_bytes - w->num_bytes ? calloc(1, sizeof *fiber) : NULL;
  if (!fiber) {
    w->ending = NO_BYTES;
    return NULL;
  }
  w->num_bytes += sizeof *fiber;
  fiber->next_all = w->all;
  w->all = fiber;
  return fiber;
}

Fiber *new_fiber(Workplace *w, Task *task) {
  Fiber *fiber = idle_fiber(w);
  if (!fiber) return NULL;
  fiber->instance = task->instance;
  fiber->num_activations = 0;
  return begin_task(w, fiber, task, 0, 0) ? fiber : NULL;
}

Value *enter(Workplace *w, Fiber *fiber, const Function *function, Task *task, int64_t base, int32_t d) {
  int64_t wanted = (base + function->num_registers) * (int64_t)sizeof(Value);
  Value *stack = reserve(w, &fiber->stack, wanted);
  Activation *activations = reserve(w, &fiber->activations, (fiber->num_activations + 1) * (int64_t)sizeof *activations);
  if (!stack || !activations) return NULL;
  activations[fiber->num_activations++] = (Activation){function, task, 0, base, d};
  memset(stack + base, 0, function->num_registers * sizeof *stack);
  return stack + base;
}

Value *begin_task(Workplace *w, Fiber *fiber, Task *task, int64_t base, int32_t d) {
  Value *registers = enter(w, fiber, task->function, task, base, d);
  if (!registers) return NULL;
  memcpy(registers, task->arguments, task->function->num_parameters * sizeof *registers);
  task->state = BEGUN;
  return registers;
}

void end_task(Workplace *w, Task *task, const Value *result) {
  task->state = OVER;
  task->result = *result;
  if (task->is_root) w->results[task->instance] = *result;
  for (Fiber *one = task->waiters; one;) {
    Fiber *next = one->next;
    enqueue(&w->ready, one);
    one = next;
  }
  task->waiters = NULL;
}

/* What waits for a task is told when it looks at it again; an instance whose own task it is has failed. */
int fail_task(Workplace *w, Task *task, const Value *thrown, const Failure *failure) {
  if (task->is_root) {
    fail_instance(w, task->instance, failure);
    return 0;
  }
  Failure *kept = allocate(w, sizeof *kept);
  if (!kept) return -1;
  *kept = *failure;
  end_task(w, task, thrown);
  task->state = FAILED;
  task->failure = kept;
  return 0;
}

void fail_instance(Workplace *w, int32_t instance, const Failure *failure) {
  if (w->failures[instance].kind == FINE) w->failures[instance] = *failure;
}

void reset_fibers(Workplace *w) {
  w->ready = w->waiting = (Queue){NULL, NULL};
  w->first_task = w->last_task = NULL;
  w->idle = NULL;
  for (Fiber *one = w->all; one; one = one->next_all) {
    one->next = w->idle;
    w->idle = one;
  }
}

void free_fibers(Workplace *w) {
  while (w->all) {
    Fiber *next = w->all->next_all;
    free(w->all->stack.data);
    free(w->all->activations.data);
    free(w->all);
    w->all = next;
  }
}
