"""The recorder's own tests, with its C code under a sanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh_process import python
from sanitized import sanitized_library

from dietcode.runtime.compile_launcher import recorder_files

_TESTS = """
import importlib.machinery, importlib.util, sys
import torch, tvm_ffi  # whose functions it calls
made, *files = sys.argv[1:]
name = "dietcode.runtime.recorder"
loader = importlib.machinery.ExtensionFileLoader(name, made)
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
loader.exec_module(module)
import dietcode.runtime
sys.modules[name] = dietcode.runtime.recorder = module
import pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", *files]) == 0
assert sys.modules["hand_machine"].Run is module.Run
print("right")
"""


@pytest.mark.thorough
def test_the_recorder_under_a_sanitizer(tmp_path: Path) -> None:
    made, env = sanitized_library(tmp_path, recorder_files(), "recorder.abi3.so")
    env["PYTHONMALLOC"] = "malloc"
    files = [Path(__file__).with_name(f"test_{name}.py") for name in ("recorder", "results")]
    done = python(_TESTS, made, *files, env=env, timeout_secs=120)
    assert done.rstrip().endswith("right")
