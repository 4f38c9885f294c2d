/* Texts that a program makes: each is kept once a call, so that equal ones have one number.
 *
 * Texts are numbered as Python does: constants by their numbers, then those of the instances from OWN_TEXTS on, and behind
 * them those that are made. Only a program that makes some has their bytes, which are UTF-8. */
#define _GNU_SOURCE
#include "machine.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHARS = 400 /* of a number */, DIGITS = 17 /* that tell all doubles apart */ };

/* Bytes of texts that were made: of the last one and of what it begins with. What is joined to the last one is written
 * behind it, so that a text that grows piece by piece takes as many bytes as it has, and not those of each step. */
struct TextBuffer {
  int64_t used, capacity;
  char bytes[];
};

static int64_t number_of(const Workplace *w, int64_t at) {
  int64_t num_constants = w->machine->num_constants;
  return at < num_constants ? at : OWN_TEXTS + at - num_constants;
}

static const Text *text_of(const Workplace *w, int64_t number) {
  int64_t at = number < OWN_TEXTS ? number : number - OWN_TEXTS + w->machine->num_constants;
  return at >= 0 && at < w->num_texts ? (const Text *)w->texts_room.data + at : NULL;
}

static const uint64_t NO_HASH = UINT64_C(14695981039346656037); /* of an empty text */

