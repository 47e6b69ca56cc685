"""Ways to spoil a file, by rule: what it is, and every byte of it."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Spoil = Callable[[bytes, random.Random], bytes]

HUGE = "9" * 5000
DEEP = 100_000


def _truncated(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))] if content else content


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _inserted(what: bytes) -> Spoil:
    def insert(content: bytes, rng: random.Random) -> bytes:
        at = rng.randrange(len(content) + 1)
        return content[:at] + what + content[at:]

    return insert


def _overwritten(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    end = min(len(content), start + rng.choice([1, 16, 500]))
    return content[:start] + bytes(end - start) + content[end:]


# Of any file.
_OF_BYTES: dict[str, Spoil] = {
    "empty": lambda content, rng: b"",
    "truncated": _truncated,
    "bytes flipped": _flipped,
    "NULs inserted": _inserted(b"\0\0"),
    "zeros written over": _overwritten,
    "no UTF-8": _inserted(b"\xff\xfe\x80"),
    "twice": lambda content, rng: content * 2,
    "random bytes": lambda content, rng: rng.randbytes(max(1, len(content))),
}


def _line(change: Callable[[bytes, random.Random], list[bytes]]) -> Spoil:
    def spoil(content: bytes, rng: random.Random) -> bytes:
        lines = content.splitlines(keepends=True) or [b"\n"]
        at = rng.randrange(len(lines))
        return b"".join([*lines[:at], *change(lines[at], rng), *lines[at + 1 :]])

    return spoil


# Of any text.
_OF_TEXT: dict[str, Spoil] = {
    "half a pair as bytes": _inserted("\ud800".encode("utf-8", "surrogatepass")),
    "BOM": lambda content, rng: b"\xef\xbb\xbf" + content,
    "CRLF": lambda content, rng: content.replace(b"\n", b"\r\n"),
    "CR": lambda content, rng: content.replace(b"\n", b"\r"),
    "UTF-16": lambda content, rng: content.decode(errors="replace").encode("utf-16"),
    "line dropped": _line(lambda line, rng: []),
    "line twice": _line(lambda line, rng: [line, line]),
    "line empty": _line(lambda line, rng: [b"\n"]),
    "line of a megabyte": _line(lambda line, rng: [b"a " * 500_000 + b"\n"]),
    "line separators": _inserted("\u2028\x85\x0b\x0c".encode()),
    "no last line end": lambda content, rng: content.rstrip(b"\r\n"),
    "empty lines alone": lambda content, rng: b"\n" * 20,
    "quotes": _inserted(b'"'),
    "spaces alone": lambda content, rng: b" " * 100,
}


def _columns(separator: bytes, change: str) -> Spoil:
    def spoil(content: bytes, rng: random.Random) -> bytes:
        lines = content.split(b"\n")
        width = max(line.count(separator) for line in lines) + 1
        at, whole = rng.randrange(width), rng.random() < 0.5
        one = rng.randrange(len(lines))
        for number, line in enumerate(lines):
            cells = line.split(separator)
            if not line or not (whole or number == one) or at >= len(cells):
                continue
            if change == "dropped":
                del cells[at]
            elif change == "added":
                cells.insert(at, b"more")
            else:
                value = rng.choice([b"", b"nan", b"-1", HUGE.encode(), b"?", b"1e999"])
                cells[at] = value
            lines[number] = separator.join(cells)
        return b"\n".join(lines)

    return spoil


def _of_columns(separator: bytes) -> dict[str, Spoil]:
    return {
        f"column {change}": _columns(separator, change)
        for change in ("dropped", "added", "changed")
    }


OTHERS: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        10**30,
        2**31,
        2**63,
        "",
        "x",
        "x" * 5000,
        "\ud800",
    ),
    *(
        [],
        {},
        [[]],
        {"a": 1},
        [None],
        ["x"],
        "\0",
        "nan",
        -(2**63),
        1e300,
        [1, "x", {}],
    ),
)


def _nodes(value: Any, path: tuple = ()) -> list[tuple]:
    inner: list[tuple] = []
    if isinstance(value, dict):
        inner = [n for k, v in value.items() for n in _nodes(v, (*path, k))]
    elif isinstance(value, list):
        inner = [n for k, v in enumerate(value) for n in _nodes(v, (*path, k))]
    return [path, *inner]


def changed_node(document: Any, rng: random.Random, change: str) -> Any:
    """A JSON document with one of its nodes changed."""
    paths = _nodes(document)
    # As many of the upper levels as of the leaves, which are many more.
    depth = rng.choice(sorted({len(path) for path in paths}))
    path = rng.choice([path for path in paths if len(path) == depth])
    if not path:
        return rng.choice(OTHERS)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    if change == "dropped":
        del parent[last]
    elif change == "doubled":
        if isinstance(parent, list):
            parent.insert(last, parent[last])
        else:
            parent[f"{last}2"] = parent[last]
    elif change == "renamed" and isinstance(parent, dict):
        parent[rng.choice(["", "x", "\ud800", f"{last} "])] = parent.pop(last)
    else:
        parent[last] = rng.choice(OTHERS)
    return document


def _json(change: str) -> Spoil:
    def spoil(content: bytes, rng: random.Random) -> bytes:
        document = changed_node(json.loads(content), rng, change)
        return json.dumps(document, indent=rng.choice([None, 2])).encode()

    return spoil


def _number(content: bytes, rng: random.Random) -> bytes:
    """Numbers that JSON allows, or Python's reader, and programs do not expect."""
    found = list(
        re.finditer(rb"(?<=[:\[, ])-?\d+(\.\d+)?(e-?\d+)?(?=[,\]\}\s])", content)
    )
    value = rng.choice([HUGE.encode(), b"NaN", b"-Infinity", b"1e999", b"-0", b"1E400"])
    if not found:
        return value
    at = rng.choice(found)
    return content[: at.start()] + value + content[at.end() :]


