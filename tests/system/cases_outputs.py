"""What --output names, and names of files and folders."""

import os

from tests.system import malformed_values as values
from tests.system.cases import OUTPUTS, Case, Draw, begin

_NO_UTF8 = os.fsdecode(b"\xff\xfe")
_NAMES = (
    *(f"a{_NO_UTF8}b", "a b", "a\nb", "日本", "a" * 200, "[1]", "$x", "~", "*", "{x}"),
    *("-a", "a=b", "a:b", "a,b", "%s", "\\", "'", "\x1b[2J", "\u202e", "a."),
)
# What stands at out/it: of what use it is to a file, and to a folder that is written.
_GOOD, _BAD, _EITHER = "good", "bad", "either"
_THERE = {
    "link to file": (_GOOD, _BAD),
    "link to nothing": (_EITHER, _EITHER),
    "link chain": (_GOOD, _EITHER),
    "link to folder": (_BAD, _EITHER),
    "link to itself": (_BAD, _BAD),
    "folder": (_BAD, _GOOD),
    "full folder": (_BAD, _BAD),
    "file": (_GOOD, _BAD),
    "pipe": (_GOOD, _BAD),
}
_ELSEWHERE = {
    "no folder": ("out/no/it", _BAD, _EITHER),
    "slash": ("out/it/", _EITHER, _EITHER),
    "below a file": ("in/micro.py/x", _BAD, _BAD),
    "empty": ("", _EITHER, _EITHER),
    "here": (".", _BAD, _BAD),
    "/": ("/", _BAD, _BAD),
    "long": (values.LONG, _BAD, _BAD),
    "the work directory": ("run", _EITHER, _EITHER),
    "what is read": ("out/rows.jsonl", _EITHER, _BAD),
}


def output(draw: Draw) -> Case:
    """A pipe, a link, a folder, or nothing that can be."""
    case = begin(draw, "output", modes=tuple(OUTPUTS))
    every = draw.shuffled([*_THERE, *_ELSEWHERE])
    case.description = every[draw.turn % len(every)]
    is_folder = case.mode == "export"
    if case.description in _THERE:
        value, its = "out/it", _THERE[case.description]
        _put(case)
    else:
        value, *its = _ELSEWHERE[case.description]
    if case.description == "what is read":
        os.rename(case.folder / "in" / "rows.jsonl", case.folder / value)
        case.flags = [x.replace("in/rows", "out/rows") for x in case.flags]
    case.set_flag("output", value)
    case.accepted = its[is_folder] == _GOOD
    case.refused = its[is_folder] == _BAD
    case.is_stream = case.description == "pipe" and not is_folder
    return case


def _put(case: Case) -> None:
    """Makes what stands at out/it already."""
    place, real = case.folder / "out" / "it", case.folder / "out" / "real"
    match case.description:
        case "link to file":
            real.write_text("before\n")
            place.symlink_to("real")
        case "link to nothing":
            place.symlink_to("nowhere")
        case "link chain":
            real.write_text("before\n")
            (case.folder / "out" / "second").symlink_to("real")
            place.symlink_to("second")
        case "link to folder":
            real.mkdir()
            place.symlink_to("real")
        case "link to itself":
            place.symlink_to("it")
        case "folder":
            place.mkdir()
        case "full folder":
            place.mkdir()
            (place / "mine.txt").write_text("mine")
        case "file":
            place.write_text("before\n")
        case "pipe":
            os.mkfifo(place)


def names(draw: Draw) -> Case:
    """Names of files and folders that are unusual, and right."""
    case = begin(draw, "file names")
    name = draw.rng.choice(_NAMES)
    which = draw.rng.choice(["workdir", "output", "input", "vocab_file", "data_dir"])
    case.description = f"{which} {name!r:.30}"
    if which == "workdir":
        if (case.folder / "run").exists():
            os.rename(case.folder / "run", case.folder / name)
        case.set_flag("workdir", f"./{name}")
    elif which == "output" and case.output:
        case.set_flag("output", f"out/{name}")
    elif which == "input" and case.mode == "predict":
        os.rename(case.folder / "in" / "rows.jsonl", case.folder / "in" / name)
        case.set_flag("input", f"in/{name}")
    elif which == "vocab_file" and case.uses_config() and case.stage != "model":
        folder = case.folder / "in"
        (path,) = (
            folder / x for x in ("vocab.txt", "tokenizer.json") if (folder / x).exists()
        )
        path.rename(path.with_name(name + path.suffix))
        flag = f"--config.tokenizer.vocab_file=in/{name}{path.suffix}"
        case.flags.append(flag)
    else:
        case.flags.append(f"--config.corpus.data_dir={name}")
    return case


RULES = {output: 3, names: 2}
