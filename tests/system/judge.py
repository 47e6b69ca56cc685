"""What may come of an input: a run that ends well, or one line and status 2."""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.system.cases import Case

# Names of files that are on the way to be something; what begins with a dot is, but for
# what a run keeps for itself.
_TEMPORARY = re.compile(r"^\.(?!digests\.json$|lock)|tmp|incomplete|\.new$|~$")
_CRASHES = ("Traceback (most recent", "Exception ignored in", "Fatal Python error")
_CRASHES += ("terminate called", "core dumped", "Check failed", "Warning: ")

Picture = dict[str, tuple[str, str]]


def picture(folder: Path) -> Picture:
    """What stands where below a folder: kind and content."""
    found: Picture = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place) / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                its = "file", hashlib.sha1(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(mode):
                its = "link", os.readlink(path)
            else:
                its = "folder" if stat.S_ISDIR(mode) else "special", ""
            found[os.path.relpath(path, folder)] = its
    return found


def may_change(case: Case) -> tuple[str, ...]:
    """The places that a mode may write to."""
    named = [flag.partition("=")[2] for flag in case.flags if "data_dir=" in flag]
    workdir = [x.partition("=")[2] for x in case.flags if x.startswith("--workdir=")]
    runs = [os.path.normpath(x) for x in (*workdir, "run", "runs")]
    match case.mode:
        case "train":
            return ("data", *runs, *named)
        case "prepare":
            return ("data", *named)
        case "evaluate":  # which prepares pre-training's data where it is missing
            return ("data", *named, *(f"{run}/predictions" for run in runs))
    return ()


def faults(case: Case, before: Picture, status: int, out: str, err: str) -> list[str]:
    """What is wrong with the end of a run; empty where all is right.

    Args:
      before: of the case's folder when the run began.
      out: what it has printed.
      err: and on standard error.
    """
    found = [f"crash: {_cause(err)}" for crash in _CRASHES if crash in err][:1]
    errors = [line for line in err.split("\n") if line.startswith("error:")]
    if status not in (0, 2):
        found.append(f"status {status}: {_cause(err)}")
    elif status == 2 and (len(errors) != 1 or not err.endswith(f"{errors[0]}\n")):
        found.append(f"status 2 with {len(errors)} lines error:, or not the last")
    elif status == 0 and errors:
        found.append(f"status 0 and {errors[0]}")
    if status == 0 and case.refused:
        found.append("accepted, though wrong")
    if status != 0 and case.accepted:
        found.append(f"refused, though right: {_cause(err)}")
    after = picture(case.folder)
    found += _changes(case, before, after, status)
    if status == 0:
        try:
            found += _nonsense(case, out)
        except (ValueError, OSError, KeyError, IndexError) as error:
            found.append(f"its output: {type(error).__name__}: {error}")
    return found


def _cause(err: str) -> str:
    lines = [line for line in err.strip().split("\n") if line.strip()]
    return lines[-1][:200] if lines else "without a word"


def _changes(case: Case, before: Picture, after: Picture, status: int) -> Iterator[str]:
    own = may_change(case)
    output = os.path.normpath(case.output) if case.output else ""
    target = os.path.relpath(
        os.path.realpath(case.folder / output), os.path.realpath(case.folder)
    )
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        is_output = output and _below(name, (output, target))
        if is_output and status == 0:
            if was and was[0] != "file" and now != was and was[0] != "folder":
                yield f"{name}: a {was[0]} was replaced"
            continue
        part = name.split("/")
        if now and was is None and any(_TEMPORARY.search(p) for p in part):
            yield f"left behind: {_shown(name)}"
        elif not _below(name, own) and not (now == ("folder", "") and status == 0):
            verb = "gone" if now is None else "made" if was is None else "changed"
            yield f"{verb}: {_shown(name)}"


def _shown(name: str) -> str:
    return re.sub(r"[0-9a-z_]{8}(?=$|/)|\d+", "#", repr(name))


def _below(name: str, places: tuple[str, ...]) -> bool:
    # Of a place, the folders that lead there as well.
    return any(
        name == place or name.startswith(f"{place}/") or place.startswith(f"{name}/")
        for place in places
    )


def _nonsense(case: Case, out: str) -> Iterator[str]:
    """What is not whole in the output of a run that says that all is well."""
    match case.mode:
        case "predict":
            yield from _of_predict(case, out)
        case "describe" if case.output and not case.is_stream and case.output != "-":
            _strict((case.folder / case.output).read_text())
        case "export" if case.output:
            folder = case.folder / case.output
            _strict((folder / "config.json").read_text())
            size = (folder / "model.safetensors").read_bytes()[:8]
            head = (folder / "model.safetensors").read_bytes()[8:]
            json.loads(head[: int.from_bytes(size, "little")])
        case "evaluate":
            for line in out.splitlines():
                if line.startswith("{"):
                    _strict(line)


def _of_predict(case: Case, out: str) -> Iterator[str]:
    flags = [x for x in case.flags if x.startswith("--input=")]
    source = flags[-1].partition("=")[2] if flags else "-"
    place = case.stdin if source == "-" else case.folder / source
    if case.output == f"{source}":
        return
    asked = [x for x in Path(place).read_bytes().split(b"\n") if x.strip()]
    if case.is_stream:
        text = (case.folder.parent / "read").read_text()
    elif case.output in ("", "-"):
        text = out
    else:
        text = (case.folder / case.output).read_text()
    answers = text.splitlines() if text.isascii() else text.split("\n")
    answers = [line for line in answers if line.strip()]
    if len(asked) != len(answers):
        yield f"{len(asked)} rows asked, {len(answers)} answered"
    for line, row in zip(answers, asked, strict=False):
        answer = _loose(line)
        known = json.loads(row.decode("utf-8-sig"))
        for name, value in answer.items():
            if name not in known and not _is_finite(value):
                yield f"predict gives {name}={value!r:.60}"


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _loose(line: str) -> dict[str, Any]:
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError(f"an answer is no object: {line[:60]}")
    return answer


def _strict(text: str) -> None:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} in JSON")

    json.loads(text, parse_constant=refuse)
