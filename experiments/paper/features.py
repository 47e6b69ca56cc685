"""Named entities from a frozen BERT's vectors: table 7's feature-based approach.

    python -m experiments.paper.features --init_from=CASED_FOLDER_OR_RUN \
        --train=eng.train --dev=eng.testa --test=eng.testb --document_context \
        --output=runs/features [--choices=last,concat_last_four] [--seeds=5] \
        [--size=768] [--config.FIELD=VALUE ...]

BERT's vectors of every word's first piece, from all layers, are computed once and kept
in the output folder. For each choice of layers a two-layer BiLSTM and a linear
classifier are trained on them, all restarts together. The same command goes on where it
stopped. docs/paper.md says what is as in the paper and what is not.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging as absl_logging
from ml_collections import ConfigDict

import bert_jax
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.errors import UserError, printable
from bert_jax.pretrained import Bert
from bert_jax.runtime import compilation_cache, failures, storage, terminal
from bert_jax.tasks.ner.task import Ner
from bert_jax.tokenization import normalization
from bert_jax.training import optimizer
from bert_jax.workdir import lock
from experiments.lib import command_line
from experiments.paper import feature_cache, feature_table, feature_training
from experiments.paper.feature_choices import CHOICES, chosen

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "finetune" / "ner.py"
# Those of a public reproduction that reaches 95.8 on CoNLL-2003's dev set: the paper
# gives none. The rate stays the same throughout.
DEFAULTS = {
    "optimizer.name": "adamw",
    "optimizer.learning_rate": 3e-4,
    "optimizer.weight_decay": 0.01,
    "optimizer.warmup_fraction": 0.0,
    "optimizer.decay_power": 0.0,
    "train.batch_size": 64,
    "train.num_epochs": 10.0,
}
# The fields that change something here, but for those that options set.
_FIELDS = (
    *("seed", "optimizer.", "train.batch_size", "train.num_epochs"),
    *("evaluate.batch_size", "task.max_seq_length", "task.scheme"),
    *("task.token_column", "task.tag_column", "task.labels"),
)
_DROPOUT = 0.1


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    try:
        options, fields = parse(argv)
        absl_logging.set_verbosity(absl_logging.FATAL)  # what Orbax logs is noise
        compilation_cache.keep()
        with lock.locked(options.output):
            print(run(options, fields))
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    except Exception as error:
        status, text = failures.describe(error)
        if status is None:
            raise
        # A run's lock, which names a run's option.
        line = " ".join(text.splitlines()).replace("--workdir", "--output")
        print(f"error: {printable(line)}", file=sys.stderr)
        return status
    return 0


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the `--config.FIELD=VALUE`.

    Raises:
      UserError: an option or a value that does not exist, or a field that would change
        nothing.
    """
    parser = command_line.Parser("experiments.paper.features", __doc__)
    parser.add_argument("--init_from", required=True, help="a run, or a folder")
    parser.add_argument("--train", required=True, help="words and tags in columns")
    parser.add_argument("--dev", required=True)
    parser.add_argument("--test", default="")
    parser.add_argument("--output", default="runs/features", type=Path)
    parser.add_argument("--choices", default="", help=",".join(CHOICES))
    parser.add_argument("--seeds", default=5, type=int, help="restarts")
    parser.add_argument("--size", default=768, type=int, help="of each direction")
    parser.add_argument("--document_context", action="store_true")
    options, fields = command_line.with_fields(parser, argv)
    for field in fields:
        if not configuration.field_of(field).startswith(_FIELDS):
            raise UserError(
                f"{field}: changes nothing here, or an option sets it (see --help); "
                f"there are {', '.join(_FIELDS)}"
            )
    command_line.check_counts(options, "seeds", "size")
    return options, fields


def run(options: argparse.Namespace, fields: Sequence[str]) -> str:
    """Computes what is not there yet; writes results.json and gives the table."""
    command_line.require_bert(options.init_from, "the features are")
    bert = bert_jax.load(options.init_from)
    layers = bert.config.num_hidden_layers
    names, left_out = chosen(options.choices, layers)
    config = settings(options, fields, bert)
    task = Ner(config, bert.tokenizer)
    task.resolve()
    # Before the vectors, which may take hours: every file is read.
    named = [name for name in ("train", "dev", "test") if task.examples(name)]
    if normalization(task.tokenizer).get("lowercase"):
        terminal.say(f"{options.init_from} is uncased; the paper's model is cased")
    for name in left_out:
        needs = CHOICES[name].needs
        terminal.say(f"{name}: left out; it needs {needs} layers, not {layers}")
    splits, kept = vectors(options, task, bert, named)
    data: dict[str, Any] = {name: kept[name]["fingerprint"] for name in named}
    data |= {"tags": tags_digest(task, named), "labels": list(task.labels)}
    data["score"] = task.main_score  # the kept numbers are of this one
    results: dict[str, Any] = {
        "command": described(options, config),
        "vectors": kept,
        "score": task.main_score,
        "baseline": {
            name: task.baseline(name, task.examples(name))[task.main_score]
            for name, split in splits.items()
            if name != "train" and split.score is not None
        },
        "choices": {},
    }
    for name in names:
        setting = feature_training.Setting(
            CHOICES[name].states(layers),
            CHOICES[name].mixes,
            len(task.labels),
            options.size,
            _DROPOUT,
            [config.seed + number for number in range(options.seeds)],
            int(config.train.num_epochs),
            config,
        )
        taggers = feature_training.Taggers(setting, splits)
        found = feature_training.finish(taggers, options.output / "choices", name, data)
        if found.pop("kept"):
            terminal.say(f"{name}: trained before, {found['seconds']:.0f} s saved")
        results["choices"][name] = feature_table.summary(found, setting.states)
    text = json.dumps(results, indent=1) + "\n"
    storage.write_atomically(options.output / "results.json", text)
    return feature_table.table(results)


