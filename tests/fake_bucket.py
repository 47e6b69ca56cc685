"""A bucket in memory behind the part of Google Cloud Storage's JSON API that gcsfs and
TensorStore speak: https://cloud.google.com/storage/docs/json_api."""

import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c


class Blob(NamedTuple):
    content: bytes
    generation: int


class Answer(NamedTuple):
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = {}

    @classmethod
    def of(cls, value: Any, status: int = 200) -> "Answer":
        headers = {"Content-Type": "application/json"}
        return cls(status, json.dumps(value).encode(), headers)

    @classmethod
    def error(cls, status: int, message: str) -> "Answer":
        return cls.of({"error": {"code": status, "message": message}}, status)


class FakeGcs:
    """One server, any bucket. `refuse`, if set, is called for each request (method,
    path) and may return the HTTP status to fail it with."""

    def __init__(self) -> None:
        self.blobs: dict[tuple[str, str], Blob] = {}
        self.requests: Counter[str] = Counter()
        self.refuse: Any = None
        self.url = ""
        self._lock = threading.Lock()
        self._generation = 0
        self._uploads: dict[str, tuple[str, str, dict, bytearray]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Returns variables that send the clients to this server, without
        credentials."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,  # gcsfs
            "FSSPEC_GCS_TOKEN": "anon",
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GCE_METADATA_ROOT": "metadata.invalid",
            "GCE_METADATA_HOST": "metadata.invalid",
        }

    def names(self, bucket: str) -> list[str]:
        with self._lock:
            return sorted(name for where, name in self.blobs if where == bucket)

    def upload(self, bucket: str, name: str, content: bytes) -> None:
        with self._lock:
            self._write(bucket, name, content, {})

    def download(self, bucket: str, folder: Path) -> None:
        """Writes every object of a bucket into a folder."""
        for name in self.names(bucket):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.blobs[bucket, name].content)

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> Answer:
        parts = urlsplit(url)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        steps = [unquote(step) for step in parts.path.strip("/").split("/")]
        self.requests[method] += 1
        if self.refuse and (status := self.refuse(method, unquote(url))):
            return Answer.error(status, "refused")
        if steps[0] in ("upload", "resumable", "download"):
            steps = steps[1:]
        with self._lock:
            match method, steps[3:]:
                case "GET", [bucket]:
                    return Answer.of({"kind": "storage#bucket", "name": bucket})
                case "GET", [bucket, "o"]:
                    return self._list(bucket, query)
                case "POST" | "PUT", [bucket, "o"]:
                    return self._upload(method, bucket, query, headers, body)
                case "POST", [bucket, "o", name, "moveTo", "o", target]:
                    if (bucket, name) not in self.blobs:
                        return Answer.error(404, "Not Found")
                    blob = self.blobs.pop((bucket, name))
                    self._write(bucket, target, blob.content, {})
                    about = self._metadata(bucket, target)
                    return Answer.of({"done": True, "resource": about})
                case "GET", [bucket, "o", name]:
                    if query.get("alt") == "media":
                        return self._read(bucket, name, headers, query)
                    return self._about(bucket, name, query)
                case "DELETE", [bucket, "o", name]:
                    there = self.blobs.pop((bucket, name), None)
                    return Answer(204) if there else Answer.error(404, "Not Found")
        return Answer.error(501, f"the fake server does not know {method} {url}")

    def _about(self, bucket: str, name: str, query: Mapping[str, str]) -> Answer:
        if (bucket, name) not in self.blobs:
            return Answer.error(404, "Not Found")
        if not self._matches((bucket, name), query):
            return Answer(304)
        return Answer.of(self._metadata(bucket, name))

    def _metadata(self, bucket: str, name: str) -> dict[str, Any]:
        blob = self.blobs[bucket, name]
        md5 = hashlib.md5(blob.content, usedforsecurity=False)
        crc = google_crc32c.value(blob.content).to_bytes(4, "big")
        return {
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{blob.generation}",
            "name": name,
            "bucket": bucket,
            "generation": str(blob.generation),
            "metageneration": "1",
            "size": str(len(blob.content)),
            "crc32c": base64.b64encode(crc).decode(),
            "md5Hash": base64.b64encode(md5.digest()).decode(),
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
            "storageClass": "STANDARD",
        }

    def _matches(self, key: tuple[str, str], query: Mapping[str, str]) -> bool:
        now = str(self.blobs[key].generation) if key in self.blobs else "0"
        wanted, unwanted = (
            query.get("ifGenerationMatch"),
            query.get("ifGenerationNotMatch"),
        )
        return wanted in (None, now) and unwanted != now

    def _list(self, bucket: str, query: Mapping[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names, prefixes = [], set()
        start, end = query.get("startOffset", ""), query.get("endOffset")
        for where, name in sorted(self.blobs):
            if where != bucket or not name.startswith(prefix) or name < start:
                continue
            if end is not None and name >= end:
                continue
            inner, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            if delimiter and found:
                prefixes.add(prefix + inner + delimiter)
            else:
                names.append(name)
        items = [self._metadata(bucket, name) for name in names]
        limit = int(query.get("maxResults", 1000))
        page = int(query.get("pageToken", 0))
        answer: dict[str, Any] = {"kind": "storage#objects"}
        both = [*(("prefixes", p) for p in sorted(prefixes))]
        both += [("items", item) for item in items]
        for kind, entry in both[page : page + limit]:
            answer.setdefault(kind, []).append(entry)
        if page + limit < len(both):
            answer["nextPageToken"] = str(page + limit)
        return Answer.of(answer)

    def _read(
        self,
        bucket: str,
        name: str,
        headers: Any,
        query: Mapping[str, str] = {},
    ) -> Answer:
        key = (bucket, name)
        if key not in self.blobs:
            return Answer.error(404, "Not Found")
        if not self._matches(key, query):
            return Answer(304 if "ifGenerationNotMatch" in query else 412)
        blob = self.blobs[key]
        about = self._metadata(bucket, name)
        fields = {
            "Content-Type": "application/octet-stream",
            "x-goog-generation": about["generation"],
            "x-goog-metageneration": "1",
            "x-goog-stored-content-length": about["size"],
            "x-goog-hash": f"crc32c={about['crc32c']}",
        }
        wanted = headers.get("Range")
        if not wanted:
            return Answer(200, blob.content, fields)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        size = len(blob.content)
        if first == "":
            start, stop = max(0, size - int(last)), size
        else:
            start, stop = int(first), min(int(last) + 1 if last else size, size)
        fields["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return Answer(206, blob.content[start:stop], fields)

    def _write(self, bucket: str, name: str, content: bytes, query: Any) -> Answer:
        if not self._matches((bucket, name), query):
            return Answer.error(412, "conditionNotMet")
        self._generation += 1
        self.blobs[bucket, name] = Blob(content, self._generation)
        return Answer.of(self._metadata(bucket, name))

    def _upload(
        self, method: str, bucket: str, query: Any, headers: Any, body: bytes
    ) -> Answer:
        kind = query.get("uploadType")
        if "upload_id" in query:
            return self._resumed(query["upload_id"], headers, body)
        if kind == "media":
            return self._write(bucket, query["name"], body, query)
        about = json.loads(body or b"{}")
        upload = f"upload{len(self._uploads)}"
        name = query.get("name") or about["name"]
        self._uploads[upload] = (bucket, name, dict(query), bytearray())
        where = f"{self.url}/upload/storage/v1/b/{bucket}/o?upload_id={upload}"
        return Answer(200, b"{}", {"Location": where, "X-GUploader-UploadID": upload})

    def _resumed(self, upload: str, headers: Any, body: bytes) -> Answer:
        bucket, name, query, content = self._uploads[upload]
        where, _, total = headers["Content-Range"].removeprefix("bytes ").partition("/")
        if where != "*":
            content[int(where.partition("-")[0]) :] = body
        if total != "*" and len(content) == int(total):
            return self._write(bucket, name, bytes(content), query)
        return Answer(308, b"", {"Range": f"bytes=0-{len(content) - 1}"})
