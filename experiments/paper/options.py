"""The command line of experiments.paper, checked before anything runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.config.configuration import field_of
from bert_jax.data.corpus import FILE_KINDS
from bert_jax.data.lines import COMPRESSED
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from experiments import command_line
from experiments.paper import beside, existing, tables, tasks
from experiments.paper.systems import Table
from experiments.running import ROOT

# What the tables set themselves; names that end in a full stop are whole groups.
_SET = (
    *("init_from", "task.", "corpus.sources", "corpus.nsp", "train.seeds"),
    *("masking.mask_fraction", "masking.random_fraction"),
    *("checkpoint.keep_every", "checkpoint.save_every"),
)
_SET_FINETUNING = (
    *("init_from", "seed", "task.name", "task.bilstm", "task.data_dir"),
    *("task.train_file", "task.dev_file", "task.test_file"),
    *("train.seeds", "train.restarts", "train.early_stop"),
    *("evaluate.checkpoint", "evaluate.splits"),
)
# Where systems are compared; --words gives the steps.
_SET_BESIDE = ("train.num_steps", "corpus.packing", "corpus.weights")
# Words that each of them reads unless --words says so: some minutes each on a CPU.
_WORDS = {"tiny": 2_000_000}
# Of table 6, which compares them.
_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
)
# Of the machine, not of a recipe: all runs get them.
_OF_ALL = ("mesh.", "model.dtype", "model.attention", "model.remat")
# Bytes of English text in a word with its space, and in a byte of a compressed file.
_WORD, _GZIP = 6, 2.8
# Readings of the text: the paper's run reads its own 40 times (appendix A.2).
_PAPER_READINGS, _MOST_READINGS = 40, 1000


class Options(NamedTuple):
    """What was asked for.

    Attributes:
      table: the table at the size.
      systems: bert, or those of `beside.SYSTEMS` to compare.
      weights: that the rows start from, in place of a pre-training.
      words: that each of several systems reads; 0: the configs' steps.
      configs: the spec of each system's pre-training config.
      corpus: its sources; empty: the config's own.
      output: the folder of everything.
      seeds: fine-tuning runs of each system and task.
      found: the data of the tasks that run, by name.
      missing: why the table's other tasks do not run, by name.
      fields: of pre-training, `finetuning` of fine-tuning: --config.FIELD=VALUE.
      resolved: the (first system's) pre-training config with its fields.
    """

    table: Table
    size: str
    systems: tuple[str, ...]
    weights: tuple[str, ...]
    words: int
    configs: dict[str, str]
    corpus: tuple[str, ...]
    output: Path
    seeds: int
    found: dict[str, tasks.Found]
    missing: dict[str, str]
    fields: tuple[str, ...]
    finetuning: tuple[str, ...]
    plan: bool
    resolved: ConfigDict


def parse(argv: Sequence[str]) -> Options:
    """The options.

    Raises:
      UserError: a table, task, field or folder does not exist; there is no data for any
        task; the corpus is missing or too small.
    """
    given, rest = _parser().parse_known_args(argv)
    systems = beside.chosen(given.systems)
    sources = tuple(filter(None, (given.weights or "").split(",")))
    if given.weights is not None:
        existing.require_no_pretraining(given, rest, _OF_ALL)
        table, given.size = existing.build(given.table, given.size, sources)
    else:
        table = beside.build(given.table, given.size, systems)
    words = _words(given, systems)
    fields, finetuning = _fields(rest, table)
    if given.seeds < 1:
        raise UserError(f"--seeds={given.seeds}: at least 1 is required")
    if given.output.parts[:1] == ("gs:",):
        raise UserError(f"--output={given.output}: a local folder is required")
    found, missing = _data(table, given.tasks, given.data)
    if given.config and given.size == "large":
        raise UserError("--config: a config of yours goes with any --size but large")
    if given.config and _compares_shapes(table):
        raise UserError(f"--config: {table.name} takes its models from --size")
    if given.config and systems != beside.ALONE:
        raise UserError("--config: a config of yours is one system's; leave --systems")
    configs = {name: pretraining_config(name, given.size) for name in systems}
    if given.config:
        configs = {"bert": given.config}
    corpus = tuple(filter(None, given.corpus.split(",")))
    overrides = list(fields)
    if corpus:
        overrides.append(f"--config.corpus.sources={corpus!r}")
    resolved, *_ = (configuration.load(spec, overrides) for spec in configs.values())
    if words:  # all systems read the same
        corpus = tuple(resolved.corpus.sources)
    if not sources:
        _check_steps(resolved)
        _check_corpus(resolved, given.size, words)
    return Options(
        *(table, given.size, systems, sources, words, configs, corpus, given.output),
        *(given.seeds, found, missing, fields, finetuning, given.plan, resolved),
    )


def _words(given: argparse.Namespace, systems: tuple[str, ...]) -> int:
    """The words that each system reads; 0 for BERT alone."""
    if systems == beside.ALONE:
        if given.words is not None:
            raise UserError("--words: goes with --systems; BERT alone takes its steps")
        return 0
    words = _WORDS.get(given.size, 0) if given.words is None else given.words
    if words < 1:
        raise UserError(
            f"--words: at size={given.size} say how many words each system reads, 1 or "
            "more; the paper's steps of Base read some 4e10"
        )
    return words


def finetuning_config(data: tasks.Found, size: str, system: str = "bert") -> str:
    """The spec of a task's config."""
    file, *arguments = data.config
    if system != "bert":
        arguments.append(f"model={system}")
    spec = ",".join([f"size={size}", *arguments])
    return f"{ROOT / 'configs' / 'finetune' / file}:{spec}"


def _parser() -> command_line.Parser:
    parser = command_line.Parser(
        "experiments.paper",
        description="A table of the paper: trains what it compares, and reports.",
        epilog="--config.FIELD=VALUE is for pre-training, --finetuning.FIELD=VALUE for "
        "fine-tuning; see docs/paper.md",
    )
    parser.add_argument("table", help=", ".join(tables.TABLES))
    parser.add_argument("--size", default="base", choices=tuple(tables.SIZES))
    parser.add_argument("--systems", default="bert", help="table1: bert,gpt,elmo")
    parser.add_argument("--weights", help="a row from each, between commas")
    parser.add_argument("--words", type=int, help="with --systems: that each reads")
    parser.add_argument("--corpus", default="", help="sources, between commas")
    parser.add_argument("--data", default="", help="folders, between commas")
    parser.add_argument("--tasks", default="", help="of the table; all that --data has")
    parser.add_argument("--seeds", default=5, type=int, help="fine-tuning runs of each")
    parser.add_argument("--output", default="runs/paper", type=Path)
    parser.add_argument("--config", default="", help="a pre-training config of yours")
    parser.add_argument("--plan", action="store_true", help="shows it, runs nothing")
    return parser


def pretraining_config(system: str, size: str) -> str:
    """The spec of a system's config."""
    folder = ROOT / "configs"
    if system == "elmo":
        return f"{folder}/elmo.py:size={'tiny' if size == 'tiny' else 'released'}"
    if system == "gpt":
        return f"{folder}/gpt.py:size={size}"
    if size == "tiny":
        return f"{folder}/tiny.py:recipe=plain"
    return f"{folder}/base.py:size={size}"


def _compares_shapes(table: Table) -> bool:
    return any(system.pretraining.shape for system in table.systems)


def _set(table: Table) -> tuple[str, ...]:
    """The fields of pre-training that the table sets."""
    own = [f for s in table.systems for f in s.pretraining.fields]
    shape = _SHAPE if _compares_shapes(table) else ()
    return (
        *_SET,
        *(_SET_BESIDE if table.averaged else ()),
        *(field.partition("=")[0] for field in own),
        *(f"model.{name}" for name in shape),
    )


def _fields(
    rest: Sequence[str], table: Table
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of pre-training and of fine-tuning, as --config.FIELD=VALUE.

    Raises:
      UserError: an option that does not exist, or a field that the table sets.
    """
    pretraining, finetuning = [], []
    for text in rest:
        of = text.partition(".")[0]
        if of not in ("--config", "--finetuning") or "=" not in text:
            raise UserError(
                f"{text}: no such option; --config.FIELD=VALUE is for pre-training, "
                "--finetuning.FIELD=VALUE for fine-tuning"
            )
        field = text.partition(".")[2].partition("=")[0]
        taken = _set(table) if of == "--config" else _SET_FINETUNING
        if field in taken or f"{field.partition('.')[0]}." in taken:
            raise UserError(f"{text}: the table sets {field} itself; see docs/paper.md")
        plain = f"--config.{text.partition('.')[2]}"
        assert field_of(plain) == field
        if of == "--config":
            pretraining.append(plain)
        if of == "--finetuning" or field in _OF_ALL or field.startswith(_OF_ALL[0]):
            finetuning.append(plain)
    return tuple(pretraining), tuple(finetuning)


def _data(
    table: Table, asked: str, data: str
) -> tuple[dict[str, tasks.Found], dict[str, str]]:
    """The data of the tasks to run, and why the others are missing."""
    tasks.require(folders := list(filter(None, data.split(","))))
    names = list(filter(None, asked.split(",")))
    for name in names:
        if name not in table.tasks():
            raise UserError(
                f"--tasks: {table.name} has no task {name!r}; it has "
                f"{', '.join(table.tasks())}"
            )
    found, missing = {}, {}
    for name in names or table.usual or table.tasks():
        data_of = tasks.find(name, folders)
        if isinstance(data_of, tasks.Found):
            found[name] = data_of
        else:
            missing[name] = data_of
    if names and missing:
        name, why = next(iter(missing.items()))
        raise UserError(f"--tasks: {name}: {why}; --data={data}")
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise UserError(f"--data={data}: no task of {table.name} has data ({why})")
    return found, missing


def _check_steps(config: ConfigDict) -> None:
    """Raises UserError where the steps are too few."""
    steps, warmup = config.train.num_steps, config.optimizer.warmup_steps
    if steps < len(tables.SHARES):
        raise UserError(
            f"--config.train.num_steps={steps}: at least {len(tables.SHARES)} are "
            "needed, because figure 5 divides them"
        )
    if warmup >= steps:
        raise UserError(
            f"--config.train.num_steps={steps}: all of them are warm-up; set --config."
            f"optimizer.warmup_steps as well, now {warmup} (the paper: a hundredth of "
            "the steps)"
        )


def _check_corpus(config: ConfigDict, size: str, to_read: int) -> None:
    """Weighs the text in files.

    Raises:
      UserError: a source is unknown, a file is missing, or the run would read the text
        more than _MOST_READINGS times.
    """
    total = 0.0
    for source in config.corpus.sources:
        kind, _, pattern = source.partition(":")
        if kind in ("pydocs", "tfds", "hf"):
            return
        if kind not in FILE_KINDS:
            kinds = ", ".join(f"{name}:GLOB" for name in FILE_KINDS)
            raise UserError(
                f"--corpus={source}: write {kinds}, hf:NAME, tfds:NAME or pydocs"
            )
        files = storage.find(pattern)
        if not files:
            raise UserError(f"--corpus={source}: no file matches")
        packed = (".parquet", *COMPRESSED)
        for name, about in files.items():
            total += int(about.state[1]) * (_GZIP if name.endswith(packed) else 1)
    words = total / _WORD
    read = config.train.num_steps * config.train.batch_size
    read = to_read or read * config.corpus.max_seq_length
    if read > _MOST_READINGS * words:
        what, less = f"{config.train.num_steps:,} steps of", "--config.train.num_steps"
        if to_read:
            what, less = f"{to_read:,} words at", "--words"
        raise UserError(
            f"--corpus: some {words:,.0f} words, which {what} size={size} would read "
            f"{read / max(words, 1):,.0f} times (the paper: {_PAPER_READINGS}); name "
            f"more text, a smaller --size or fewer {less}"
        )
