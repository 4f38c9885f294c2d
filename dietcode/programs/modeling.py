"""From a marked function and samples to a program as data: needs PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.program_model import BlockModel, ProgramModel, rows_of_tables
from dietcode.programs.forming import Formed, form_program
from dietcode.programs.module import Program
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.programs.profiling import phases_of, profile
from dietcode.programs.recording import Recording


@dataclass
class ModelledProgram:
    """A program as data, and what it was made of.

    Attributes
    ----------
    model : ProgramModel
    formed : Formed
    recording : Recording
    """

    model: ProgramModel
    formed: Formed
    recording: Recording


def model_of(
    program: Program, samples: Sequence[Any], name: str, optimisations: Optimisations = ALL
) -> tuple[ProgramModel, Mapping[str, Any]]:
    """Return a program as data, and its weights; see `record`."""
    found = record(program, samples, name, optimisations)
    return found.model, found.formed.weights.arrays


def record(
    program: Program, samples: Sequence[Any], name: str, optimisations: Optimisations = ALL
) -> ModelledProgram:
    """Return a program as data.

    Parameters
    ----------
    program : Program
    samples : sequence
        Instances, as the program takes them.
    name : str
        What it is called.
    optimisations : Optimisations
        Of these, those that its control flow shows.

    Raises
    ------
    ModelError
        It cannot be compiled, or a sample fails; names file and line.
    """
    if not samples:
        raise ModelError("--samples: there is none; allowed: a list of instances")
    recording = Recording(program.function, program.bound)
    recording.run(samples)
    formed = form_program(recording, optimisations)
    if not formed.blocks:
        raise ModelError(
            f"{name}: has no tensor code that depends on an instance; there is nothing to compile"
        )
    given = [partial(recording.taken, one) for one in samples]
    found = profile(formed, given, recording.wanted, with_phases=optimisations.phases)
    many = len(formed.blocks)
    phases = phases_of(found.edges, many) if optimisations.phases else [0] * many
    blocks = tuple(
        BlockModel(one.graph, one.operands, one.results, tuple(one.is_made), phase, buckets, together, lowest)
        for one, phase, buckets, together, lowest in zip(
            formed.blocks, phases, found.buckets, found.together, found.lowest, strict=True
        )
    )
    rows = rows_of_tables(blocks)
    model = ProgramModel(name, formed.form, blocks, len(samples), rows, found.shown)
    return ModelledProgram(model, formed, recording)
