"""The process of one library for `train_step`: its sides, on the case's batch."""

import math
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from experiments.lib import report
from experiments.speed import measuring, sides
from experiments.speed.sides import PEAKS

MODULE = "experiments.speed.train_sides"
OURS = "ours"
KERAS = "KerasHub, JAX"
KERAS_INSTALL = "pip install -e '.[keras]'"

Sides = dict[str, Callable[[int], Any]]


def jax_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Our step with each of the case's attentions."""
    import jax

    from bert_jax.errors import UserError
    from bert_jax.models.config import BertConfig, pretraining_flops
    from bert_jax.runtime import compilation_cache
    from experiments.speed import our_step

    compilation_cache.keep()
    config = _config(case)
    batch = _batch(config, case["rows"])
    found: Sides = {PEAKS: lambda _: measuring.jax_peaks(*case["peak"])}
    model = BertConfig.create(config.model, config.tokenizer.vocab_size)
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
    chosen = config.masking.max_predictions_per_seq
    return found, {
        "device": jax.devices()[0].device_kind,
        "flops": case["batch"] * pretraining_flops(model, case["length"], chosen),
        "tokens": int(batch["input_mask"].sum()),
        "parameters": sorted(parameters),
        "not_run": not_run,
    }


def torch_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Torch's step by each of the case's names."""
    import torch

    from experiments.speed import torch_step

    torch.set_num_threads(report.cores())
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU, as JAX does
    config = _config(case)
    rows = torch_step.theirs(_batch(config, case["rows"]))
    networks: dict[str, torch_step.Network] = {}
    found: Sides = {PEAKS: lambda _: measuring.torch_peaks(*case["peak"])}
    not_run = {}
    for name in case["torch"]:
        attention, compiles, gathered = torch_step.SIDES[name]
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
        from experiments.speed import keras_step
    except ImportError as error:
        return {}, {"parameters": [], "not_run": {KERAS: f"{error}; {KERAS_INSTALL}"}}
    config = _config(case)
    side = keras_step.KerasStep(config, _batch(config, case["rows"]), case["dtype"])
    _warm(side)
    return {KERAS: side}, {"parameters": [side.parameters], "not_run": {}}


def _config(case: dict[str, Any]) -> Any:
    from experiments.speed import our_step

    config = our_step.sized_config(
        case["size"], case["length"], case["batch"], case["model"]
    )
    for rate in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        config.model[rate] = case["dropout"]
    config.model.dtype = case["dtype"]
    return config


def _batch(config: Any, rows: str) -> Any:
    """Random full rows, or the loader's first batch of Python's own documentation."""
    from bert_jax.data.loader import batch_at
    from experiments.speed import our_step

    if rows == "full":
        return our_step.random_batch(config)
    with tempfile.TemporaryDirectory() as folder:
        own = config.copy_and_resolve_references()
        own.corpus.sources, own.corpus.data_dir = ("pydocs",), folder
        return batch_at(own, 0)


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

    environment.check()
    environment.require_devices()
    return jax_sides(case) if case["library"] == "jax" else keras_sides(case)


def main(arguments: list[str]) -> None:
    case = measuring.case_of(arguments)
    assert case, "train_step starts it"
    if case["library"] == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
    sides.answer(lambda: open_sides(case))


if __name__ == "__main__":
    main(sys.argv[1:])
