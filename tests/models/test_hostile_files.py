"""Files of models from strangers: reading one runs what is in it, where that can do nothing."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dietcode.confinement import possible  # noqa: E402
from dietcode.errors import ModelError  # noqa: E402
from dietcode.models.importing import reader  # noqa: E402
from dietcode.models.importing.reader import read_model  # noqa: E402

LANDLOCK = pytest.mark.skipif(not possible().files, reason="this kernel or container has no Landlock")


class Runs:
    """Pickled, it has a function called where it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def hostile(path: Path, function: Any, *arguments: Any) -> Path:
    """A program of torch.export whose example inputs call a function."""
    weight = torch.nn.Linear(8, 4)
    right = path.with_name("right.pt2")
    torch.export.save(torch.export.export(weight, (torch.zeros(2, 8),)), right)
    inputs = io.BytesIO()
    torch.save(Runs(function, *arguments), inputs)
    with zipfile.ZipFile(right) as given, zipfile.ZipFile(path, "w") as made:
        found = [name for name in given.namelist() if "sample_inputs" in name]
        assert found
        for name in given.namelist():
            made.writestr(name, inputs.getvalue() if name in found else given.read(name))
    return path


@pytest.mark.thorough
@LANDLOCK
def test_what_a_file_runs_reaches_nothing(tmp_path: Path) -> None:
    marker, secret = tmp_path / "was-here", tmp_path / "secret"
    secret.write_text("p4ssw0rd")
    with pytest.raises(ModelError, match="Permission denied"):
        read_model(hostile(tmp_path / "writes.pt2", os.mkdir, str(marker)), "m", {})
    assert not marker.exists()
    with pytest.raises(ModelError, match="Permission denied") as raised:
        read_model(hostile(tmp_path / "reads.pt2", os.open, str(secret), os.O_RDONLY), "m", {})
    assert "p4ssw0rd" not in str(raised.value)
    with pytest.raises(ModelError, match=r"cannot be read|no program"):
        read_model(hostile(tmp_path / "starts.pt2", os.system, f"mkdir {marker}"), "m", {})
    assert not marker.exists()
    graph, weights = read_model(tmp_path / "right.pt2", "m", {})
    assert graph.name == "m" and len(weights) == 2


@pytest.mark.thorough
@LANDLOCK
def test_an_answer_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p4ssw0rd")
    code = f"import os; os.symlink({str(secret)!r}, os.environ['TMPDIR'] + '/refusal'); os._exit(0)"
    with pytest.raises(ModelError, match="left no files"):
        read_model(hostile(tmp_path / "links.pt2", exec, code), "m", {})


@pytest.mark.parametrize(
    "left",
    [
        b"[" * 1_000_000,
        b"[" + b"9" * 9000 + b"]",
        bytes(range(256)),
        b'{"weights": NaN}',
        b"[]",
        b'{"x\\n\\u001b[31m": 1}',
    ],
    ids=["deep", "a long number", "no text", "NaN", "a list", "a name"],
)
def test_what_it_leaves_is_a_graph_or_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    (tmp_path / reader.GRAPH).write_bytes(left)
    (tmp_path / "m.pt2").touch()
    monkeypatch.setattr(reader, "reading", lambda *_: contextlib.nullcontext(tmp_path))
    with pytest.raises(ModelError) as raised:
        read_model(tmp_path / "m.pt2", "m", {})
    assert len(str(raised.value)) <= 2000 and str(raised.value).isprintable()


@pytest.mark.long  # as a name above, by another file that it leaves; each is read by a child
@LANDLOCK
def test_what_it_says_gives_no_orders_to_a_terminal(tmp_path: Path) -> None:
    code = "import os; path = os.environ['TMPDIR'] + '/refusal'; "
    code += "open(path, 'w').write('x\\n\\x1b[31m' * 1_000_000); os._exit(0)"
    with pytest.raises(ModelError) as raised:
        read_model(hostile(tmp_path / "says.pt2", exec, code), "m", {})
    assert len(str(raised.value)) <= 2000 and str(raised.value).isprintable()


@pytest.mark.thorough
@LANDLOCK
@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="drivers of GPUs reserve more than there is")
def test_a_small_file_takes_no_more_memory_and_disk_than_its_size_allows(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"memory|Memory|allocate"):
        read_model(hostile(tmp_path / "eats.pt2", bytearray, 64 << 30), "m", {})
    code = "import os; os.truncate(os.open(os.environ['TMPDIR'] + '/x', os.O_CREAT | os.O_WRONLY), 64 << 30)"
    with pytest.raises(ModelError, match="File too large"):
        read_model(hostile(tmp_path / "fills.pt2", exec, code), "m", {})
