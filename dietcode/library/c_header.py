"""A C header for one library: its functions with typed arguments, for programs without Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import RequestError

# The type in C of an element, and its DLDataType.
_TYPES = {
    "float32": ("float", "{kDLFloat, 32, 1}"),
    "float16": ("uint16_t", "{kDLUInt, 16, 1}"),
    "bfloat16": ("uint16_t", "{kDLUInt, 16, 1}"),
    "int32": ("int32_t", "{kDLInt, 32, 1}"),
}

_SHARED = """\
#ifndef DIETCODE_C
#define DIETCODE_C
#include <stdint.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

/* Contiguous memory as functions take it. */
static inline DLTensor dietcode_tensor(const void *data, DLDataType dtype, int32_t ndim, int64_t *shape) {
  DLTensor tensor = {(void *)data, {kDLCPU, 0}, ndim, dtype, shape, NULL, 0};
  return tensor;
}
static inline TVMFFIAny dietcode_int(int64_t value) {
  TVMFFIAny any = {0};
  any.type_index = kTVMFFIInt, any.v_int64 = value;
  return any;
}
static inline TVMFFIAny dietcode_text(const char *text) {
  TVMFFIAny any = {0};
  any.type_index = kTVMFFIRawStr, any.v_c_str = text;
  return any;
}
static inline TVMFFIAny dietcode_view(DLTensor *tensor) {
  TVMFFIAny any = {0};
  any.type_index = kTVMFFIDLTensorPtr, any.v_ptr = tensor;
  return any;
}
/* Calls a function of a global name; the caller owns an object that it returns. */
static inline int dietcode_global(const char *name, TVMFFIAny *arguments, int32_t count, TVMFFIAny *result) {
  TVMFFIByteArray given = {name, strlen(name)};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionGetGlobal(&given, &function)) return -1;
  int status = TVMFFIFunctionCall(function, arguments, count, result);
  TVMFFIObjectDecRef(function);
  return status;
}
static inline int dietcode_module(const char *path, TVMFFIAny *module) {
  TVMFFIAny argument = dietcode_text(path);
  return dietcode_global("ffi.ModuleLoadFromFile", &argument, 1, module);
}
static inline int dietcode_function(TVMFFIAny module, const char *name, TVMFFIAny *function) {
  TVMFFIAny arguments[3] = {module, dietcode_text(name), dietcode_int(0)};
  arguments[2].type_index = kTVMFFIBool;
  if (dietcode_global("ffi.ModuleGetFunction", arguments, 3, function)) return -1;
  return function->type_index == kTVMFFIFunction ? 0 : -1;
}
/* What the launcher makes of a function of a library: it runs on so many threads of the process's pool, which
 * share out the parts of its loops. */
