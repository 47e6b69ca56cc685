"""Serves a bucket in memory over HTTP, as Google Cloud Storage would."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from tests.fake_bucket import FakeGcs

Fake = TypeVar("Fake")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer's body waits 40 ms for its header
    fake: Any  # its `answer` takes a request

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content, headers = self.fake.answer(
            self.command, self.path, self.headers, body
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET = do_POST = do_PUT = do_DELETE = _handle

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with five, the default, the sixth waits for a second

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client has had enough
            super().handle_error(request, client_address)


@contextlib.contextmanager
def served(fake: Fake) -> Iterator[Fake]:
    """Yields a fake that is served on a free port of this machine, its `url`."""
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = _Server(("127.0.0.1", 0), handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    # It looks for its end every 20 ms.
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def serving() -> contextlib.AbstractContextManager[FakeGcs]:
    return served(FakeGcs())
