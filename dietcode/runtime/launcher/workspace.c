/* Workspaces. A thread keeps what it had: large blocks from the system come with a page fault for each page. */
#include "launcher.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct Block {
  struct Block *next;
  size_t size;
} Block;

enum { ALIGNMENT = 64, PAGE = 4096 }; /* a block's header takes ALIGNMENT bytes */
static pthread_key_t kept_blocks;

static void free_blocks(void *kept) {
  for (Block *block = kept, *next; block; block = next) {
    next = block->next;
    free(block);
  }
}

__attribute__((constructor)) static void initialize(void) { pthread_key_create(&kept_blocks, free_blocks); }

static Block *new_block(uint64_t num_bytes) {
  size_t size = (num_bytes + PAGE - 1) / PAGE * PAGE;
  Block *block = size < num_bytes ? NULL : aligned_alloc(ALIGNMENT, size + ALIGNMENT);
  if (block) block->size = size;
  return block;
}

void *alloc_workspace(int device_type, int device, uint64_t num_bytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  Block *kept = pthread_getspecific(kept_blocks), **fitting = NULL;
  for (Block **link = &kept; *link; link = &(*link)->next)
    if ((*link)->size >= num_bytes && (!fitting || (*link)->size < (*fitting)->size)) fitting = link;
  Block **taken = fitting ? fitting : &kept, *block = *taken;
  if (block) *taken = block->next;
  if (!fitting) {
    free(block); /* too small; so there are never more than a task has needed at once */
    block = new_block(num_bytes);
  }
  pthread_setspecific(kept_blocks, kept);
  if (block) return (char *)block + ALIGNMENT;
  fail("MemoryError", "no memory for a workspace");
  return NULL;
}

int free_workspace(int device_type, int device, void *memory) {
  (void)device_type, (void)device;
  Block *block = (Block *)((char *)memory - ALIGNMENT);
  block->next = pthread_getspecific(kept_blocks);
  pthread_setspecific(kept_blocks, block);
  return 0;
}
