/* A call of a machine: its instances are read, run as fibers, and their results written. */
#include "machine.h"

#include <string.h>

static int reset(Workplace *w, int64_t num_instances) {
  const Machine *m = w->machine;
  reset_tables(w);
  w->num_steps = w->num_words = 0;
  w->round = 0;
  reset_arena(w);
  reset_fibers(w);
  w->num_instances = num_instances;
  w->failures = reserve(w, &w->failures_room, (num_instances + 1) * (int64_t)sizeof *w->failures);
  int64_t num_roots = num_instances * m->functions[m->entry].num_parameters;
  w->results = reserve(w, &w->results_room, (num_instances + num_roots + 1) * (int64_t)sizeof *w->results);
  if (!w->failures || !w->results) return -1;
  memset(w->failures, 0, num_instances * sizeof *w->failures);
  for (int64_t i = 0; i < num_instances; i++) w->results[i] = (Value){.kind = V_NOTHING};
  return 0;
}

static int run_all(Workplace *w, const Input *input) {
  const Machine *m = w->machine;
  const Function *entry = &m->functions[m->entry];
  if (reset(w, input->num_instances) != 0) return -1;
  Value *roots = w->results + input->num_instances;
  if (begin_texts(w, input->texts) != 0) return -1;
  if (read_instances(w, input, roots) != 0) return -1;
  for (int64_t i = 0; i < input->num_instances; i++) {
    Task *task = new_task(w, (int32_t)i, entry, roots + i * entry->num_parameters, NULL);
    if (!task) return -1;
    task->is_root = 1;
  }
  while (w->ready.first || w->first_task || w->num_nodes) {
    if (run_fibers(w) != 0 || flush(w) != 0 || (w->waiting.first && collect_rows(w, visit_roots) != 0)) return -1;
    w->ready = w->waiting;
    w->waiting = (Queue){NULL, NULL};
  }
  for (int64_t i = 0; i < input->num_instances; i++) {
    Failure failure = {.kind = F_DEADLOCK, .pc = -1};
    if (w->results[i].kind == V_NOTHING) fail_instance(w, (int32_t)i, &failure);
  }
  return write_results(w);
}

int run_machine(Workplace *w, const Input *input, int64_t max_bytes, int64_t max_steps, int is_traced) {
  w->max_bytes = max_bytes;
  w->max_steps = max_steps;
  w->is_traced = is_traced;
  int status = run_all(w, input);
  if (status == 0 || w->ending != RAISED) return 0;
  return w->detail ? (int)w->detail : -2;
}
