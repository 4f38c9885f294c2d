"""Records on disk: what is kept, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_gpu import made_records
from made_records import CALIBRATION, DEVICE, FAILED, measurement, records, spoil

from dietcode.errors import RecordsError
from dietcode.measure import store
from dietcode.measure.records import (
    Measurement,
    Records,
    check_belongs,
    read_records,
    write_records,
)
from dietcode.measure.store import FileKeeper, RecordsFile
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import device_record, resolve_target
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data


@pytest.fixture(params=["cpu", "gpu"])
def known(request: pytest.FixtureRequest) -> Records:
    """Records of each kind of device, failed micro-kernels among them."""
    return records(measurement(), FAILED) if request.param == "cpu" else made_records()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.zst"])
def test_round_trip(tmp_path: Path, name: str, known: Records) -> None:
    write_records(tmp_path / name, known)
    assert read_records(tmp_path / name) == known
    assert [path.name for path in tmp_path.iterdir()] == [name]
    first = (tmp_path / name).read_bytes()
    write_records(tmp_path / name, read_records(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


def test_the_header_comes_first_and_names_format_workload_and_device(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl", records(measurement()))
    header = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])
    assert header == {"format": "dietcode-records/1", "workload": "sha256:" + "a" * 64, "device": DEVICE}


def test_a_torn_last_line_is_dropped(tmp_path: Path, known: Records) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, known)
    with path.open("a") as stream:
        stream.write(json.dumps(FAILED.to_json())[:40])
    assert read_records(path) == known


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "micro_kernel", "rows": 6}',
        '{"kind": "micro_ker',
        "[1, 2]",
        '"text"',
        '{"kind": "fixed_bytes", "bytes": "many"}',
        '{"kind": "calibration"}',
        '{"kind": "calibration", "kappa": "x", "num_tiles": [], "tile_gflops": [], "reference_secs": 1}',
        '{"kind": "seed"}',
        '{"kind": "seed", "tile": [6]}',
        json.dumps(measurement().to_json() | {"secs": [1.0, 2.0]}),
        json.dumps(measurement().to_json() | {"rows": 0}),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = spoil(tmp_path / "r.jsonl", 2, line)
    with pytest.raises(RecordsError, match=r"r\.jsonl: line 3 is no tuning record") as caught:
        read_records(path)
    assert "\n" not in str(caught.value)


def test_opening_a_whole_file_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, records(measurement()))
    os.utime(path, (1, 1))
    RecordsFile(path, records())
    assert path.stat().st_mtime == 1
    with path.open("a") as stream:
        stream.write("{")
    RecordsFile(path, records())
    assert path.read_text().endswith("}\n")


def test_others_are_the_newest_up_to_a_bound(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_MEASUREMENTS", 3)
    for number, name in enumerate("abcd"):
        path = store.records_path(own_cache, name, str(DEVICE["id"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        known = records(measurement(), FAILED)
        known.workload = name
        write_records(path, known)
        os.utime(path, (number + 1, number + 1))
    damaged = path.with_name("damaged.jsonl")
    damaged.write_text("{}\n")
    path.with_name("vanished.jsonl").symlink_to("nowhere")

    def others(workload: str) -> list[str]:
        return [known.workload for known in FileKeeper().others(workload, DEVICE)]

    assert others("x") == ["c", "d"]
    assert others("d") == ["b", "c"]
    os.utime(store.records_path(own_cache, "a", str(DEVICE["id"])))
    assert others("x") == ["d", "a"]


def test_lines_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    path = spoil(tmp_path / "r.jsonl", 3, '{"kind": "weather", "sunny": true}')
    assert len(read_records(path).measurements) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b'{"format": "dietcode-records/9", "workload": "w", "device": {}}\n', "format 'dietcode-records/9'"),
        (b'{"hello": 1}\n', "line 1"),
        (b"[]\n", "line 1"),
        (b"\xff\xfe\x00\n", "not a records file"),
    ],
)
def test_what_is_no_records_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordsError, match=message):
        read_records(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="No such file"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(RecordsError, match="directory"):
        read_records(tmp_path)
    (tmp_path / "r.jsonl.zst").write_bytes(b"this is not zstandard")
    with pytest.raises(RecordsError, match="not a records file"):
        read_records(tmp_path / "r.jsonl.zst")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "r.jsonl", tmp_path / "none" / "r.jsonl"):
        with pytest.raises(RecordsError, match="cannot be written"):
            write_records(path, records())
    with pytest.raises(RecordsError, match="cannot be written"):
        RecordsFile(tmp_path / "file" / "r.jsonl", records())


def test_others_records_are_refused(tmp_path: Path) -> None:
    known = records()
    check_belongs(known, known.workload, DEVICE["id"], tmp_path)  # type: ignore[arg-type]
    check_belongs(known, known.workload, None, tmp_path)
    with pytest.raises(RecordsError, match="another workload"):
        check_belongs(known, "sha256:" + "b" * 64, None, tmp_path)
    with pytest.raises(RecordsError, match="measured on 'a CPU'"):
        check_belongs(known, known.workload, "another", tmp_path)


def test_a_file_grows_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "r.jsonl"
    empty = Records("w", dict(DEVICE))
    file = RecordsFile(path, empty)
    file.append({"kind": "calibration", **CALIBRATION})
    file.append(measurement().to_json())
    assert len(path.read_text().splitlines()) == 3, "each line is on disk at once"
    file.append(measurement(secs=(9e-6,), num_readings=3).to_json())
    with path.open("a") as stream:
        stream.write('{"kind": "micro')
    again = RecordsFile(path, Records("w", dict(DEVICE)))
    assert again.records == file.records
    assert again.records.measurements[MicroKernel(6, 16)].num_readings == 3
    again.append(FAILED.to_json())
    assert read_records(path).measurements[MicroKernel(4, 24)].error == "ValueError: wrong"
    with pytest.raises(RecordsError, match="another workload"):
        RecordsFile(path, Records("other", dict(DEVICE)))


def test_appending_where_nothing_can_be_written(tmp_path: Path) -> None:
    file = RecordsFile(tmp_path / "deep" / "r.jsonl", Records("w", dict(DEVICE)))
    file.path.unlink()
    file.path.parent.rmdir()
    with pytest.raises(RecordsError, match="cannot be written"):
        file.append(measurement().to_json())


SPEC = spec_from_data(
    {
        "name": "small",
        "op": {"einsum": "mk,nk->mn"},
        "tensors": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"T": {"min": 1, "max": 8}},
        "dims": {"m": "T", "n": 32, "k": 8},
    }
)


def own_records(*measurements: Measurement) -> Records:
    found = records(*measurements)
    found.workload = workload_digest(SPEC)
    found.device = device_record(resolve_target(SPEC.target))
    return found


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.zst"])
def test_export_and_import(tmp_path: Path, own_cache: Path, name: str) -> None:
    with pytest.raises(RecordsError, match="has measured nothing of small"):
        store.export_file(SPEC, tmp_path / name)
    write_records(tmp_path / "given.jsonl", own_records(measurement()))
    _, added = store.import_file(tmp_path / "given.jsonl")
    assert added == 1
    assert list(own_cache.rglob("*.jsonl"))
    assert store.export_file(SPEC, tmp_path / name) == own_records(measurement())
    assert read_records(tmp_path / name) == own_records(measurement())


@pytest.mark.usefixtures("own_cache")
def test_what_is_known_stays(tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    write_records(path, own_records(measurement()))
    store.import_file(path)
    write_records(path, own_records(measurement(secs=(1.0,)), FAILED))
    known, added = store.import_file(path)
    assert added == 1
    assert known.measurements[MicroKernel(6, 16)].secs == (1.25e-5,)
    assert store.import_file(path)[1] == 0


def test_other_code_of_a_micro_kernel_is_new(tmp_path: Path, own_cache: Path) -> None:
    path, origin = tmp_path / "given.jsonl", {"code": "a" * 16, "generator": "b" * 64}
    write_records(path, own_records(measurement(**origin), FAILED))
    known, _ = store.import_file(path)
    assert known == read_records(path) and known.measurements[MicroKernel(6, 16)].code == "a" * 16
    write_records(path, own_records(measurement(secs=(1.0,), **origin | {"code": "c" * 16})))
    known, added = store.import_file(path)
    assert added == 1 and known.measurements[MicroKernel(6, 16)].secs == (1.0,)
    known.rounds = [{"number": 1}]
    known.apply({"kind": "generator", "digest": "d" * 64, "stale": [MicroKernel(6, 16).name]})
    assert [(m.micro_kernel, m.generator) for m in known.measurements.values()] == [
        (MicroKernel(4, 24), "d" * 64)
    ]
    assert known.rounds == []
    for spoilt in ({"digest": "no digest"}, {"stale": "6x16"}, {"stale": ["a\nb"]}):
        with pytest.raises((ValueError, TypeError)):
            known.apply({"kind": "generator", "digest": "d" * 64, "stale": []} | spoilt)


def test_what_was_measured_before_devices_were_known_by_their_features(
    tmp_path: Path, own_cache: Path
) -> None:
    """Their folder was of another id, with a header that has neither the machine nor a former id."""
    device = device_record(resolve_target(SPEC.target), spec=SPEC.target)
    old = own_records(measurement())
    old.device = {"name": device["name"], "target": device["target"], "id": device["formerly"]}
    other, exported = own_records(FAILED), tmp_path / "exported.jsonl.zst"
    other.workload, other.device = "sha256:" + "b" * 64, old.device
    write_records(exported, own_records(FAILED))
    for one in (old, other):
        write_records(tmp_path / "given.jsonl", one)
        store.import_file(tmp_path / "given.jsonl")
    folder = own_cache / "records" / device["formerly"]
    (folder / "damaged.jsonl").write_text("[]\n")
    (folder / "x.metaschedule").mkdir()
    assert store.export_file(SPEC, tmp_path / "now.jsonl").device == device
    assert [path.name for path in folder.iterdir()] == ["damaged.jsonl"], "is nobody's to delete"
    file = FileKeeper().open(old.workload, device)
    assert file.records.device == device and file.records.measurements == old.measurements
    assert [known.measurements for known in FileKeeper().others(old.workload, device)] == [other.measurements]
    assert file.path.with_name("x.metaschedule").is_dir()
    moved = read_records(exported)  # of that time, and imported only now
    moved.device = old.device
    write_records(exported, moved)
    store.import_file(exported)
    assert len(FileKeeper().open(old.workload, device).records.measurements) == 2


def test_a_header_cannot_name_a_place(tmp_path: Path, own_cache: Path) -> None:
    bad = own_records(measurement())
    bad.device["id"] = "../../escaped"
    write_records(tmp_path / "given.jsonl", bad)
    with pytest.raises(RecordsError, match="names no device"):
        store.import_file(tmp_path / "given.jsonl")
    assert not list(own_cache.rglob("*.jsonl"))


def test_names_that_reading_would_not_know(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"end in \.jsonl"):
        store.export_file(SPEC, tmp_path / "records.json")


def test_records_keep_tails_apart(tmp_path: Path) -> None:
    known = records(
        measurement(), *(measurement(micro_kernel=MicroKernel(6, 16, tails)) for tails in TAILS[1:])
    )
    assert len(known.measurements) == len(TAILS)
    write_records(tmp_path / "r.jsonl", known)
    assert read_records(tmp_path / "r.jsonl") == known


def test_records_from_before_tails_are_local_padding(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, records(measurement(), FAILED))
    text = path.read_text()
    assert text.count(', "tails": "local"') == 2
    path.write_text(text.replace(', "tails": "local"', ""))
    assert read_records(path) == records(measurement(), FAILED)


@pytest.mark.parametrize("tails", ['"other"', "null", "1", "[]"])
def test_unknown_tails_are_no_record(tmp_path: Path, tails: str) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, records(measurement()))
    path.write_text(path.read_text().replace('"tails": "local"', f'"tails": {tails}'))
    with pytest.raises(RecordsError, match=r"line 5 is no tuning record: tails .*; allowed: local"):
        read_records(path)
