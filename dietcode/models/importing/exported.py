"""A program of ``torch.export`` as a graph: needs PyTorch."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.signature import CONSTANTS, children_of, described_tree, halves_of
from dietcode.graph.tensor_type import HALVES, GraphError, TensorType
from dietcode.models.importing import (  # noqa: F401 - rules
    bags,
    composed,
    counted,
    fourier,
    grids,
    layers,
    layout,
    pointwise,
    pooling,
    recurrent,
    reduced,
    resizing,
    scattering,
    special,
    strides,
    triangles,
)
from dietcode.models.importing.archives import check_archive
from dietcode.models.importing.complex_numbers import (
    ComplexPair,
    complex_weight,
    is_complex,
    translated_complex,
)
from dietcode.models.importing.context import NOT_A_CONSTANT, RULES, Importer, dtype_name
from dietcode.models.importing.decomposing import run_decompositions
from dietcode.models.importing.dimensions import Dimensions, dimension_names, ranges_of_axes, refuse_constants
from dietcode.models.importing.examples import refuse_shared_examples
from dietcode.models.importing.flow import FLOW, check_results
from dietcode.models.importing.guards import check_guards, check_sums
from dietcode.models.importing.mutations import refuse_mutations
from dietcode.models.importing.refusals import listed
from dietcode.models.importing.size_numbers import import_size_number, import_whole_number, is_size_number
from dietcode.models.importing.sizes import import_check, import_item
from dietcode.models.importing.symbols import Symbols, UnknownSizeError
from dietcode.models.sources import at, source_of
from dietcode.workload.text import clip, one_line

_IGNORED = (
    "aten._assert_tensor_metadata",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
    "aten._set_grad_enabled",
)
_ITEMS = ("aten.item.default", "aten._local_scalar_dense.default")
_CHECKS = ("aten._assert_scalar", "aten._assert_async")
Weights = dict[str, "np.ndarray[Any, Any]"]


class _RefusedFunctionError(Exception):
    """A function of an operator of control flow has nodes that are refused."""


def load_exported(path: Path) -> Any:
    """Return the program of a ``.pt2`` file.

    Raises
    ------
    ModelError
        The file cannot be read as one.
    """
    check_archive(path)
    import torch

    import dietcode.models.recurrent_operator  # noqa: F401 - programs of dietcode.export call it

    try:
        with warnings.catch_warnings(), _logged_errors() as logged:
            warnings.simplefilter("ignore")
            program = torch.export.load(str(path))
    except MemoryError:
        raise
    except Exception as error:
        reason = _first_line(logged[0] if logged else error)
        found = re.fullmatch(r"Deserializing (\S+) in pytree is not registered\.", reason)
        if found:
            raise ModelError(
                f"{path}: an input or output is a {found[1]}, a class that is not known here; export "
                "the model by dietcode.export, which makes it a dictionary"
            ) from None
        raise ModelError(
            f"{path}: no program of torch.export: {clip(reason, 200)}; write it by torch.export.save"
        ) from None
    return program


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextlib.contextmanager
def _logged_errors() -> Iterator[list[BaseException]]:
    """Collect exceptions that PyTorch logs while it reads a file, since the one it raises gives no reason."""
    found: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            found.append(record.exc_info[1])
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(keep)
    try:
        yield found
    finally:
        logger.removeFilter(keep)


def import_exported(program: Any, name: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[Graph, Weights]:
    """Return a graph and its weights.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    name : str
        Of the model.
    ranges : mapping of str to (int, int)
        Narrower ranges of dimensions, by name or by ``input.axis``. Names are those that `dietcode.export`
        wrote into the program; other dimensions are called after the first input that has them.

    Raises
    ------
    ModelError
        The program has what cannot be compiled: all of it is named, with the lines of the model's source.
    """
    names = dimension_names(program)
    guards = list(getattr(program, "_guards_code", None) or ())  # which a decomposition loses
    refuse_shared_examples(program, _input_names(program))
    of_axes = ranges_of_axes(program)
    written, program = program, _decomposed(program)
    refuse_mutations(written, program)
    refuse_constants(program, of_axes, names)
    named = _input_names(program)
    found = Dimensions(program, guards, names, ranges, named)
    graph = Graph(name, found.ranges)
    importer = Importer(graph, Symbols(found.symbols, program.range_constraints, found.sums))
    weights = _add_inputs(program, importer, named)
    check_sums(program, importer, named)
    check_guards(program, importer, named, guards)
    problems: dict[str, None] = {}
    returned = _import_nodes(importer, program.graph_module, problems)
    results = [] if problems else _outputs(importer, returned)
    if problems:
        raise ModelError(listed(list(problems)))
    spec, trees = program.call_spec, _argument_trees(program, named)
    graph.signature = described_tree(spec.in_spec, spec.out_spec, trees, results, _arguments_of(program))
    graph.signature |= _halves(importer, program, named, returned)
    graph.without_unused()
    weights.update(importer.constants)
    return graph, {key: value for key, value in weights.items() if key in graph.weights}


def _decomposed(program: Any) -> Any:
    """Return the program for inference; operators without a rule are taken apart where PyTorch knows how."""
    if _stays_as_it_is(program):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run_decompositions(program, _decompositions())
        except Exception:  # of an operator's decomposition, too, that the program may do without
            return _decomposed_step_by_step(program)


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Return those of all operators without a rule: one pass takes apart what others were taken apart to."""
    import torch

    table = torch.export.default_decompositions()
    table.pop(torch.ops.aten.multilabel_margin_loss_forward.default, None)  # PyTorch's is wrong
    return {target: table[target] for target in table if not _is_known(target)}


