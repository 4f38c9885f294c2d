"""When the host's team is left alone: by delays at times that a test says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import tvm_ffi.libinfo

from dietcode.runtime import compile_launcher


def test_many_delays_and_not_one_are_a_reason_to_leave_a_team_alone(tmp_path: Path) -> None:
    """At times that the test says: what a loaded machine does plays no part."""
    text = """
    #include "host.c"
    #include <assert.h>
    void GOMP_parallel(void (*part)(void *), void *data, unsigned n, unsigned flags) {
      (void)part, (void)data, (void)n, (void)flags;
    }
    int omp_get_max_threads(void) { return 2; }
    int omp_get_thread_num(void) { return 0; }
    int enter_host(int num_threads, int is_forced) { return num_threads > 0 || is_forced; }
    void leave_host(int num_threads) { (void)num_threads; }
    void run_tasks(Job *job, int first) { (void)job, (void)first; }
    int main(void) {
      static Job job;
      const int64_t msec = 1000000;
      int64_t now = 1000 * msec;
      job.num_threads = 2;
      for (int i = 0; i < 100; i++) { /* a delay of 30 ms in 250 ms, again and again */
        note_late(now, 30 * msec);
        assert(host_size(now + 1, 0) == 2);
        now += 250 * msec;
      }
      for (int i = 0; i < 3; i++) note_late(now += 5 * msec, 5 * msec);
      assert(host_size(now + 19 * msec, 0) == 0 && host_size(now + 19 * msec, 1) == 2);
      assert(host_size(now += 21 * msec, 0) == 2);
      note_late(now += 5 * msec, 5 * msec); /* still so: twice as long */
      assert(host_size(now + 39 * msec, 0) == 0);
      assert(host_size(now += 41 * msec, 0) == 2);
      for (int i = 0; i < 16; i++) assert(run_on_host(&job, 0)); /* it comes in time again */
      note_late(now, 5 * msec);
      assert(host_size(now + 1, 0) == 2);
      return 0;
    }
    """
    (tmp_path / "team.c").write_text(text)
    flags = [f"-I{path}" for path in (compile_launcher.SOURCES, *tvm_ffi.libinfo.include_paths())]
    program = tmp_path / "team"
    compiler = ["cc", "-std=c11", "-pthread", "-rdynamic"]
    subprocess.run([*compiler, *flags, tmp_path / "team.c", "-o", program, "-ldl"], check=True)
    subprocess.run([program], check=True)
