/* Rows that nothing can read any more are given up while a call goes on: those that are left move together. Between two
 * runs no node is noted, so only the roots of the caller read rows. */
#include "machine.h"

#include <string.h>

enum { LEAST_BYTES = 1 << 20 }; /* a table below it is not worth looking through everything */

typedef struct {
  int32_t handle, type;
} Kept;

/* Whether a table has grown to twice what it had to keep before, and is large, or near its limit. */
static int is_full(const Workplace *w, int64_t type) {
  const Table *table = &w->tables[type];
  int64_t max_rows = w->machine->max_rows;
  int is_large = table->num_rows * w->machine->types[type].row_bytes >= LEAST_BYTES || table->num_rows >= max_rows / 2;
  return is_large && table->num_rows >= 2 * table->num_kept;
}

int keep_row(Collector *c, int64_t handle, int32_t type) {
  Workplace *w = c->w;
  if (c->is_kept[handle]) return 0;
  Kept *kept = reserve(w, &w->kept_room, (c->num_kept + 1) * (int64_t)sizeof *kept);
  if (!kept) return -1;
  c->is_kept[handle] = 1;
  kept[c->num_kept++] = (Kept){(int32_t)handle, type};
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

int collect_rows(Workplace *w, int (*visit)(Collector *)) {
  const Machine *m = w->machine;
  int is_needed = 0;
  for (int64_t type = 0; type < m->num_types; type++) is_needed |= is_full(w, type);
  if (!is_needed) return 0;
  Collector c = {.w = w, .is_kept = reserve(w, &w->marks_room, w->num_handles + 1)};
  if (!c.is_kept) return -1;
  memset(c.is_kept, 0, w->num_handles);
  w->round++;
  for (int64_t i = 0; i < m->num_tensors; i++) /* constants stay, and come first */
    if (keep_row(&c, i, (int32_t)m->tensors[i].type) != 0) return -1;
  if (visit(&c) != 0) return -1;
  for (int64_t type = 0; type < m->num_types; type++)
    if (move_together(&c, (int32_t)type) != 0) return -1;
  return 0;
}
