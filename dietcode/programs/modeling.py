"""From a marked function and samples to a program as data: needs PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.program_model import BlockModel, ProgramModel, rows_of_tables
from dietcode.programs.forming import form_program
from dietcode.programs.module import Program
from dietcode.programs.profiling import phases_of, profile
from dietcode.programs.recording import Recording


def model_of(program: Program, samples: Sequence[Any], name: str) -> tuple[ProgramModel, Mapping[str, Any]]:
    """Return a program as data, and its weights.

    Parameters
    ----------
    program : Program
    samples : sequence
        Instances, as the program takes them.
    name : str
        What it is called.

    Raises
    ------
    ModelError
        It cannot be compiled, or a sample fails; names file and line.
    """
    if not samples:
        raise ModelError("--samples: there is none; allowed: a list of instances")
    recording = Recording(program.function)
    recording.run(samples)
    formed = form_program(recording)
    if not formed.blocks:
        raise ModelError(
            f"{name}: has no tensor code that depends on an instance; there is nothing to compile"
        )
    found = profile(formed, [recording.arguments(one) for one in samples])
    phases = phases_of(found.edges, len(formed.blocks))
    blocks = tuple(
        BlockModel(one.graph, one.operands, one.results, tuple(one.is_made), phase, buckets, together)
        for one, phase, buckets, together in zip(
            formed.blocks, phases, found.buckets, found.together, strict=True
        )
    )
    rows = rows_of_tables(blocks)
    model = ProgramModel(name, formed.form, blocks, len(samples), rows, found.shown)
    return model, formed.weights.arrays