static inline int dietcode_bind(TVMFFIAny bind, TVMFFIAny code, const char *name, int64_t num_threads,
                                int64_t num_parts, TVMFFIAny *bound) {
  TVMFFIAny function = {0};
  if (dietcode_function(code, name, &function)) return -1;
  TVMFFIAny threads = dietcode_int(num_threads), zero = dietcode_int(0);
  TVMFFIAny arguments[6] = {function, threads, zero, threads, zero, dietcode_int(num_parts)};
  int status = TVMFFIFunctionCall(bind.v_obj, arguments, 6, bound);
  TVMFFIObjectDecRef(function.v_obj);
  return status;
}
/* Why the last call of this thread failed, copied to `text`. */
static inline const char *dietcode_error(char *text, size_t size) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == NULL) return strncpy(text, "no such function", size);
  const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
  size_t length = cell->message.size < size ? cell->message.size : size - 1;
  memcpy(text, cell->message.data, length), text[length] = 0;
  TVMFFIObjectDecRef(error);
  return text;
}
#endif
"""


def c_header(manifest: Mapping[str, Any]) -> str:
    """Return the header of a library for CPUs.

    Raises
    ------
    RequestError
        It is for a GPU, writes to rows of a table, or has extents that only Python works out.
    """
    outputs: Sequence[Mapping[str, Any]] = manifest.get("outputs", [manifest["output"]])
    indices = {index for facts in (*manifest["inputs"].values(), *outputs) for index in facts["dims"]}
    dtypes = {facts["dtype"] for facts in (*manifest["inputs"].values(), *outputs)}
    why = None
    if "cpu_features" not in manifest["requires"]:
        why = "it does not run on a processor"
    elif any("into" in facts for facts in outputs):
        why = "it writes to rows of a table"
    elif missing := sorted(indices - manifest["dims"].keys()):
        why = f"the extent of {', '.join(missing)} is not in its manifest"
    elif unknown := sorted(dtypes - _TYPES.keys()):
        why = f"no type of C is {', '.join(unknown)}"
    if why is not None:
        raise RequestError(f"{manifest['name']}: has no C header: {why}; see docs/cpp.md")
    return _Header(manifest, outputs).text()


class _Header:
    def __init__(self, manifest: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]) -> None:
        self.name = re.sub(r"\W", "_", manifest["name"])
        self.name = self.name if self.name[0].isalpha() else f"library_{self.name}"
        self.manifest, self.outputs = manifest, outputs
        self.variables: list[str] = manifest["variable_order"]
        self.packed: Mapping[str, Any] = manifest["packed"]
        self.values = ", ".join(f"int64_t {name}" for name in self.variables)

    def text(self) -> str:
        """Return the whole."""
        ranges = "; ".join(f"{name} in {_range(self.manifest['variables'][name])}" for name in self.variables)
        functions = [f"code, run, select{''.join(f', {self._pack(name)}' for name in self.packed)};"]
        parts = [
            f"/* {self.manifest['name']}, for {ranges or 'one shape'}; by `dietcode inspect --header`.",
            " * Functions return 0, or -1 with an error for `dietcode_error`. Values outside of the ranges",
            " * are not looked for, nor is an output that overlaps an input. Link with -ltvm_ffi. */",
            _SHARED,
            f"typedef struct {{\n  TVMFFIAny {functions[0]}\n}} {self.name};\n",
            self._load(),
            *(self._packing(name) for name in self.packed),
            self._run(),
            self._select(),
        ]
        return "\n".join(parts)

    def _pack(self, name: str) -> str:
        return f"pack_{name}"

    def _extents(self, dims: str) -> list[str]:
        return [f"({self.manifest['dims'][index]})" for index in dims]

    def _panels(self, name: str) -> list[str]:
        """Return the extents of a packed constant: [batch, panels, reduction, lanes]."""
        facts = self.packed[name]
        batch, columns, reduction = (
            " * ".join(self._extents(facts[key])) or "1" for key in ("batch", "columns", "reduction")
        )
        lanes = facts["lanes"]
        return [batch, f"({columns} + {lanes - 1}) / {lanes}", reduction, str(lanes)]

    def _load(self) -> str:
        packs = [(self._pack(name), facts.get("function", "pack")) for name, facts in self.packed.items()]
        binds = [("run", "run", self.manifest.get("num_parts", 0)), *((*pack, 0) for pack in packs)]
        bound = " || ".join(
            f'dietcode_bind(bind, own->code, "{function}", num_threads, {num_parts}, &own->{field})'
            for field, function, num_parts in binds
        )
        return f"""\
/* `library` is the path of library.so, which has been verified; `launcher` that of launcher.so. */
static inline int {self.name}_load({self.name} *own, const char *library, const char *launcher,
                                   int num_threads) {{
  TVMFFIAny host = {{0}}, attach = {{0}}, bind = {{0}}, nothing = {{0}}, path = dietcode_text(library);
  memset(own, 0, sizeof *own);
  if (dietcode_module(library, &own->code) || dietcode_module(launcher, &host)) return -1;
  if (dietcode_function(host, "attach", &attach) || dietcode_function(host, "bind", &bind)) return -1;
  if (TVMFFIFunctionCall(attach.v_obj, &path, 1, &nothing)) return -1;
  return dietcode_function(own->code, "select", &own->select) || {bound} ? -1 : 0;
}}
"""

    def _packing(self, name: str) -> str:
        kind, dtype = _TYPES[self.manifest["inputs"][name]["dtype"]]
        given, made = self._extents(self.manifest["inputs"][name]["dims"]), self._panels(name)
        of_made, of_both = self._used(made), self._used([*given, *made])
        elements, extra = of_made or "void", f", {of_both}" if of_both else ""
        return f"""\
