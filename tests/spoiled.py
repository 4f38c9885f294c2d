"""Libraries whose ``run`` is wrong somewhere: a right one inside, and a few lines of C around it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import tvm_ffi.libinfo

# The right one travels inside: a confined child sees the one file that it is given. What the loader writes
# into pointers of the library that it knows is handed on.
_AROUND = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>
__asm__(".section .rodata\\nright_begin: .incbin \\"INSIDE\\"\\nright_end:\\n.previous\\n");
extern const char right_begin[] __attribute__((visibility("hidden")));
extern const char right_end[] __attribute__((visibility("hidden")));
void *__TVMBackendParallelLaunch, *__TVMBackendAllocWorkspace, *__TVMBackendFreeWorkspace;
typedef int (*Function)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static Function right(const char* name) {
  static void* library;
  if (!library) {
    char path[64];
    int file = memfd_create("right", 0);
    if (write(file, right_begin, right_end - right_begin) != right_end - right_begin) return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    library = dlopen(path, RTLD_NOW);
  }
  const struct { const char* name; void* value; } known[] = {
    {"__TVMBackendParallelLaunch", __TVMBackendParallelLaunch},
    {"__TVMBackendAllocWorkspace", __TVMBackendAllocWorkspace},
    {"__TVMBackendFreeWorkspace", __TVMBackendFreeWorkspace},
  };
  for (int i = 0; i < 3; i++) {
    void** pointer = dlsym(library, known[i].name);
    if (pointer) *pointer = known[i].value;
  }
  return (Function)dlsym(library, name);
}
int __tvm_ffi_pack(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  return right("__tvm_ffi_pack")(self, args, num_args, result);
}
int __tvm_ffi_run(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int status = right("__tvm_ffi_run")(self, args, num_args, result);
  const TVMFFIAny* last = &args[num_args - 2];
  const DLTensor* output = last->type_index == kTVMFFIDLTensorPtr
    ? (const DLTensor*)last->v_ptr
    : (const DLTensor*)((char*)last->v_ptr + sizeof(TVMFFIObject));
  float* values = (float*)((char*)output->data + output->byte_offset);
  int64_t rows = output->shape[0], columns = output->shape[1], variable = args[num_args - 1].v_int64;
  BODY
  return status;
}
"""


def spoil(path: Path, body: str) -> None:
    """Spoil a library for the CPU of one shape variable.

    Parameters
    ----------
    body : str
        C that runs after each call, and may change ``values`` ``[rows, columns]``; ``variable`` is the shape
        variable's value.
    """
    inside = path.with_name(f"right-{path.name}")
    path.rename(inside)
    includes = {tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()}
    command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-ldl"]
    text = _AROUND.replace("INSIDE", str(inside)).replace("BODY", body)
    options = [*(f"-I{include}" for include in includes), "-o", str(path)]
    subprocess.run([*command, *options], input=text.encode(), check=True)


def spoiled_text(text: str, symbol: str, statement: str) -> str:
    """CUDA text in which one kernel begins with another statement, as ``if (extent_m > 8) return;``."""
    changed, count = re.subn(rf"(__global__ void [^{{}}]* {symbol}\([^)]*\) \{{)", rf"\1 {statement}", text)
    assert count == 1, symbol
    return changed
