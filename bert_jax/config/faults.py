"""What to say of a wrong config file, field or flag; imported when there is one."""

import difflib
import linecache
import os
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config import configuration, fields
from bert_jax.errors import UserError

_SAME = {"rate": "prob"}  # a word as others say it, and as the fields do
_MOST = 4  # names that a message offers
_LIBRARY = os.path.join("ml_collections", "config_dict")


def near(asked: str, names: Iterable[str]) -> list[str]:
    """The names that a wrong one may mean, at most four: those that have its words.

    A word is like another that it begins or abbreviates, or that is spelt alike: `lr`
    is like `learning_rate`, and `mask_rate` like `masking.masked_lm_prob`.
    """
    group, _, last = asked.rpartition(".")
    scores = {name: _score(group, last.split("_"), name) for name in names}
    best = max(scores.values(), default=0.0)
    likely = [name for name, score in scores.items() if score > max(best - 0.05, 0.45)]
    return sorted(likely, key=lambda name: -scores[name])[:_MOST]


def _score(group: str, words: list[str], name: str) -> float:
    """How much a name is like these words in this group, about 1 if it has them all."""
    there, _, last = name.rpartition(".")
    name_words = last.split("_")
    likes = [max(_like(w, name_words), 0.7 * _like(w, there.split("."))) for w in words]
    unasked = sum(_like(word, words) < 0.5 for word in name_words)
    in_group = 0.3 * _spelt(group, there) if group else 0.0
    return sum(likes) / len(likes) + in_group - 0.02 * unasked


def _like(word: str, words: list[str]) -> float:
    """How much a word is like the most similar of others, 0 to 1."""
    if word in words:
        return 1.0
    starts = (words[n : n + len(word)] for n in range(len(words)))
    if len(word) > 1 and word in ("".join(w[:1] for w in some) for some in starts):
        return 0.9
    both = [sorted((word, each), key=len) for each in words]
    if any(len(short) > 2 and long.startswith(short) for short, long in both):
        return 0.9
    if _SAME.get(word) in words:
        return 0.8
    return 0.8 * max((_spelt(word, each) for each in words), default=0.0)


def _spelt(one: str, other: str) -> float:
    ratio = difflib.SequenceMatcher(None, one, other).ratio()
    return ratio if ratio > 0.7 else 0.0


def no_field(config: ConfigDict, path: str, shown: str) -> UserError:
    """For a field that the config has not.

    Args:
      path: GROUP.NAME.
      shown: the field as the user wrote it, after what comes before it on the line.
    """
    if instead := configuration.WITHDRAWN.get(path):
        return UserError(f"{shown}: withdrawn; {instead}")
    before = "--config." if shown.startswith("--") else "config."
    groups = [] if "." in path else list(config)
    likely = near(path, [*groups, *(name for name, _ in fields.each(config))])
    text = f"did you mean {' or '.join(before + name for name in likely)}?"
    where: object = config
    for group in path.split(".")[:-1]:
        where = where.get(group) if isinstance(where, ConfigDict) else None
    if not likely or (isinstance(where, ConfigDict) and where is not config):
        known = where if isinstance(where, ConfigDict) else config
        there = f"there are {', '.join(sorted(known))}"
        text = f"{text} {there}" if likely else there
    return UserError(f"{shown}: no such field; {text}")


def no_file(spec: str, path: Path) -> UserError:
    """For a config file that is not there."""
    top = configuration.CONFIGS.parent
    beside = sorted(path.parent.glob("*.py")) if path.parent.is_dir() else []
    ours = sorted(configuration.CONFIGS.rglob("*.py"))
    there = [str(p) for p in beside] + [str(p.relative_to(top)) for p in ours]
    like = [name for name in there if Path(name).stem == path.stem]
    like += difflib.get_close_matches(str(path), there, 1)
    meant = ""
    if like:
        at = like[0] if like[0] in map(str, beside) else os.path.relpath(top / like[0])
        meant = f"; did you mean {at}?"
    return UserError(f"--config={spec}: no file {path}{meant}")


def raised(
    path: Path, error: BaseException, base: ConfigDict | None = None
) -> UserError:
    """For a config file whose code raised an error.

    Args:
      base: the config that the file changes, if it extends one.
    """
    frames, here = traceback.extract_tb(error.__traceback__), path.resolve()
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == here] or [1]
    place, text = f"{path}:{lines[-1]}", _text(error)
    if isinstance(error, SyntaxError):
        file = Path(error.filename or path)
        name = path if file.resolve() == here else os.path.relpath(file)
        said = f"{type(error).__name__}: {error.msg}"  # or an IndentationError
        return UserError(f"{name}:{error.lineno or 1}: {said}")
    if frames and _LIBRARY in frames[-1].filename:
        key = (re.findall(r"['\"](?:Key \")?(\w+)", text) or [""])[0]
        line = linecache.getline(str(here), lines[-1] or 1)
        chain = re.search(rf"\w\.((?:\w+\.)*{key}\b(?:\.\w+)*)", line)
        field = chain[1] if chain else key
        if isinstance(error, AttributeError | KeyError):
            config = base or configuration.defaults()
            return no_field(config, field, f"{place}: config.{field}")
        if kind := re.search(r"to type <class '(\w+)'>$", text):
            takes = f"takes a value of type {kind[1]}"
            return UserError(f"{place}: config.{field} {takes}")
    if isinstance(error, AttributeError) and error.name == "get_config":
        return UserError(f"{place}: has no get_config; define get_config(config)")
    # Of a ValueError the message is meant for the user.
    kind_of = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return UserError(f"{place}: {kind_of}{text}")


def _text(error: BaseException) -> str:
    """The message of an exception from user code, in one line."""
    try:
        return " ".join(str(error).split())
    except Exception:  # __str__ may be user code too
        return "it cannot be printed"


def require_code(values: Mapping[str, Any], defined_in: Mapping[str, str]) -> None:
    """Raises UserError if what a run's config file defined is not there.

    Args:
      values: of each field of the run.
      defined_in: a field -> the `--config` that defined its value.
    """
    for field, spec in defined_in.items():
        if values[field] not in registry.ADDED:
            kind = field.removesuffix(".name").rpartition(".")[2]
            raise UserError(
                f"this run's {kind} {values[field]!r} is defined in "
                f"{spec.partition(':')[0]}: add --config={spec}"
            )


def no_flag(error: flags.Error) -> str:
    """For a wrong flag: perhaps a field without `--config.`."""
    text = " ".join(str(error).split())
    if not isinstance(error, flags.UnrecognizedFlagError):
        return text
    name = error.flagname
    names = [each for each, _ in fields.each(configuration.defaults())]
    if name in names or name.startswith("task."):  # a task has fields of its own
        meant = [name]
    else:
        meant = [] if "Did you mean" in text else near(name, names)
    value = "".join(error.flagvalue.partition("=")[1:])
    flag = " or ".join(f"--config.{each}{value}" for each in meant)
    return f"--{name}: no such flag; did you mean {flag}?" if meant else text
