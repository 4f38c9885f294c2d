/* Numbers as Python has them, but that an int is of 64 bits; truth; comparisons; tuples and lists joined. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTED = 200 /* tuples and lists within each other that are compared */ };

static int is_integer(const Value *v) { return v->kind == V_INT || v->kind == V_BOOL; }
static int is_number(const Value *v) { return is_integer(v) || v->kind == V_FLOAT; }
static double as_float(const Value *v) { return v->kind == V_FLOAT ? v->f : (double)v->i; }

static FailureKind give_int(Value *out, int64_t i) {
  *out = (Value){.kind = V_INT, .i = i};
  return FINE;
}

static FailureKind give_float(Value *out, double f) {
  *out = (Value){.kind = V_FLOAT, .f = f};
  return FINE;
}

static FailureKind give_bool(Value *out, int truth) {
  *out = (Value){.kind = V_BOOL, .i = truth};
  return FINE;
}

FailureKind truth_of(const Workplace *w, const Value *v, int *truth) {
  switch (v->kind) {
    case V_NONE: *truth = 0; return FINE;
    case V_BOOL: case V_INT: *truth = v->i != 0; return FINE;
    case V_FLOAT: *truth = v->f != 0; return FINE;
    case V_TUPLE: case V_LIST: *truth = v->object->length != 0; return FINE;
    case V_TEXT: *truth = v->i != w->machine->empty_text; return FINE;
    case V_RECORD: *truth = 1; return FINE;
    default: return F_KINDS; /* a tensor's is asked for by "value" */
  }
}

static FailureKind whole_of(const Value *a, double whole, Value *out) {
  if (a->kind != V_FLOAT) return give_int(out, a->i);
  if (isnan(a->f) || isinf(a->f)) return F_DOMAIN;
  if (!(whole > -9223372036854777856.0 && whole < 9223372036854775808.0)) return F_OVERFLOW;
  return give_int(out, (int64_t)whole);
}

/* Python's math: no infinity of finite numbers, and no NaN but of a NaN. */
static FailureKind give_of_math(Value *out, double given, double found) {
  if (isnan(found) && !isnan(given)) return F_DOMAIN;
  return isinf(found) && !isinf(given) ? F_OVERFLOW : give_float(out, found);
}

FailureKind apply_unary(const Workplace *w, int32_t op, const Value *a, Value *out) {
  int truth;
  if (op == U_NOT || op == U_BOOL) {
    FailureKind problem = truth_of(w, a, &truth);
    return problem ? problem : give_bool(out, op == U_BOOL ? truth : !truth);
  }
  if (!is_number(a)) return F_KINDS;
  double number = as_float(a);
  switch (op) {
    case U_FLOAT: return give_float(out, number);
    case U_INT: return whole_of(a, number, out);
    case U_ROUND: return whole_of(a, nearbyint(number), out); /* halves to even */
    case U_FLOOR: return whole_of(a, floor(number), out);
    case U_CEIL: return whole_of(a, ceil(number), out);
    case U_INVERT: return a->kind == V_FLOAT ? F_KINDS : give_int(out, ~a->i);
    case U_SQRT: return give_of_math(out, number, sqrt(number));
    case U_EXP: return give_of_math(out, number, exp(number));
    case U_LOG: return number == 0 ? F_DOMAIN : give_of_math(out, number, log(number));
    case U_LOG2: return number == 0 ? F_DOMAIN : give_of_math(out, number, log2(number));
    case U_LOG10: return number == 0 ? F_DOMAIN : give_of_math(out, number, log10(number));
    case U_LOG1P: return number == -1 ? F_DOMAIN : give_of_math(out, number, log1p(number));
    case U_EXPM1: return give_of_math(out, number, expm1(number));
    case U_TANH: return give_of_math(out, number, tanh(number));
    case U_SIN: return give_of_math(out, number, sin(number));
    case U_COS: return give_of_math(out, number, cos(number));
    default: break;
  }
  if (a->kind == V_FLOAT) return give_float(out, op == U_NEG ? -a->f : fabs(a->f));
  if (op == U_ABS && a->i >= 0) return give_int(out, a->i);
  return a->i == INT64_MIN ? F_OVERFLOW : give_int(out, -a->i);
}

