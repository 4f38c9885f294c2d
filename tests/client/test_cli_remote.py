"""The commands that talk to a server: what they print, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_libraries import ROOT, spec_data
from wire_server import JOB, NOW, Fault, WireServer, job, progress_event, state_event

Command = Callable[..., Any]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_data()))
    return path


def failed(done: Any, status: int, *words: str) -> None:
    lines = done.stderr.splitlines()
    assert done.returncode == status, done
    assert lines[-1].startswith("dietcode: ") and all(word in lines[-1] for word in words), done.stderr


HEAVY = ("httpx2", "pydantic", "numpy", "rich", "filelock", "tvm", "fastapi", "sqlalchemy")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_nothing_heavy(argument: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dietcode", argument],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "dietcode.cli.remote" in imported and not imported & set(HEAVY)


def test_submit_prints_the_id_last(command: Command, wire: WireServer, spec: Path) -> None:
    done = command("submit", spec)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{JOB}\n", "")
    done = command("submit", spec, "--force", "--json")
    assert json.loads(done.stdout)["id"] == JOB
    assert done.stderr == f"dietcode: known already: job {JOB} of dense, queued\n"
    body = json.loads(wire.requests[-1].body)
    assert body["force"] is True and "priority" not in body and "deadline" not in body
    for deadline, sent in {"90": 90.0, "2126-01-05T18:00:00+01:00": "2126-01-05T17:00:00Z"}.items():
        command("submit", spec, "--priority", "-7", "--deadline", deadline)
        body = json.loads(wire.requests[-1].body)
        assert (body["priority"], body["deadline"]) == (-7, sent)
    command("submit", spec, "--trials", "5", "--seconds", "2.5")
    assert json.loads(wire.requests[-1].body)["spec"]["budget"] == {"trials": 5, "seconds": 2.5}
    failed(command("submit", spec, "--deadline", "soon"), 2, "deadline: given 'soon'", "seconds from now")
    failed(command("submit", spec, "--priority", "101"), 2, "--priority", "100")


def test_submit_refuses_a_wrong_spec_before_asking(
    command: Command, wire: WireServer, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(spec_data("../x")))
    failed(command("submit", tmp_path / "bad.json"), 2, "name: ")
    failed(command("submit", tmp_path / "none.json"), 2, "none.json")
    assert not wire.requests


def finish(wire: WireServer, state: str, **changes: Any) -> None:
    wire.jobs[JOB] = job(state=state, **changes)
    wire.events = [
        state_event(1, "queued"),
        state_event(2, "running"),
        progress_event(3, best_gflops=12.4, total=3, message="3 of 3\x1b[31m"),
        state_event(4, state, changes.get("error", "")),
    ]


def finish_once_followed(wire: WireServer) -> None:
    while not any(request.path.endswith("/events") for request in wire.requests) and not wire.stopping:
        time.sleep(0.01)
    finish(wire, "succeeded", **LIBRARY)


LIBRARY = {"library": {"name": "dense", "version": 3}}


def test_submit_and_wait(command: Command, wire: WireServer, spec: Path) -> None:
    threading.Thread(target=finish_once_followed, args=(wire,), daemon=True).start()
    done = command("submit", spec, "--wait")
    assert (done.returncode, done.stdout) == (0, f"{JOB}\n"), done
    assert "measure 3/3: 3 of 3?[31m, best 12 GFLOP/s\n" in done.stderr and "\x1b" not in done.stderr
    assert f"job {JOB}: succeeded\n" in done.stderr


@pytest.mark.parametrize("state", ["failed", "cancelled", "interrupted"])
def test_waiting_for_a_job_that_does_not_succeed(
    command: Command, wire: WireServer, spec: Path, state: str
) -> None:
    finish(wire, state, error="no candidate worked")
    done = command("submit", spec, "--wait")
    assert done.stdout == f"{JOB}\n"
    failed(done, 1, f"job {JOB}: {state}: no candidate worked; `dietcode resume {JOB}`")


def test_how_to_resume_is_said_once(command: Command, wire: WireServer) -> None:
    finish(wire, "failed", error=f"its deadline passed; `dietcode resume {JOB}` goes on without one")
    done = command("watch", JOB)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].count("dietcode resume") == 1


def test_watch(command: Command, wire: WireServer) -> None:
    finish(wire, "succeeded", **LIBRARY)
    done = command("watch", JOB)
    assert (done.returncode, done.stdout) == (0, "dense@3\n")
    done = command("watch", JOB, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["id"] for event in events] == [1, 2, 3, 4] and done.stderr == ""
    finish(wire, "failed", error="because")
    failed(command("watch", JOB, "--json"), 1, "failed: because")


def test_watch_shows_a_long_message_to_its_end(command: Command, wire: WireServer) -> None:
    """Why a search stopped is the end of a line that begins with its part and where the space grew."""
    grown = "; ".join(f"space grown for T=256, m={m} (axes leaves 33%): 3x32-serial" for m in range(3))
    message = f"part 1 of 4, dense-ebb38172747d: round 2; {grown}; stopped: the trials are used up"
    finish(wire, "succeeded", **LIBRARY)
    wire.events[2] = progress_event(3, total=3, message=message)
    assert f"{message}\n" in command("watch", JOB).stderr


def child(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dietcode", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | env,
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_leaves_the_job_running(wire: WireServer, options: list[str]) -> None:
    finish(wire, "running")
    process = child("watch", JOB, *options)
    wire.until(lambda: wire.last_sent == len(wire.events))
    assert process.stdout is not None
    first = process.stdout.readline() if options else ""  # then it reads on
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
    assert err.splitlines()[-1] == (
        f"dietcode: left; job {JOB} goes on, and `dietcode watch {JOB}` follows it again"
    )
    assert not wire.asked("/cancel") and (first + out != "") == bool(options)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_watch_outlives_a_restart_of_the_server(
    command: Command, wire: WireServer, options: list[str]
) -> None:
    finish(wire, "running")
    wire.events.pop()

    def restart() -> None:
        wire.until(lambda: wire.last_sent == len(wire.events))
        wire.stop()
        time.sleep(0.5)
        finish(wire, "succeeded", **LIBRARY)
        wire.start()

    thread = threading.Thread(target=restart)
    thread.start()
    done = command("watch", JOB, *options)
    thread.join()
    assert done.returncode == 0, done
    assert done.stderr.count("dietcode: the server does not answer; trying again (Ctrl-C leaves)\n") == 1
    if options:
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2, 3, 4]
    else:
        assert done.stdout == "dense@3\n"


def test_jobs(command: Command, wire: WireServer) -> None:
    for number in range(5):
        wire.jobs[f"{number:016x}"] = job(f"{number:016x}", "running", name=f"n{number}")
    done = command("jobs")
    assert done.returncode == 0 and len(wire.asked("/jobs")) == 3
    assert all(f"{number:016x}" in done.stdout for number in range(5))
    done = command("jobs", "--json", "--limit", 3, "--state", "running")
    assert [one["name"] for one in json.loads(done.stdout)] == ["n0", "n1", "n2"]
    assert json.loads(command("jobs", "--state", "failed", "--json").stdout) == []
    assert [one["name"] for one in json.loads(command("jobs", "--name", "n4", "--json").stdout)] == ["n4"]
    failed(command("jobs", "--state", "done"), 2, "state: given 'done'; allowed: queued")


def test_text_of_a_server_cannot_steer_the_terminal(command: Command, wire: WireServer) -> None:
    wire.jobs[JOB] = job(name="[red]\x1b[2J", state="failed", error="\x1b]0;title\x07 [bold]")
    for arguments in (["jobs"], ["show", JOB], ["show", JOB, "--json"], ["cancel", JOB]):
        done = command(*arguments)
        assert done.returncode == 0 and "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "[red]" in command("jobs").stdout


def test_show(command: Command, wire: WireServer) -> None:
    finish(wire, "succeeded", **LIBRARY, measured=17, attempt=2, progress=progress_event(1)["progress"])
    done = command("show", JOB)
    facts = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert (facts["job"], facts["state"], facts["library"]) == (JOB, "succeeded", "dense@3")
    assert facts["tried"] == "17 micro-kernels, attempt 2"
    assert facts["progress"] == "measure 1/100: candidate 1"
    assert json.loads(command("show", JOB, "--json").stdout)["library"] == LIBRARY["library"]
    failed(command("show", "0" * 16), 2, "no such job")
    failed(command("show", "../x"), 2, "16 hex digits")


def test_a_job_by_the_beginning_of_its_id_or_by_name(command: Command, wire: WireServer) -> None:
    ids = ["abcd000000000001", "abcd100000000002", "beef000000000003"]
    for number, job_id in enumerate(ids):
        wire.jobs[job_id] = job(job_id, "running", name=["dense", "dense", "beef"][number])
    shown = json.loads(command("show", "abcd1", "--json").stdout)
    assert shown["id"] == ids[1]
    assert command("cancel", "beef").stdout == f"job {ids[2]} of beef, cancelled\n"
    assert command("resume", "beef0").stdout == f"job {ids[2]} of beef, queued\n"
    assert json.loads(command("show", "dense", "--json").stdout)["id"] == ids[0], "the first that is listed"
    failed(command("show", "abcd"), 2, f"several jobs begin so: {ids[0]}, {ids[1]}; give more digits")
    failed(command("show", "aaaa"), 2, "job 'aaaa': no such job")
    failed(command("show", "abc"), 2, "job 'abc': no such job", "give 4 or more digits")
    assert wire.requests[-1].query["name"] == ["abc"], "three digits are no prefix, but may be a name"
    wire.jobs[ids[1]]["name"] = "0123456789abcdef"
    assert json.loads(command("show", "0123456789abcdef", "--json").stdout)["id"] == ids[1], "a name, no id"


def test_a_job_by_the_version_that_it_published(command: Command, wire: WireServer) -> None:
    finish(wire, "succeeded", **LIBRARY)
    facts = {"sha256": "sha256:" + "2" * 64, "size_bytes": 1}
    info = {
        "name": "dense",
        "version": 3,
        "workload": "w",
        "device": "d",
        "target": {},
        "num_micro_kernels": 1,
    }
    info |= {"size_bytes": 1, "manifest": facts, "created_at": NOW}
    for job_id in (JOB, None):
        body = json.dumps(info | {"job": job_id}).encode()
        wire.fault("/libraries/dense/3/info", Fault(status=200, body=body))
        done = command("show", "dense@3", "--json")
        if job_id is not None:
            assert json.loads(done.stdout)["id"] == JOB
        else:
            failed(done, 2, "dense@3: the job that published it is not known any more")
    failed(command("watch", "dense@9"), 2, "/libraries/dense/9")


def test_cancel_and_resume(command: Command, wire: WireServer) -> None:
    wire.jobs[JOB] = job(state="running")
    assert command("cancel", JOB).stdout == f"job {JOB} of dense, cancelled\n"
    assert json.loads(command("resume", JOB, "--json").stdout)["state"] == "queued"
    wire.jobs[JOB]["state"] = "succeeded"
    failed(command("cancel", JOB), 2, "nothing to cancel")


def test_no_server(command: Command, wire: WireServer, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wire.stop()
    for arguments in (["submit", spec], ["jobs"], ["show", JOB], ["cancel", JOB], ["pull", "dense"]):
        done = command(*arguments)
        failed(done, 1, "cannot be reached: connection refused; start it with `dietcode serve`")
        assert done.stderr.count("\n") == 1
    failed(command("jobs", "--server", "localhost:1"), 2, "server: given 'localhost:1'")


def test_the_server_option_comes_first(
    command: Command, wire: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIETCODE_SERVER", "http://127.0.0.1:9")
    assert command("jobs", "--server", wire.url).returncode == 0


def test_pull_without_a_server_warns(
    command: Command, wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from small_libraries import library_bytes

    monkeypatch.chdir(tmp_path)
    wire.publish("dense", 4, library_bytes("dense"))
    facts = json.loads(command("pull", "dense", "--json").stdout)[0]
    assert (facts["name"], facts["version"], Path(facts["folder"]).name) == ("dense", 4, "dense")
    wire.stop()
    done = command("pull", "dense")
    assert (done.returncode, done.stdout) == (0, f"{facts['folder']}\n")
    assert "using dense@4 from the cache, there may be a newer one" in done.stderr.splitlines()[0]


_ORDERS = "\x1b[2J\x9b31m\x07\u202e\r"  # which a terminal obeys


def test_no_id_of_a_job_gives_orders_to_a_terminal(command: Command, wire: WireServer, spec: Path) -> None:
    wire.jobs[JOB] = job(JOB + _ORDERS)
    failed(command("submit", spec), 1, "allowed: 16 hex digits")


def test_no_event_gives_orders_to_a_terminal(command: Command, wire: WireServer) -> None:
    wire.jobs[JOB] = job(state="failed")
    wire.events = [state_event(1, "running", _ORDERS), state_event(2, "failed", _ORDERS)]
    for options in ([], ["--json"]):
        done = command("watch", JOB, *options)
        assert not set(done.stdout + done.stderr) & set(_ORDERS) - set("[2J31m"), done
