"""Connections that break at once when a process dies, whatever it died of.

Process 0 holds one to each of the others. Where the network allows none, the signs of
life in `processes` take longer to tell the same.
"""

import contextlib
import secrets
import selectors
import socket
import threading
from collections.abc import Callable

_CONNECT = 10.0  # seconds
_WORD = 256  # bytes that a process introduces itself with, at most


def hold(host: str, lost: Callable[[str], None]) -> str:
    """Waits for the others in a thread; for process 0.

    Args:
      host: the name under which this process is reached.
      lost: is given the index of each process whose connection breaks.

    Returns:
      What `grasp` wants: the port, and a secret that keeps strangers out.
    """
    local = host.startswith("127.") or host == "localhost"
    server = socket.create_server(("127.0.0.1" if local else "", 0))
    secret = secrets.token_hex(16)
    threading.Thread(target=_hold, args=(server, secret, lost), daemon=True).start()
    return f"{server.getsockname()[1]} {secret}"


def grasp(host: str, held: str, index: int, lost: Callable[[], None]) -> None:
    """Connects to process 0 and calls `lost`, in a thread, when that breaks.

    Args:
      host: of process 0.
      held: what its `hold` has given.
      index: of this process.
    """
    port, _, secret = held.partition(" ")
    try:
        line = socket.create_connection((host, int(port)), timeout=_CONNECT)
        line.settimeout(None)
        line.sendall(f"{secret} {index}\n".encode())
    except OSError:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            line.recv(1)
        lost()

    threading.Thread(target=wait, daemon=True).start()


def _hold(server: socket.socket, secret: str, lost: Callable[[str], None]) -> None:
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    known: dict[socket.socket, str] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is server:
                line, _ = server.accept()
                selector.register(line, selectors.EVENT_READ)
                continue
            line = key.fileobj  # type: ignore[assignment]
            word = b""
            with contextlib.suppress(OSError):
                word = line.recv(_WORD)
            given, _, index = word.decode(errors="replace").strip().partition(" ")
            if line not in known and given == secret:
                known[line] = index
                continue
            selector.unregister(line)
            line.close()
            if line in known:
                lost(known.pop(line))
