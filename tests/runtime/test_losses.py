"""When a team of threads is left alone: by runs at times that a test says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import tvm_ffi.libinfo

from dietcode.runtime import compile_launcher


def test_a_team_that_loses_more_than_it_gains_is_left_alone(tmp_path: Path) -> None:
    """At times that the test says: what a loaded machine does plays no part."""
    text = """
    #include "losses.c"
    #include <assert.h>
    int main(void) {
      static Losses team;
      const int64_t msec = 1000000, usec = 1000;
      int64_t now = 1000 * msec;
      for (int i = 0; i < 100; i++) { /* one delay, and runs that gain more than it took */
        note_loss(&team, now, 30 * msec);
        assert(!is_resting(&team, now + 1));
        for (int run = 0; run < 100; run++) note_loss(&team, now += msec, -50 * usec);
      }
      note_loss(&team, now += msec, 5 * msec);
      assert(!is_resting(&team, now + 1));
      note_loss(&team, now += msec, 5 * msec); /* two without a gain */
      assert(is_resting(&team, now + 19 * msec) && !is_resting(&team, now + 21 * msec));
      note_loss(&team, now += 21 * msec, 5 * msec); /* still so: twice as long */
      assert(is_resting(&team, now + 39 * msec) && !is_resting(&team, now + 41 * msec));
      now += 41 * msec;
      for (int run = 0; run < 200; run++) note_loss(&team, now += msec, -50 * usec); /* made up for */
      note_loss(&team, now, 5 * msec);
      assert(!is_resting(&team, now + 1));
      note_loss(&team, now, 5 * msec);
      assert(is_resting(&team, now + 19 * msec) && !is_resting(&team, now + 21 * msec));
      /* A second at most. */
      for (int i = 0; i < 20; i++) note_loss(&team, now += 1001 * msec, 5 * msec);
      assert(is_resting(&team, now + 999 * msec) && !is_resting(&team, now + 1001 * msec));
      return 0;
    }
    """
    (tmp_path / "team.c").write_text(text)
    flags = [f"-I{path}" for path in (compile_launcher.SOURCES, *tvm_ffi.libinfo.include_paths())]
    program = tmp_path / "team"
    subprocess.run(["cc", "-std=c11", *flags, tmp_path / "team.c", "-o", program], check=True)
    subprocess.run([program], check=True)
