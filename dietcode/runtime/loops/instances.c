/* Values that come in and go out: as words, an object's items in a row behind the objects before it.
 *
 * A value is two words: its kind, in whose higher bits is a tensor's type, and a number: an int, the bits of a float, a
 * text's number, that of an object, or that of a tensor. An object is its record, its length, and its items; one that comes
 * in has its number and a word that says nothing before these items, and may come in any order. */
#include "machine.h"

#include <string.h>

enum { VALUE_WORDS = 2, OBJECT_WORDS = 2, INPUT_WORDS = 4, TYPE_SHIFT = 8 };

static int holds_object(int32_t kind) { return kind == V_TUPLE || kind == V_LIST || kind == V_RECORD; }

static Value read_value(Object *const *objects, int64_t first_tensor, const int64_t *tensors, const int64_t *words) {
  Value value = {.kind = (int32_t)words[0], .i = words[1]};
  if (holds_object(value.kind)) value.object = objects[words[1]];
  if (value.kind != V_TENSOR) return value;
  value.type = (int32_t)tensors[2 * words[1]];
  value.i = first_tensor + words[1];
  return value;
}

int read_instances(Workplace *w, const Input *input, Value *roots) {
  const Machine *m = w->machine;
  int64_t num_roots = input->num_instances * m->functions[m->entry].num_parameters, first_tensor = w->num_handles;
  for (int64_t i = 0; i < input->num_tensors; i++) {
    const int64_t *tensor = &input->tensors[2 * i];
    if (new_row(w, (int32_t)tensor[0], (const void *)(intptr_t)tensor[1]) < 0) return -1;
  }
  Object **objects = reserve(w, &w->objects_room, (input->num_objects + 1) * (int64_t)sizeof *objects);
  if (!objects) return -1;
  const int64_t *first = input->words + VALUE_WORDS * num_roots, *words = first;
  for (int64_t i = 0; i < input->num_objects; i++, words += INPUT_WORDS + VALUE_WORDS * words[1])
    if (!(objects[words[2]] = new_object(w, words[1], (int32_t)words[0]))) return -1;
  words = first;
  for (int64_t i = 0; i < input->num_objects; i++) {
    Object *object = objects[words[2]];
    words += INPUT_WORDS;
    for (int64_t k = 0; k < object->length; k++, words += VALUE_WORDS)
      object->items[k] = read_value(objects, first_tensor, input->tensors, words);
  }
  for (int64_t i = 0; i < num_roots; i++)
    roots[i] = read_value(objects, first_tensor, input->tensors, input->words + VALUE_WORDS * i);
  return 0;
}

/* ---- Results ---- */

typedef struct {
  Workplace *w;
  int64_t num_objects, instance;
} Writer;

static int64_t number_of(Writer *writer, Object *object) {
  if (object->number) return object->number - 1;
  Workplace *w = writer->w;
  Object **objects = reserve(w, &w->objects_room, (writer->num_objects + 1) * (int64_t)sizeof *objects);
  if (!objects) return -1;
  objects[writer->num_objects] = object;
  object->number = (int32_t)++writer->num_objects;
  return object->number - 1;
}

static int64_t returned_row(Workplace *w, const Value *tensor) {
  int64_t *count = &w->type_counts[tensor->type];
  int32_t *rows = reserve(w, &w->type_rows[tensor->type], (*count + 1) * (int64_t)sizeof *rows);
  if (!rows) return -1;
  rows[*count] = w->states[tensor->i];
  return (*count)++;
}

static int write_value(Writer *writer, const Value *value, int64_t at) {
  Workplace *w = writer->w;
  Value own = *value;
  if (own.kind == V_TASK) { /* which is nothing outside of its call */
    Failure failure = {.kind = F_KINDS, .pc = -1};
    fail_instance(w, (int32_t)writer->instance, &failure);
    own = (Value){.kind = V_NONE};
  }
  if (holds_object(own.kind)) own.i = number_of(writer, own.object);
  if (own.kind == V_TENSOR) own.i = returned_row(w, &own);
  note_read(w, &own);
  if (w->ending != DONE) return -1;
  int64_t *words = (int64_t *)w->output_room.data + at;
  words[0] = own.kind | (own.kind == V_TENSOR ? (int64_t)own.type << TYPE_SHIFT : 0);
  words[1] = own.i;
  return 0;
}

static int write_object(Writer *writer, const Object *object) {
  Workplace *w = writer->w;
  int64_t wanted = w->num_words + OBJECT_WORDS + VALUE_WORDS * object->length;
  int64_t *words = reserve(w, &w->output_room, wanted * (int64_t)sizeof *words);
  if (!words) return -1;
  words[w->num_words++] = object->record;
  words[w->num_words++] = object->length;
  for (int64_t k = 0; k < object->length; k++, w->num_words += VALUE_WORDS)
    if (write_value(writer, &object->items[k], w->num_words) != 0) return -1;
  return 0;
}

/* The results of all instances come first; objects are numbered as they are met. */
int write_results(Workplace *w) {
  Writer writer = {w, 0, 0};
  const Value nothing = {.kind = V_NONE};
  int64_t written = 0;
  w->num_words = VALUE_WORDS * w->num_instances;
  memset(w->type_counts, 0, w->machine->num_types * sizeof *w->type_counts);
  if (w->num_instances && !reserve(w, &w->output_room, w->num_words * (int64_t)sizeof(int64_t))) return -1;
  for (int64_t i = 0; i < w->num_instances; i++) {
    writer.instance = i;
    const Value *result = w->failures[i].kind == FINE ? &w->results[i] : &nothing;
    if (write_value(&writer, result, VALUE_WORDS * i) != 0) return -1;
    for (; written < writer.num_objects; written++)
      if (write_object(&writer, ((Object **)w->objects_room.data)[written]) != 0) return -1;
  }
  return 0;
}
