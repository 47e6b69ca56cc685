"""`--mode=describe`: the meaning of a config, without running it."""

import json
from typing import Any

import flax.linen as nn
from flax.traverse_util import flatten_dict

from bert_jax.models.heads import count_parameters
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Task
from bert_jax.training import optimizer as optimizers
from bert_jax.training import setup, sharding
from bert_jax.training.step import Step


def describe(task: Task, target: str) -> None:
    """Writes the resolved config, parameters, FLOPs and bytes as JSON.

    Args:
      target: A file. `-` prints.
    """
    facts = json.dumps(gather_sizes(task), indent=2)
    with row_files.open_output(target) as file:
        file.write(f"{facts}\n")


def gather_sizes(task: Task) -> dict[str, Any]:
    """Returns `parameters` (BERT with its pooler, without heads),
    `parameters_with_heads`, `flops_per_step` (for the first phase), `weight_decay` by
    path (null where a parameter does not learn) and bytes per device: with LoRA, of
    what learns. Nothing is allocated, but LoRA's base is read."""
    config = task.config
    mesh = sharding.make_mesh(config)
    base = setup.read_start(task, mesh)[0] if config.model.lora_rank else None
    abstract = Step(task, mesh, base).abstract
    learns = optimizers.trainable_filter(config.optimizer, abstract.params)
    mask = optimizers.decay_mask(abstract.params, task.unused_parameters())
    decay = {
        name: config.optimizer.weight_decay * decays
        if learns is None or learns(name)
        else None
        for name, decays in flatten_dict(mask, sep="/").items()
    }
    params = nn.meta.unbox(task.param_shapes)
    phases = [
        {
            "steps": phase.steps,
            "max_seq_length": phase.shapes["input_ids"][-1],
            "flops_per_step": task.flops(phase.shapes),
        }
        for phase in task.phases()
    ]
    return {
        "config": config.to_dict(),
        "parameters": count_parameters(params["bert"]),
        "parameters_with_heads": count_parameters(params),
        "flops_per_step": phases[0]["flops_per_step"],
        "phases": phases,
        "weight_decay": decay,
        "devices": mesh.size,
        "bytes_per_device": {
            "parameters": sharding.bytes_per_device(abstract.params),
            "optimizer": sharding.bytes_per_device(abstract.opt_state),
        },
    }
