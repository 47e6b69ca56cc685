"""Named entities from a frozen BERT's vectors: table 7's feature-based approach.

    python -m experiments.paper.features --init_from=CASED_FOLDER_OR_RUN \
        --train=eng.train --dev=eng.testa --test=eng.testb --document_context \
        --output=runs/features [--choices=last,concat_last_four] [--seeds=5] \
        [--size=768] [--plan] [--config.FIELD=VALUE ...]

BERT's vectors of every word's first token, from all layers, are computed once and kept
in the output folder. For each choice of layers a run trains a two-layer BiLSTM and a
linear classifier on them, all restarts together (experiments/paper/feature_task.py).
The same command resumes where it stopped. docs/paper.md lists what agrees with the
paper and what does not.
"""

import argparse
import hashlib
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

import bert_jax
from bert_jax.commands import command_line, report, runner
from bert_jax.commands.runner import Run, digest
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data.rows import Rows
from bert_jax.errors import UserError
from bert_jax.pretrained import Bert
from bert_jax.runtime import terminal
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.ner.task import Ner
from bert_jax.tokenization import normalizer_settings
from experiments.paper import feature_choices, feature_task
from experiments.paper.feature_choices import CHOICES, chosen

_SET = (
    *("init_from", "task.name", "task.choice", "task.document_context", "task.bilstm"),
    *("task.train_file", "task.dev_file", "task.test_file", "train.seeds"),
    *("task.train_vectors", "task.dev_vectors", "task.test_vectors"),
    *("train.num_steps", "train.eval_every", "train.eval_every_epoch"),
    *("evaluate.splits", "evaluate.checkpoint", "tokenizer.lowercase"),
)
# Options that do not change the results.
_NOT_OF_RESULTS = ("output", "choices", "plan")


class Reading(NamedTuple):
    """BERT's inputs of a split, and the positions of the words' first tokens.

    The split's vectors are in `<split>-<fingerprint>.npy`, float32 [layers + 1, words,
    hidden]. The fingerprint is of the weights and of BERT's inputs.
    """

    rows: Rows
    firsts: list[Int[np.ndarray, "words"]]  # positions in each row
    limit: int  # maximum number of tokens in a row

    def path(self, folder: Path, split: str, weights: str, batch_size: int) -> Path:
        """Returns the path of the vectors, by a hash of all that decides them.

        Args:
          weights: Digest by `weights_digest`.
        """
        digest = hashlib.sha256(f"3 {weights} {batch_size} {self.limit}".encode())
        every = np.arange(len(self.rows))
        ids = self.rows.batch(every, int(self.rows.lengths.max()))["input_ids"]
        for part in (self.rows.lengths, ids, *self.firsts):
            digest.update(np.asarray(part, np.int64).tobytes() + b"|")
        return folder / f"{split}-{digest.hexdigest()[:16]}.npy"


