/* How long a loop takes on one thread and on several, by its runs, and which of both it runs on next. */
#include "launcher.h"

enum { FIRST_LOOK = 8, NUM_LOOKS = 3, MOST_RUNS = 4096 }; /* runs until one thread is looked at; of a look; between looks */
enum { CHUNK_NSECS = 20000 }; /* the least of a task, where a loop is cut into more of them than threads run it */
static const int64_t MAX_LOOK_NSECS = 1000000; /* what starting threads takes is nothing to a longer loop */
static const int64_t WAKING_NSECS = 500000; /* until threads that slept wait awake for what follows */
static const int64_t FIRST_AWAY = 16, MAX_AWAY_NSECS = 500000000; /* runs on one thread until several are tried again */

static void begin_several(Several *several) {
  several->mean = several->away = several->away_until = 0;
  several->was_slow = 0;
}

void begin_timing(Timing *timing) {
  timing->alone = INT64_MAX; /* not known yet */
  timing->is_measured = 0;
  timing->last_alone = 0;
  timing->until_look = timing->look_wait = FIRST_LOOK;
  begin_several(&timing->in_pool);
  begin_several(&timing->on_host);
}

/* A guess is by the part of a loop that its caller ran on several threads: the parts are not alike, and each core has what
 * its own one reads in its caches. So the first run on one thread takes its place, and none comes after that. What disturbs
 * one thread only ever adds time. */
void note_alone(Timing *timing, int64_t nsecs, int is_guess) {
  if (is_guess && timing->is_measured) return;
  int64_t last = timing->alone;
  if (!is_guess && !timing->is_measured) {
    timing->is_measured = 1;
    last = INT64_MAX;
  }
  if (nsecs / 2 > last) nsecs = 2 * last;
  timing->alone = nsecs < last ? nsecs : last + (nsecs - last) / 8;
}

/* Of several threads the mean counts: one that sleeps, or that has lost its core, is waited for by all. What happens once
 * counts less, and how long it took then is chance. Just after runs on one thread none counts: the others slept, and wait
 * awake only where runs follow each other. */
void note_several(Timing *timing, Several *several, int64_t nsecs, int64_t posted) {
  int64_t alone = timing->alone;
  if (posted < timing->last_alone + WAKING_NSECS && several->mean) return;
  int is_slow = nsecs > alone, weight = is_slow && several->was_slow ? 4 : 16;
  if (!several->was_slow && nsecs / MOST_SLOW > alone) nsecs = MOST_SLOW * alone;
  several->mean += several->mean ? (nsecs - several->mean) / weight : nsecs < alone ? nsecs : alone;
  several->was_slow = is_slow;
  if (several->mean < alone - alone / 4) several->away = 0;
}

/* Whether several threads are faster. Where they were not they are tried again after a while, twice as long each time. */
int pays(Several *several, int64_t alone, int64_t now) {
  if (several->mean <= alone) return 1;
  if (!several->away_until) {
    int64_t away = several->away ? 2 * several->away : FIRST_AWAY * alone;
    several->away = away < MAX_AWAY_NSECS ? away : MAX_AWAY_NSECS;
    several->away_until = now + several->away;
  }
  if (now < several->away_until) return 0;
  several->away_until = 0;
  several->mean = alone - alone / 8; /* so that it takes more than one slow run */
  several->was_slow = 0;
  return 1;
}

/* Whether it is time that one thread runs a loop which several run: a few times one after the other, as the first run finds
 * nothing in its caches, and then more and more rarely. */
int is_look(Timing *timing) {
  if (timing->alone > MAX_LOOK_NSECS) return 0;
  int left = atomic_fetch_sub(&timing->until_look, 1) - 1;
  if (left > 0) return 0;
  if (left <= -NUM_LOOKS) {
    timing->look_wait = timing->look_wait < MOST_RUNS / 4 ? 4 * timing->look_wait : MOST_RUNS;
    timing->until_look = timing->look_wait;
  }
  return 1;
}

/* Tasks of a loop that takes so long on one thread and has so many iterations: some for each thread, so that the others do
 * what one that comes late, or shares its core, has not begun. */
int num_tasks(int64_t alone, int num_threads, int num_parts) {
  int total = num_threads;
  while (2 * total <= num_parts && 2 * total <= MAX_THREADS && alone / CHUNK_NSECS >= 2 * total) total *= 2;
  return total;
}
