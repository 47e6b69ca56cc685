"""The process of one library for `train_step`: its sides, on the case's batch."""

import math
from collections.abc import Callable
from typing import Any

from experiments.lib import report
from experiments.speed import measuring
from experiments.speed.sides import PEAKS

MODULE = "experiments.speed.train_sides"
MODELS = ("bert", "roberta", "modernbert")
DTYPES = ("float32", "bfloat16")
OURS = "ours"
KERAS = "KerasHub, JAX"
KERAS_INSTALL = "pip install -e '.[keras]'"

# What the name of a side of torch says: the attention implementation, whether
# torch.compile is used, and where the masked LM head computes: at every position, as
# `transformers` has it, or at the predicted ones alone, as we and Google do.
TORCH = {
    f"{name}{'-gathered' if gathered else ''}": (attention, compiles, gathered)
    for name, attention, compiles in (
        ("sdpa", "sdpa", False),
        ("eager", "eager", False),
        ("compile", "sdpa", True),
    )
    for gathered in (False, True)
}

Sides = dict[str, Callable[[int], Any]]


def jax_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Our step with each of the case's attentions."""
    import jax

    from bert_jax.errors import UserError
    from bert_jax.runtime import compilation_cache
    from experiments.speed import our_step

    compilation_cache.keep()
    config = _config(case)
    batch, flops = our_step.random_batch(config), our_step.flops(config)
    found: Sides = {PEAKS: lambda _: measuring.peaks("jax", *case["peak"])}
    not_run, parameters = {}, set()
    for attention in case["attentions"]:
        name = f"{OURS}, {attention}"
        config.model.attention = attention
        try:
            side = our_step.OurStep(config.copy_and_resolve_references(), [batch])
        except UserError as error:
            not_run[name] = str(error)
            continue
        _warm(side)
        found[name] = side
        parameters.add(side.parameters)
    return found, {
        "device": jax.devices()[0].device_kind,
        "flops": flops,
        "parameters": sorted(parameters),
        "not_run": not_run,
    }


def torch_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Torch's step by each of the case's names."""
    import torch

    from experiments.speed import our_step, torch_step

    torch.set_num_threads(report.cores())
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU, as JAX does
    config = _config(case)
    rows = torch_step.theirs(our_step.random_batch(config))
    networks: dict[str, torch_step.Network] = {}
    found: Sides = {PEAKS: lambda _: measuring.peaks("torch", *case["peak"])}
    not_run = {}
    for name in case["torch"]:
        attention, compiles, gathered = TORCH[name]
        if attention not in networks:
            networks[attention] = torch_step.Network(config, attention)
        network = networks[attention]
        side = torch_step.TorchStep(
            network, rows, case["dtype"], compiles=compiles, gathered=gathered
        )
        try:
            _warm(side)
        except Exception as error:  # torch.compile needs a compiler, and may not manage
            if not compiles:
                raise
            lines = str(error).strip().splitlines() or [""]
            not_run[f"torch, {name}"] = f"{type(error).__name__}: {lines[0][:200]}"
            continue
        found[f"torch, {name}"] = side
    return found, {
        "torch_optimizer": {k: f"AdamW {n.optimizer}" for k, n in networks.items()},
        "torch_threads": torch.get_num_threads(),
        "parameters": sorted({network.parameters for network in networks.values()}),
        "not_run": not_run,
    }


def keras_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """KerasHub's step; where it cannot be imported, why not."""
    try:
        from experiments.speed import keras_step, our_step
    except ImportError as error:
        return {}, {"parameters": [], "not_run": {KERAS: f"{error}; {KERAS_INSTALL}"}}
    config = _config(case)
    side = keras_step.KerasStep(config, our_step.random_batch(config), case["dtype"])
    _warm(side)
    return {KERAS: side}, {"parameters": [side.parameters], "not_run": {}}


def _config(case: dict[str, Any]) -> Any:
    from experiments.speed import our_step

    config = our_step.sized_config(
        case["size"], case["length"], case["batch"], case["model"], case["task"]
    )
    for rate in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        config.model[rate] = case["dropout"]
    config.model.dtype = case["dtype"]
    return config


def _warm(side: Callable[[int], float]) -> None:
    """Compiles, and steps until nothing is new.

    Raises:
      RuntimeError: the loss is not finite.
    """
    for _ in range(2):
        loss = side(1)
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss is {loss}")


def open_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Opens the sides of the case's library in this process."""
    measuring.use_threads(case["threads"])
    if case["library"] == "torch":
        return torch_sides(case)
    from bert_jax.runtime import environment

    environment.require_devices()
    return jax_sides(case) if case["library"] == "jax" else keras_sides(case)
