"""Every file that a run reads, spoiled by rule."""

import json
import os
from pathlib import Path

from tests.system import malformed_files as files
from tests.system.cases import Case, Draw, begin

# Not read by anything, but for people and TensorBoard.
_TEXTS = (".txt", ".tsv", ".csv", ".conll", ".py", ".json", ".jsonl")
_UNREAD = ("heartbeat.json", "init_from.json", "predictions", "events", "collapsed")


def kinds(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder, by kind: the parts of checkpoints are one."""
    found: dict[str, list[Path]] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        parts = name.split("/")
        if any(part.startswith(_UNREAD) for part in parts):
            continue
        kind = next((p for p in ("checkpoints", "best", "data") if p in parts), name)
        # A shard, a state, an index: all that Orbax and TFDS write differ by name.
        if kind == "checkpoints":
            kind = f"a checkpoint's {path.name if not path.name.isalnum() else 'data'}"
        elif path.suffix == ".txt" and path.stem.split("_")[0].isdigit():
            kind = "a text"
        found.setdefault(kind, []).append(path)
    return found


def _chosen(draw: Draw, rule: str) -> tuple[Case, Path]:
    case = begin(draw, rule)
    there = {
        kind: paths
        for kind, paths in kinds(case.folder).items()
        if _may_be_read(case, paths[0].relative_to(case.folder).as_posix())
    }
    kind = draw.rng.choice(sorted(there))
    return case, draw.rng.choice(there[kind])


def _may_be_read(case: Case, name: str) -> bool:
    """Whether the run has any use for a file."""
    if name == "in/micro.py":
        return case.uses_config()
    if name == "in/rows.jsonl":
        return case.mode == "predict"
    asks = case.mode in ("predict", "evaluate", "export")
    if name.startswith("run/"):
        needed = not any(part in name for part in ("/opt_state/", "/running_stats/"))
        return case.mode == "train" or (asks and needed)
    # Who asks a model has no use for what it was trained on.
    return (
        name.startswith("in/m")
        or not asks
        or case.stage == "inputs"
        or (case.mode == "evaluate" and not name.startswith(("in/train", "in/vocab")))
    )


def content(draw: Draw) -> Case:
    """Its bytes, lines, columns or nodes."""
    case, path = _chosen(draw, "file spoiled")
    before = path.read_bytes()
    spoils = files.of_content(path)
    for _ in range(9):
        name = draw.rng.choice(sorted(spoils))
        try:
            after = spoils[name](before, draw.rng)
        except ValueError:  # it has no such part
            continue
        if after != before:
            break
    path.write_bytes(after)
    case.description = f"{path.relative_to(case.folder)}: {name}"
    case.refused = _is_needed(case, path, "content") and not _is_readable(path, after)
    if after.strip() == b"":
        case.refused = _is_needed(case, path, "missing")
    return case


def in_its_place(draw: Draw) -> Case:
    """Nothing, a folder, a pipe or a link where the file was."""
    case, path = _chosen(draw, "file replaced")
    name = draw.rng.choice(sorted(files.IN_ITS_PLACE))
    files.IN_ITS_PLACE[name](path)
    case.description = f"{path.relative_to(case.folder)}: {name}"
    case.refused = _is_needed(case, path, "missing")
    return case


def rows(draw: Draw) -> Case:
    """What predict reads, from a file or standard input."""
    case = begin(draw, "rows of predict", modes=("predict",))
    path = case.folder / "in" / "rows.jsonl"
    before = path.read_bytes()
    spoils = files.of_content(path)
    name = draw.rng.choice(sorted(spoils))
    after = spoils[name](before, draw.rng)
    path.write_bytes(after)
    case.refused = bool(after.strip()) and not _is_readable(path, after)
    case.description = name
    if draw.rng.random() < 0.3:
        case.set_flag("input", "-")
        case.stdin = str(path)
        case.description += ", from standard input"
    return case


def _is_needed(case: Case, path: Path, how: str) -> bool:
    """Whether a run cannot do without this file; False where that is not sure."""
    name = path.relative_to(case.folder).as_posix()
    if name == "in/micro.py":
        return case.uses_config()
    if name == "in/rows.jsonl":
        return case.mode == "predict" and how == "content"
    if name.startswith("run/"):
        asked = case.mode != "describe"
        if name == "run/config.json":
            # What goes on without a config of its own begins anew.
            return asked and (how == "content" or case.mode != "train")
        return asked and how == "content" and name == "run/tokenizer.json"
    if name.startswith("in/model/"):
        if case.mode == "describe":
            return False
        weights = path.name == "model.safetensors" and how == "missing"
        return weights or path.name == "config.json"
    if case.stage != "inputs" or case.mode != "train":
        return False
    if path.name in ("vocab.txt", "tokenizer.json"):
        return case.task != "pretraining"
    # A text among others may be empty or gone.
    return how == "content" or path.stem in ("train", "dev", "corpus")


def _is_readable(path: Path, content: bytes) -> bool:
    """Whether this is what its name says: UTF-8, JSON."""
    try:
        text = content.decode("utf-8-sig")
        if path.suffix == ".json":
            json.loads(text)
        if path.suffix == ".jsonl":
            for line in text.replace("\r", "\n").split("\n"):
                if line.strip():
                    json.loads(line)
    except (ValueError, RecursionError):
        return path.suffix not in _TEXTS
    return True


_STEPS = ("99", "00000000000000000099", "9" * 20, "-1", "1.5", "two", "0", "tmp", "1 ")


def checkpoint_folders(draw: Draw) -> Case:
    """Folders among a run's checkpoints that are none, or of a strange step."""
    case = begin(draw, "checkpoint folders", ("run",))
    folder = (
        case.folder / "run" / draw.rng.choice(["checkpoints", "checkpoints", "best"])
    )
    folder.mkdir(exist_ok=True)
    steps = sorted(folder.iterdir())
    name = draw.rng.choice(_STEPS)
    how = draw.rng.choice(["renamed", "empty", "file", "link", "item dropped", "none"])
    if not steps:
        how = "empty"
    if how == "renamed":
        steps[-1].rename(folder / name)
    elif how == "empty":
        (folder / name).mkdir(exist_ok=True)
    elif how == "file":
        (folder / name.strip("12")).with_suffix(".x").write_text("")
        (folder / "7").write_text("")
    elif how == "link":
        (folder / "7").symlink_to(draw.rng.choice(["7", "nowhere", steps[-1].name]))
    elif how == "item dropped":
        entries = sorted(p for p in steps[-1].rglob("*"))
        gone = draw.rng.choice(entries)
        os.rename(gone, case.folder / "tmp" / "gone")
        (case.folder / "tmp" / "gone").rename(case.folder / "in" / "gone")
        name = str(gone.relative_to(folder))
    else:
        for step in steps:
            step.rename(case.folder / "in" / f"gone{step.name}")
    case.description = f"{folder.name}: {how} {name}"
    return case


RULES = {content: 9, in_its_place: 4, rows: 3, checkpoint_folders: 1}
