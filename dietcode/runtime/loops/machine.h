/* The machine of programs: control flow over blocks, run as fibers, one or more an instance.
 *
 * A block's invocation is noted, not computed: as a node with a depth, one more than its deepest operand's. When every fiber
 * is done or waits for a number, all nodes are run, those of one depth and block together, and fibers that waited go on.
 *
 * What describes a machine was checked by Python: registers, instructions, counts and types are in range. What instances do
 * is checked here: an error is theirs alone. */
#ifndef DIETCODE_MACHINE_H
#define DIETCODE_MACHINE_H

#include "loops.h"

#include <stddef.h>

typedef enum { V_NOTHING = -1, V_NONE, V_BOOL, V_INT, V_FLOAT, V_TEXT, V_TUPLE, V_LIST, V_RECORD, V_TENSOR, V_TASK } Kind;

enum { MAX_OPERANDS = 64 };

typedef struct Object Object;
typedef struct Fiber Fiber;
typedef struct Task Task;

typedef struct {
  int32_t kind, type; /* the type of a tensor */
  union {
    int64_t i; /* a bool, an int, a text's number, a tensor's handle */
    double f;
    Object *object;
    Task *task;
  };
} Value;

struct Object { /* a tuple, a list or a record */
  int32_t record;
  int32_t number; /* one more than its number in an output, or 0 */
  int32_t round;  /* of giving up rows in which it was met last */
  int64_t length, capacity;
  Value *items;
};

/* As Python numbers them. */
typedef enum {
  I_CONST, I_TENSOR, I_MOVE, I_UNARY, I_BINARY, I_JUMP, I_ELSE, I_CALL, I_RETURN, I_TUPLE, I_LIST, I_RECORD, I_GET, I_PUT,
  I_SLICE, I_APPEND, I_POP, I_LEN, I_FIELD, I_SETFIELD, I_BLOCK, I_VALUE, I_SPAWN, I_WAIT, I_RAISE, I_ARGMAX, I_VALUES,
  I_KIND, I_AS, I_LOOKUP, I_THROW, I_FORMAT, I_JOIN, I_ORDER, I_ROUNDED, I_CONCATENATE,
  I_CHARACTERS, I_PARSED, I_ORDINAL, I_APART, I_CHARACTER
} Opcode;
typedef enum { U_NEG, U_NOT, U_ABS, U_INT, U_FLOAT, U_BOOL, U_INVERT, U_ROUND, U_FLOOR, U_CEIL, U_SQRT, U_EXP, U_LOG,
  U_TANH, U_SIN, U_COS, U_LOG2, U_LOG10, U_LOG1P, U_EXPM1 } Unary;
typedef enum {
  B_ADD, B_SUB, B_MUL, B_DIV, B_FLOOR, B_MOD, B_POW, B_MIN, B_MAX, B_EQ, B_NE, B_LT, B_LE, B_GT, B_GE, B_IS,
  B_AND, B_OR, B_XOR, B_SHIFT_LEFT, B_SHIFT_RIGHT, B_FIND
} Binary;

/* What ends an instance; `a`, `b` and `c` of a Failure say more. */
typedef enum {
  FINE,
  F_RAISED,     /* the constant */
  F_INDEX,      /* index, length */
  F_KINDS,      /* opcode, operator, kinds of both */
  F_OVERFLOW,
  F_DIVISION,
  F_DOMAIN,     /* what Python has no real number for */
  F_DEPTH,      /* calls within calls */
  F_FIELD,      /* name, record */
  F_OPERAND,    /* block, operand, kind with type */
  F_ELEMENTS,   /* type */
  F_ID,         /* number, how many are allowed */
  F_EMPTY,
  F_DEADLOCK,
  F_NESTED,     /* comparison of values that are too deep */
  F_LONG,       /* a chain of more blocks than depths count */
  F_THROWN,     /* record, kind and payload of the first of its arguments, V_NOTHING for none */
  F_APART       /* how many names, how many items */
} FailureKind;

/* What ends a call. */
typedef enum { DONE, NO_BYTES, NO_ROWS, NO_STEPS, RAISED } Ending;

typedef struct {
  int64_t kind, function, pc, a, b, c;
} Failure;

typedef struct {
  int32_t op, d, a, b, c, count;
  const int32_t *list;
} Instruction;

/* Where an exception of an instruction is taken; of several that have it, the first. */
typedef struct {
  int32_t begin, end, target, d; /* instructions; the register that gets what was thrown */
} Handler;

typedef struct {
  int32_t num_parameters, num_registers, num_instructions, num_handlers;
  Instruction *code;
  int32_t *lists;
  Handler *handlers;
} Function;

typedef struct {
  int64_t row_bytes, num_elements;
  int32_t is_int;
} TensorType;

typedef struct {
  int32_t type, table, positions; /* numbers of buffers */
  int32_t is_ids;
  int64_t num_ids; /* that are allowed, or -1 for any */
} Operand;

typedef struct {
  int32_t type, buffer;
} Output;

typedef struct {
  int64_t buffer, row_bytes;
} Temporary;

