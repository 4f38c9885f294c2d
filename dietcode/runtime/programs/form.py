"""The functions of a program whose blocks are graphs still, checked as those of a bundle are."""

from __future__ import annotations

from dietcode.errors import ModelError
from dietcode.graph.program_model import ProgramModel
from dietcode.runtime.programs.code import MAX_REGISTERS, Surroundings, read_function, whole
from dietcode.runtime.programs.plan import lookup_of, record_of
from dietcode.workload.text import one_line


def check_form(model: ProgramModel) -> None:
    """Refuse a program with an instruction that the machine would refuse.

    Raises
    ------
    ModelError
        Names the function, the instruction, and what is allowed.
    """
    form = model.form
    functions = form["functions"]
    counts = {key: len(form[f"{key}s"]) for key in ("constant", "tensor", "record", "name", "function")}
    try:
        around = Surroundings(
            {**counts, "block": len(model.blocks), "lookup": len(form["lookups"])},
            frozenset(at for at, one in enumerate(form["constants"]) if isinstance(one, str)),
            tuple(whole(one["parameters"], 0, MAX_REGISTERS, "parameters") for one in functions),
            tuple(len(record_of(one)[1]) for one in form["records"]),
            tuple((len(one.operands), len(one.results)) for one in model.blocks),
        )
        for one in form["lookups"]:
            lookup_of(one, form["constants"])
        for one in functions:
            read_function(one, around)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ModelError(f"form.functions: {one_line(what, 200)}") from error
    if around.parameters[form["entry"]] < 1:
        raise ModelError("form.entry: a function without parameters; allowed: one that takes an instance")