/* The hash of a text and what is behind it. */
static uint64_t hash_on(uint64_t hash, const char *bytes, int64_t length) {
  for (int64_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
  return hash;
}

static int64_t slot_of(const Workplace *w, uint64_t hash) {
  return (int64_t)((hash ^ hash >> 32) & (uint64_t)(w->num_slots - 1));
}

/* Where a text is, or -1; `slot` is where it would be. */
static int64_t find_text(const Workplace *w, const char *bytes, int64_t length, uint64_t hash, int64_t *slot) {
  const int32_t *slots = w->slots_room.data;
  const Text *texts = w->texts_room.data;
  for (*slot = slot_of(w, hash); slots[*slot] >= 0; *slot = (*slot + 1) & (w->num_slots - 1)) {
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

static int add_text(Workplace *w, const Text *text) {
  Text *texts = reserve(w, &w->texts_room, (w->num_texts + 1) * (int64_t)sizeof *texts);
  if (!texts) return -1;
  texts[w->num_texts++] = *text;
  return 0;
}

/* Adds a text that is there, or what is none for a length of -1. */
static int add_given(Workplace *w, const char *bytes, int64_t length) {
  return add_text(w, &(Text){.bytes = bytes, .length = length, .hash = length < 0 ? 0 : hash_on(NO_HASH, bytes, length)});
}

int begin_texts(Workplace *w, const int64_t *own) {
  const Machine *m = w->machine;
  w->num_texts = w->num_given = 0;
  if (!m->makes_texts) return 0;
  const int64_t *words = m->texts;
  for (int64_t i = 0; i < m->num_constants; i++) {
    int64_t length = m->constants[i].kind == V_TEXT ? *words++ : -1;
    if (add_given(w, (const char *)words, length) != 0) return -1;
    if (length > 0) words += (length + 7) / 8;
  }
  int64_t count = own ? *own++ : 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t length = *own++;
    if (add_given(w, (const char *)own, length) != 0) return -1;
    own += (length + 7) / 8;
  }
  w->num_given = w->num_texts;
  int64_t slots = 64;
  while (slots < 4 * w->num_texts) slots *= 2;
  return make_slots(w, slots);
}

/* A text's number, or -1 where the call ends. Its bytes are copied where it is new and `buffer`, of the arena, has not got
 * them: into a buffer with room for `capacity`. */
static int64_t keep_text(Workplace *w, Text text, int64_t capacity) {
  if (2 * w->num_texts >= w->num_slots && make_slots(w, 2 * w->num_slots) != 0) return -1;
  int64_t slot, at = find_text(w, text.bytes, text.length, text.hash, &slot);
  if (at >= 0) return number_of(w, at);
  if (w->num_texts >= INT32_MAX) {
    w->ending = NO_BYTES;
    return -1;
  }
  if (!text.buffer) {
    text.buffer = allocate(w, (int64_t)sizeof *text.buffer + capacity);
    if (!text.buffer) return -1;
    *text.buffer = (TextBuffer){.capacity = capacity};
    text.bytes = memcpy(text.buffer->bytes, text.bytes, text.length);
  }
  text.buffer->used = text.bytes + text.length - text.buffer->bytes;
  if (add_text(w, &text) != 0) return -1;
  ((int32_t *)w->slots_room.data)[slot] = (int32_t)(w->num_texts - 1);
  return number_of(w, w->num_texts - 1);
}

void note_read(Workplace *w, const Value *value) {
  Text *text = value->kind == V_TEXT ? (Text *)text_of(w, value->i) : NULL;
  if (text) text->is_read = 1;
}

FailureKind order_texts(const Workplace *w, const Value *a, const Value *b, int *order) {
  const Text *left = text_of(w, a->i), *right = text_of(w, b->i);
  if (!left || !right) return F_KINDS;
  int found = memcmp(left->bytes, right->bytes, left->length < right->length ? left->length : right->length);
  if (!found) found = (left->length > right->length) - (left->length < right->length);
  *order = (found > 0) - (found < 0);
  return FINE;
}

/* ---- Numbers ---- */

static locale_t plain;
static pthread_once_t is_plain_there = PTHREAD_ONCE_INIT;

static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Numbers have a point, whatever the process's locale has in its place; returns the thread's locale, to be set again. */
static locale_t begin_numbers(void) {
  pthread_once(&is_plain_there, make_plain);
  return uselocale(plain);
}

static const char *word_of(double number) { return isnan(number) ? "nan" : number < 0 ? "-inf" : "inf"; }

/* As Python's repr: the fewest digits that are this number. */
static int write_float(char *target, double number) {
  if (!isfinite(number)) return snprintf(target, MOST_CHARS, "%s", word_of(number));
  locale_t before = begin_numbers();
  char text[64];
  int digits = 1;
  for (; digits <= DIGITS; digits++) {
    snprintf(text, sizeof text, "%.*e", digits - 1, number);
    if (strtod(text, NULL) == number) break;
  }
  int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
  int behind = digits - 1 - exponent, is_power = exponent < -4 || exponent >= 16;
  int length = is_power ? snprintf(target, MOST_CHARS, "%s", text)
                        : snprintf(target, MOST_CHARS, "%.*f", behind > 1 ? behind : 1, number);
  uselocale(before);
  return length;
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

/* What is no number, in a width: zeros are behind the sign, as Python has them. */
static int64_t write_word(char *target, const char *word, int width, int fills) {
  int sign = *word == '-', length = (int)strlen(word), filled = width > length ? width - length : 0;
  memset(target, fills ? '0' : ' ', filled + sign);
  if (fills && sign) *target = '-';
  memcpy(target + filled + (fills ? sign : 0), word + (fills ? sign : 0), length - (fills ? sign : 0));
  return filled + length;
}

/* By a specification `[0][width][.digits][d, f, e or g]`, which Python has checked to be one. */
static FailureKind write_formatted(const Value *value, const char *spec, char *target, int64_t *length) {
  int fills = *spec == '0';
  int width = (int)strtol(spec, (char **)&spec, 10), digits = 6;
  if (*spec == '.') digits = (int)strtol(spec + 1, (char **)&spec, 10);
  int is_whole = value->kind == V_INT || value->kind == V_BOOL;
  if (width > 100 || digits > 60 || (!is_whole && value->kind != V_FLOAT)) return F_KINDS;
  if (*spec == 'f' || *spec == 'e' || *spec == 'g') {
    double number = is_whole ? (double)value->i : value->f;
    if (!isfinite(number)) {
      *length = write_word(target, word_of(number), width, fills);
      return FINE;
    }
    const char *forms[] = {"%*.*f", "%*.*e", "%*.*g", "%0*.*f", "%0*.*e", "%0*.*g"};
    const char *form = forms[(*spec == 'f' ? 0 : *spec == 'e' ? 1 : 2) + (fills ? 3 : 0)];
    locale_t before = begin_numbers();
    *length = snprintf(target, MOST_CHARS, form, width, digits, number);
    uselocale(before);
    return *length < MOST_CHARS ? FINE : F_KINDS;
  }
  if (!is_whole) return F_KINDS;
  *length = snprintf(target, MOST_CHARS, fills ? "%0*lld" : "%*lld", width, (long long)value->i);
  return FINE;
}

FailureKind format_text(Workplace *w, const Value *value, int32_t spec, Value *out) {
  char copy[32], bytes[MOST_CHARS];
  const Text *given = text_of(w, spec);
  if (!given || given->length >= (int64_t)sizeof copy) return F_KINDS;
  memcpy(copy, given->bytes, given->length);
  copy[given->length] = 0;
  int64_t length;
  FailureKind problem = write_formatted(value, copy, bytes, &length);
  if (problem) return problem;
  int64_t number = keep_text(w, (Text){.bytes = bytes, .length = length, .hash = hash_on(NO_HASH, bytes, length)}, length);
  if (number >= 0) *out = (Value){.kind = V_TEXT, .i = number};
  return FINE;
}

/* ---- Texts of several ---- */

/* What a text is made of: registers, or the items of a list, which are texts. */
typedef struct {
  const Value *values;
  const int32_t *registers; /* NULL for all values in order */
  int64_t count;
} Parts;

static const Value *part_at(const Parts *parts, int64_t k) { return &parts->values[parts->registers ? parts->registers[k] : k]; }

/* Writes parts behind each other, from one of them on, or adds up their lengths where there is no `target`; `wrong` is the
 * kind of what is no text. */
static FailureKind write_parts(const Workplace *w, const Parts *parts, int64_t from, char *target, int64_t *length, int32_t *wrong) {
  char room[MOST_CHARS];
  *length = 0;
  for (int64_t k = from; k < parts->count; k++) {
    const Value *value = part_at(parts, k);
    const Text *text = value->kind == V_TEXT ? text_of(w, value->i) : NULL;
    int64_t own = text ? text->length : 0;
    *wrong = value->kind;
    if (!text && (value->kind == V_TEXT || !parts->registers || write_plain(value, room, &own) != FINE)) return F_KINDS;
    if (target) memcpy(target + *length, text ? text->bytes : room, own);
    *length += own;
  }
  return FINE;
}

static FailureKind join(Workplace *w, const Parts *parts, int32_t *wrong, Value *out) {
  char room[MOST_CHARS];
  int64_t length, more;
  FailureKind problem = write_parts(w, parts, 0, NULL, &length, wrong);
  if (problem) return problem;
  const Text *first = parts->count && part_at(parts, 0)->kind == V_TEXT ? text_of(w, part_at(parts, 0)->i) : NULL;
  TextBuffer *own = first ? first->buffer : NULL;
  int64_t capacity = own ? 2 * length : length; /* what has grown once will again */
  Text made = {.bytes = room, .length = length, .hash = NO_HASH};
  Chunk *current = w->current;
  int64_t used = w->used, num_texts = w->num_texts;
  if (own && first->bytes + first->length == own->bytes + own->used && own->capacity - own->used >= length - first->length) {
    char *behind = own->bytes + own->used;
    write_parts(w, parts, 1, behind, &more, wrong);
    made = (Text){.bytes = first->bytes, .length = length, .hash = hash_on(first->hash, behind, more), .buffer = own};
  } else {
    if (length > (int64_t)sizeof room) {
      made.buffer = allocate(w, (int64_t)sizeof *made.buffer + capacity);
      if (!made.buffer) return FINE;
      *made.buffer = (TextBuffer){.capacity = capacity};
      made.bytes = made.buffer->bytes;
    }
    write_parts(w, parts, 0, (char *)made.bytes, &length, wrong);
    made.hash = hash_on(NO_HASH, made.bytes, length);
  }
  int64_t number = keep_text(w, made, capacity);
  if (number >= 0) *out = (Value){.kind = V_TEXT, .i = number};
  if (current && w->num_texts == num_texts) { /* it was there: what was taken is given back */
    w->current = current;
    w->used = used;
  }
  return FINE;
}

FailureKind join_texts(Workplace *w, const Value *r, const int32_t *registers, int32_t count, int32_t *wrong, Value *out) {
  return join(w, &(Parts){r, registers, count}, wrong, out);
}

FailureKind join_items(Workplace *w, const Value *list, int32_t *wrong, Value *out) {
  *wrong = V_NONE;
  if (list->kind != V_LIST && list->kind != V_TUPLE) return F_KINDS;
  return join(w, &(Parts){list->object->items, NULL, list->object->length}, wrong, out);
}

/* ---- Texts that are taken apart ---- */

static int64_t length_of_character(unsigned char first) { return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

static FailureKind list_characters(Workplace *w, const Text *text, Value *out) {
  const char *bytes = text->bytes;
  int64_t left = text->length, count = 0;
  for (int64_t i = 0; i < left; i += length_of_character((unsigned char)bytes[i])) count++;
  Object *list = new_object(w, count, 0);
  if (!list) return FINE;
  for (int64_t k = 0; k < count; k++) {
    int64_t own = length_of_character((unsigned char)*bytes);
    if (own > left) own = left;
    int64_t number = keep_text(w, (Text){.bytes = bytes, .length = own, .hash = hash_on(NO_HASH, bytes, own)}, own);
    if (number < 0) return FINE;
    list->items[k] = (Value){.kind = V_TEXT, .i = number};
    bytes += own, left -= own;
  }
  *out = (Value){.kind = V_LIST, .object = list};
  return FINE;
}

static FailureKind find_ordinal(const Text *text, Value *out) {
  const unsigned char *bytes = (const unsigned char *)text->bytes;
  if (!text->length || text->length != length_of_character(*bytes)) return F_KINDS;
  static const int firsts[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  int64_t number = *bytes & firsts[text->length];
  for (int64_t i = 1; i < text->length; i++) number = number << 6 | (bytes[i] & 0x3f);
  *out = (Value){.kind = V_INT, .i = number};
  return FINE;
}

FailureKind spell(Workplace *w, const Value *given, Value *out) {
  int64_t number = given->i;
  int is_half = number >= 0xd800 && number < 0xe000; /* of a pair, which UTF-8 does not have */
  if ((given->kind != V_INT && given->kind != V_BOOL) || number < 0 || number > 0x10ffff || is_half) return F_KINDS;
  int length = number < 0x80 ? 1 : number < 0x800 ? 2 : number < 0x10000 ? 3 : 4;
  static const int firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};
  char bytes[4];
  for (int i = length - 1; i > 0; i--, number >>= 6) bytes[i] = (char)(0x80 | (number & 0x3f));
  bytes[0] = (char)(firsts[length] | number);
  int64_t text = keep_text(w, (Text){.bytes = bytes, .length = length, .hash = hash_on(NO_HASH, bytes, length)}, length);
  if (text >= 0) *out = (Value){.kind = V_TEXT, .i = text};
  return FINE;
}

static int is_word(const char *text, const char *word) {
  for (; *word; text++, word++)
    if ((*text | 0x20) != *word) return 0;
  return !*text;
}

static const char *digits_behind(const char *at) { return at + strspn(at, "0123456789"); }

/* Whether a text is a float as Python writes it: digits with a point or without, an exponent; inf and nan. */
static int is_float(const char *at) {
  at += *at == '+' || *at == '-';
  if (is_word(at, "inf") || is_word(at, "infinity") || is_word(at, "nan")) return 1;
  const char *end = digits_behind(at);
  int64_t count = end - at;
  if (*end == '.') {
    at = end + 1;
    end = digits_behind(at);
    count += end - at;
  }
  if (!count) return 0;
  if (*end == 'e' || *end == 'E') {
    at = end + 1;
    at += *at == '+' || *at == '-';
    end = digits_behind(at);
    if (end == at) return 0;
  }
  return !*end;
}

static FailureKind parse(const Text *text, Value *out) {
  static const char *spaces = " \t\n\r\f\v";
  char copy[MOST_CHARS];
  const char *at = text->bytes, *end = at + text->length;
  while (at < end && strchr(spaces, *at)) at++;
  while (at < end && strchr(spaces, end[-1])) end--;
  *out = (Value){.kind = V_NONE};
  if (end - at >= (int64_t)sizeof copy || memchr(at, 0, end - at)) return FINE;
  memcpy(copy, at, end - at);
  copy[end - at] = 0;
  if (!is_float(copy)) return FINE;
  locale_t before = begin_numbers();
  *out = (Value){.kind = V_FLOAT, .f = strtod(copy, NULL)};
  uselocale(before);
  return FINE;
}

FailureKind take_apart(Workplace *w, int32_t op, const Value *given, Value *out) {
  const Text *text = given->kind == V_TEXT ? text_of(w, given->i) : NULL;
  if (!text) return F_KINDS;
  const Text own = *text; /* which moves where others are added */
  return op == I_CHARACTERS ? list_characters(w, &own, out) : op == I_ORDINAL ? find_ordinal(&own, out) : parse(&own, out);
}