/* A call that makes an operand: which result of which block, the first operand that it makes too; -1 for any. */
typedef struct {
  int32_t block, result, leader;
} Source;

typedef struct {
  int32_t num_operands, num_results, num_temporaries, phase;
  int64_t max_batch;
  Operand *operands;
  Output *results;
  Temporary *temporaries;
  int32_t lowest; /* the block that takes over calls whose operands come from these sources, or -1 */
  Source *sources;
} Block;

typedef struct {
  int64_t type, address;
} FixedTensor;

/* Constants by constants: in the order of `compare_keys`, none of them twice. */
typedef struct {
  int64_t length;
  int32_t *keys, *values; /* numbers of constants */
} Lookup;

typedef struct TextBuffer TextBuffer;

/* UTF-8; the length is -1 for a constant that is none. */
typedef struct {
  const char *bytes;
  int64_t length;
  uint64_t hash;
  TextBuffer *buffer; /* that has the bytes of one that was made */
  int64_t is_read;    /* by who called: it is of a result, or of what was thrown */
} Text;

#define OWN_TEXTS (INT64_C(1) << 32) /* the first text that is no constant */

typedef struct {
  int64_t num_types, num_constants, num_tensors, num_records, num_names, num_blocks, num_functions, num_buffers, num_fixed;
  int64_t num_lookups, max_rows, entry, empty_text, num_handlers /* of all functions */;
  int64_t makes_texts, num_text_words;
  int64_t *texts; /* of each constant that is a text: its length, and its bytes in words */
  TensorType *types;
  Value *constants;
  FixedTensor *tensors;
  int32_t *num_fields;         /* of each record */
  int32_t *field_of;           /* [records, names], -1 for none */
  Block *blocks;
  Function *functions;
  Lookup *lookups;
  Temporary *fixed;            /* buffers whose address never changes; the address in place of bytes */
  Program *program;
} Machine;

typedef struct {
  int32_t depth, block, instance, function, pc, result, operands;
} Node;

typedef struct {
  char *data;
  int64_t num_rows, capacity /* rows */, capacity_bytes;
  int64_t num_kept; /* rows, when some were given up last */
} Table;

/* A call that may run beside others: begun by who waits for it first, or by a fiber of its own. In the arena. */
struct Task {
  Task *next;     /* of those that are to be begun */
  Fiber *waiters; /* for its result */
  const Function *function;
  int32_t instance, is_root, round; /* as an object's */
  enum { NEW, BEGUN, OVER, FAILED } state;
  Value result;           /* or what was thrown */
  const Failure *failure; /* of one that FAILED */
  Value arguments[];
};

typedef struct {
  const Function *function;
  Task *task;       /* that ends with it; NULL for a plain call */
  int64_t pc, base; /* of its registers on the stack */
  int32_t d;        /* the caller's register */
} Activation;

/* What grows; its bytes. */
typedef struct {
  void *data;
  int64_t capacity;
} Room;

struct Fiber {
  Fiber *next;     /* in a queue, among a task's waiters, or of those that have nothing to do */
  Fiber *next_all; /* of all that were ever made */
  int32_t instance;
  int64_t num_activations;
  Room activations, stack;
};

typedef struct {
  int64_t depth, block, rows, nsecs;
} Traced;

typedef struct Chunk Chunk;

typedef struct {
  Fiber *first, *last;
} Queue;

/* What one call at a time works in. Its memory is kept for the next call. */
typedef struct Workplace Workplace;
struct Workplace {
  const Machine *machine;
  void *owner; /* the machine's handle */
  int64_t max_bytes, num_bytes, max_steps, num_steps, patient_until;
  Ending ending;
  int64_t detail;
  /* The arena. */
  Chunk *chunks, *current;
  int64_t used; /* of the current chunk */
  /* Tensors: a row, or where it is not computed yet, minus its depth. */
  Table *tables;
  Room states_room, nodes_room, operands_room, sorted_room, counts_room, scratch_room, output_room, objects_room, trace_room;
  Room kept_room, visits_room, marks_room, texts_room, slots_room, makers_room;
  int64_t num_texts, num_given /* of them, not made */, num_slots;
  int32_t *states, *makers /* of each handle whose row is not computed: its node */;
  int64_t num_handles, num_nodes, num_operands;
  int32_t deepest[128];
  int64_t *block_counts, *addresses;
  Queue ready, waiting;
  Task *first_task, *last_task; /* to be begun, in the order in which they were made */
  Fiber *all, *idle;
  int32_t round; /* of giving up rows */
  /* Of the instances. */
  int64_t num_instances;
  Failure *failures;
  Value *results; /* of no kind before there is one */
  Room failures_room, results_room;
  /* Of the output: of each type the rows that are returned. */
  int64_t *type_counts;
  Room *type_rows;
  int64_t num_words, num_traced;
  int is_traced;
  int (*compute)(Workplace *w, int64_t depth, int64_t block, int64_t count); /* in the program's place, or NULL */
};

