"""One-line errors for a wrong field or flag, with the likely correct name."""

import difflib
from collections.abc import Iterable

from absl import flags
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.errors import UserError


def near_names(asked: str, names: Iterable[str]) -> list[str]:
    """Returns the names that a misspelled one may mean, at most three, best first."""
    group, _, word = asked.rpartition(".")
    last = {name: name.rpartition(".")[2] for name in names}
    like = difflib.get_close_matches(word, last.values(), len(last), 0.65)
    found = [name for name in last if last[name] in like]
    there = [name for name in found if group and name.startswith(f"{group}.")]
    return difflib.get_close_matches(asked, there or found, 3, 0.0)


def no_field(config: ConfigDict, path: str, shown: str) -> UserError:
    """Returns the error for a field that the config does not have.

    Args:
      path: GROUP.NAME.
      shown: The field as the user wrote it, after any text before it on the line.
    """
    before = "--config." if shown.startswith("--") else "config."
    likely = near_names(
        path, [*config, *(name for name, _ in fields.iter_fields(config))]
    )
    if likely:
        meant = " or ".join(before + name for name in likely)
        return UserError(f"{shown}: no such field; did you mean {meant}?")
    group = config.get(path.partition(".")[0])
    known = group if isinstance(group, ConfigDict) else config
    return UserError(f"{shown}: no such field; there are {', '.join(sorted(known))}")


def no_flag(error: flags.Error) -> UserError:
    """Returns the error for a wrong flag, perhaps a field without `--config.`."""
    text = " ".join(str(error).split())
    if not isinstance(error, flags.UnrecognizedFlagError) or "Did you mean" in text:
        return UserError(text)
    name, value = error.flagname, "".join(error.flagvalue.partition("=")[1:])
    meant = [name] if name.startswith("task.") else near_names(name, fields.FIELDS)
    flag = " or ".join(f"--config.{each}{value}" for each in meant)
    hint = f"no such flag; did you mean {flag}?"
    return UserError(f"--{name}: {hint}" if meant else text)
