"""`--mode=describe`: the meaning of a config, without running it."""

import json
from typing import Any

import flax.linen as nn
import jax

from bert_jax import family
from bert_jax.models.heads import count_parameters
from bert_jax.runtime import processes, storage, terminal
from bert_jax.tasks.task import Task
from bert_jax.training import sharding
from bert_jax.training.sharding import bytes_per_device
from bert_jax.training.step import Step


def describe(task: Task, target: str) -> None:
    """Prints the resolved config, parameters, FLOPs and bytes, or writes them as JSON.

    Args:
      target: A file for JSON. `-` prints.
    """
    facts = gather_sizes(task)
    if not processes.is_first():
        return
    if target != "-":
        with storage.replace_file(storage.output_path(target)) as file:
            file.write(json.dumps(facts, indent=2) + "\n")
        return
    print(json.dumps(facts["config"], indent=2))
    rows = [
        (name, f"{value:.4g}" if name.startswith("FLOPs") else f"{value:,}")
        for name, value in _flat(facts)
    ]
    print(terminal.format_table(rows, ("", "")))


def gather_sizes(task: Task) -> dict[str, Any]:
    """Returns `parameters` (BERT with its pooler, without heads),
    `parameters_with_heads`, `flops_per_step` (for the first phase) and bytes per
    device. Nothing is allocated."""
    config = task.config
    mesh = sharding.make_mesh(config)
    abstract = Step(task, mesh).abstract
    params = nn.meta.unbox(jax.eval_shape(task.init_params, jax.random.key(0)))
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
        "parameters": count_parameters(params[family.family_of(config).trunk_name]),
        "parameters_with_heads": count_parameters(params),
        "flops_per_step": phases[0]["flops_per_step"],
        "phases": phases,
        "devices": mesh.size,
        "bytes_per_device": {
            "parameters": bytes_per_device(abstract.params),
            "optimizer": bytes_per_device(abstract.opt_state),
        },
    }


def _flat(facts: dict[str, Any]) -> list[tuple[str, int]]:
    """Returns the rows printed below the config, one number each."""
    rows = [
        ("parameters", facts["parameters"]),
        ("parameters with heads", facts["parameters_with_heads"]),
        ("devices", facts["devices"]),
    ]
    for phase in facts["phases"]:
        length = phase["max_seq_length"]
        rows.append((f"steps at length {length}", phase["steps"]))
        rows.append((f"FLOPs per step at length {length}", phase["flops_per_step"]))
    for name, size in facts["bytes_per_device"].items():
        rows.append((f"bytes per device: {name}", size))
    return rows
