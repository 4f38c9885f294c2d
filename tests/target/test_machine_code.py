"""Text to machine code with neither a GPU nor a toolkit, and what the machine code says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from needs import needs_nvrtc

from dietcode.confinement import MEMORY_BYTES
from dietcode.errors import CandidateError, TuningError
from dietcode.target.cubin import check_machine_code, read_kernels
from dietcode.target.cuda import ARCHS, CudaTarget
from dietcode.target.nvrtc import compile_cubin, compile_ptx

SCALE = """
extern "C" __global__ void __launch_bounds__(256) scale(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float kept[512];
  kept[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 256 + threadIdx.x] = kept[255 - threadIdx.x];
}
"""
# 128 sums that 32 registers cannot hold.
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) many(float* __restrict__ x, float* __restrict__ y) {
  float sums[128];
  #pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = x[i];
  for (int k = 0; k < 1000; ++k) {
    #pragma unroll
    for (int i = 0; i < 128; ++i) sums[i] = sums[i] * x[k] + sums[(i + 7) % 128];
  }
  #pragma unroll
  for (int i = 0; i < 128; ++i) y[threadIdx.x * 128 + i] = sums[i];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_gives_machine_code_that_tells_what_it_takes(arch: str) -> None:
    cubin = compile_cubin(SCALE, CudaTarget(arch))
    check_machine_code(cubin, arch)
    (facts,) = read_kernels(cubin).values()
    assert facts.shared_bytes == 2048
    assert 4 <= facts.registers <= 40
    assert facts.stack_bytes == 0
    assert 128 <= facts.code_bytes < len(cubin)


@pytest.mark.thorough
@needs_nvrtc
def test_the_same_text_gives_the_same_bytes() -> None:
    target = CudaTarget("sm_90")
    assert compile_ptx(SCALE, target, reproducible=True) == compile_ptx(SCALE, target, reproducible=True)
    assert compile_cubin(SCALE, target, reproducible=True) == compile_cubin(SCALE, target, reproducible=True)


@needs_nvrtc
def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(TuningError, match=r"sm_90: took longer than"):
        compile_cubin(SCALE, CudaTarget("sm_90"), reproducible=True, max_secs=0.05)


@needs_nvrtc
def test_the_process_of_its_own_is_confined() -> None:
    program = (
        "import builtins, json, os, resource, socket, sys\n"
        "from dietcode.target import nvrtc, nvrtc_child\n"
        "def look(*request):\n"
        "    try: socket.socket(); reached = True\n"
        "    except PermissionError: reached = False\n"
        "    memory = resource.getrlimit(resource.RLIMIT_AS)[0]\n"
        "    return json.dumps([reached, memory, 'A_SECRET' in os.environ]).encode()\n"
        "nvrtc.compile_here = look\n"
        "sys.argv = ['nvrtc_child', 'again']\n"
        "nvrtc_child.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps({"text": "", "flags": [], "form": "PTX"}),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"A_SECRET": "x"},
    )
    assert done.returncode == 0, done.stderr
    reached, memory, told = json.loads(done.stdout)
    assert (reached and sys.platform == "linux", memory, told) == (False, MEMORY_BYTES, False)


@needs_nvrtc
def test_errors_come_from_the_process_of_its_own_as_well() -> None:
    with pytest.raises(CandidateError, match='identifier "z" is undefined'):
        compile_cubin(SCALE.replace("x[", "z["), CudaTarget("sm_90"), reproducible=True)


@needs_nvrtc
def test_what_is_spilled_shows() -> None:
    facts = read_kernels(compile_cubin(SPILLS, CudaTarget("sm_90")))["many"]
    assert facts.registers <= 32  # two blocks of 1024 threads leave no more
    assert facts.stack_bytes > 100


@needs_nvrtc
def test_a_wrong_text_is_a_wrong_candidate() -> None:
    with pytest.raises(CandidateError, match='identifier "z" is undefined') as caught:
        compile_cubin(SCALE.replace("x[", "z["), CudaTarget("sm_90"))
    assert "\n" not in str(caught.value)


@needs_nvrtc
def test_ptx_is_no_machine_code() -> None:
    ptx = compile_ptx(SCALE, CudaTarget("sm_90"))
    assert b".target sm_90" in ptx
    with pytest.raises(TuningError, match="no machine code"):
        check_machine_code(ptx, "sm_90")


@pytest.mark.parametrize("data", [b"", b"// CUDA source text", SCALE.encode(), b"\x7fELF" + bytes(100)])
def test_what_is_no_machine_code_is_refused(data: bytes) -> None:
    with pytest.raises(TuningError, match="sm_90: no machine code for a GPU"):
        check_machine_code(data, "sm_90")


@needs_nvrtc
@pytest.mark.parametrize("keep", [64, 200, 0.5, 0.9])
def test_a_damaged_cubin_is_an_error(keep: float) -> None:
    cubin = compile_cubin(SCALE, CudaTarget("sm_90"))
    with pytest.raises(TuningError):
        read_kernels(cubin[: int(keep if keep > 1 else keep * len(cubin))])


@needs_nvrtc
def test_an_empty_log_is_written_to_no_bytes_of_the_process() -> None:
    """NVRTC writes to the object that it is given, and Python has one object for all bytes of length 1."""
    compile_cubin(SCALE, CudaTarget("sm_90"))  # whose log is a zero
    shared = bytes([32])
    assert shared[0] == 32
    assert b"x".ljust(3, shared) == b"x" + bytes([32, 32])
