"""A Hugging Face Hub in memory, behind the part of its API that huggingface_hub uses:
https://huggingface.co/docs/hub/api."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

API = "/api/(?:models|datasets)"


class FakeHub:
    """One server. `models`: "OWNER/NAME" -> revision -> file -> content, also data
    sets.

    Attributes:
      refused: "OWNER/NAME" -> the X-Error-Code that the Hub would send.
      requests: (method, path) of each request.
    """

    def __init__(self) -> None:
        self.models: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refused: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    def commit(self, model: str, revision: str) -> str:
        return hashlib.sha1(f"{model}@{revision}".encode()).hexdigest()

    def revision(self, model: str, name: str) -> str | None:
        """Returns the revision of a name or commit."""
        for own in self.models[model]:
            if name in (own, self.commit(model, own)):
                return own
        return None


class Handler(BaseHTTPRequestHandler):
    """Answers for the `hub` of a class derived from this one."""

    hub: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        patterns: dict[str, Callable[..., None]] = {
            rf"{API}/([^/]+/[^/]+)(?:/revision/(.+))?": self._about,
            rf"{API}/([^/]+/[^/]+)/tree/(.+)": self._tree,
            r"(?:/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)": self._file,
        }
        for pattern, answer in reversed(patterns.items()):
            if match := re.fullmatch(pattern, path):
                model, revision, *rest = match.groups()
                if model not in self.hub.models or model in self.hub.refused:
                    code = self.hub.refused.get(model, "RepoNotFound")
                    status = 403 if code == "GatedRepo" else 404
                    return self._send(status, b"{}", {"X-Error-Code": code})
                found = self.hub.revision(model, revision or "main")
                if found is None:
                    code = "RevisionNotFound"
                    return self._send(404, b"{}", {"X-Error-Code": code})
                return answer(model, found, *rest)
        return self._send(404, b"{}", {})

    def _about(self, model: str, revision: str) -> None:
        self._json({"id": model, "sha": self.hub.commit(model, revision)})

    def _tree(self, model: str, revision: str) -> None:
        self._json(
            [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": hashlib.sha1(content).hexdigest(),
                }
                for name, content in self.hub.models[model][revision].items()
            ]
        )

    def _file(self, model: str, revision: str, name: str) -> None:
        content = self.hub.models[model][revision].get(name)
        if content is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {
            "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
            "X-Repo-Commit": self.hub.commit(model, revision),
        }
        self._send(200, content, headers)

    def _json(self, value: object) -> None:
        headers = {"Content-Type": "application/json"}
        self._send(200, json.dumps(value).encode(), headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def serving() -> Iterator[FakeHub]:
    hub = FakeHub()
    handler = type("Handler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