def settings(
    options: argparse.Namespace, fields: Sequence[str], bert: Bert
) -> ConfigDict:
    """The config of the task, the taggers' optimizer and their batches.

    Raises:
      UserError: a field does not exist, or its value is not allowed.
    """
    positions = bert.config.max_position_embeddings
    length = min(positions, 512 if options.document_context else 128)
    given = {**DEFAULTS, "task.max_seq_length": length}
    overrides = [f"--config.{name}={value}" for name, value in given.items()]
    config = configuration.load(str(CONFIG), [*overrides, *fields])
    config.model.update(weights.read_shape(options.init_from))
    config.init_from = options.init_from
    config.task.train_file, config.task.dev_file = options.train, options.dev
    config.task.test_file = options.test
    config.task.document_context = options.document_context
    epochs = config.train.num_epochs
    if epochs < 1 or epochs != int(epochs):
        raise UserError(f"config.train.num_epochs={epochs}: must be 1, 2, 3, ...")
    check = config.copy_and_resolve_references()
    check.train.num_steps = 1
    optimizer.make(check)
    return config


def vectors(
    options: argparse.Namespace, task: Ner, bert: Bert, named: Sequence[str]
) -> tuple[dict[str, feature_training.Split], dict[str, dict]]:
    """Each split with its vectors, and what is reported of these."""
    splits, kept = {}, {}
    size = task.config.evaluate.batch_size
    for name in named:
        reading = feature_cache.Reading.of(
            task.features(name), task.padding, task.config.task.max_seq_length
        )
        for what, count in task.notices.items():
            if what.startswith(name):
                terminal.say(f"{what}: {count:,}")
        found = feature_cache.vectors(
            bert, name, reading, options.output / "vectors", size
        )
        megabytes = found.array.nbytes / 1e6
        how = "from the cache," if found.kept else f"{megabytes:,.0f} MB written in"
        end = " s saved" if found.kept else " s"
        terminal.say(f"vectors of {name}: {how} {found.seconds:.1f}{end}")
        kept[name] = {
            "fingerprint": found.fingerprint,
            "words": reading.words,
            "seconds": found.seconds,
        }
        splits[name] = split(task, name, found.array)
    return splits, kept


def split(task: Ner, name: str, array: np.ndarray) -> feature_training.Split:
    """A split, its sentences as the task has them."""
    examples = task.examples(name)
    lengths = np.array([len(example.sentence.words) for example in examples])
    known = {label: index for index, label in enumerate(task.labels)}
    tags = [tag for example in examples for tag in example.sentence.tags or ()]
    labels = np.array([known.get(tag, 0) for tag in tags] or [0] * lengths.sum())

    def score(found: list[np.ndarray]) -> float:
        answers = [[task.labels[index] for index in row] for row in found]
        return task.scores(name, examples, answers)[task.main_score]

    begins = np.cumsum(lengths) - lengths
    return feature_training.Split(
        array, labels, begins, lengths, score if tags else None
    )


def tags_digest(task: Ner, named: Sequence[str]) -> str:
    """A hash of all sentences' tags, with the sentences' ends."""
    digest = hashlib.sha256()
    for name in named:
        for example in task.examples(name):
            digest.update(f"{len(example.sentence.words)} ".encode())
            digest.update(" ".join(example.sentence.tags or ()).encode() + b"\n")
    return digest.hexdigest()[:16]


def described(options: argparse.Namespace, config: ConfigDict) -> dict[str, Any]:
    """The options and fields that the numbers depend on."""
    given = {k: v for k, v in vars(options).items() if k not in ("output", "choices")}
    fields = {"seed": config.seed, "optimizer": config.optimizer.to_dict()}
    for name in DEFAULTS:
        if name.startswith("train."):
            fields[name] = config.train[name.removeprefix("train.")]
    fields["evaluate.batch_size"] = config.evaluate.batch_size
    fields["task.max_seq_length"] = config.task.max_seq_length
    return {**given, "dropout": _DROPOUT, "config": fields}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
