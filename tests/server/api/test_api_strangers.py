"""Wrong tokens: an address may show a few a minute; whoever has a good one is not kept out by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from plain_server import NoTargets
from starlette.testclient import TestClient

from dietcode_server.api.quotas import MAX_KEPT, Rates
from dietcode_server.api.strangers import Strangers
from dietcode_server.store import tokens
from dietcode_server.store.database import Database

WRONG = {"authorization": "Bearer dct_" + "A" * 43}
PATH = "/api/v1/jobs"


@pytest.fixture
def strict(service, tmp_path) -> Iterator[Any]:
    """A server that allows three wrong tokens a minute."""
    database = Database(f"sqlite:///{tmp_path}/dietcode.db")
    database.upgrade()
    settings = service.settings.model_copy(update={"max_wrong_tokens_per_minute": 3})
    yield replace(service, database=database, settings=settings, targets=NoTargets())
    database.dispose()


def good(service) -> dict[str, str]:
    with service.database.write() as session:
        return {"authorization": f"Bearer {tokens.create(session, 'alice', ['read'], timedelta(1))[1]}"}


def test_an_address_waits_after_a_few_wrong_tokens(strict, problem, caplog):
    known, unknown = good(strict), good(strict)
    assert strict.client.get(PATH, headers=known).status_code == 200
    for _ in range(3):
        problem(strict.client.get(PATH, headers=WRONG), 401, "unauthorized")
    response = strict.client.get(PATH, headers=WRONG)
    assert "too many wrong tokens came from testclient" in problem(response, 429, "too-many")["detail"]
    assert 1 <= int(response.headers["retry-after"]) <= 20
    assert caplog.text.count("a token that is not known") == 3  # nor does it fill the log
    # one that was right before is asked about all the same; a new one waits as all from there
    assert strict.client.get(PATH, headers=known).status_code == 200
    assert strict.client.get(PATH, headers=unknown).status_code == 429
    assert strict.client.get(PATH).status_code == 401  # shows no token, guesses none
    elsewhere = TestClient(strict.app, base_url=str(strict.client.base_url), client=("192.0.2.7", 1))
    assert elsewhere.get(PATH, headers=unknown).status_code == 200


def test_a_token_that_was_right_is_let_in_no_longer_than_it_is(strict):
    headers = good(strict)
    assert strict.client.get(PATH, headers=headers).status_code == 200
    with strict.database.write() as session:
        tokens.revoke(session, tokens.list_tokens(session)[0].id)
    statuses = [strict.client.get(PATH, headers=headers).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_the_first_token_counts_at_once(strict):
    assert strict.client.get(PATH).status_code == 200
    good(strict)
    assert strict.client.get(PATH).status_code == 401


def test_neighbours_of_ipv6_are_one():
    strangers = Strangers(per_minute=1)
    strangers.was_wrong("2001:db8::1", "x")
    assert strangers.must_wait("2001:db8::2", "y") > 0
    assert strangers.must_wait("2001:db8:0:1::1", "y") == 0
    strangers.was_wrong("192.0.2.1", "x")
    assert strangers.must_wait("192.0.2.2", "y") == 0


def test_what_is_remembered_is_bounded():
    rates, strangers = Rates(), Strangers(per_minute=1)
    for number in range(MAX_KEPT + 100):
        rates.take(str(number), 60, 0.0)
    assert len(rates._levels) == MAX_KEPT
    for number in range(3000):
        strangers.was_right(str(number))
    assert len(strangers._known) < 3000
