"""After the tests with a browser, in the same process."""

from __future__ import annotations

import asyncio


def test_others_can_use_asyncio() -> None:
    async def one() -> int:
        return 1

    assert asyncio.run(one()) == 1
