"""The work directory: which run it belongs to, and the run's vocabulary."""

import json
from collections.abc import Mapping
from typing import Any

from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import registry, tokenization
from bert_jax.config import configuration
from bert_jax.config.fields import named
from bert_jax.errors import UserError
from bert_jax.runtime import storage, untrusted
from bert_jax.runtime.storage import Path, write_atomically

# Fields that may change on resuming: where a run continues, what it logs and saves, and
# how it is queried. None shapes its numbers, except after an anomaly.
FREE_FIELDS = (
    *("mesh.", "model.remat", "predict.", "serve.", "corpus.data_dir"),
    *("corpus.runner", "corpus.beam_options"),
    # Not evaluate.score: the best checkpoint so far is the best by that score.
    *("evaluate.batch_size", "evaluate.splits", "evaluate.checkpoint"),
    *("checkpoint.", "train.on_anomaly", "train.spike_factor"),
    *("train.log_every", "train.trackers", "train.extend"),
    *("train.deterministic", "task.words"),
)
# What runs of a user's own task did before these fields of shipped tasks were there.
_NEWER = {
    "model.epilogue": "xla",
    "task.texts_per_row": 1,
    "task.format": "",
    "task.label_names": [],
}
# These may grow with train.extend.
_LENGTH = ("train.num_steps", "train.num_epochs")


def claim(
    workdir: Path,
    config: ConfigDict,
    tokenizer: Tokenizer,
    data: Mapping[str, Any] | None = None,
    *,
    write: bool = True,
) -> None:
    """Claims the folder for this run: writes config.json, vocab.txt, tokenizer.json.

    Args:
      data: the record of the prepared data, for `read_data`.
      write: False: only checks that process 0's files are visible to this process.

    Raises:
      UserError: the folder belongs to a run with another config, vocabulary or data,
        or cannot be written.
    """
    check(workdir, config)
    check_vocabulary(workdir, tokenizer)
    _check_data(workdir, data or {})
    if not write:
        if not (workdir / "config.json").exists():
            raise UserError(
                f"--workdir={workdir}: this process does not see what process 0 writes "
                "there; all processes need the same shared folder"
            )
        return
    defined = unflatten_dict(defined_in(config), sep=".")
    record = config.to_dict() | ({configuration.DEFINED_IN: defined} if defined else {})
    resolved = json.dumps(record, indent=2) + "\n"
    try:
        for name, text in tokenization.files(tokenizer).items():
            write_atomically(workdir / name, text)
        if data:
            write_atomically(workdir / "data.json", json.dumps(data, indent=2) + "\n")
        write_atomically(workdir / "config.json", resolved)
    except OSError as error:
        if storage.is_client_error(error):
            raise
        raise UserError(f"--workdir={workdir}: {error.strerror}") from error


def defined_in(config: ConfigDict) -> dict[str, str]:
    """The config file that defined a field's value, for each that one did."""
    added = {name: registry.ADDED.get(value) for name, value in named(config).items()}
    return {name: file for name, file in added.items() if file}


def _check_data(workdir: Path, data: Mapping[str, Any]) -> None:
    """Raises UserError if a run's rows are not those that it began with."""
    began = read_data(workdir)
    known, now = (
        {"training": each.get("rows")} | each.get("dev", {}) for each in (began, data)
    )
    for name, digest in known.items():
        if digest and now.get(name) not in (None, digest):
            dev = ", or score the run on it with --mode=evaluate"
            raise UserError(
                f"--workdir={workdir}: the {name} data is not what this run began "
                f"with; restore it, or use another --workdir"
                f"{dev if name != 'training' else ''}"
            )


def has_config(workdir: Path) -> bool:
    """Whether the folder has a run's config.json."""
    return (workdir / "config.json").exists()


def require_one_seed(workdir: Path, config: ConfigDict) -> None:
    """Raises UserError if the run's weights are in a folder for each seed."""
    if config.train.seeds > 1:
        raise UserError(
            f"{workdir}: a run of {config.train.seeds} seeds; name one seed's folder, "
            f"such as {workdir / f'seed_{config.seed}'}"
        )


def read_config(workdir: Path) -> dict[str, Any]:
    """The fields of the run's config.json.

    Raises:
      UserError: it is missing, or is not a run's config.
    """
    path = workdir / "config.json"
    if not path.exists():
        raise UserError(f"--workdir={workdir}: has no run; train one first")
    fields = _read_json(path)
    groups = ("model", "tokenizer", "task", "train", "checkpoint", "evaluate")
    if not all(isinstance(fields.get(group), dict) for group in groups):
        raise UserError(f"{path}: not a run's config; is this a work directory?")
    return fields


