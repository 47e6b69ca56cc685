"""An ensemble of SQuAD runs: the mean of their start and end logits (section 4.2).

    python -m experiments.paper.squad_ensemble --workdirs=runs/a,runs/b,runs/c \
        --output=runs/ensemble [--file=dev.json] [--null_threshold=X]

Each of the folders is a work directory of bert_jax.main with the task "squad". Models
may differ in size, but not in their vocabulary. Windows, n best and the rest are as in
the first one's config, and so is the file, unless one is named. The checkpoint is the
last or the best, as each one's config says.

The output folder gets predictions.json, nbest_predictions.json, scores.json and, for
SQuAD 2.0, null_odds.json; the scores are printed, too. In 2.0 the threshold is fitted
on the file, unless it is given: a file without answers wants the one of the dev set.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import tasks, tokenization
from bert_jax.convert.merge import whole
from bert_jax.data.rows import Feature
from bert_jax.errors import UserError
from bert_jax.runtime import signals
from bert_jax.runtime.clock import Stopwatch
from bert_jax.tasks.finetuning import Outputs
from bert_jax.tasks.squad.task import Squad
from bert_jax.training import setup, sharding
from bert_jax.training.evaluator import Evaluator
from bert_jax.training.seeds import Seeds
from bert_jax.workdir import folder as workdir
from experiments.lib import command_line, ending, kept


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.paper.squad_ensemble", __doc__)
    folders = command_line.several(Path)
    parser.add_argument("--workdirs", required=True, type=folders, help="a,b,...")
    parser.add_argument("--output", required=True, type=Path, help="a folder")
    parser.add_argument("--file", default="", help="SQuAD's JSON; the first's dev_file")
    parser.add_argument("--null_threshold", type=float, help="2.0; fitted on the file")
    options = parser.parse_args(argv)
    task = task_of(settings(options.workdirs[0], options))
    examples = task.examples("dev")
    if not examples:
        raise UserError("--file=FILE is required: the first run had no dev_file")
    members = [windows(folder, options) for folder in options.workdirs]
    features = [feature for feature, _ in members[0]]
    logits = mean([[logits for _, logits in member] for member in members])
    answers = task.answers(examples, features, logits)
    if options.null_threshold is None:
        task.learn("dev", answers)
    else:
        task.facts["null_threshold"] = options.null_threshold
    numbers = task.scores("dev", examples, answers)
    task.write(options.output, "dev", examples, answers)
    kept.write(options.output / "scores.json", numbers)
    print(json.dumps(numbers))
    return 0


def settings(folder: Path, options: argparse.Namespace) -> ConfigDict:
    """The config to ask a member with: its own model, all else the first one's.

    Raises:
      UserError: there is no run, or it is of another task or vocabulary.
    """
    first = options.workdirs[0]
    config, own = _config(first), _config(folder)
    config.model = own.model
    config.init_from = str(folder)
    config.tokenizer.vocab_file = str(first / "tokenizer.json")
    config.task.dev_file = options.file or config.task.dev_file
    ours, theirs = (
        tokenization.load(path / "tokenizer.json") for path in (first, folder)
    )
    if ours.to_str() != theirs.to_str():
        raise UserError(
            f"--workdirs: {folder} has another vocabulary than {first}; an ensemble's "
            "runs begin with the same"
        )
    return config


def task_of(config: ConfigDict) -> Squad:
    """SQuAD as the member's model reads it."""
    found = tasks.create(config)
    assert isinstance(found, Squad)
    return found


def windows(folder: Path, options: argparse.Namespace) -> list[tuple[Feature, Outputs]]:
    """Every window of the file with a member's logits."""
    task = task_of(settings(folder, options))
    mesh = sharding.make_mesh(task.config, uses=("evaluate",))
    begun = setup.init_weights(task, sharding.abstract_params(task.init_params, mesh))
    assert begun is not None
    params = whole(*begun, task.unused())
    stop, clock = signals.Stop(), Stopwatch()
    evaluator = Evaluator(task, Seeds.single(task.config), mesh, stop, clock)
    outputs = task.by_feature("dev", evaluator.fetch(params, "dev", 0))
    return list(zip(task.features("dev"), outputs, strict=True))


def mean(members: Sequence[Sequence[Outputs]]) -> list[Outputs]:
    """The mean of the members' logits, window by window."""
    return [
        {name: np.mean([each[name] for each in same], axis=0) for name in same[0]}
        for same in zip(*members, strict=True)
    ]


def _config(folder: Path) -> ConfigDict:
    if not workdir.has_config(folder):
        raise UserError(f"--workdirs: {folder}: no run there; train one")
    config = workdir.recorded(folder)
    if config.task.name != "squad":
        raise UserError(f"--workdirs: {folder} is a run of {config.task.name!r}")
    if config.model.architecture == "elmo":
        raise UserError(
            f"--workdirs: {folder} is a run of an ELMo, which has no pieces"
        )
    return config


if __name__ == "__main__":
    ending.start(main)