/* -1, 0, 1, or 2 where one is no number: exact, as Python compares. */
static int compare_mixed(int64_t i, double f) {
  if (isnan(f)) return 2;
  if (f >= 9223372036854775808.0) return -1;
  if (f < -9223372036854775808.0) return 1;
  int64_t whole = (int64_t)f;
  if (i != whole) return i < whole ? -1 : 1;
  double rest = f - (double)whole;
  return rest > 0 ? -1 : rest < 0;
}

static int compare_numbers(const Value *a, const Value *b) {
  if (a->kind == V_FLOAT && b->kind == V_FLOAT) return isnan(a->f) || isnan(b->f) ? 2 : a->f < b->f ? -1 : a->f > b->f;
  if (a->kind == V_FLOAT) {
    int found = compare_mixed(b->i, a->f);
    return found == 2 ? 2 : -found;
  }
  return b->kind == V_FLOAT ? compare_mixed(a->i, b->f) : a->i < b->i ? -1 : a->i > b->i;
}

static int is_same(const Value *a, const Value *b) {
  if (a->kind != b->kind) return 0;
  switch (a->kind) {
    case V_NONE: return 1;
    case V_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case V_TUPLE: case V_LIST: case V_RECORD: return a->object == b->object;
    case V_TASK: return a->task == b->task;
    default: return a->i == b->i;
  }
}

static FailureKind equal(const Value *a, const Value *b, int nested, int *result) {
  if (a->kind == V_TENSOR || b->kind == V_TENSOR || a->kind == V_TASK || b->kind == V_TASK) return F_KINDS;
  if (is_number(a) && is_number(b)) {
    *result = compare_numbers(a, b) == 0;
    return FINE;
  }
  *result = is_same(a, b);
  if (*result || a->kind != b->kind) return FINE;
  if (a->kind == V_RECORD) return F_KINDS; /* whether its class has an __eq__ is not known */
  if (a->kind != V_TUPLE && a->kind != V_LIST) return FINE;
  if (a->object->length != b->object->length) return FINE;
  if (nested == MAX_NESTED) return F_NESTED;
  *result = 1;
  for (int64_t i = 0; i < a->object->length && *result; i++) {
    FailureKind problem = equal(&a->object->items[i], &b->object->items[i], nested + 1, result);
    if (problem) return problem;
  }
  return FINE;
}

/* -1, 0, 1, or 2 for what is not ordered: items decide in turn, then lengths. */
static FailureKind compare(const Workplace *w, const Value *a, const Value *b, int nested, int *order) {
  if (is_number(a) && is_number(b)) {
    *order = compare_numbers(a, b);
    return FINE;
  }
  if (a->kind == V_TEXT && b->kind == V_TEXT) return order_texts(w, a, b, order);
  if (a->kind != b->kind || (a->kind != V_TUPLE && a->kind != V_LIST)) return F_KINDS;
  if (nested == MAX_NESTED) return F_NESTED;
  int64_t first = a->object->length, second = b->object->length;
  for (int64_t i = 0; i < first && i < second; i++) {
    int is_equal;
    FailureKind problem = equal(&a->object->items[i], &b->object->items[i], nested + 1, &is_equal);
    if (problem) return problem;
    if (!is_equal) return compare(w, &a->object->items[i], &b->object->items[i], nested + 1, order);
  }
  *order = first < second ? -1 : first > second;
  return FINE;
}

static FailureKind join(Workplace *w, const Value *a, const Value *b, Value *out) {
  int64_t first = a->object->length, second = b->object->length;
  Object *made = new_object(w, first + second, 0);
  if (!made) return FINE; /* the call ends */
  memcpy(made->items, a->object->items, first * sizeof *made->items);
  memcpy(made->items + first, b->object->items, second * sizeof *made->items);
  *out = (Value){.kind = a->kind, .object = made};
  return FINE;
}