/* heap.c */
void *grow(Workplace *w, Room *room, int64_t bytes); /* keeps what is in it; NULL where limits end the call */
static inline void *reserve(Workplace *w, Room *room, int64_t bytes) {
  return bytes <= room->capacity ? room->data : grow(w, room, bytes);
}
void *allocate(Workplace *w, int64_t bytes);            /* from the arena */
Object *new_object(Workplace *w, int64_t length, int32_t record);
int grow_list(Workplace *w, Object *list, int64_t capacity);
void reset_arena(Workplace *w);
void free_arena(Workplace *w);
int64_t now(void);

/* arithmetic.c: FINE, or what is wrong */
FailureKind apply_unary(const Workplace *w, int32_t op, const Value *a, Value *out);
FailureKind apply_binary(Workplace *w, int32_t op, const Value *a, const Value *b, Value *out);
FailureKind round_to(const Value *a, const Value *digits, Value *out);
FailureKind order_values(const Workplace *w, const Value *a, const Value *b, Value *out); /* texts, and tuples and lists of them */
FailureKind truth_of(const Workplace *w, const Value *value, int *truth);
FailureKind look_up(const Machine *m, const Lookup *lookup, const Value *key, const Value **found); /* or NULL */

/* fibers.c */
void enqueue(Queue *queue, Fiber *fiber);
Fiber *dequeue(Queue *queue);
Task *new_task(Workplace *w, int32_t instance, const Function *function, const Value *values,
               const int32_t *registers); /* to be begun; of values in order, or of registers */
Task *next_task(Workplace *w);            /* that nobody has begun; NULL for none */
Fiber *new_fiber(Workplace *w, Task *task);
Value *enter(Workplace *w, Fiber *fiber, const Function *function, Task *task, int64_t base, int32_t d);
Value *begin_task(Workplace *w, Fiber *fiber, Task *task, int64_t base, int32_t d); /* on a fiber's stack */
void end_task(Workplace *w, Task *task, const Value *result);
int fail_task(Workplace *w, Task *task, const Value *thrown, const Failure *failure); /* -1 where the call ends */
void fail_instance(Workplace *w, int32_t instance, const Failure *failure);
void reset_fibers(Workplace *w);
void free_fibers(Workplace *w);

/* unwind.c */
int is_thrown(int64_t kind); /* rather than the end of an instance */
int unwind(Workplace *w, Fiber *fiber, int64_t pc, const Value *given, Failure *failure); /* 1 where it goes on, -1 where the call ends */

/* texts.c */
int begin_texts(Workplace *w, const int64_t *own); /* of the instances, as the machine's are */
FailureKind order_texts(const Workplace *w, const Value *a, const Value *b, int *order); /* -1, 0 or 1 */
void note_read(Workplace *w, const Value *value); /* that a text is, if it is one */
FailureKind format_text(Workplace *w, const Value *value, int32_t spec, Value *out);
FailureKind join_texts(Workplace *w, const Value *r, const int32_t *registers, int32_t count, int32_t *wrong, Value *out);
FailureKind take_apart(Workplace *w, int32_t op, const Value *text, Value *out); /* characters, a number, that of a character */
FailureKind spell(Workplace *w, const Value *number, Value *out); /* the character of a number */
FailureKind join_items(Workplace *w, const Value *list, int32_t *wrong, Value *out); /* which are texts */

/* interpret.c */
int run_fibers(Workplace *w); /* until all are done or wait; -1 where the call ends */

/* schedule.c */
int32_t new_row(Workplace *w, int32_t type, const void *data); /* a handle, or -1 where the call ends */
int32_t note(Workplace *w, const Node *node, const int32_t *operands);
int flush(Workplace *w);
int check_patience(Workplace *w); /* -1 where a signal's handler raised */
static inline int is_computed(const Workplace *w, int64_t handle) { return w->states[handle] >= 0; }

/* collect.c */
typedef struct {
  Workplace *w;
  uint8_t *is_kept; /* of each handle */
  int64_t num_kept, num_waiting;
} Collector;
int keep_row(Collector *c, int64_t handle, int32_t type);
int collect_rows(Workplace *w, int (*visit)(Collector *)); /* where tables are full of rows that no root keeps */

/* roots.c */
int visit_roots(Collector *c); /* those of a call's instances */

/* instances.c */
typedef struct {
  const int64_t *words; /* of the roots, then of the objects: record, kind, length, values */
  int64_t num_instances, num_objects;
  const int64_t *tensors; /* type and address of each */
  int64_t num_tensors;
  const int64_t *texts; /* how many, of each its length and its bytes in words; NULL for none */
} Input;
int read_instances(Workplace *w, const Input *input, Value *roots);
int write_results(Workplace *w);

/* machine.c */
Machine *make_machine(const int64_t *description, int64_t length, Program *program);
void free_machine(void *machine);
Workplace *make_workplace(const Machine *machine);
void free_workplace(Workplace *w);
void reset_tables(Workplace *w); /* before a call */

/* calls.c */
int run_machine(Workplace *w, const Input *input, int64_t max_bytes, int64_t max_steps, int is_traced);

#endif
