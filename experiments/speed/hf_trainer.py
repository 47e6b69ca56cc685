"""Fine-tuning by the Hugging Face Trainer, on the very batches of a run here.

The rows of each batch are ours, unpadded and in our order, so the work is equal; the
Trainer pads them by its DataCollatorWithPadding, as it is usually used. The model has
the config's sizes and random weights. Needs torch, transformers and accelerate.
"""

import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from torch.utils.data import SequentialSampler

from bert_jax.config import configuration
from bert_jax.training import setup
from experiments.lib import torch_side
from experiments.lib.torch_side import device, synchronize
from experiments.speed import measuring

MODULE = "experiments.speed.hf_trainer"
NAMES = {
    "label": "labels",
    "start_positions": "start_positions",
    "end_positions": "end_positions",
}


class InOrder(transformers.Trainer):
    """Takes the rows in their order: they are shuffled already; keeps the loss."""

    loss: Any = None

    def training_step(self, *given: Any, **named: Any) -> Any:
        self.loss = super().training_step(*given, **named)
        return self.loss

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        rows: Any = train_dataset or self.train_dataset
        return SequentialSampler(rows)


class Marks(transformers.TrainerCallback):
    """When each step ended, by time.perf_counter."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *given: Any, **named: Any) -> None:
        synchronize()
        self.ends.append(time.perf_counter())


def rows(batch: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """A batch's rows without padding, with the names that `transformers` takes."""
    lengths = batch["input_mask"].sum(axis=1)
    return [
        {
            "input_ids": batch["input_ids"][row, :length].tolist(),
            "token_type_ids": batch["segment_ids"][row, :length].tolist(),
            "attention_mask": [1] * int(length),
            **{NAMES[name]: batch[name][row].item() for name in NAMES if name in batch},
        }
        for row, length in enumerate(lengths)
    ]


def train(case: dict[str, Any]) -> dict[str, Any]:
    """Trains; `speed` in sequences a second without the first quarter of the steps,
    and the last step's `loss`."""
    config = configuration.load(case["config"], case["fields"])
    with tempfile.TemporaryDirectory() as folder:
        task = setup.build_task(config, Path(folder), from_data=True)
        config, steps = task.config, task.config.train.num_steps
        size = config.train.batch_size
        task.training_data()
        batches = itertools.islice(task.batches(0, slice(None), config.seed), steps)
        data = [row for batch in batches for row in rows(batch)]
        marks = Marks()
        trainer = InOrder(
            model=_model(config, squad="start_positions" in data[0]),
            args=_arguments(config, folder),
            train_dataset=data,
            data_collator=_collator(task, case["padding"]),
            callbacks=[marks],
        )
        trainer.train()
    first = max(1, steps // 4)
    seconds = marks.ends[-1] - marks.ends[first - 1]
    return {"speed": size * (steps - first) / seconds, "loss": trainer.loss.item()}


def _model(config: Any, *, squad: bool) -> Any:
    theirs = torch_side.config_of(config.model)
    if squad:
        return transformers.BertForQuestionAnswering(theirs)
    return transformers.BertForSequenceClassification(theirs)  # of two labels


def _collator(task: Any, padding: str) -> Any:
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=task.tokenizer, pad_token="[PAD]"
    )
    length = task.config.task.max_seq_length
    return transformers.DataCollatorWithPadding(
        tokenizer, padding=padding, max_length=length
    )


def _arguments(config: Any, folder: str) -> Any:
    optimizer, train = config.optimizer, config.train
    return transformers.TrainingArguments(
        output_dir=folder,
        max_steps=train.num_steps,
        per_device_train_batch_size=train.batch_size,
        learning_rate=optimizer.learning_rate,
        warmup_steps=int(optimizer.warmup_fraction * train.num_steps),
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.clip_norm,
        optim="adamw_torch_fused",
        bf16=config.model.dtype == "bfloat16",
        use_cpu=device() == "cpu",
        dataloader_pin_memory=device() == "cuda",
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


if __name__ == "__main__":
    print(json.dumps(train(measuring.case_of(sys.argv[1:]) or {})))