static FailureKind int_power(int64_t base, int64_t exponent, Value *out) {
  int64_t result = 1;
  while (exponent) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return F_OVERFLOW;
    exponent >>= 1;
    if (exponent && __builtin_mul_overflow(base, base, &base)) return F_OVERFLOW;
  }
  return give_int(out, result);
}

static FailureKind on_bits(int32_t op, const Value *a, const Value *b, Value *out) {
  int64_t x = a->i, y = b->i;
  switch (op) {
    case B_SHIFT_RIGHT:
      if (y < 0) return F_DOMAIN;
      return give_int(out, y > 63 ? -(x < 0) : x >> y);
    case B_SHIFT_LEFT:
      if (y < 0) return F_DOMAIN;
      if (x && (y > 62 || x > INT64_MAX >> y || x < INT64_MIN >> y)) return F_OVERFLOW;
      return give_int(out, x ? x * ((int64_t)1 << y) : 0);
    default: x = op == B_AND ? x & y : op == B_OR ? x | y : x ^ y;
  }
  return a->kind == V_BOOL && b->kind == V_BOOL ? give_bool(out, x != 0) : give_int(out, x);
}

/* As Python's: the decimal number of so many digits that is nearest to what the double is exactly. */
FailureKind round_to(const Value *a, const Value *digits, Value *out) {
  char text[400];
  if (digits->kind != V_INT || digits->i < 0 || digits->i > 22) return F_KINDS;
  if (a->kind == V_INT || a->kind == V_BOOL) return give_int(out, a->i);
  if (a->kind != V_FLOAT) return F_KINDS;
  if (!isfinite(a->f)) return give_float(out, a->f);
  snprintf(text, sizeof text, "%.*f", (int)digits->i, a->f);
  return give_float(out, strtod(text, NULL));
}

static FailureKind on_ints(int32_t op, int64_t a, int64_t b, Value *out) {
  int64_t r;
  switch (op) {
    case B_ADD: return __builtin_add_overflow(a, b, &r) ? F_OVERFLOW : give_int(out, r);
    case B_SUB: return __builtin_sub_overflow(a, b, &r) ? F_OVERFLOW : give_int(out, r);
    case B_MUL: return __builtin_mul_overflow(a, b, &r) ? F_OVERFLOW : give_int(out, r);
    case B_FLOOR: case B_MOD:
      if (b == 0) return F_DIVISION;
      if (b == -1) { /* the machine has no quotient of the least number */
        if (op == B_MOD) return give_int(out, 0);
        return a == INT64_MIN ? F_OVERFLOW : give_int(out, -a);
      }
      r = a % b;
      if (op == B_MOD) return give_int(out, r && (r < 0) != (b < 0) ? r + b : r);
      return give_int(out, a / b - (r && (r < 0) != (b < 0)));
    default: return int_power(a, b, out);
  }
}

static FailureKind on_floats(int32_t op, double a, double b, Value *out) {
  double r, quotient;
  switch (op) {
    case B_ADD: return give_float(out, a + b);
    case B_SUB: return give_float(out, a - b);
    case B_MUL: return give_float(out, a * b);
    case B_DIV: return b == 0 ? F_DIVISION : give_float(out, a / b);
    case B_FLOOR: case B_MOD:
      if (b == 0) return F_DIVISION;
      r = fmod(a, b);
      quotient = (a - r) / b; /* nearly whole */
      if (r && (r < 0) != (b < 0)) {
        r += b;
        quotient -= 1;
      }
      if (op == B_MOD) return give_float(out, r ? r : copysign(0.0, b));
      r = floor(quotient);
      return give_float(out, quotient ? (quotient - r > 0.5 ? r + 1 : r) : copysign(0.0, a / b));
    default:
      if (a == 0 && b < 0 && !isinf(b)) return F_DIVISION;
      if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) return F_DOMAIN; /* complex in Python */
      r = pow(a, b);
      return isinf(r) && isfinite(a) && isfinite(b) ? F_OVERFLOW : give_float(out, r);
  }
}

