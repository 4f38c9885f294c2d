"""Libraries whose ``run`` is wrong somewhere: a right one inside, and a few lines of C around it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import tvm_ffi.libinfo

_AROUND = """
#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
typedef int (*Function)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static Function right(const char* name) { return (Function)dlsym(dlopen("INSIDE", RTLD_NOW), name); }
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
    # Linked with the right one as well, because the loader looks for symbols of TVM in what it loads.
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-w",
        "-Wl,--no-as-needed",
        "-x",
        "c",
        "-",
        "-x",
        "none",
        str(inside),
        "-ldl",
    ]
    text = _AROUND.replace("INSIDE", str(inside)).replace("BODY", body)
    options = [*(f"-I{include}" for include in includes), "-o", str(path)]
    subprocess.run([*command, *options], input=text.encode(), check=True)


def spoiled_text(text: str, symbol: str, statement: str) -> str:
    """CUDA text in which one kernel begins with another statement, as ``if (extent_m > 8) return;``."""
    changed, count = re.subn(rf"(__global__ void [^{{}}]* {symbol}\([^)]*\) \{{)", rf"\1 {statement}", text)
    assert count == 1, symbol
    return changed
