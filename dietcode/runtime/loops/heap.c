/* Memory of a workplace: rooms that grow, and an arena of which all is given back at once. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK_BYTES = 1 << 18, ROOM_ALIGNMENT = 64 };

struct Chunk {
  Chunk *next;
  int64_t capacity;
  char bytes[];
};

int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int take_bytes(Workplace *w, int64_t bytes) {
  if (bytes <= w->max_bytes - w->num_bytes) {
    w->num_bytes += bytes;
    return 0;
  }
  w->ending = NO_BYTES;
  return -1;
}

void *grow(Workplace *w, Room *room, int64_t bytes) {
  int64_t wanted = 2 * room->capacity > bytes ? 2 * room->capacity : bytes;
  wanted = (wanted + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
  if (take_bytes(w, wanted - room->capacity) != 0) return NULL;
  void *data = aligned_alloc(ROOM_ALIGNMENT, wanted);
  if (!data) {
    w->num_bytes -= wanted - room->capacity;
    w->ending = NO_BYTES;
    return NULL;
  }
  if (room->capacity) memcpy(data, room->data, room->capacity);
  free(room->data);
  *room = (Room){data, wanted};
  return data;
}

void *allocate(Workplace *w, int64_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  while (!w->current || bytes > w->current->capacity - w->used) {
    Chunk *next = w->current ? w->current->next : w->chunks;
    if (!next || next->capacity < bytes) { /* one that is too small is left for later */
      int64_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
      if (take_bytes(w, capacity) != 0) return NULL;
      Chunk *made = malloc(sizeof *made + capacity);
      if (!made) {
        w->num_bytes -= capacity;
        w->ending = NO_BYTES;
        return NULL;
      }
      *made = (Chunk){.next = next, .capacity = capacity};
      if (w->current) w->current->next = made;
      else w->chunks = made;
      next = made;
    }
    w->current = next;
    w->used = 0;
  }
  void *found = w->current->bytes + w->used;
  w->used += bytes;
  return found;
}

/* Chunks that are larger than most are given back: a single long list should not be kept for ever. */
void reset_arena(Workplace *w) {
  for (Chunk **at = &w->chunks; *at;) {
    Chunk *chunk = *at;
    if (chunk->capacity <= CHUNK_BYTES) {
      at = &chunk->next;
      continue;
    }
    *at = chunk->next;
    w->num_bytes -= chunk->capacity;
    free(chunk);
  }
  w->current = NULL;
  w->used = 0;
}

void free_arena(Workplace *w) {
  while (w->chunks) {
    Chunk *next = w->chunks->next;
    free(w->chunks);
    w->chunks = next;
  }
}

Object *new_object(Workplace *w, int64_t length, int32_t record) {
  Object *object = allocate(w, sizeof *object + length * (int64_t)sizeof(Value));
  if (!object) return NULL;
  *object = (Object){.record = record, .length = length, .capacity = length, .items = (Value *)(object + 1)};
  return object;
}

int grow_list(Workplace *w, Object *list, int64_t capacity) {
  if (capacity <= list->capacity) return 0;
  capacity = capacity > 2 * list->capacity ? capacity : 2 * list->capacity;
  if (capacity < 4) capacity = 4;
  Value *items = allocate(w, capacity * (int64_t)sizeof *items);
  if (!items) return -1;
  memcpy(items, list->items, list->length * sizeof *items);
  list->items = items;
  list->capacity = capacity;
  return 0;
}
