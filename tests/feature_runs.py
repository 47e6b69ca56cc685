"""Small commands of experiments.paper.features, and the files they leave."""

import json
import sys

import numpy as np
import runs
import stand_ins

from experiments.lib import runner
from experiments.paper import features

# The corpus's words, all in the vocabulary: cats and dogs are entities, and so are the
# words between "over" and "dog".
SENTENCES = (
    ("the quick brown fox jumps over a lazy dog", "O O O O O O B-X I-X I-X"),
    ("seven cats watch it go", "O B-Y O O O"),
    ("while it jumps a fox watch the dog", "O O O O O O O B-Y"),
    ("cats go", "B-Y O"),
    ("the brown fox", "O O O"),
)


def columns(sentences) -> str:
    return "\n".join(
        "".join(f"{w}\t{t}\n" for w, t in zip(words.split(), tags.split(), strict=True))
        for words, tags in sentences
    )


def write_data(folder):
    for split in ("train", "dev", "test"):
        times = 4 if split == "train" else 1
        (folder / split).write_text(columns(SENTENCES * times))
    return folder


def command_of(data, plain):
    """Makes a command's arguments. `plain` has one layer."""

    def make(**options):
        given = {
            "init_from": plain,
            "train": data / "train",
            "dev": data / "dev",
            "output": data / "out",
            "size": 8,
            "seeds": 2,
            "config.train.batch_size": 8,
            "config.train.num_epochs": 3.0,
            "config.evaluate.batch_size": 4,  # 20 rows of train and 5 of dev: 7 batches
            "config.optimizer.learning_rate": 0.02,
        }
        return [f"--{name}={value}" for name, value in (given | options).items()]

    return make


def read(arguments):
    """Reads the inputs of a command, as before it computes."""
    return features.read(*features.parse(arguments))


def vectors(data):
    """Returns each split's vectors, computed where they are missing."""
    features.keep_vectors(data)
    return {split: np.load(path) for split, path in data.paths.items()}


def fork_runs(monkeypatch, program=runs.MAIN):
    """Makes the runs forked from now on, which saves the imports' seconds."""

    def run(arguments):
        process = runs.start(*arguments, program=program)
        print(*process.communicate(timeout=runs.LIMIT), sep="")
        sys.exit(process.returncode)

    monkeypatch.setattr(runner, "MAIN", ("forked",))
    stand_ins.put(monkeypatch, forked=run)


def results(folder):
    """Returns results.json without the values that differ from run to run."""

    def without(value):
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k != "seconds"}
        return value

    return without(json.loads((folder / "results.json").read_text()))
