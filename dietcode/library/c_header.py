"""A C header for one library: its functions with typed arguments, for programs without Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import RequestError
from dietcode.runtime.loading import facts_of_run
from dietcode.runtime.manifest import packing_function

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
#include <stdio.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

/* Contiguous memory as functions take it. */
static inline DLTensor dietcode_tensor(const void *data, DLDataType dtype, int32_t ndim, int64_t *shape) {
  DLTensor tensor = {(void *)data, {kDLCPU, 0}, ndim, dtype, shape, NULL, 0};
  return tensor;
}
static inline TVMFFIAny dietcode_none(void) {
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  return any;
}
static inline TVMFFIAny dietcode_int(int64_t value) {
  TVMFFIAny any = dietcode_none();
  any.type_index = kTVMFFIInt, any.v_int64 = value;
  return any;
}
static inline TVMFFIAny dietcode_text(const char *text) {
  TVMFFIAny any = dietcode_none();
  any.type_index = kTVMFFIRawStr, any.v_c_str = text;
  return any;
}
static inline TVMFFIAny dietcode_view(DLTensor *tensor) {
  TVMFFIAny any = dietcode_none();
  any.type_index = kTVMFFIDLTensorPtr, any.v_ptr = tensor;
  return any;
}
static inline void dietcode_release(TVMFFIAny *any) {
  if (any->type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(any->v_obj);
  *any = dietcode_none();
}
static inline int dietcode_refuse(const char *what, const char *details) {
  char why[256];
  snprintf(why, sizeof why, "%s: %s", what, details);
  TVMFFIErrorSetRaisedFromCStr("ValueError", why);
  return -1;
}
/* A shape variable is outside of its range. */
static inline int dietcode_outside(const char *variable, int64_t value, const char *allowed) {
  char details[128];
  snprintf(details, sizeof details, "%lld; allowed: %s", (long long)value, allowed);
  return dietcode_refuse(variable, details);
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
  if (function->type_index == kTVMFFIFunction) return 0;
  return dietcode_refuse("no such function", name);
}
/* What the launcher makes of a function of a library: it runs on so many threads of the process's
 * pool. What the last two integers are is said in module.c. */
static inline int dietcode_bind(TVMFFIAny bind, TVMFFIAny code, const char *name, int64_t num_threads,
                                int64_t uncounted, int64_t num_parts, TVMFFIAny *bound) {
  TVMFFIAny function = dietcode_none(), zero = dietcode_int(0);
  if (dietcode_function(code, name, &function)) return -1;
  TVMFFIAny arguments[6] = {function, dietcode_int(num_threads), zero, zero,
                            dietcode_int(uncounted), dietcode_int(num_parts)};
  int status = TVMFFIFunctionCall(bind.v_obj, arguments, 6, bound);
  dietcode_release(&function);
  return status;
}
/* Why the last call of this thread failed, copied to `text`, which has `size` bytes, at least one. */
static inline const char *dietcode_error(char *text, size_t size) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  text[0] = 0;
  if (error == NULL) return text;
  const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
  size_t length = cell->message.size < size ? cell->message.size : size - 1;
  memcpy(text, cell->message.data, length), text[length] = 0;
  TVMFFIObjectDecRef(error);
  return text;
}
#endif
"""


# What a name of a spec may not be in C and C++: their words, macros, and names of this header's.
_TAKEN = re.compile(
    r"""alignas|alignof|and|and_eq|asm|auto|bit(and|or)|bool|break|case|catch|char|char\d+_t|class|compl|concept|const
    |const(eval|expr|init|_cast)|continue|co_(await|return|yield)|decltype|default|delete|do|double|dynamic_cast
    |else|enum|explicit|export|extern|false|float|for|friend|goto|if|inline|int|long|mutable|namespace|new|noexcept
    |not|not_eq|nullptr|operator|or|or_eq|private|protected|public|register|reinterpret_cast|requires|restrict
    |return|short|signed|sizeof|static|static_(assert|cast)|struct|switch|template|this|thread_local|throw|true|try
    |typedef|typeid|typename|typeof(_unqual)?|union|unsigned|using|virtual|void|volatile|while|xor|xor_eq
    |linux|unix|errno|std(in|out|err)|NULL|EOF|BUFSIZ|SEEK_\w+|\w+_(MAX|MIN|C)|_[A-Z_]\w*|\w+_t
    |own|arguments|nothing|result|packed|panels|from|to|(shape|dtype|tensor)(_\d+)?|memset
    |(DL|TVM|kDL|kTVM|dietcode_)\w*""",
    re.VERBOSE,
)
_NAME = re.compile(r"[A-Za-z_]\w*")


