"""What is kept beside a library for people: measured figures, and generated code."""

from __future__ import annotations

import random

import pytest
from sqlalchemy.exc import IntegrityError
from store_helpers import library_files

from dietcode_server.store import comparisons, libraries, listings
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.database import Database
from dietcode_server.store.subjects import utc_now

AT = utc_now()


@pytest.fixture
def library(database: Database) -> int:
    with database.write() as session:
        return libraries.publish(session, job=None, device_name="a CPU", files=library_files()).id


def row(position: int, rate: float = 100.0) -> Compared:
    return Compared(position, rate, {"numpy": 50.0}, "numpy", 50.0, 1e-7, AT)


def test_figures_come_by_position_with_their_instances(database: Database, library: int) -> None:
    with database.write() as session:
        comparisons.keep(session, library, [row(7), row(0), row(3)])
    with database.read() as session:
        found = comparisons.of_library(session, library)
        assert [one.position for one in found] == [0, 3, 7]
        assert found[0].vendors == {"numpy": 50.0} and found[0].measured_at == AT
        with_instances = comparisons.instances_of(session, library)
        assert [instance.shape_vars for _, instance in with_instances] == [{"T": 1}, {"T": 4}, {"T": 8}]
        assert comparisons.of_library(session, library + 1) == []


def test_later_figures_replace_earlier_ones_and_none_replace_nothing(
    database: Database, library: int
) -> None:
    """A job that makes the same bytes again measures them again."""
    with database.write() as session:
        comparisons.keep(session, library, [row(0), row(1)])
    with database.write() as session:
        comparisons.keep(session, library, [row(1, 200.0)])
        comparisons.keep(session, library, [])
    with database.read() as session:
        found = comparisons.of_library(session, library)
    assert [(one.position, one.measured_gflops) for one in found] == [(1, 200.0)]


def test_figures_of_no_instance_are_refused(database: Database, library: int) -> None:
    with pytest.raises(IntegrityError), database.write() as session:
        comparisons.keep(session, library, [row(8)])


def test_code_is_found_by_name_as_it_was_written(database: Database, library: int) -> None:
    text = "def f():\n    # κ, and a tab\t\n"
    with database.write() as session:
        given = {"3x16": ("tir", text), "of-no-library": ("tir", "x"), "6x16": ("cuda", "")}
        assert listings.keep(session, library, given) == 2
        assert listings.keep(session, library, {"3x16": ("tir", "another")}) == 0  # the same bytes, its code
    with database.read() as session:
        assert listings.code_of(session, library, "3x16") == ("tir", text)
        assert listings.code_of(session, library, "6x16") == ("cuda", "")
        assert listings.listed(session, library) == {"3x16", "6x16"}
        for name in ("4x32", "of-no-library", "", "\0"):
            assert listings.code_of(session, library, name) is None
        assert listings.code_of(session, library + 1, "3x16") is None


def test_code_beyond_the_bounds_is_left_out(database: Database, library: int) -> None:
    noise = random.Random(0).randbytes(700_000).hex()  # compresses to half
    with database.write() as session:
        long = {"3x16": ("tir", "x" * (listings.MAX_TEXT_BYTES + 1))}
        assert listings.keep(session, library, long) == 0
        half = noise[: listings.MAX_TEXT_BYTES]
        assert listings.keep(session, library, dict.fromkeys(("3x16", "4x32", "6x16"), ("tir", half))) == 1
    with database.read() as session:
        assert listings.listed(session, library) == {"3x16"}
