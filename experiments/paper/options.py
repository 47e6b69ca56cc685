"""The command line of experiments.paper, checked before anything runs."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.commands import command_line
from bert_jax.commands.runner import ROOT
from bert_jax.config import configuration
from bert_jax.config.common_fields import FIELDS
from bert_jax.config.configuration import field_of
from bert_jax.errors import UserError
from experiments.paper import beside, existing, tables, tasks
from experiments.paper.systems import Table

# Fields that the tables set. Names that end in a period are whole groups.
_SET = (
    *("init_from", "task.", "corpus.sources", "corpus.nsp", "train.seeds"),
    *("masking.mask_fraction", "masking.random_fraction"),
    *("checkpoint.keep_every", "checkpoint.save_every"),
)
_SET_FINETUNING = (
    *("init_from", "seed", "task.name", "task.bilstm", "task.data_dir"),
    *("task.train_file", "task.dev_file", "task.test_file"),
    *("train.seeds", "train.early_stop"),
    *("evaluate.checkpoint", "evaluate.splits"),
)
# Where systems are compared, --words sets the steps.
_SET_BESIDE = ("train.num_steps", "corpus.packing", "corpus.weights")
# Words that each of them reads unless --words says so: some minutes each on a CPU.
_WORDS = {"tiny": 2_000_000}
# Fields of table 6, which compares them.
SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
# Fields of the machine, not of a recipe: all runs get them.
_OF_ALL = {
    name
    for name, field in FIELDS.items()
    if field.may_differ and name.startswith(("mesh.", "model."))
}


class Options(NamedTuple):
    """The options.

    Attributes:
      table: Table at the size.
      weights: Weights that the rows start from, instead of a pre-training.
      words: Words that each of several systems reads. 0 means the configs' steps.
      configs: Spec of each system's pre-training config.
      output: Folder of everything.
      seeds: Number of fine-tuning runs for each system and task.
      found: Data of the tasks that run, by name.
      missing: Reasons why the table's other tasks do not run, by name.
      fields: Fields of pre-training, and `finetuning` those of fine-tuning:
        --config.FIELD=VALUE.
      resolved: The (first system's) pre-training config with its fields.
    """

    table: Table
    size: str
    weights: tuple[str, ...]
    words: int
    configs: dict[str, str]
    output: Path
    seeds: int
    found: dict[str, tasks.Found]
    missing: dict[str, str]
    fields: tuple[str, ...]
    finetuning: tuple[str, ...]
    plan: bool
    resolved: ConfigDict


def parse(argv: Sequence[str], description: str = "") -> Options:
    """Reads the options.

    Args:
      description: Text at the top of --help.

    Raises:
      UserError: A table, task, field or folder does not exist, there is no data for any
        task, or the steps are too few.
    """
    given, rest = _parser(description).parse_known_args(argv)
    systems = tuple(name for name in beside.SYSTEMS if name in given.systems)
    sources = tuple(given.weights)
    if sources:
        _require_no_pretraining(given, rest)
        table, given.size = existing.build(given.table, given.size, sources)
    else:
        table = beside.build(given.table, given.size, systems)
    words = _words(given, systems)
    by_table = {
        "--config": _set(table, systems != beside.ALONE),
        "--finetuning": _SET_FINETUNING,
    }
    fields, finetuning = _fields(rest, by_table)
    command_line.check_counts(given, "seeds")
    found, missing = _data(table, given.tasks, given.data)
    if given.config and (
        given.size == "large" or _compares_shapes(table) or systems != beside.ALONE
    ):
        raise UserError(
            "--config: a config of yours is one system's of one size: not with "
            "--size=large, --systems or table6"
        )
    configs = {name: pretraining_config(name, given.size) for name in systems}
    if given.config:
        configs = {"bert": given.config}
    if given.corpus:
        fields += (f"--config.corpus.sources={tuple(given.corpus)!r}",)
    resolved, *_ = (
        configuration.load_config(spec, fields) for spec in configs.values()
    )
    if words and not given.corpus:  # all systems read the same
        fields += (f"--config.corpus.sources={tuple(resolved.corpus.sources)!r}",)
    steps, least = resolved.train.num_steps, len(tables.SHARES)
    if not sources and steps < least:
        why = f"at least {least} are needed, because figure 5 divides them"
        raise UserError(f"--config.train.num_steps={steps}: {why}")
    return Options(
        *(table, given.size, sources, words, configs, given.output, given.seeds),
        *(found, missing, fields, finetuning, given.plan, resolved),
    )


def _require_no_pretraining(given: argparse.Namespace, rest: Sequence[str]) -> None:
    """Raises UserError for an option of pre-training given with --weights."""
    asked = [name for name in ("corpus", "config", "words") if getattr(given, name)]
    asked += ["systems"] * (given.systems != ["bert"])
    fields = [text[2:] for text in rest if text.startswith("--config.")]
    asked += [text for text in fields if field_of(f"--{text}") not in _OF_ALL]
    if asked:
        raise UserError(
            f"--{asked[0]}: is of pre-training, and the --weights are there; of "
            "fine-tuning: --finetuning.FIELD=VALUE"
        )


def _words(given: argparse.Namespace, systems: tuple[str, ...]) -> int:
    """Returns the number of words that each system reads, or 0 for BERT alone."""
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
    """Returns the spec of a task's config."""
    file, *arguments = data.config
    if system != "bert":
        arguments.append(f"model={system}")
    spec = ",".join([f"recipe={size}", *arguments])
    return f"{ROOT / 'configs' / 'finetune' / file}:{spec}"


def _parser(description: str) -> command_line.Parser:
    parser = command_line.Parser("experiments.paper", description)
    parser.add_argument("table", help=", ".join(tables.TABLES))
    parser.add_argument("--size", default="base", choices=tuple(tables.SIZES))
    systems = command_line.several(str, beside.SYSTEMS)
    named = f"of {', '.join(beside.SYSTEMS)}"
    parser.add_argument("--systems", default="bert", type=systems, help=named)
    names = command_line.several(str)
    parser.add_argument("--weights", default=[], type=names, help="a row from each")
    parser.add_argument("--words", type=int, help="with --systems: that each reads")
    parser.add_argument("--corpus", default=[], type=names, help="sources")
    parser.add_argument("--data", default="", help="folders, between commas")
    tasks_help = "of the table; all that --data has"
    parser.add_argument("--tasks", default=[], type=names, help=tasks_help)
    parser.add_argument("--seeds", default=5, type=int, help="fine-tuning runs of each")
    parser.add_argument("--config", default="", help="a pre-training config of yours")
    parser.add_run_options("runs/paper")
    return parser


def pretraining_config(system: str, size: str) -> str:
    """Returns the spec of a system's config."""
    folder = ROOT / "configs"
    if system == "gpt":
        return f"{folder}/gpt.py:size={size}"
    if size == "tiny":
        return f"{folder}/tiny.py:recipe=plain"
    return f"{folder}/base.py:size={size}"


def _compares_shapes(table: Table) -> bool:
    return any(system.pretraining.shape for system in table.systems)


def _set(table: Table, is_beside: bool) -> tuple[str, ...]:
    """Returns the fields of pre-training that the table sets.

    Args:
      is_beside: Whether it has systems other than BERT.
    """
    own = [f for s in table.systems for f in s.pretraining.fields]
    shape = SHAPE if _compares_shapes(table) else ()
    return (
        *_SET,
        *(_SET_BESIDE if is_beside else ()),
        *(field.partition("=")[0] for field in own),
        *(f"model.{name}" for name in shape),
    )


def _fields(
    rest: Sequence[str], set_by_table: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the fields of pre-training and of fine-tuning, as --config.FIELD=VALUE.

    Args:
      set_by_table: Names of fields, for --config and for --finetuning.

    Raises:
      UserError: An option does not exist, or a field is set by the table.
    """
    pretraining, finetuning = [], []
    for text in rest:
        of, _, given = text.partition(".")
        if of not in set_by_table or "=" not in text:
            raise UserError(
                f"{text}: no such option; --config.FIELD=VALUE is for pre-training, "
                "--finetuning.FIELD=VALUE for fine-tuning"
            )
        plain, taken = f"--config.{given}", set_by_table[of]
        field = field_of(plain)
        if field in taken or f"{field.partition('.')[0]}." in taken:
            raise UserError(f"{text}: the table sets {field} itself; see docs/paper.md")
        if of == "--config":
            pretraining.append(plain)
        if of == "--finetuning" or field in _OF_ALL:
            finetuning.append(plain)
    return tuple(pretraining), tuple(finetuning)


def _data(
    table: Table, names: Sequence[str], data: str
) -> tuple[dict[str, tasks.Found], dict[str, str]]:
    """Returns the data of the tasks to run, and why the others are missing.

    Args:
      names: Tasks that were requested. Empty means the table's usual ones.
    """
    for name in names:
        if name not in table.tasks():
            raise UserError(
                f"--tasks: {table.name} has no task {name!r}; it has "
                f"{', '.join(table.tasks())}"
            )
    found, missing = tasks.find_all(names or table.usual or table.tasks(), data)
    if not found or (names and missing):
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise UserError(f"--data={data}: no data of {table.name} for {why}")
    return found, missing
