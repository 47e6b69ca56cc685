"""One-line errors for a wrong field or flag, with the likely correct name."""

import difflib
from collections.abc import Collection

from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.errors import UserError


def near_names(asked: str, names: Collection[str]) -> list[str]:
    """Returns the names that a misspelled one may mean: the most similar one, or else
    those in which the part after the group is similar."""
    ends = {name: name.rpartition(".")[2] for name in names}
    like = difflib.get_close_matches(
        asked.rpartition(".")[2], {*ends.values()}, 1, 0.65
    )
    whole = difflib.get_close_matches(asked, names, 1, 0.8)
    return whole or [name for name in names if ends[name] in like][:3]


def no_field(config: ConfigDict, path: str, shown: str) -> UserError:
    """Returns the error for a field that the config does not have.

    Args:
      path: GROUP.NAME.
      shown: The field as the user wrote it, after any text before it on the line.
    """
    before = "--config." if shown.startswith("--") else "config."
    names = [*config, *(name for name, _ in fields.iter_fields(config))]
    if likely := near_names(path, names):
        meant = " or ".join(before + name for name in likely)
        return UserError(f"{shown}: no such field; did you mean {meant}?")
    group = config.get(path.partition(".")[0])
    known = group if isinstance(group, ConfigDict) else config
    return UserError(f"{shown}: no such field; there are {', '.join(sorted(known))}")


def no_flag(text: str, flags: Collection[str]) -> UserError:
    """Returns the error for an argument that is no flag, perhaps a field without
    `--config.`."""
    if not text.startswith("-"):
        return UserError(f"{text!r}: flags begin with --")
    name = text.lstrip("-").partition("=")[0]
    known = [*flags, *(f"config.{each}" for each in fields.FIELDS | fields.TASK)]
    meant = " or ".join(f"--{each}" for each in near_names(name, known))
    return UserError(
        f"--{name}: no such flag" + f"; did you mean {meant}?" * bool(meant)
    )