/* What Python's dicts may find again: no number that equals none, and nothing that changes. */
static int is_key(const Value *v, int nested) {
  if (v->kind != V_TUPLE) return v->kind == V_NONE || v->kind == V_BOOL || v->kind == V_INT || v->kind == V_TEXT;
  if (nested == MAX_NESTED) return 0;
  for (int64_t i = 0; i < v->object->length; i++)
    if (!is_key(&v->object->items[i], nested + 1)) return 0;
  return 1;
}

/* Where the first item is that equals a key, or -1. */
static FailureKind find(const Value *list, const Value *key, Value *out) {
  if (list->kind != V_LIST || !is_key(key, 0)) return F_KINDS;
  const Value *items = list->object->items;
  for (int64_t at = 0; at < list->object->length; at++) {
    int result = 0;
    if (key->kind == items[at].kind && key->kind != V_TUPLE) {
      result = key->kind == V_NONE || key->i == items[at].i;
    } else {
      FailureKind problem = equal(&items[at], key, 0, &result);
      if (problem) return problem;
    }
    if (result) return give_int(out, at);
  }
  return give_int(out, -1);
}

FailureKind apply_binary(Workplace *w, int32_t op, const Value *a, const Value *b, Value *out) {
  int result = 0;
  if (op == B_FIND) return find(a, b, out);
  if (op == B_IS) return give_bool(out, is_same(a, b));
  if (op == B_EQ || op == B_NE) {
    FailureKind problem = equal(a, b, 0, &result);
    return problem ? problem : give_bool(out, op == B_EQ ? result : !result);
  }
  if (op == B_ADD && a->kind == b->kind && (a->kind == V_TUPLE || a->kind == V_LIST)) return join(w, a, b, out);
  if (op >= B_MIN && op < B_AND) {
    int order;
    FailureKind problem = compare(w, a, b, 0, &order);
    if (problem) return problem;
    switch (op) {
      case B_MIN: *out = order == 1 ? *b : *a; return FINE;
      case B_MAX: *out = order == -1 ? *b : *a; return FINE;
      case B_LT: return give_bool(out, order == -1);
      case B_LE: return give_bool(out, order == -1 || order == 0);
      case B_GT: return give_bool(out, order == 1);
      default: return give_bool(out, order == 1 || order == 0);
    }
  }
  if (!is_number(a) || !is_number(b)) return F_KINDS;
  if (op >= B_AND) return is_integer(a) && is_integer(b) ? on_bits(op, a, b, out) : F_KINDS;
  if (is_integer(a) && is_integer(b) && op != B_DIV && !(op == B_POW && b->i < 0)) return on_ints(op, a->i, b->i, out);
  return on_floats(op, as_float(a), as_float(b), out);
}

/* None where an item is no number, which is in no order. */
FailureKind order_values(const Workplace *w, const Value *a, const Value *b, Value *out) {
  int order = 0;
  FailureKind problem = compare(w, a, b, 0, &order);
  if (!problem) *out = order == 2 ? (Value){.kind = V_NONE} : (Value){.kind = V_INT, .i = order};
  return problem;
}

/* ---- Constants by constants ---- */

static int order_of(const Value *v) { return is_number(v) ? V_INT : v->kind; }

/* Less than, equal to or more than 0, as keys are sorted: None, then numbers, then texts by their numbers. */
static int compare_keys(const Value *a, const Value *b) {
  int order = order_of(a) - order_of(b);
  if (order || a->kind == V_NONE) return order;
  return is_number(a) ? compare_numbers(a, b) : a->i < b->i ? -1 : a->i > b->i;
}

FailureKind look_up(const Machine *m, const Lookup *lookup, const Value *key, const Value **found) {
  *found = NULL;
  if (key->kind == V_TUPLE || (key->kind == V_FLOAT && isnan(key->f))) return FINE; /* no key is one */
  if (key->kind != V_NONE && key->kind != V_TEXT && !is_number(key)) return F_KINDS;
  int64_t low = 0, high = lookup->length;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    int order = compare_keys(&m->constants[lookup->keys[middle]], key);
    if (order == 0) {
      *found = &m->constants[lookup->values[middle]];
      return FINE;
    }
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return FINE;
}
