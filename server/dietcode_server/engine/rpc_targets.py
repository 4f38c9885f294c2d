"""Targets for the device behind an RPC key, which is asked on that device, where one job at a time works."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from dietcode.errors import DietCodeError
from dietcode.measure.engine_spec import EngineSpec
from dietcode_server.engine.targets import Resolved, Targets

_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 5.0, 60.0
_log = logging.getLogger("dietcode.rpc")


class RpcTargets(Targets):
    """Targets of a device that is asked once what it is; until it answers nothing can be measured.

    It is asked in a thread, so that nobody waits for it, and asked again where it did not answer: after
    five seconds, and after pauses that grow to a minute.

    Parameters
    ----------
    engine : EngineSpec
        Tracker and key.
    first_pause_secs : float
        Until the second question, where the first had no answer.
    """

    def __init__(self, engine: EngineSpec, first_pause_secs: float = _FIRST_PAUSE_SECS) -> None:
        super().__init__(engine)
        self._found: list[Resolved] = []
        self._thread: threading.Thread | None = None
        self._pause_secs, self._next_at = first_pause_secs, 0.0
        self._tried = threading.Event()
        self._starting = threading.Lock()

    def devices(self) -> list[Resolved]:
        """The device with all its threads; none until it has said what it is. Never waits."""
        with self._starting:
            is_asked = self._thread is not None and self._thread.is_alive()
            if not self._found and not is_asked and time.monotonic() >= self._next_at:
                self._thread = threading.Thread(target=self._find_device, name="rpc-device", daemon=True)
                self._thread.start()
        return self._found

    def is_ready(self) -> bool:
        """Return whether the device has said what it is."""
        return bool(self.devices())

    def has_tried(self) -> bool:
        """Return whether it was asked once, with an answer or without."""
        self.devices()
        return self._tried.is_set()

    def _find_device(self) -> None:
        try:
            self._learn(super().devices())
        except DietCodeError as error:
            self._fail(str(error))
        except Exception:
            _log.exception("asking the device goes on")
            self._fail("an internal error")
        finally:
            self._tried.set()

    def _learn(self, found: list[Resolved]) -> None:
        if not found:
            self._fail("its processor cannot be built for")
            return
        device = found[0]
        self.engine = replace(self.engine, rpc_host=device.host)
        self._found = [device]
        mcpu, cores = (device.target.get(name) for name in ("mcpu", "num_cores"))
        _log.info("%s is %s with %s cores", self.engine.rpc_key, mcpu, cores)

    def _fail(self, why: str) -> None:
        self._next_at = time.monotonic() + self._pause_secs
        _log.warning("%s: %s; asking again in %.3g s", self.engine.rpc_key, why, self._pause_secs)
        self._pause_secs = min(2 * self._pause_secs, _LONGEST_PAUSE_SECS)


def targets_of(engine: EngineSpec) -> Targets:
    """Targets of an engine other than the local one."""
    return RpcTargets(engine) if engine.kind == "rpc" else Targets(engine)
