"""Fine-tuning here and in torch `transformers`: same weights, data, budget and seeds.

    python -m experiments.sameness.beside_transformers --model=MODEL_FOLDER \
        --config=configs/finetune/glue.py:task=sst2,size=tiny --seeds=0,1,2 \
        --config.task.data_dir=glue_data/SST-2 [--config.FIELD=VALUE ...]

The folder is a Hugging Face one (`--mode=export` writes such). Torch gets the very
batches that a run of each seed gets here, the same schedule, clipping, weight decay and
`optimizer.name=adamw`, which is torch's; dropout's and the classifier's random numbers
are its own. The dev scores are the task's, on the same rows. Needs the `parity` extra.
"""

import argparse
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from importlib import metadata
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
    decayed = [
        {
            "params": [
                p
                for name, p in network.named_parameters()
                if ("LayerNorm" in name or "bias" in name) != decays
            ],
            "weight_decay": config.optimizer.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    adam = torch.optim.AdamW(
        decayed,
        lr=1.0,
        betas=(config.optimizer.beta1, config.optimizer.beta2),
        eps=config.optimizer.eps,
    )
    schedule = optimizer.learning_rate_schedule(config)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: float(schedule(step)))
    network.train()
    batches = task.batches(0, slice(None), seed)
    for batch in itertools.islice(batches, config.train.num_steps):
        loss = network(**inputs(batch), labels=tensor(batch["label"])).loss
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


def inputs(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """A batch under the names of `transformers`."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    return {theirs: tensor(batch[ours]) for theirs, ours in names.items()}


def tensor(array: np.ndarray) -> torch.Tensor:
    """Integers as torch indexes with them."""
    return torch.from_numpy(np.asarray(array, np.int64))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    options, fields = parser.parse_known_args()
    adamw = "--config.optimizer.name=adamw"
    fields = [f"--config.init_from={options.model}", adamw, *fields]
    scores: dict[str, list[float]] = {"bert_jax": [], "transformers": []}
    seconds = dict.fromkeys(scores, 0.0)
    for seed in map(int, options.seeds.split(",")):
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
    command = "python -m experiments.sameness.beside_transformers"
    print(f"\n$ {command} {' '.join(sys.argv[1:])}")
    print(
        f"{date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"jax {metadata.version('jax')}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    common = task.baseline("dev", task.examples("dev")).get(task.main_score)
    print(f"{task.config.train.num_steps} steps; dev {task.main_score}; {common=}")
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
    print(terminal.table(rows, ("", "mean", "spread", "seeds", "seconds")))


if __name__ == "__main__":
    main()
