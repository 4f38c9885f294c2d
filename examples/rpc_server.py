"""TVM's RPC server for a device, which ends where a candidate crashed it. Needs TVM and nothing else.

    until python rpc_server.py --tracker 10.0.0.5:9190 --key board; do sleep 1; done

``python -m tvm.exec.rpc_server`` stays after such a crash and serves nobody any more, so that nothing that
watches its process starts it again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading


def end(crashed: threading.ExceptHookArgs) -> None:
    """The thread that listens has failed: so does the process."""
    sys.excepthook(crashed.exc_type, crashed.exc_value or RuntimeError(), crashed.exc_traceback)
    os._exit(1)


def main() -> None:
    """Serve until a candidate crashes."""
    from tvm.rpc.server import PopenRPCServerState

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tracker", metavar="HOST:PORT", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--host", default="0.0.0.0", help="Where it listens.")
    parser.add_argument("--port", type=int, default=9090, help="The first of a hundred that is free.")
    given = parser.parse_args()
    tracker, _, port = given.tracker.rpartition(":")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread would go on
    threading.excepthook = end
    server = PopenRPCServerState(
        given.host, given.port, given.port + 100, tracker_addr=(tracker, int(port)), key=given.key
    )
    server.thread.join()


if __name__ == "__main__":
    main()
