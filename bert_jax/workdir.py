"""The work directory: whose run it is, and its vocabulary."""

import json
import tempfile
from typing import Any

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import storage, tokenization
from bert_jax.errors import UserError
from bert_jax.storage import Path, write_atomically

# Where and on what a run goes on, and how it is asked: none of it shapes its numbers,
# but for what is done about anomalies, which a run that has met one decides anew.
FREE_FIELDS = (
    *("mesh.", "model.remat", "predict.", "corpus.data_dir", "evaluate."),
    *("checkpoint.keep", "train.on_anomaly", "train.spike_factor"),
    "train.stall_seconds",
)

# What a checkpoint must agree in with those who ask it.
MODEL_FIELDS = ("model.", "task.name", "task.labels")

# What a run leaves in its folder, and takes with it when it is put aside.
_OF_A_RUN = ("checkpoints", "best", "metrics.jsonl", "events*", "predictions")


def claim(
    workdir: Path, config: ConfigDict, tokenizer: Tokenizer, *, write: bool = True
) -> None:
    """Makes the folder this run's: writes config.json, vocab.txt, tokenizer.json.

    Args:
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
        write_atomically(workdir / "config.json", resolved)
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror or error}") from error


def check(workdir: Path, config: ConfigDict, only: tuple[str, ...] = ("",)) -> None:
    """Raises UserError where config.json there and `config` differ, naming fields.

    Args:
      only: beginnings of the fields that are looked at.
    """
    path = workdir / "config.json"
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir={workdir}: not a folder")
    if not path.exists():
        return
    theirs = flatten_dict(_read_json(path), sep=".")
    ours = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    fields = sorted(
        field
        for field in theirs.keys() | ours.keys()
        if theirs.get(field) != ours.get(field)
        and field.startswith(only)
        and not field.startswith(FREE_FIELDS)
    )
    if fields:
        told = ", ".join(
            f"{f} ({theirs.get(f)!r} there, {ours.get(f)!r} now)" for f in fields
        )
        raise UserError(
            f"--workdir={workdir} belongs to a run of another config: {told}; "
            f"take another --workdir"
        )


def fields(config: ConfigDict) -> dict[str, Any]:
    """What all processes of a run must agree in: all but where a machine keeps data."""
    flat = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    return {name: value for name, value in flat.items() if name != "corpus.data_dir"}


def fill_in(workdir: Path, config: ConfigDict) -> None:
    """Takes from config.json there what the data gave: labels, steps, sizes."""
    path = workdir / "config.json"
    if not path.exists():
        return
    theirs = _read_json(path)
    for group, field in (
        ("model", "vocab_size"),
        ("train", "num_steps"),
        ("task", "labels"),
    ):
        given = theirs.get(group, {}).get(field)
        if given and field in config[group] and not config[group][field]:
            config[group][field] = tuple(given) if field == "labels" else given


def read_facts(workdir: Path) -> dict[str, Any]:
    """What a run has learnt besides its weights."""
    path = workdir / "task.json"
    return _read_json(path) if path.exists() else {}


def write_facts(workdir: Path, facts: dict[str, Any]) -> None:
    """Keeps what a run has learnt besides its weights, if anything."""
    if facts:
        write_atomically(workdir / "task.json", json.dumps(facts, indent=2) + "\n")


def runs_put_aside(workdir: Path) -> int:
    """How many runs have collapsed there."""
    return len(list(workdir.glob("collapsed_*")))


def put_aside(workdir: Path, attempt: int) -> None:
    """Makes room for the next attempt: moves a run's files to `collapsed_<attempt>`."""
    with tempfile.TemporaryDirectory(prefix=".collapsed.", dir=workdir) as temporary:
        aside = storage.path(temporary) / "run"
        aside.mkdir()
        for pattern in _OF_A_RUN:
            for path in workdir.glob(pattern):
                path.rename(aside / path.name)
        aside.rename(workdir / f"collapsed_{attempt}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(
            f"{path}: not JSON ({error}); is this a work directory?"
        ) from error


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
