"""The step of a recurrent layer as a block: its product with the state, the gates, and the new states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dietcode.graph.graph import Graph, Node
from dietcode.graph.inference import NUM_GATES
from dietcode.models.kernel_call import Argument, KernelCall, RepeatedCall

_LSTM: dict[str, Any] = {
    "P": {"einsum": ["H", "U"], "dims": "mgn"},
    "Z": {"add": ["P", "G"]},
    "zi": {"slice": "Z", "axis": "g", "at": 0},
    "zf": {"slice": "Z", "axis": "g", "at": 1},
    "zg": {"slice": "Z", "axis": "g", "at": 2},
    "zo": {"slice": "Z", "axis": "g", "at": 3},
    "i": {"sigmoid": "zi"},
    "f": {"sigmoid": "zf"},
    "j": {"tanh": "zg"},
    "o": {"sigmoid": "zo"},
    "kept": {"mul": ["f", "C"]},
    "new": {"mul": ["i", "j"]},
    "c": {"add": ["kept", "new"]},
    "t": {"tanh": "c"},
    "h": {"mul": ["o", "t"]},
}
_GRU: dict[str, Any] = {
    "P": {"einsum": ["H", "U"], "dims": "mgn"},
    "rx": {"slice": "G", "axis": "g", "at": 0},
    "zx": {"slice": "G", "axis": "g", "at": 1},
    "nx": {"slice": "G", "axis": "g", "at": 2},
    "rh": {"slice": "B", "axis": "g", "at": 0},
    "zh": {"slice": "B", "axis": "g", "at": 1},
    "nh": {"slice": "B", "axis": "g", "at": 2},
    "rs": {"add": ["rx", "rh"]},
    "zs": {"add": ["zx", "zh"]},
    "r": {"sigmoid": "rs"},
    "z": {"sigmoid": "zs"},
    "part": {"mul": ["r", "nh"]},
    "ns": {"add": ["nx", "part"]},
    "new": {"tanh": "ns"},
    "old": {"relabel": "H", "dims": "mn"},
    "away": {"sub": ["old", "new"]},
    "share": {"mul": ["z", "away"]},
    "h": {"add": ["new", "share"]},
}
_BODIES: dict[str, dict[str, Any]] = {
    "lstm": _LSTM,
    **{
        f"rnn_{function}": {
            "P": {"einsum": ["H", "U"], "dims": "mn"},
            "Z": {"add": ["P", "G"]},
            "h": {function: "Z"},
        }
        for function in ("tanh", "relu")
    },
}


def recurrence_call(graph: Graph, node: Node, constants: Iterable[str]) -> RepeatedCall | None:
    """Return the calls of a recurrence, one for each step; None where its weights are no constants."""
    cell = node.attributes["cell"]
    is_lstm = cell == "lstm"
    gates, h0 = (str(one) for one in node.operands[:2])
    c0 = str(node.operands[2]) if is_lstm else ""
    u, *bias = (str(one) for one in node.operands[3 if is_lstm else 2 :] if one is not None)
    if not {u, *bias} <= set(constants) or (cell != "gru" and bias):
        return None
    length, rows, width = graph.types[gates].shape
    hidden = graph.types[h0].shape[1]
    num_gates = NUM_GATES[cell]
    gate = "g" if num_gates > 1 else ""
    dims = {"m": rows, "n": hidden, "u": hidden} | ({"g": width * 0 + num_gates} if gate else {})
    tensors: dict[str, dict[str, Any]] = {
        "G": {"dims": f"m{gate}n", "dtype": "float32"},
        "H": {"dims": "mu", "dtype": "float32"},
        **({"C": {"dims": "mn", "dtype": "float32"}} if is_lstm else {}),
        "U": {"dims": f"{gate}nu", "dtype": "float32", "constant": True},
        **({"d": {"dims": f"{gate}n", "dtype": "float32", "constant": True}} if bias else {}),
    }
    body = {**_GRU, "B": {"add": ["P", "d"]}} if cell == "gru" else dict(_BODIES[cell])
    if cell == "gru" and not bias:
        del body["B"]
        body = {n: {k: "P" if v == "B" else v for k, v in one.items()} for n, one in body.items()}
    values = {"G": gates, "H": h0, "C": c0, "U": u, "d": bias[0] if bias else ""}
    arguments = {
        name: Argument(values[name], tuple(dims[index] for index in tensor["dims"]))
        for name, tensor in tensors.items()
    }
    outputs = ["h", "c"] if is_lstm else ["h"]
    names = [node.result, f"{node.result}:states"][: len(outputs)]
    results = [Argument(name, (rows, hidden)) for name in names]
    block = {"version": 1, "graph": body, "outputs": outputs}
    call = KernelCall(
        {"block": block}, tensors, dims, arguments, results, length * rows * hidden * hidden * 2 * num_gates
    )
    carried = {"H": 0, "C": 1} if is_lstm else {"H": 0}
    return RepeatedCall(call, length, node.attributes["reverse"], ("G",), carried)
