/* What a team of threads loses against one thread, by runs in which one of them lost its core or began late. */
#include "launcher.h"

static const int64_t FIRST_REST_NSECS = 20000000, MAX_REST_NSECS = 1000000000;
static const int64_t MOST_LOST_NSECS = 8000000, ONE_LOSS_NSECS = 4000000; /* in all; that one run counts for */

int is_resting(const Losses *team, int64_t now) { return now < team->rest_until; }

/* Gains and losses add up, and are forgotten where gains outweigh: now and then a core is lost to anybody. Where losses
 * do, the team is left alone, for twice as long each time until gains have made up for what it lost; one loss is enough
 * at first after that. Losses come from who else computes here, whatever a loop's size. */
void note_loss(Losses *team, int64_t now, int64_t nsecs) {
  int64_t lost = team->lost + (nsecs < ONE_LOSS_NSECS ? nsecs : ONE_LOSS_NSECS);
  team->lost = lost > 0 ? lost : 0;
  if (lost <= 0) team->rest = 0;
  if (lost < MOST_LOST_NSECS) return;
  int64_t next = team->rest ? 2 * team->rest : FIRST_REST_NSECS;
  team->lost = MOST_LOST_NSECS - ONE_LOSS_NSECS / 2;
  team->rest = next < MAX_REST_NSECS ? next : MAX_REST_NSECS;
  team->rest_until = now + team->rest;
}
