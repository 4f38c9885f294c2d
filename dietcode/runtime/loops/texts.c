/* Texts that a program makes: each is kept once a call, so that equal ones have one number.
 *
 * Texts are numbered as Python does: constants by their numbers, then those of the instances from OWN_TEXTS on, and behind
 * them those that are made. Only a program that makes some has their bytes, which are UTF-8. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHARS = 400 /* of a number */, DIGITS = 17 /* that tell all doubles apart */ };

static int64_t number_of(const Workplace *w, int64_t at) {
  int64_t num_constants = w->machine->num_constants;
  return at < num_constants ? at : OWN_TEXTS + at - num_constants;
}

static const Text *text_of(const Workplace *w, int64_t number) {
  int64_t at = number < OWN_TEXTS ? number : number - OWN_TEXTS + w->machine->num_constants;
  return at >= 0 && at < w->num_texts ? (const Text *)w->texts_room.data + at : NULL;
}

static uint64_t hash_of(const char *bytes, int64_t length) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (int64_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
  return hash ^ hash >> 32;
}

/* Where a text is, or -1; `slot` is where it would be. */
static int64_t find_text(const Workplace *w, const char *bytes, int64_t length, uint64_t hash, int64_t *slot) {
  const int32_t *slots = w->slots_room.data;
  const Text *texts = w->texts_room.data;
  for (*slot = (int64_t)(hash & (uint64_t)(w->num_slots - 1)); slots[*slot] >= 0; *slot = (*slot + 1) & (w->num_slots - 1)) {
    const Text *one = &texts[slots[*slot]];
    if (one->hash == hash && one->length == length && memcmp(one->bytes, bytes, length) == 0) return slots[*slot];
  }
  return -1;
}

static int make_slots(Workplace *w, int64_t count) {
  int32_t *slots = reserve(w, &w->slots_room, count * (int64_t)sizeof *slots);
  if (!slots) return -1;
  memset(slots, 0xff, count * sizeof *slots);
  w->num_slots = count;
  const Text *texts = w->texts_room.data;
  for (int64_t i = 0; i < w->num_texts; i++) {
    int64_t slot;
    if (texts[i].length >= 0 && find_text(w, texts[i].bytes, texts[i].length, texts[i].hash, &slot) < 0)
      slots[slot] = (int32_t)i;
  }
  return 0;
}

/* Adds a text, or what is none for a length of -1. */
static int add_text(Workplace *w, const char *bytes, int64_t length) {
  Text *texts = reserve(w, &w->texts_room, (w->num_texts + 1) * (int64_t)sizeof *texts);
  if (!texts) return -1;
  texts[w->num_texts++] = (Text){bytes, length, length < 0 ? 0 : hash_of(bytes, length)};
  return 0;
}

int begin_texts(Workplace *w, const int64_t *own) {
  const Machine *m = w->machine;
  w->num_texts = w->num_given = 0;
  if (!m->makes_texts) return 0;
  const int64_t *words = m->texts;
  for (int64_t i = 0; i < m->num_constants; i++) {
    int64_t length = m->constants[i].kind == V_TEXT ? *words++ : -1;
    if (add_text(w, (const char *)words, length) != 0) return -1;
    if (length > 0) words += (length + 7) / 8;
  }
  int64_t count = own ? *own++ : 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t length = *own++;
    if (add_text(w, (const char *)own, length) != 0) return -1;
    own += (length + 7) / 8;
  }
  w->num_given = w->num_texts;
  int64_t slots = 64;
  while (slots < 4 * w->num_texts) slots *= 2;
  return make_slots(w, slots);
}

/* A text's number; bytes are of the arena. -1 where the call ends. */
static int64_t keep_text(Workplace *w, const char *bytes, int64_t length) {
  if (2 * w->num_texts >= w->num_slots && make_slots(w, 2 * w->num_slots) != 0) return -1;
  int64_t slot, at = find_text(w, bytes, length, hash_of(bytes, length), &slot);
  if (at >= 0) return number_of(w, at);
  if (w->num_texts >= INT32_MAX || add_text(w, bytes, length) != 0) return -1;
  ((int32_t *)w->slots_room.data)[slot] = (int32_t)(w->num_texts - 1);
  return number_of(w, w->num_texts - 1);
}

FailureKind order_texts(const Workplace *w, const Value *a, const Value *b, Value *out) {
  const Text *left = a->kind == V_TEXT ? text_of(w, a->i) : NULL, *right = b->kind == V_TEXT ? text_of(w, b->i) : NULL;
  if (!left || !right) return F_KINDS;
  int order = memcmp(left->bytes, right->bytes, left->length < right->length ? left->length : right->length);
  if (!order) order = (left->length > right->length) - (left->length < right->length);
  *out = (Value){.kind = V_INT, .i = order};
  return FINE;
}

