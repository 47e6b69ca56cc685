"""Pre-trains with as many steps as read the given number of words of text.

    python -m experiments.paper.budget --config=FILE --words=N --output=WORKDIR \
        [--config.FIELD=VALUE ...]

prepares the run's data, writes the steps and their cost to WORKDIR.budget.json, and
becomes bert_jax.main with these steps. experiments.paper starts it where systems are
compared.

The systems cut text into the same words and punctuation marks before they look into
them into their tokens. So a word is the same for both. Padding and special tokens are
not words. The words of
a step are a mean over an epoch, in which each row of the data comes once.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax import tokenization
from bert_jax.commands import command_line, runner
from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.families.gpt import vocabulary as byte_pairs
from bert_jax.models.heads import count_parameters
from bert_jax.training import setup


class Budget(NamedTuple):
    """The words that a pre-training run reads, and its cost.

    Attributes:
      words: Words read in all steps, on average over the data's order.
      positions: Positions that the model computes, padding and special tokens too.
      parameters: Parameters that fine-tuning takes over, without heads and softmax.
      flops: FLOPs of all steps, by formula: matrix products, 3 x forward.
    """

    steps: int
    words: float
    positions: int
    parameters: int
    flops: float


def path(workdir: Path) -> Path:
    """Returns the path of a run's budget, next to its work directory."""
    return workdir.with_name(f"{workdir.name}.budget.json")


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Becomes the run. Returns only if that fails."""
    parser = command_line.Parser("experiments.paper.budget", __doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--words", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True, help="work directory")
    given, fields = parser.parse_known_args(argv)
    file = path(given.output)
    if not file.exists():
        runner.write_json(file, of(given.config, fields, given.words)._asdict())
    steps = f"--config.train.num_steps={runner.read_json(file)['steps']}"
    run = runner.Run("", given.output, (f"--config={given.config}", *fields, steps))
    os.execv(run.command[0], run.command)


def of(spec: str, fields: Sequence[str], words: int) -> Budget:
    """Returns the budget of a run, after preparing its data where that is missing.

    Args:
      spec: Path of the config.
      fields: Overrides, --config.FIELD=VALUE.
      words: Number of words to read, at least.

    Raises:
      UserError: See `configuration.load_config` and the task's `training_data`. Also if
        all steps are warm-up.
    """
    config = configuration.load_config(spec, fields)
    task = setup.build_task(config, Path(), from_data=True)
    a_step = _words_a_step(task)
    config.train.num_steps = steps = math.ceil(words / a_step)
    if steps <= config.optimizer.warmup_steps:
        raise UserError(
            f"--words={words:,} are {steps:,} steps of {Path(spec).name}, all of them "
            "warm-up; set --config.optimizer.warmup_steps as well, now "
            f"{config.optimizer.warmup_steps:,}, or give more words"
        )
    task = setup.build_task(config, Path(), from_data=True)
    phases = [(phase.steps, phase.shapes) for phase in task.phases()]
    return Budget(
        steps,
        steps * a_step,
        sum(count * math.prod(shapes["input_ids"]) for count, shapes in phases),
        count_parameters(task.param_shapes["bert"]),
        float(sum(count * task.flops(shapes) for count, shapes in phases)),
    )


def _words_a_step(task: Any) -> float:
    """Returns the words of a step, on average over the data and the phases."""
    config, data = task.config, task.training_data()
    place = Path(config.corpus.data_dir)
    total = 0.0
    for phase in task.phases():
        rows, length = phase.shapes["input_ids"]
        folder = place / data.record["folders"][str(length)]
        pairs = runner.read_json(folder / "preparation.json")["totals"]["train"][
            "pairs"
        ]
        total += rows * _words_of(folder) / pairs * phase.steps
    return total / config.train.num_steps


def _words_of(folder: Path) -> int:
    """Counts the tokens of all rows that begin a word (BERT) or end one (GPT)."""
    counts = np.load(folder / "token_counts.npy")
    tokenizer = tokenization.load(folder / "tokenizer.json")
    pieces = [tokenizer.id_to_token(i) or "" for i in range(len(counts))]
    if byte_pairs.BYTE_PAIRS.has(tokenizer):
        is_word = [piece.endswith(byte_pairs.SUFFIX) for piece in pieces]
    else:
        is_word = [not piece.startswith("##") for piece in pieces]
    return int(counts[np.array(is_word)].sum())


if __name__ == "__main__":
    command_line.start(main)