def _decomposed_step_by_step(program: Any) -> Any:
    """Return what PyTorch makes of a program that it cannot take apart at once."""
    import torch

    try:
        program = run_decompositions(program, {})
    except (AssertionError, RuntimeError):  # PyTorch 2.13 stumbles over loops within loops
        return program
    except KeyError as error:  # of a weight called as what PyTorch's module of a program has, as ``code``
        said = one_line(str(error), 120)
        raise ModelError(
            f"PyTorch cannot take the program apart: {said}; rename that weight in the model"
        ) from error
    table = _decompositions()
    for _ in range(4):
        calls = {node.target for node in _calls(program)}
        own = {one: table[one] for one in calls if isinstance(one, torch._ops.OpOverload) and one in table}
        if not own:
            break
        program = run_decompositions(program, own)
    return program


def _calls(program: Any) -> Iterator[Any]:
    """All calls of functions, in functions of control flow too."""
    import torch

    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op in {"call_function", "get_attr"})


def _stays_as_it_is(program: Any) -> bool:
    """Whether taking operators apart changes nothing, which PyTorch finds out by tracing all of it again."""
    import torch

    for node in _calls(program):
        target = node.target
        if node.op == "get_attr" or isinstance(target, torch._ops.HigherOrderOperator):
            return False
        if not isinstance(target, torch._ops.OpOverload):
            continue
        schema, is_composite = target._schema, target.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
        if schema.is_mutable or not _is_known(target) or torch.Tag.maybe_aliasing_or_mutating in target.tags:
            return False
        if is_composite and any(argument.alias_info is not None for argument in schema.arguments):
            return False
    return True


def _word(target: Any) -> str:
    return str(target)


def _is_known(target: Any) -> bool:
    word = _word(target)
    return word in RULES or word in _ITEMS or word.rpartition(".")[0] in (*_CHECKS, *_IGNORED)


def _is_ignored(target: Any) -> bool:
    return _word(target).rpartition(".")[0] in _IGNORED


def _add_inputs(program: Any, importer: Importer, named: Mapping[str, str]) -> Weights:
    """Add what calls, by their names in the graph, and the file of weights give; returns the weights."""
    signature, weights = program.graph_signature, {}
    stored = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    state = {**program.state_dict, **program.constants}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        fake = node.meta.get("val")
        if not hasattr(fake, "shape"):
            importer.values[node.name] = fake
            continue
        if node.name in stored and fake.dtype.is_complex:
            key = stored[node.name]
            importer.values[node.name] = complex_weight(importer, key, state[key].detach().cpu().numpy())
            continue
        try:
            type_ = TensorType(dtype_name(fake.dtype), importer.symbols_shape(fake.shape))
        except GraphError as error:
            raise ModelError(f"{stored.get(node.name, node.name)}: {error}") from None
        if node.name in stored:
            key = stored[node.name]
            if key not in importer.graph.types:
                weights[key] = np.asarray(_widened(state[key]).detach().cpu().numpy(), order="C")
                importer.graph.add_weight(key, type_)
            importer.values[node.name] = key
        else:
            importer.values[node.name] = importer.graph.add_input(named.get(node.name, node.name), type_)
    return weights


def _half_of(fake: Any) -> str | None:
    """Return the name of a tensor's dtype where it is of half precision."""
    name = str(getattr(fake, "dtype", "")).removeprefix("torch.")
    return name if name in HALVES else None


