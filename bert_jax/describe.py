"""`--mode=describe`: the meaning of a config, without running it."""

import json
import math
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
    """Returns the model with its numbers, and then the config.

    `parameters` are BERT's with its pooler, without heads. `phases` have the tokens and
    model FLOPs of all their steps, padding included. `weight_decay` is by path (null
    where a parameter does not learn), and `muon` has the shape of each matrix that Muon
    trains. Bytes are of each device, and with LoRA of what learns. Nothing is
    allocated, but LoRA's base is read.
    """
    config = task.config
    mesh = sharding.make_mesh(config)
    base = setup.read_start(task, mesh)[0] if config.model.lora_rank else None
    step = Step(task, mesh, base)
    abstract = step.abstract
    learns = optimizers.trainable_filter(config.optimizer, abstract.params)
    mask = optimizers.decay_mask(abstract.params, task.unused_parameters())
    decay = {
        name: config.optimizer.weight_decay * decays
        if learns is None or learns(name)
        else None
        for name, decays in flatten_dict(mask, sep="/").items()
    }
    params = nn.meta.unbox(task.param_shapes)
    sizes = task.model_config
    phases = [
        {
            "steps": phase.steps,
            "batch_size": phase.batch_size,
            "max_seq_length": phase.shapes["input_ids"][-1],
            "micro_batches": phase.micro_batches,
            "tokens": phase.steps * math.prod(phase.shapes["input_ids"]),
            "flops_per_step": task.flops(phase.shapes),
            "changes": dict(phase.changes),
        }
        for phase in task.phases()
    ]
    found = {
        "model": f"{sizes.architecture}, {sizes.num_hidden_layers} layers of "
        f"{sizes.hidden_size}, {sizes.num_attention_heads} heads",
        "task": config.task.name,
        "parameters": count_parameters(params["bert"]),
        "parameters_with_heads": count_parameters(params),
        "learning_parameters": step.parameter_counts()[1],
        "tokens": sum(phase["tokens"] for phase in phases),
        "phases": phases,
        "devices": mesh.size,
        "bytes_per_device": {
            "parameters": sharding.bytes_per_device(abstract.params),
            "optimizer": sharding.bytes_per_device(abstract.opt_state),
        },
        "weight_decay": decay,
    }
    if config.optimizer.name == "muon":
        names = optimizers.axis_names(task.param_shapes)
        found["muon"] = {
            name: list(leaf.shape)
            for name, leaf in flatten_dict(abstract.params, sep="/").items()
            if decay.get(name) is not None
            and optimizers.matrix_axes(name, len(leaf.shape), names.get(name))
        }
    return found | {"config": config.to_dict()}
