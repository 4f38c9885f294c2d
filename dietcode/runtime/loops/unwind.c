/* Exceptions: what fails goes back through calls until a function has a place for it.
 *
 * What a program throws is a record. What the machine itself notices, of which Python would raise an exception of its own,
 * is the number of its FailureKind, as an int; which classes these are is said by the code that takes it. What else goes
 * wrong is not thrown: limits, what samples did not show, and what Python would not notice. */
#include "machine.h"

int is_thrown(int64_t kind) {
  return kind == F_INDEX || kind == F_EMPTY || kind == F_DIVISION || kind == F_THROWN || kind == F_APART;
}

static const Handler *handler_of(const Function *function, int64_t pc) {
  for (int32_t k = 0; k < function->num_handlers; k++) {
    const Handler *one = &function->handlers[k];
    if (pc >= one->begin && pc < one->end) return one;
  }
  return NULL;
}

/* The record, and the first of its arguments, which are its first field. */
static void describe(Workplace *w, const Value *thrown, Failure *failure) {
  const Object *object = thrown->object;
  failure->a = object->record;
  failure->b = V_NOTHING;
  failure->c = 0;
  if (!object->length || object->items[0].kind != V_TUPLE || !object->items[0].object->length) return;
  failure->b = object->items[0].object->items[0].kind;
  failure->c = object->items[0].object->items[0].i;
  note_read(w, &object->items[0].object->items[0]);
}

int unwind(Workplace *w, Fiber *fiber, int64_t pc, const Value *given, Failure *failure) {
  Value thrown = failure->kind == F_THROWN ? *given : (Value){.kind = V_INT, .i = failure->kind};
  if (failure->kind == F_THROWN) describe(w, &thrown, failure);
  if (!w->machine->num_handlers || !is_thrown(failure->kind)) {
    fail_instance(w, fiber->instance, failure);
    return 0;
  }
  for (;;) {
    Activation *top = (Activation *)fiber->activations.data + fiber->num_activations - 1;
    const Handler *found = handler_of(top->function, pc);
    if (found) {
      top->pc = found->target;
      ((Value *)fiber->stack.data)[top->base + found->d] = thrown;
      return 1;
    }
    if (top->task && fail_task(w, top->task, &thrown, failure) != 0) return -1;
    if (--fiber->num_activations == 0) break;
    pc = ((Activation *)fiber->activations.data + fiber->num_activations - 1)->pc - 1;
  }
  fiber->next = w->idle;
  w->idle = fiber;
  return 0;
}
