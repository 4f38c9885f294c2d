"""Another project of the package index owns the command `dietcode` where it was installed over ours."""

import re
import sysconfig
from pathlib import Path

import pytest
from small_libraries import ROOT

from dietcode.cli.command_owner import OTHER, check_command_owner
from dietcode.errors import RequestError
from dietcode.extras import DISTRIBUTION


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of commands, in an environment that has a distribution `dietcode` as well."""
    facts = tmp_path / "site" / "dietcode-0.7.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.4\nName: dietcode\nVersion: 0.7.0\n")
    monkeypatch.syspath_prepend(str(facts.parent))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder) if name == "scripts" else None)
    return folder


def test_its_command_is_not_ours(scripts: Path) -> None:
    (scripts / "dietcode").write_text("#!/usr/bin/python\nfrom agent.cli import main\nmain()\n")
    with pytest.raises(RequestError, match=r"dietcode 0\.7\.0 .*: pip uninstall dietcode, then ") as found:
        check_command_owner()
    assert "\n" not in str(found.value)
    assert str(scripts / "dietcode") in str(found.value)


def test_ours_installed_after_it_begins(scripts: Path) -> None:
    (scripts / "dietcode").write_text("#!/usr/bin/python\nfrom dietcode.cli import main\nmain()\n")
    check_command_owner()


def test_without_a_command_nobody_owns_it(scripts: Path) -> None:
    check_command_owner()


def test_no_extra_asks_the_index_for_the_other_project() -> None:
    lines = re.findall(r'"([A-Za-z0-9._-]+)\[', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(lines) >= {DISTRIBUTION} and OTHER not in lines