/* ---- Numbers ---- */

/* As Python's repr: the fewest digits that are this number. */
static int write_float(char *target, double number) {
  if (isnan(number)) return snprintf(target, MOST_CHARS, "nan");
  if (isinf(number)) return snprintf(target, MOST_CHARS, number < 0 ? "-inf" : "inf");
  char text[64];
  int digits = 1;
  for (; digits <= DIGITS; digits++) {
    snprintf(text, sizeof text, "%.*e", digits - 1, number);
    if (strtod(text, NULL) == number) break;
  }
  int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
  if (exponent < -4 || exponent >= 16) return snprintf(target, MOST_CHARS, "%s", text);
  int behind = digits - 1 - exponent;
  return snprintf(target, MOST_CHARS, "%.*f", behind > 1 ? behind : 1, number);
}

static FailureKind write_plain(const Value *value, char *target, int64_t *length) {
  switch (value->kind) {
    case V_NONE: *length = snprintf(target, MOST_CHARS, "None"); return FINE;
    case V_BOOL: *length = snprintf(target, MOST_CHARS, value->i ? "True" : "False"); return FINE;
    case V_INT: *length = snprintf(target, MOST_CHARS, "%lld", (long long)value->i); return FINE;
    case V_FLOAT: *length = write_float(target, value->f); return FINE;
    default: return F_KINDS;
  }
}

/* By a specification `[0][width][.digits][d, f or e]`, which Python has checked to be one. */
static FailureKind write_formatted(const Value *value, const char *spec, char *target, int64_t *length) {
  int fills = *spec == '0';
  int width = (int)strtol(spec, (char **)&spec, 10), digits = 6;
  if (*spec == '.') digits = (int)strtol(spec + 1, (char **)&spec, 10);
  if (width > 100 || digits > 60 || (value->kind != V_INT && value->kind != V_FLOAT)) return F_KINDS;
  if (*spec == 'f' || *spec == 'e') {
    double number = value->kind == V_INT ? (double)value->i : value->f;
    if (!isfinite(number)) fills = 0;
    const char *form = *spec == 'f' ? (fills ? "%0*.*f" : "%*.*f") : (fills ? "%0*.*e" : "%*.*e");
    *length = snprintf(target, MOST_CHARS, form, width, digits, number);
    return *length < MOST_CHARS ? FINE : F_KINDS;
  }
  if (value->kind != V_INT) return F_KINDS;
  *length = snprintf(target, MOST_CHARS, fills ? "%0*lld" : "%*lld", width, (long long)value->i);
  return FINE;
}

FailureKind format_text(Workplace *w, const Value *value, int32_t spec, Value *out) {
  char copy[32];
  const Text *given = text_of(w, spec);
  if (!given || given->length >= (int64_t)sizeof copy) return F_KINDS;
  memcpy(copy, given->bytes, given->length);
  copy[given->length] = 0;
  char *bytes = allocate(w, MOST_CHARS);
  if (!bytes) return FINE;
  int64_t length;
  FailureKind problem = write_formatted(value, copy, bytes, &length);
  if (problem) return problem;
  int64_t number = keep_text(w, bytes, length);
  if (number >= 0) *out = (Value){.kind = V_TEXT, .i = number};
  return FINE;
}

FailureKind join_texts(Workplace *w, const Value *r, const int32_t *registers, int32_t count, int32_t *wrong, Value *out) {
  char plain[MOST_CHARS];
  int64_t length = 0, own;
  for (int32_t k = 0; k < count; k++) {
    const Value *one = &r[registers[k]];
    const Text *text = one->kind == V_TEXT ? text_of(w, one->i) : NULL;
    *wrong = one->kind;
    if (one->kind == V_TEXT ? !text : write_plain(one, plain, &own) != FINE) return F_KINDS;
    length += text ? text->length : own;
  }
  char *bytes = allocate(w, length + 1);
  if (!bytes) return FINE;
  char *at = bytes;
  for (int32_t k = 0; k < count; k++) {
    const Value *one = &r[registers[k]];
    const Text *text = one->kind == V_TEXT ? text_of(w, one->i) : NULL;
    if (text) own = text->length;
    else if (write_plain(one, plain, &own) != FINE) return F_KINDS;
    memcpy(at, text ? text->bytes : plain, own);
    at += own;
  }
  int64_t number = keep_text(w, bytes, length);
  if (number >= 0) *out = (Value){.kind = V_TEXT, .i = number};
  return FINE;
}