def c_header(manifest: Mapping[str, Any]) -> str:
    """Return the header of a library for CPUs.

    Raises
    ------
    RequestError
        It is for a GPU, or has extents that only Python works out.
    """
    outputs: Sequence[Mapping[str, Any]] = manifest.get("outputs", [manifest["output"]])
    indices = {index for facts in (*manifest["inputs"].values(), *outputs) for index in facts["dims"]}
    dtypes = {facts["dtype"] for facts in (*manifest["inputs"].values(), *outputs)}
    why = None
    if "cpu_features" not in manifest["requires"]:
        why = "it does not run on a processor"
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
        self.kind = f"{self.name}_library"  # a type of the name alone could be a word of C's, or a function
        self.manifest = manifest
        self.variables: list[str] = manifest["variable_order"]
        self.packed: Mapping[str, Any] = manifest["packed"]
        # Of each output, the input whose rows it is written to; None for one of its own.
        self.tables: list[str | None] = [facts.get("into") for facts in outputs]
        self.new = [facts for facts in outputs if "into" not in facts]
        names = [*manifest["inputs"], *(facts["name"] for facts in self.new), *self.variables]
        self.parameters = _parameters(names)
        self.values = ", ".join(f"int64_t {self.parameters[name]}" for name in self.variables)

    def text(self) -> str:
        """Return the whole."""
        ranges = "; ".join(f"{name} in {_range(self.manifest['variables'][name])}" for name in self.variables)
        functions = [f"code, run, select{''.join(f', {self._pack(name)}' for name in self.packed)};"]
        parts = [
            f"#ifndef DIETCODE_C_{self.name}\n#define DIETCODE_C_{self.name}",
            f"/* {self.manifest['name']}, for {ranges or 'one shape'}; by `dietcode inspect --header`.",
            " * Functions return 0, or -1 with an error for `dietcode_error`. They do not look for an output",
            " * that overlaps an input. Link with -ltvm_ffi. */",
            _SHARED,
            f"typedef struct {{\n  TVMFFIAny {functions[0]}\n}} {self.kind};\n",
            self._load(),
            *(self._packing(name) for name in self.packed),
            self._run(),
            self._select(),
            "#endif\n",
        ]
        return "\n".join(parts)

    def _pack(self, name: str) -> str:
        return f"pack_{name}"

    def _extents(self, dims: str) -> list[str]:
        """Return each as an expression of C, which rounds what is not negative down, too."""
        texts = [self.manifest["dims"][index].replace("//", "/") for index in dims]
        return [f"({_NAME.sub(lambda name: self.parameters[name[0]], text)})" for text in texts]

    def _panels(self, name: str) -> list[str]:
        """Return the extents of a packed constant: [batch, panels, reduction, lanes]."""
        facts = self.packed[name]
        batch, columns, reduction = (
            " * ".join(self._extents(facts[key])) or "1" for key in ("batch", "columns", "reduction")
        )
        lanes = facts["lanes"]
        return [batch, f"({columns} + {lanes - 1}) / {lanes}", reduction, str(lanes)]

    def _load(self) -> str:
        packs = [(self._pack(name), packing_function(facts)) for name, facts in self.packed.items()]
        facts = facts_of_run(self.manifest)
        binds = [("run", "run", f"{facts['uncounted']}, {facts['num_parts']}")]
        binds += [(*pack, "0, 0") for pack in packs]
        bound = " ||\n      ".join(
            f'dietcode_bind(bind, own->code, "{function}", num_threads, {words}, &own->{field})'
            for field, function, words in binds
        )
        released = "\n".join(f"  dietcode_release(&own->{field});" for field, *_ in binds)
        return f"""\
/* Lets go of what `load` took, once no call is in flight. */
static inline void {self.name}_free({self.kind} *own) {{
{released}
  dietcode_release(&own->select);
  dietcode_release(&own->code);
}}
/* `library` is the path of library.so, which has been verified; `launcher` that of launcher.so. */
static inline int {self.name}_load({self.kind} *own, const char *library, const char *launcher,
                                   int num_threads) {{
  TVMFFIAny host = dietcode_none(), attach = host, bind = host, nothing = host, path = dietcode_text(library);
  memset(own, 0, sizeof *own);
  int failed =
      dietcode_module(library, &own->code) || dietcode_module(launcher, &host) ||
      dietcode_function(host, "attach", &attach) || dietcode_function(host, "bind", &bind) ||
      TVMFFIFunctionCall(attach.v_obj, &path, 1, &nothing) ||
      dietcode_function(own->code, "select", &own->select) ||
      {bound};
  dietcode_release(&attach);
  dietcode_release(&bind);
  dietcode_release(&host);
  if (failed) {self.name}_free(own);
  return failed ? -1 : 0;
}}
"""

    def _packing(self, name: str) -> str:
        kind, dtype = _TYPES[self.manifest["inputs"][name]["dtype"]]
        given, made = self._extents(self.manifest["inputs"][name]["dims"]), self._panels(name)
        of_made, of_both = self._used(made), self._used([*given, *made])
        elements, operand = self._typed(of_made) or "void", self.parameters[name]
        extra = f", {self._typed(of_both)}" if of_both else ""
        return f"""\
/* Elements of {name} once it is packed, aligned to {self.packed[name]["alignment_bytes"]} bytes. */
static inline int64_t {self.name}_packed_{name}({elements}) {{
  return (int64_t){" * ".join(f"({one})" for one in made)};
}}
static inline int {self.name}_pack_{name}({self.kind} *own, const {kind} *{operand}, {kind} *packed{extra}) {{
{self._checks(of_both)}\
  int64_t shape[] = {{{", ".join(given)}}}, panels[] = {{{", ".join(made)}}};
  DLDataType dtype = {dtype};
  DLTensor from = dietcode_tensor({operand}, dtype, {len(given)}, shape);
  DLTensor to = dietcode_tensor(packed, dtype, 4, panels);
  TVMFFIAny arguments[] = {{dietcode_view(&from), dietcode_view(&to)}}, nothing = dietcode_none();
  return TVMFFIFunctionCall(own->{self._pack(name)}.v_obj, arguments, 2, &nothing);
}}
"""

    def _used(self, extents: Sequence[str]) -> list[str]:
        """Return those shape variables that some extents have."""
        used = {name for one in extents for name in _NAME.findall(one)}
        return [name for name in self.variables if self.parameters[name] in used]

    def _typed(self, variables: Sequence[str]) -> str:
        return ", ".join(f"int64_t {self.parameters[name]}" for name in variables)

    def _checks(self, variables: Sequence[str]) -> str:
        """Return the lines that refuse what is outside of the declared ranges."""
        lines = []
        for name in variables:
            facts, given = self.manifest["variables"][name], self.parameters[name]
            is_outside = f"{given} < {facts['min']} || {given} > {facts['max']}"
            if facts["values"] is not None:
                is_outside = " && ".join(f"{given} != {value}" for value in facts["values"])
            refused = f'dietcode_outside("{name}", {given}, "{_range(facts)}")'
            lines.append(f"  if ({is_outside}) return {refused};\n")
        return "".join(lines)

    def _run(self) -> str:
        inputs = self.manifest["inputs"]
        order = self.manifest["argument_order"]
        tensors = [(name, inputs[name], "" if name in self.tables else "const ") for name in order]
        tensors += [(facts["name"], facts, "") for facts in self.new]
        given = [
            f"{const}{_TYPES[facts['dtype']][0]} *{self.parameters[name]}" for name, facts, const in tensors
        ]
        lines = []
        for at, (name, facts, _) in enumerate(tensors):
            extents = self._panels(name) if name in self.packed else self._extents(facts["dims"])
            lines.append(f"  int64_t shape_{at}[] = {{{', '.join(extents or ['1'])}}};")
            lines.append(f"  DLDataType dtype_{at} = {_TYPES[facts['dtype']][1]};")
            made = f"dietcode_tensor({self.parameters[name]}, dtype_{at}, {len(extents)}, shape_{at})"
            lines.append(f"  DLTensor tensor_{at} = {made};")
        new = iter(range(len(order), len(tensors)))
        positions = [
            *range(len(order)),
            *(next(new) if one is None else order.index(one) for one in self.tables),
        ]
        views = [f"dietcode_view(&tensor_{at})" for at in positions]
        views += [f"dietcode_int({self.parameters[name]})" for name in self.variables]
        body = "\n".join(lines)
        arguments = ", ".join([f"{self.kind} *own", *given, *([self.values] if self.values else [])])
        packed = f" Packed: {', '.join(self.packed)}." if self.packed else ""
        return f"""\
/* {self._results()}.{packed} Any thread may call it. */
static inline int {self.name}_run({arguments}) {{
{self._checks(self.variables)}\
{body}
  TVMFFIAny arguments[] = {{{", ".join(views)}}}, nothing = dietcode_none();
  return TVMFFIFunctionCall(own->run.v_obj, arguments, {len(views)}, &nothing);
}}
"""

    def _results(self) -> str:
        """Return a sentence's words: what is computed, and which tables are written."""
        made, written = (
            ", ".join(names) for names in ([facts["name"] for facts in self.new], self._written())
        )
        if not written:
            return f"Computes {made}"
        return f"Computes {made}, and writes rows of {written}" if made else f"Writes rows of {written}"

    def _written(self) -> list[str]:
        return list(dict.fromkeys(table for table in self.tables if table is not None))

    def _select(self) -> str:
        values = ", ".join(f"dietcode_int({self.parameters[name]})" for name in self.variables)
        given = f", {self.values}" if self.values else ""
        return f"""\
/* The category that serves a shape; -1 with an error. */
static inline int64_t {self.name}_select({self.kind} *own{given}) {{
{self._checks(self.variables)}\
  TVMFFIAny arguments[] = {{{values or "dietcode_none()"}}}, result = dietcode_none();
  if (TVMFFIFunctionCall(own->select.v_obj, arguments, {len(self.variables)}, &result)) return -1;
  return result.v_int64;
}}
"""


def _parameters(names: Sequence[str]) -> dict[str, str]:
    """Return what a spec's names are in C, where some are taken."""
    parameters = {}
    for name in names:
        given = name
        while _TAKEN.fullmatch(given) or (given != name and given in names):
            given += "_"
        parameters[name] = given
    return parameters


def _range(variable: Mapping[str, Any]) -> str:
    if variable["values"] is not None:
        return "{" + ", ".join(map(str, variable["values"])) + "}"
    return f"{variable['min']}…{variable['max']}"