_OF_JSON: dict[str, Spoil] = {
    **{f"node {x}": _json(x) for x in ("changed", "dropped", "doubled", "renamed")},
    "node changed again": _json("changed"),
    "strange number": _number,
    "deep": lambda content, rng: b"[" * DEEP + b"]" * DEEP,
    "deep objects": lambda content, rng: b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "another value": lambda content, rng: json.dumps(rng.choice(OTHERS)).encode(),
}


def _of_lines(spoil: Spoil) -> Spoil:
    """Spoils one line of JSON lines."""

    def change(line: bytes, rng: random.Random) -> list[bytes]:
        return [spoil(line, rng) + b"\n"] if line.strip() else [line]

    return _line(change)


def of_content(path: Path) -> dict[str, Spoil]:
    """What can be done with the bytes of a file of this name."""
    end = path.suffix
    if end in (".jsonl", ".json"):
        spoils = {**_OF_BYTES, **_OF_TEXT}
        each = _OF_JSON.items()
        if end == ".json":
            return {**spoils, **dict(each)}
        return {**spoils, **{name: _of_lines(spoil) for name, spoil in each}}
    columns = {".tsv": b"\t", ".csv": b",", ".conll": b" "}.get(end)
    if columns:
        return {**_OF_BYTES, **_OF_TEXT, **_of_columns(columns)}
    if end in (".txt", ".py"):
        return {**_OF_BYTES, **_OF_TEXT}
    return dict(_OF_BYTES)


def _missing(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(target: str) -> Callable[[Path], None]:
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to(target.format(path.name))

    return link


# What stands in the place of a file, or of a folder where a file is spoiled above it.
IN_ITS_PLACE: dict[str, Callable[[Path], None]] = {
    "missing": _missing,
    "a folder": _folder,
    "a FIFO": _fifo,
    "a link to itself": _link("{}"),
    "a link to nothing": _link("nowhere"),
    "a link to a folder": _link(".."),
}