def _widened(tensor: Any) -> Any:
    """Return a tensor in half precision in float32, others as they are."""
    return tensor if _half_of(tensor) is None else tensor.float()


def _halves(
    importer: Importer, program: Any, named: Mapping[str, str], returned: Sequence[Any]
) -> dict[str, Any]:
    """Return the inputs and outputs in half precision, as `dietcode.graph.signature` has them."""
    inputs = {
        named[node.name]: _half_of(node.meta.get("val"))
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in named
    }
    tensors = [one for one in returned if hasattr(one, "meta") and isinstance(importer.value(one), str)]
    outputs = [_half_of(one.meta.get("val")) for one in tensors]
    return halves_of({name: dtype for name, dtype in inputs.items() if dtype}, outputs)


def _input_names(program: Any) -> dict[str, str]:
    """Return the name in the graph of each input: as its author wrote it, unless a weight has that."""
    signature = program.graph_signature
    weights = {*program.state_dict, *program.constants}
    written = _as_written(program)
    found: dict[str, str] = {}
    for name in signature.user_inputs:
        if isinstance(name, str):
            own = written.get(name, name)
            while own in weights or own in found.values():
                own += "_"
            found[name] = own
    return found


def _arguments_of(program: Any) -> list[str]:
    """Return the names of ``forward``'s arguments, which nodes have in small letters; empty if not known."""
    entry = program.module_call_graph[0].signature if program.module_call_graph else None
    return list(getattr(entry, "forward_arg_names", None) or ())


def _as_written(program: Any) -> dict[str, str]:
    """Return the argument that each input is, by its node's name, where it is a tensor by itself."""
    positional, keyword = children_of(program.call_spec.in_spec)
    leaves, found = iter(program.graph_signature.user_inputs), {}
    trees = [*children_of(positional), *children_of(keyword)]
    for tree, argument in zip(trees, _arguments_of(program), strict=False):
        inputs = [next(leaves) for _ in range(tree.num_leaves)]
        if tree.is_leaf() and isinstance(inputs[0], str) and argument.lower() == inputs[0].lower():
            found[inputs[0]] = argument
    return found


def _import_nodes(importer: Importer, module: Any, problems: dict[str, None]) -> list[Any]:
    """Add the nodes of a program, or of a function of one, and return what it returns."""
    returned: list[Any] = []
    for node in module.graph.nodes:
        if node.op == "call_function":
            _import_node(importer, node, problems)
        elif node.op == "get_attr" and hasattr(getattr(module, str(node.target), None), "dtype"):
            _import_constant(importer, node, getattr(module, node.target), problems)
        elif node.op == "output":
            given = node.args[0]
            returned = list(given) if isinstance(given, list | tuple) else [given]
    return returned


def _import_constant(importer: Importer, node: Any, constant: Any, problems: dict[str, None]) -> None:
    """Add a tensor that a function makes of numbers, as ``torch.tensor(0)``."""
    if constant.numel() != 1:
        shape = list(constant.shape)
        problems[f"a constant of shape {shape} that a function makes; make it a buffer of the model"] = None
        return
    dtype = dtype_name(constant.dtype)
    importer.values[node.name] = importer.add(
        "full", shape=tuple(map(Extent.of, constant.shape)), value=constant.item(), dtype=dtype
    )


def _import_node(importer: Importer, node: Any, problems: dict[str, None]) -> None:
    fake = node.meta.get("val")
    where = source_of(node) or importer.around
    importer.source = where
    try:
        if node.target is operator.getitem:
            importer.values[node.name] = importer.values[node.args[0].name][node.args[1]]
        elif _word(node.target) in _ITEMS:
            importer.values[node.name] = import_item(importer, node.args[0], fake)
        elif _word(node.target).rpartition(".")[0] in _CHECKS:
            import_check(importer, node.args[0])
            importer.values[node.name] = None
        elif _word(node.target) in FLOW:
            importer.values[node.name] = _controlled(importer, node, fake, problems)
        elif type(fake).__name__ in ("SymInt", "SymFloat", "SymBool") or isinstance(fake, int | float):
            importer.values[node.name] = _symbolic(importer, node, fake)
        elif fake is None or _is_ignored(node.target):
            importer.values[node.name] = None
        else:
            importer.values[node.name] = _translated(importer, node, fake)
    except _RefusedFunctionError:
        pass  # its problems are listed
    except UnknownSizeError as error:
        problem = f"{_word(node.target)}: a size that depends on values ({error})" + at(where)
        # what depends on a size that was refused says nothing new
        problems.update({} if problems and importer.symbols.is_refused(error) else {problem: None})
    except ValueError as error:  # a GraphError, or an extent that grew too large
        problems[f"{_word(node.target)}: {error}" + at(where)] = None
    except KeyError as error:
        if not problems:  # what depends on a node that was refused says nothing new
            raise ModelError(f"{node.name}: reads {error}, which is not there") from None
        importer.symbols.refuse(fake)


