"""Fine-tuning here and in torch `transformers`: same weights, data, budget and seeds.

    python -m experiments.sameness.beside_transformers --model=MODEL_FOLDER \
        --config=configs/finetune/glue.py:task=sst2,size=tiny --seeds=0,1,2 \
        --config.task.data_dir=glue_data/SST-2 [--config.FIELD=VALUE ...]

The folder is a Hugging Face one (`--mode=export` writes such). Torch gets the very
batches that a run of each seed gets here, the same schedule, clipping, weight decay and
`optimizer.name=adamw`, which is torch's; dropout's and the classifier's random numbers
are its own. The dev scores are the task's, on the same rows. Needs the `parity` extra.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bert_jax import train
from bert_jax.config import configuration
from bert_jax.runtime import terminal
from bert_jax.tasks.classification import Classification
from bert_jax.training import optimizer, setup
from bert_jax.workdir import metrics
from experiments.lib import command_line, ending, report, torch_side

MODULE = "experiments.sameness.beside_transformers"


def network(task: Classification, model: str, dropout: float | None = None) -> Any:
    """The model in torch; `dropout` of the folder's config, where none is given."""
    given = {}
    if dropout is not None:
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        given = dict.fromkeys(names, dropout)
    return transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=len(task.labels), **given
    )


def steps(task: Classification, network: Any, seed: int) -> Iterator[float]:
    """Trains in torch; gives the loss of each step."""
    config = task.config
    adam = torch_side.adamw(network, config.optimizer, rate=1.0)
    schedule = optimizer.learning_rate_schedule(config)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: float(schedule(step)))
    network.train()
    batches = task.batches(0, slice(None), seed)
    for batch in itertools.islice(batches, config.train.num_steps):
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        loss = network(**inputs(batch), labels=labels).loss
        loss.backward()
        clip = config.optimizer.clip_norm
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        adam.step()
        rate.step()
        adam.zero_grad()
        yield loss.item()


def with_torch(task: Classification, model: str, seed: int) -> dict[str, float]:
    """Trains and scores in torch."""
    transformers.set_seed(seed)
    trained = network(task, model)
    for _ in steps(task, trained, seed):
        pass
    trained.eval()
    with torch.no_grad():
        fetched = [
            {"logits": trained(**inputs(batch)).logits.numpy()}
            for batch in task.evaluation_batches("dev", 0, slice(None))
        ]
    return task.results("dev", fetched).scores


def inputs(batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """A batch's inputs as tensors, under the names of `transformers`."""
    return {k: torch.from_numpy(v) for k, v in torch_side.inputs(batch).items()}


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Trains on both sides with every seed; the table."""
    parser = command_line.Parser(MODULE, __doc__)
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--config", required=True, help="of a classification")
    seeds = command_line.several(int)
    parser.add_argument("--seeds", default="0,1,2", type=seeds, help="between commas")
    options, fields = command_line.with_fields(parser, argv, ("seed", "init_from"))
    adamw = "--config.optimizer.name=adamw"
    fields = [f"--config.init_from={options.model}", adamw, *fields]
    scores: dict[str, list[float]] = {"bert_jax": [], "transformers": []}
    seconds = dict.fromkeys(scores, 0.0)
    for seed in options.seeds:
        config = configuration.load(options.config, [*fields, f"--config.seed={seed}"])
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            resolved = setup.build_task(config, folder, from_data=True)
            assert isinstance(resolved, Classification)
            task = resolved
            start = time.monotonic()
            train.train(task, folder)
            seconds["bert_jax"] += time.monotonic() - start
            numbers = metrics.read(folder, "dev")[-1]
            scores["bert_jax"].append(float(numbers[task.main_score]))
        start = time.monotonic()
        theirs = with_torch(task, options.model, seed)
        seconds["transformers"] += time.monotonic() - start
        scores["transformers"].append(theirs[task.main_score])
    common = task.baseline("dev", task.examples("dev")).get(task.main_score)
    title = f"{task.config.train.num_steps} steps; dev {task.main_score}; {common=}"
    rows = [
        (
            name,
            f"{np.mean(values):.4f}",
            f"{np.std(values, ddof=1):.4f}",
            json.dumps([round(value, 4) for value in values]),
            f"{seconds[name]:.0f}",
        )
        for name, values in scores.items()
    ]
    table = terminal.table(rows, ("", "mean", "spread", "seeds", "seconds"))
    return "\n".join([report.introduction(report.facts(MODULE, argv)), title, table])


if __name__ == "__main__":
    ending.start(main)
