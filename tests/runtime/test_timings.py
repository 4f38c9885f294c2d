"""Whether a loop runs on one thread or on several: by runs that take what a test says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tvm_ffi.libinfo

from dietcode.runtime import compile_launcher

# As `launch` decides and notes; `together` is what several threads take so many runs after one on one thread.
LOOP = """
#include "timings.c"
#include <assert.h>
#include <stdio.h>
static Timing timing;
static int64_t now = 1000000000;
static int num_alone, num_together, since;

static void run(int64_t alone, int64_t together, int64_t guess) {
  int64_t posted = now;
  if (is_look(&timing) || !pays(&timing.in_pool, timing.alone, posted)) {
    now += alone;
    note_alone(&timing, alone, 0);
    timing.last_alone = now;
    num_alone++;
    since = 0;
    return;
  }
  now += together;
  since++;
  num_together++;
  note_alone(&timing, guess, 1);
  note_several(&timing, &timing.in_pool, together, posted);
}
"""
CASES = {
    "a guess that is too low is a matter of one run": """
      for (int i = 0; i < 1000; i++) run(100000, 60000, 40000);
      assert(num_alone < 30);
    """,
    "a guess that is too high is found out by a look": """
      for (int i = 0; i < 10000; i++) run(50000, 80000, 400000);
      assert(num_together < 1000);
    """,
    "threads that sleep are waited for": """
      for (int i = 0; i < 10000; i++) run(25000, since < 4 ? 90000 : 7000, 5000);
      assert(num_alone < 500);
    """,
    "where several lose they are tried again, ever more rarely": """
      for (int i = 0; i < 2000; i++) run(5600, 8000, 5600);
      int before = num_together;
      for (int i = 0; i < 100000; i++) run(5600, 8000, 5600);
      assert(num_together > before && num_together - before < 3000);
      num_alone = 0;
      for (int i = 0; i < 200000; i++) run(5600, 4000, 5600);
      assert(num_alone < 100000);
      num_alone = 0;
      for (int i = 0; i < 100000; i++) run(5600, 4000, 5600);
      assert(num_alone < 200);
    """,
    "long loops are not looked at": """
      for (int i = 0; i < 10000; i++) run(20000000, 10000000, 18000000);
      assert(num_alone == 0);
    """,
    "a loop is cut into tasks that are worth one": """
      assert(num_tasks(30000, 2, 16) == 2 && num_tasks(80000, 2, 16) == 4);
      assert(num_tasks(10000000, 2, 16) == 16 && num_tasks(INT64_MAX, 3, 16) == 12);
      assert(num_tasks(INT64_MAX, 2, 2) == 2 && num_tasks(INT64_MAX, 4, 0) == 4);
      assert(num_tasks(INT64_MAX, MAX_THREADS, 8 * MAX_THREADS) == MAX_THREADS);
    """,
    "one delay changes nothing": """
      for (int i = 0; i < 1000; i++) run(100000, 60000, 100000);
      num_alone = 0;
      run(100000, 30000000, 100000);
      for (int i = 0; i < 100; i++) run(100000, 60000, 100000);
      assert(num_alone <= 3);
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_the_faster_way_is_found(case: str, tmp_path: Path) -> None:
    text = f"{LOOP}\nint main(void) {{\n  begin_timing(&timing);\n  {CASES[case]}\n  return 0;\n}}\n"
    (tmp_path / "runs.c").write_text(text)
    flags = [f"-I{path}" for path in (compile_launcher.SOURCES, *tvm_ffi.libinfo.include_paths())]
    program = tmp_path / "runs"
    subprocess.run(["cc", "-std=c11", *flags, tmp_path / "runs.c", "-o", program], check=True)
    subprocess.run([program], check=True)
