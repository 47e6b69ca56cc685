"""A Hugging Face Hub in memory, behind the part of its API that huggingface_hub uses:
https://huggingface.co/docs/hub/api."""

import contextlib
import hashlib
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.fake_bucket import Answer
from tests.fake_gcs import served

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

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> Answer:
        path = unquote(urlsplit(url).path)
        self.requests.append((method, path))
        patterns: dict[str, Callable[..., Answer]] = {
            r"(?:/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)": self._file,
            rf"{API}/([^/]+/[^/]+)/tree/(.+)": self._tree,
            rf"{API}/([^/]+/[^/]+)(?:/revision/(.+))?": self._about,
        }
        for pattern, answer in patterns.items():
            if match := re.fullmatch(pattern, path):
                model, revision, *rest = match.groups()
                if model not in self.models or model in self.refused:
                    code = self.refused.get(model, "RepoNotFound")
                    return _refusal(code, 403 if code == "GatedRepo" else 404)
                found = self.revision(model, revision or "main")
                if found is None:
                    return _refusal("RevisionNotFound")
                return answer(model, found, *rest)
        return Answer.of({}, 404)

    def _about(self, model: str, revision: str) -> Answer:
        return Answer.of({"id": model, "sha": self.commit(model, revision)})

    def _tree(self, model: str, revision: str) -> Answer:
        files = self.models[model][revision].items()
        return Answer.of(
            [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": _oid(content),
                }
                for name, content in files
            ]
        )

    def _file(self, model: str, revision: str, name: str) -> Answer:
        content = self.models[model][revision].get(name)
        if content is None:
            return _refusal("EntryNotFound")
        commit = self.commit(model, revision)
        headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit}
        return Answer(200, content, headers)


def _refusal(code: str, status: int = 404) -> Answer:
    return Answer(status, b"{}", {"X-Error-Code": code})


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def serving() -> contextlib.AbstractContextManager[FakeHub]:
    return served(FakeHub())
