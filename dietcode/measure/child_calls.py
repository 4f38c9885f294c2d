"""Calls that a child process answers, one after the other: the side of the child."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from multiprocessing.connection import Connection

from dietcode.lean import import_less_of_tvm
from dietcode.measure.answers import write_answer


def serve(connection: Connection) -> None:
    """Answer until the other end is closed, then end this process.

    The first message is the variables and the folder of the process that calls, each later one a function
    and its arguments; an answer is whether it returned, and its result or what is said of its error.
    """
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        environment, folder = pickle.loads(connection.recv_bytes())
        os.environ.clear()
        os.environ.update(environment)
        with contextlib.suppress(OSError):  # it is gone
            os.chdir(folder)
        while True:
            connection.send_bytes(_answer(connection.recv_bytes()))
    os._exit(0)


def _answer(message: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(message)
        return write_answer(True, function(*arguments))
    except Exception as error:
        return write_answer(False, describe(error))


def describe(error: BaseException) -> str:
    """Return the last line of an error that is not empty, clipped."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__)[:300]


if __name__ == "__main__":
    import_less_of_tvm()
    serve(Connection(int(sys.argv[1])))
