"""The work directory: whose run it is, and its vocabulary."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from etils import epath
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.runtime import outside, storage
from bert_jax.runtime.storage import Path, write_atomically

# Where and on what a run goes on, and how it is asked: none of it shapes its numbers,
# but for what is done about anomalies, which a run that has met one decides anew.
FREE_FIELDS = (
    *("mesh.", "model.remat", "predict.", "corpus.data_dir", "evaluate."),
    *("checkpoint.keep", "train.on_anomaly", "train.spike_factor"),
    "train.stall_seconds",
)

# What a run leaves in its folder, and takes with it when it is archived.
_OF_A_RUN = ("checkpoints", "best", "metrics.jsonl", "events*", "predictions")
_ASIDE = ".collapsed"  # while they are moved


def claim(
    workdir: Path,
    config: ConfigDict,
    tokenizer: Tokenizer,
    data: Mapping[str, Any] | None = None,
    *,
    write: bool = True,
) -> None:
    """Makes the folder this run's: writes config.json, vocab.txt, tokenizer.json.

    Args:
      data: the record of the prepared data, for `read_data`.
      write: False where another process has just written them, for this one to see.

    Raises:
      UserError: it belongs to a run with another config or vocabulary, or cannot be
        written.
    """
    check(workdir, config)
    check_vocabulary(workdir, tokenizer)
    if not write:
        if not (workdir / "config.json").exists():
            raise UserError(
                f"--workdir={workdir}: what process 0 writes there is not seen by this "
                "one; all processes need the same shared folder"
            )
        return
    resolved = json.dumps(config.to_dict(), indent=2) + "\n"
    try:
        for name, text in tokenization.files(tokenizer).items():
            write_atomically(workdir / name, text)
        if data:
            write_atomically(workdir / "data.json", json.dumps(data, indent=2) + "\n")
        write_atomically(workdir / "config.json", resolved)
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror or error}") from error


def has_config(workdir: Path) -> bool:
    """Whether there is a run's config.json."""
    return (workdir / "config.json").exists()


def read_config(workdir: Path) -> dict[str, Any]:
    """The fields of the run's config.json.

    Raises:
      UserError: there is none, or it is no run's.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise UserError(f"--workdir={workdir}: no run there; train one first")
    fields = _read_json(path)
    groups = ("model", "tokenizer", "task", "train", "checkpoint", "evaluate")
    if not all(isinstance(fields.get(group), dict) for group in groups):
        raise UserError(f"{path}: not a run's config; is this a work directory?")
    return fields


def check(workdir: Path, config: ConfigDict) -> None:
    """Raises UserError where config.json there and `config` differ, naming fields."""
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir={workdir}: not a folder")
    if not has_config(workdir):
        return
    theirs = flatten_dict(read_config(workdir), sep=".")
    ours = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    fields = sorted(
        field
        for field in theirs.keys() | ours.keys()
        if theirs.get(field) != ours.get(field) and not field.startswith(FREE_FIELDS)
    )
    if fields:
        differences = ", ".join(
            f"{f} ({theirs.get(f)!r} there, {ours.get(f)!r} now)" for f in fields
        )
        raise UserError(
            f"--workdir={workdir} belongs to a run of another config: {differences}; "
            f"take another --workdir"
        )


def fields(config: ConfigDict) -> dict[str, Any]:
    """What all processes of a run must agree in: all but where a machine keeps data."""
    flat = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    return {name: value for name, value in flat.items() if name != "corpus.data_dir"}


def read_facts(workdir: Path, step: int) -> dict[str, Any]:
    """What a run has learnt besides its weights, of the checkpoint of a step."""
    path = workdir / "task.json"
    return _read_json(path).get(str(step), {}) if path.exists() else {}


def write_facts(workdir: Path, facts: dict[str, Any], step: int) -> None:
    """Keeps what a run has learnt besides its weights at a step, if anything."""
    if not facts:
        return
    path = workdir / "task.json"
    known = _read_json(path) if path.exists() else {}
    text = json.dumps({**known, str(step): facts}, indent=2)
    write_atomically(path, text + "\n")


def read_data(workdir: Path) -> dict[str, Any]:
    """What `claim` has kept of the run's prepared data; empty where it is no run."""
    path = workdir / "data.json"
    return _read_json(path) if path.exists() else {}


def archived_runs(workdir: Path) -> int:
    """How many runs have collapsed there; an empty folder of that name is none."""
    found = workdir.glob("collapsed_*")
    names = {path.name for path in found if (path / "metrics.jsonl").exists()}
    return next(n for n in itertools.count() if f"collapsed_{n}" not in names)


def archive(workdir: Path, attempt: int) -> None:
    """Archives a collapsed run: moves a run's files to `collapsed_<attempt>`.

    Raises:
      UserError: something else is there.
    """
    target = workdir / f"collapsed_{attempt}"
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(
            f"{target}: the run that has collapsed must be moved there, but it is no "
            "empty folder; move it away and start the same command again"
        )
    aside = workdir / _ASIDE
    aside.mkdir(exist_ok=True)
    for pattern in _OF_A_RUN:
        for path in workdir.glob(pattern):
            path.rename(aside / path.name)
    aside.rename(target)


def finish_archiving(workdir: Path) -> None:
    """Does what `archive` was killed in the middle of."""
    if not storage.in_bucket(workdir) and (workdir / _ASIDE).exists():
        archive(workdir, archived_runs(workdir))


def drop_best(workdir: Path) -> None:
    """Deletes what a run kept as its best and died before its first checkpoint: the run
    that begins anew there has another best."""
    epath.Path(workdir / "best").rmtree(missing_ok=True)


def _read_json(path: Path) -> dict[str, Any]:
    return outside.read_object(path, "; is this a work directory?")


def check_vocabulary(workdir: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError where the run's vocabulary is another one.

    A trained vocabulary changes with the text it is trained on, under the same config.
    """
    path = workdir / "tokenizer.json"
    if path.exists() and tokenization.load(path).get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{path}: not the vocabulary that config.corpus.sources gives now; the "
            "text has changed since the run began: restore it, or take another "
            "--workdir"
        )