def _symbolic(importer: Importer, node: Any, fake: Any) -> Any:
    if isinstance(fake, int | float):
        return Extent.of(fake) if type(fake) is int else fake
    if is_size_number(node):
        return import_size_number(importer, node)
    if _word(node.target) == "aten.sym_storage_offset.default" and importer.symbols.is_new(fake):
        importer.symbols.refuse(fake)  # checks of it are of PyTorch's memory
        return None
    if type(fake).__name__ == "SymInt":
        try:
            return importer.symbols.extent(fake)
        except UnknownSizeError:
            found = import_whole_number(importer, node)
            if found is None:
                raise
            return found
    return None  # a check of torch's; ranges and shapes are checked by every call


def _controlled(importer: Importer, node: Any, fake: Any, problems: dict[str, None]) -> tuple[str, ...]:
    """Return the results of an operator that calls functions."""
    known = len(problems)

    def import_nodes(inner: Importer, module: Any) -> list[Any]:
        returned = _import_nodes(inner, module, problems)
        if len(problems) > known:
            raise _RefusedFunctionError
        return returned

    names = FLOW[_word(node.target)](importer, node, import_nodes)
    check_results(importer, names, fake)
    return names


def _translated(importer: Importer, node: Any, fake: Any) -> Any:
    if is_complex(importer, node, fake):
        return translated_complex(importer, _word(node.target), _arguments(node), fake)
    found = RULES.get(_word(node.target))
    if found is None:
        raise GraphError("not known")
    try:
        result = found(importer, _arguments(node), fake)
    except TypeError as error:
        if not any(map(is_size_number, node.all_input_nodes)):
            raise
        raise GraphError(NOT_A_CONSTANT) from error
    if isinstance(result, str):
        _check_type(importer, result, fake)
    return result


def _check_type(importer: Importer, name: str, fake: Any) -> None:
    """Compare what was inferred with what PyTorch has, so that a wrong rule shows."""
    if not hasattr(fake, "shape"):
        return
    own = importer.graph.types[name]
    wanted = TensorType(dtype_name(fake.dtype), importer.symbols_shape(fake.shape))
    if own.dtype != wanted.dtype or own.rank != wanted.rank:
        raise GraphError(f"gives {own}, where PyTorch has {wanted}")


def _arguments(node: Any) -> dict[str, Any]:
    """Return the arguments by name, defaults filled in."""
    schema = node.target._schema.arguments
    given = dict(zip((one.name for one in schema), node.args, strict=False))
    given.update(node.kwargs)
    return {one.name: given.get(one.name, one.default_value) for one in schema}


def _argument_trees(program: Any, named: Mapping[str, str]) -> list[Any]:
    """Return for each leaf of the arguments its name, None, or a constant's tree."""
    found: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        if hasattr(spec.arg, "value"):
            value = spec.arg.value
            if value is not None and type(value) not in CONSTANTS:
                raise ModelError(
                    f"{spec.arg.name}: given {clip(value)}; allowed: tensors, numbers, texts, None"
                )
            found.append(None if value is None else {"constant": value})
        elif type(spec.arg).__name__ == "TensorArgument":
            found.append(named[spec.arg.name])
        else:
            raise ModelError(f"{spec.arg.name}: a dynamic number; allowed: tensors, as torch.tensor(number)")
    return found


def _outputs(importer: Importer, returned: list[Any]) -> list[Any]:
    """Add the outputs to the graph; returns for each leaf ``*``, None, or a constant's tree."""
    found: list[Any] = []
    for one in returned:
        if isinstance(importer.values.get(getattr(one, "name", "")), ComplexPair):
            raise ModelError(
                "an output of complex numbers; allowed: real ones, as torch.view_as_real(output)"
            )
        if type(one) in CONSTANTS:
            found.append({"constant": one})
            continue
        try:
            value = importer.value(one)
        except GraphError as error:
            raise ModelError(f"an output: {error}" + at(source_of(one))) from None
        if isinstance(value, str):
            importer.graph.outputs.append(value)
            found.append("*")
        else:
            found.append(None if value is None else {"constant": value})
    return found