/* Elements of {name} once it is packed, aligned to {self.packed[name]["alignment_bytes"]} bytes. */
static inline int64_t {self.name}_packed_{name}({elements}) {{
  return (int64_t){" * ".join(f"({one})" for one in made)};
}}
static inline int {self.name}_pack_{name}({self.name} *own, const {kind} *{name}, {kind} *packed{extra}) {{
  int64_t shape[] = {{{", ".join(given)}}}, panels[] = {{{", ".join(made)}}};
  DLDataType dtype = {dtype};
  DLTensor from = dietcode_tensor({name}, dtype, {len(given)}, shape);
  DLTensor to = dietcode_tensor(packed, dtype, 4, panels);
  TVMFFIAny arguments[] = {{dietcode_view(&from), dietcode_view(&to)}}, nothing = {{0}};
  return TVMFFIFunctionCall(own->{self._pack(name)}.v_obj, arguments, 2, &nothing);
}}
"""

    def _used(self, extents: Sequence[str]) -> str:
        """Return the parameters for those shape variables that some extents have."""
        known = [name for name in self.variables if any(re.search(rf"\b{name}\b", one) for one in extents)]
        return ", ".join(f"int64_t {name}" for name in known)

    def _run(self) -> str:
        inputs = self.manifest["inputs"]
        tensors = [(name, inputs[name], "const ") for name in self.manifest["argument_order"]]
        tensors += [(facts["name"], facts, "") for facts in self.outputs]
        given = [f"{const}{_TYPES[facts['dtype']][0]} *{name}" for name, facts, const in tensors]
        lines = []
        for at, (name, facts, _) in enumerate(tensors):
            extents = self._panels(name) if name in self.packed else self._extents(facts["dims"])
            lines.append(f"  int64_t shape_{at}[] = {{{', '.join(extents or ['1'])}}};")
            lines.append(f"  DLDataType dtype_{at} = {_TYPES[facts['dtype']][1]};")
            made = f"dietcode_tensor({name}, dtype_{at}, {len(extents)}, shape_{at})"
            lines.append(f"  DLTensor tensor_{at} = {made};")
        views = [f"dietcode_view(&tensor_{at})" for at in range(len(tensors))]
        views += [f"dietcode_int({name})" for name in self.variables]
        body = "\n".join(lines)
        arguments = ", ".join([f"{self.name} *own", *given, *([self.values] if self.values else [])])
        packed = f" Packed: {', '.join(self.packed)}." if self.packed else ""
        return f"""\
/* Computes {", ".join(facts["name"] for facts in self.outputs)}.{packed} Any thread may call it. */
static inline int {self.name}_run({arguments}) {{
{body}
  TVMFFIAny arguments[] = {{{", ".join(views)}}}, nothing = {{0}};
  return TVMFFIFunctionCall(own->run.v_obj, arguments, {len(views)}, &nothing);
}}
"""

    def _select(self) -> str:
        values = ", ".join(f"dietcode_int({name})" for name in self.variables) or "dietcode_int(0)"
        given = f", {self.values}" if self.values else ""
        return f"""\
/* The category that serves a shape; -1 with an error. */
static inline int64_t {self.name}_select({self.name} *own{given}) {{
  TVMFFIAny arguments[] = {{{values}}}, result = {{0}};
  if (TVMFFIFunctionCall(own->select.v_obj, arguments, {len(self.variables)}, &result)) return -1;
  return result.v_int64;
}}
"""


def _range(variable: Mapping[str, Any]) -> str:
    if variable["values"] is not None:
        return "{" + ", ".join(map(str, variable["values"])) + "}"
    return f"{variable['min']}…{variable['max']}"
