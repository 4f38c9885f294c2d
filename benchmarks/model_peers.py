"""Other runtimes for the same model: PyTorch eager and compiled, AOTInductor, ONNX Runtime, OpenVINO.

What takes long to make is a file beside the exported program, made by ``python -m benchmarks.models export``:
``NAME.onnx`` of ``torch.onnx.export``, ``NAME.optimized.onnx`` of ONNX Runtime's optimizer for transformers,
and ``NAME.aoti.pt2`` of AOTInductor. A peer without its file or its package is left out, and the reason is
kept.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config

from dietcode.runtime.cpu import available_cores

Path_ = Callable[..., Any]
_LEAVES = torch.utils._pytree.tree_leaves


def onnx_file(program: Path) -> Path:
    """Return where the ONNX file of a program is."""
    return program.with_suffix(".onnx")


def optimized_file(program: Path) -> Path:
    """Return where the ONNX file is that ONNX Runtime's optimizer for transformers made."""
    return program.with_suffix(".optimized.onnx")


def aoti_file(program: Path) -> Path:
    """Return where AOTInductor's package of a program is."""
    return program.with_suffix(".aoti.pt2")


def write_onnx(model: torch.nn.Module, args: Any, dynamic_shapes: Any, program: Path) -> None:
    """Write the ONNX file of a model, by PyTorch's own exporter."""
    with torch.no_grad():
        torch.onnx.export(
            model, args, str(onnx_file(program)), dynamo=True, dynamic_shapes=dynamic_shapes, optimize=True
        )


def write_optimized(program: Path, model_type: str, heads: int, hidden: int) -> None:
    """Write what ONNX Runtime's optimizer for transformers makes of the ONNX file."""
    from onnxruntime.transformers import optimizer

    made = optimizer.optimize_model(
        str(onnx_file(program)), model_type=model_type, num_heads=heads, hidden_size=hidden, opt_level=0
    )
    print({name: number for name, number in made.get_fused_operator_statistics().items() if number})
    made.save_model_to_file(str(optimized_file(program)), use_external_data_format=True)


def write_aoti(exported: Any, program: Path) -> None:
    """Write AOTInductor's package, with frozen weights."""
    torch._inductor.config.freezing = True
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(exported, package_path=str(aoti_file(program)))


def peers(model: torch.nn.Module, program: Path) -> tuple[dict[str, Path_], dict[str, str]]:
    """Return calls of each peer that is there, and why others are not.

    Parameters
    ----------
    program : Path
        The exported program, beside which the files of peers are.
    """
    torch._inductor.config.freezing = True
    paths: dict[str, Path_] = {
        "torch-eager": model,
        "torch-compile-freezing": torch.compile(model, dynamic=True),
    }
    missing: dict[str, str] = {}
    makers: dict[str, Callable[[Path], Path_]] = {
        "aotinductor": _aoti,
        "onnxruntime": lambda program: _onnxruntime(onnx_file(program)),
        "onnxruntime-optimized": lambda program: _onnxruntime(optimized_file(program)),
        "openvino": _openvino,
    }
    for name, make in makers.items():
        try:
            paths[name] = make(program)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return paths, missing


def _aoti(program: Path) -> Path_:
    return torch._inductor.aoti_load_package(str(_there(aoti_file(program))))


def _onnxruntime(file: Path) -> Path_:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = available_cores(), 3
    session = onnxruntime.InferenceSession(str(_there(file)), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def call(*args: Any) -> Any:
        given = [one.numpy() for one in _LEAVES(args)]
        return [torch.from_numpy(one) for one in session.run(None, dict(zip(names, given, strict=True)))]

    return call


def _openvino(program: Path) -> Path_:
    if importlib.util.find_spec("openvino") is None:
        raise ModuleNotFoundError("openvino is not installed")
    import openvino

    # Without the hint it computes in bfloat16 where the processor can.
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": available_cores(),
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = openvino.Core().compile_model(str(_there(onnx_file(program))), "CPU", options)
    request = compiled.create_infer_request()

    def call(*args: Any) -> Any:
        given = [one.numpy() for one in _LEAVES(args)]
        request.infer(given, share_inputs=True)
        return [torch.from_numpy(one.data.copy()) for one in request.output_tensors]

    return call


def _there(file: Path) -> Path:
    if not file.is_file():
        raise FileNotFoundError(f"{file} was not made")
    return file