class Data(NamedTuple):
    """The model, and by split BERT's rows and the file of the vectors."""

    bert: Bert
    task: Finetuning
    readings: dict[str, Reading]
    paths: dict[str, Path]


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options, fields = parse(argv)
    command_line.compute()
    data = read(options, fields)
    runs = plan(options, fields, data)
    if normalizer_settings(data.task.tokenizer).get("lowercase"):
        terminal.print_line(
            f"{options.init_from} is uncased; the paper's model is cased"
        )

    def before() -> None:
        if not all(run.is_done for run in runs.values()):
            keep_vectors(data)

    def said(_: object) -> str:
        for run in runs.values():  # frees gigabytes that only an unfinished run needs
            for folder in (run.folder, *run.seeds().values()):
                shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return written(options, runs, data)

    return runner.finish(list(runs.values()), options, said, before=before)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the `--config.FIELD=VALUE`.

    Raises:
      UserError: An option or a value does not exist, or a field is set here.
    """
    parser = command_line.Parser("experiments.paper.features", __doc__)
    parser.add_argument("--init_from", required=True, help="a run, or a folder")
    parser.add_argument("--train", required=True, help="words and tags in columns")
    parser.add_argument("--dev", required=True)
    parser.add_argument("--test", default="")
    names = command_line.several(str, CHOICES)
    parser.add_argument("--choices", default=[], type=names, help=",".join(CHOICES))
    parser.add_argument("--seeds", default=5, type=int, help="restarts")
    parser.add_argument("--size", default=768, type=int, help="of each direction")
    parser.add_argument("--document_context", action="store_true")
    parser.add_run_options("runs/features")
    options, fields = command_line.with_fields(parser, argv, _SET)
    command_line.check_counts(options, "seeds", "size")
    return options, fields


def read(options: argparse.Namespace, fields: Sequence[str]) -> Data:
    """Reads the model and every file: the vectors, which come next, may take hours.

    Raises:
      UserError: A file, a field or the model is wrong.
    """
    source = weights.find_source(options.init_from)
    kind = source.family
    if kind.name != "bert":
        what = f"{kind.title}, and the features are of BERTs"
        raise UserError(f"--init_from={options.init_from}: {what}")
    bert = bert_jax.load(options.init_from)
    task = Finetuning(Ner, settings(options, fields, bert), bert.tokenizer)
    task.resolve()
    size, longest = task.config.evaluate.batch_size, task.config.task.max_seq_length
    readings, model = {}, weights_digest(bert)
    for name in ("train", "dev", "test"):
        if task.examples(name):
            features = task.encode_examples(name)
            firsts = [np.asarray(feature.info) for feature in features]
            readings[name] = Reading(Rows(features, task.padding), firsts, longest)
    for what, count in task.notices.items():
        terminal.print_line(f"{what}: {count:,}")
    place = options.output / "vectors"
    paths = {name: x.path(place, name, model, size) for name, x in readings.items()}
    return Data(bert, task, readings, paths)


def settings(
    options: argparse.Namespace, fields: Sequence[str], bert: Bert
) -> ConfigDict:
    """Returns the config with which BERT reads the words.

    Raises:
      UserError: A field does not exist, or its value is not allowed.
    """
    longest = 512 if options.document_context else 128
    longest = min(bert.config.max_position_embeddings, longest)
    overrides = [f"--config.task.max_seq_length={longest}", *fields]
    config = configuration.load_config(feature_task.__file__, overrides)
    config.update_from_flattened_dict(weights.find_source(options.init_from).shape())
    config.init_from = options.init_from
    for split in ("train", "dev", "test"):
        config.task[f"{split}_file"] = getattr(options, split)
    config.task.document_context = options.document_context
    epochs = config.train.num_epochs
    if epochs < 1 or epochs != int(epochs):
        raise UserError(f"config.train.num_epochs={epochs}: must be 1, 2, 3, ...")
    return config


def plan(
    options: argparse.Namespace, fields: Sequence[str], data: Data
) -> dict[str, Run]:
    """Returns the runs by choice.

    A folder's name specifies everything that shapes it.
    """
    layers = data.bert.config.num_hidden_layers
    names, left_out = chosen(options.choices, layers)
    for name in left_out:
        needs = CHOICES[name].needs
        terminal.print_line(f"{name}: left out; it needs {needs} layers, not {layers}")
    files = [
        f"--config.task.{split}_{kind}={path}"
        for split, vectors in data.paths.items()
        for kind, path in (("file", getattr(options, split)), ("vectors", vectors))
    ]
    tags = repr([[x["tags"] for x in data.task.examples(s)] for s in data.paths])
    names_kept = [path.name for path in data.paths.values()]
    runs = {}
    for name in names:
        flags = (
            f"--config={feature_task.__file__}:size={options.size}",
            f"--config.task.choice={name}",
            f"--config.train.seeds={options.seeds}",
            *fields,
        )
        place = f"{name}-{digest(*flags[1:], str(options.size), *names_kept, tags)}"
        folder = options.output / "choices" / place
        runs[name] = Run(name, folder, (*flags, *files))
    return runs


def written(options: argparse.Namespace, runs: Mapping[str, Run], data: Data) -> str:
    """Writes report.md and results.json, and returns the table."""
    task = data.task
    results: dict[str, Any] = {
        "command": {k: v for k, v in vars(options).items() if k not in _NOT_OF_RESULTS},
        "score": task.main_score,
        "baseline": {
            name: task.definition.baseline_scores(rows)[task.main_score]
            for name in data.paths
            if name != "train" and (rows := task.examples(name))[0]["tags"]
        },
        "choices": {
            name: feature_choices.summary(run, task.main_score)
            for name, run in runs.items()
        },
    }
    section = report.Section("", feature_choices.parts_of_report(results))
    return report.write_report(options.output, [section], results)


def weights_digest(bert: Bert) -> str:
    """Returns a hash of the config and the parameters of the hidden states."""
    digest = hashlib.sha256(repr(bert.config).encode())
    parts = {k: v for k, v in bert.params["bert"].items() if k != "pooler"}
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts)[0]:
        digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def keep_vectors(data: Data) -> None:
    """Computes the vectors that are not there. Only those of a batch are in memory.

    Raises:
      OSError: The folder cannot be written, or the disk is too small.
    """
    bert, size = data.bert, data.bert.config.hidden_size
    forward = jax.jit(lambda *inputs: bert.forward(*inputs)["hidden_states"])
    for split, (rows, firsts, limit) in data.readings.items():
        path = data.paths[split]
        if path.exists():
            continue
        ends = np.cumsum([len(places) for places in firsts])
        shape = bert.config.num_hidden_layers + 1, int(ends[-1]), size
        megabytes = 4e-6 * math.prod(shape)
        terminal.print_line(f"vectors of {split}: {megabytes:,.0f} MB, {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        array = np.lib.format.open_memmap(part, "w+", np.float32, shape)
        with part.open("r+b") as file:  # a full disk would kill a process that maps it
            os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
        for indices in rows.sorted_indices(data.task.config.evaluate.batch_size):
            batch = rows.batch(indices, rows.length(indices, limit))
            inputs = (batch[k] for k in ("input_ids", "input_mask", "segment_ids"))
            states = jax.device_get(forward(bert.params, *inputs))
            for row, index in enumerate(indices[indices < len(rows)]):
                places, end = firsts[index], ends[index]
                words = slice(end - len(places), end)
                array[:, words] = [state[row, places] for state in states]
        array.flush()
        del array
        part.replace(path)


if __name__ == "__main__":
    command_line.start(main)