def recorded(workdir: Path, *, code: bool = True) -> ConfigDict:
    """The run's config, complete; arguments as in `configuration.complete`."""
    path = workdir / "config.json"
    return configuration.complete(read_config(workdir), path, code=code)


def check(workdir: Path, config: ConfigDict) -> int:
    """Compares config.json with `config`.

    A field that is newer than config.json has its default there.

    Returns:
      `train.num_steps` of config.json; without a run, of `config`.

    Raises:
      UserError: fields differ that shape the run; names them.
    """
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir={workdir}: not a folder")
    if not has_config(workdir):
        return config.train.num_steps
    if (workdir / "collapsed_0" / "metrics.jsonl").exists():
        raise UserError(
            f"--workdir={workdir}: an earlier version restarted this run with another "
            "seed than config.json's (train.restarts, withdrawn); start another "
            "--workdir"
        )
    before = recorded(workdir, code=False).to_dict()
    there = flatten_dict(json.loads(json.dumps(before)), sep=".")
    here = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    there = {f: value for f, value in _NEWER.items() if f in here} | there
    fields = sorted(
        field
        for field in there.keys() | here.keys()
        if there.get(field) != here.get(field) and not field.startswith(FREE_FIELDS)
    )
    before, now = (flat["train.num_steps"] for flat in (there, here))
    grows = set(fields) <= set(_LENGTH) and now > before
    if fields and not (grows and config.train.extend):
        differences = ", ".join(
            f"{f} ({there.get(f)!r} there, {here.get(f)!r} now)" for f in fields
        )
        instead = "use another --workdir"
        if grows:
            instead = (
                "to train this run longer, add --config.train.extend=True (the "
                f"learning rate then follows a schedule of {now} steps); else {instead}"
            )
        if fields == ["train.num_steps"] and here["train.num_epochs"]:
            instead += "; or has the training data another number of rows now?"
        raise UserError(
            f"--workdir={workdir} belongs to a run of another config: {differences}; "
            f"{instead}"
        )
    if grows and config.phase2.fraction:
        raise UserError(
            f"--workdir={workdir}: config.train.extend would move the start of phase 2 "
            f"of this run (config.phase2.fraction={config.phase2.fraction}); start "
            "another run with --config.init_from"
        )
    return before


def fields(config: ConfigDict) -> dict[str, Any]:
    """The fields that all processes of a run must agree on: all but corpus.data_dir."""
    flat = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    return {name: value for name, value in flat.items() if name != "corpus.data_dir"}


def read_facts(workdir: Path, step: int) -> dict[str, Any]:
    """What a run has learned besides weights: of its data (`facts` in data.json), and
    at the checkpoint of a step (task.json)."""
    path = workdir / "task.json"
    facts = _read_json(path).get(str(step), {}) if path.exists() else {}
    return {**read_data(workdir).get("facts", {}), **facts}


def write_facts(workdir: Path, facts: dict[str, Any], step: int) -> None:
    """Saves what a run has learned besides weights at a step, if anything."""
    if not facts:
        return
    path = workdir / "task.json"
    known = _read_json(path) if path.exists() else {}
    text = json.dumps({**known, str(step): facts}, indent=2)
    write_atomically(path, text + "\n")


def read_data(workdir: Path) -> dict[str, Any]:
    """The record of the run's prepared data that `claim` wrote; empty without a run."""
    path = workdir / "data.json"
    return _read_json(path) if path.exists() else {}


def drop_best(workdir: Path, after: int = -1) -> None:
    """Deletes the best parameters of later steps than `after`: of an attempt that died
    past the checkpoint its run resumes from, or before the first one (-1)."""
    best = epath.Path(workdir / "best")
    for path in best.iterdir() if best.exists() else ():
        if path.name.isdecimal() and int(path.name) > after:
            path.rmtree()


def _read_json(path: Path) -> dict[str, Any]:
    return untrusted.read_object(path, "; is this a work directory?")


def check_vocabulary(workdir: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError if the run has another vocabulary.

    A trained vocabulary changes with its text, even under the same config.
    """
    path = workdir / "tokenizer.json"
    if not path.exists():
        return
    if tokenization.load(path, whole=False).get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{path}: not the vocabulary that config.corpus.sources gives now; the "
            "text has changed since the run started: restore it, or use another "
            "--workdir"
        )
