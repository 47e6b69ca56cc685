"""The speed of a training step, beside torch's on the same work.

    python -m experiments.benchmarks.train_step [--sizes=base,4/768,2/128] \
        [--lengths=128,512] [--batch=16,4] [--threads=1] [--output=FILE.json]

The work: pre-training of a size on one batch, dropout on, clipping and optimizer
included, from the host's arrays to the new weights. Ours is the step that a run
compiles. Torch's is `transformers`' BertForPreTraining, by the names of `--torch`:
`sdpa` and `eager` are its attention, `compile` is torch.compile (with sdpa); the masked
LM head computes at every position, as it is in `transformers`, and with `-gathered` at
the predicted ones alone, as ours does. bfloat16 is torch's autocast there.

Each size, length and dtype is a process of its own; in it the sides take turns. First
the peaks of matrix products and copies are measured, by JAX and by torch; the higher
counts. `share` is the model's FLOPs (`pretraining_flops`: matrix products alone, the
head at the predicted positions, for all sides) of the matrix product's peak in the
side's dtype. `ours / it` is torch's time over ours: above 1 we are faster. Both are of
the medians; the best turns and the processor times are in the file.

Rows are full (`--rows=full`: random pieces, never padding), or real text
(`--rows=text`: the loader's first batch of Python's documentation strings, 10% short
rows as in Google's data; FLOPs are then counted for padded rows).
"""

import argparse
import json
import math
import os
import sys
import tempfile
from typing import Any

from bert_jax.models.config import ATTENTIONS, DTYPES
from bert_jax.runtime import environment
from bert_jax.runtime.terminal import table
from experiments.benchmarks import measuring

MODULE = "experiments.benchmarks.train_step"
TORCH = "sdpa,sdpa-gathered,eager-gathered,compile,compile-gathered"
OURS = "ours"


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Measures the sides of a case in this process."""
    measuring.use_threads(case["threads"])
    environment.prepare()
    environment.check()
    import jax

    from bert_jax.errors import UserError
    from bert_jax.models.config import BertConfig, pretraining_flops
    from bert_jax.runtime import compilation_cache
    from experiments.benchmarks import our_step

    environment.require_devices()
    compilation_cache.keep()
    config = our_step.sized_config(case["size"], case["length"], case["batch"])
    for rate in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        config.model[rate] = case["dropout"]
    config.model.dtype = case["dtype"]
    batch = _batch(config, case["rows"])
    sides: dict[str, Any] = {}
    not_run: dict[str, str] = {}
    figures: dict[str, Any] = {}
    for attention in case["attentions"]:
        name = f"{OURS}, {attention}"
        config.model.attention = attention
        try:
            sides[name] = our_step.OurStep(config.copy_and_resolve_references(), batch)
        except UserError as error:
            not_run[name] = str(error)
            continue
        _warm(sides[name])
        figures["parameters"] = sides[name].parameters
    if case["torch"]:
        figures |= _add_torch(case, config, batch, sides, not_run)
    peaks = [measuring.jax_peaks(*case["peak"])]
    if case["torch"]:
        peaks.append(measuring.torch_peaks(*case["peak"]))
    result = measuring.alternate(sides, case["rounds"], case["turn"])
    model = BertConfig.create(config.model, config.tokenizer.vocab_size)
    chosen = config.masking.max_predictions_per_seq
    return {
        **figures,
        "device": jax.devices()[0].device_kind,
        "cores_used": measuring.cores(),
        "flops": case["batch"] * pretraining_flops(model, case["length"], chosen),
        "tokens": int(batch["input_mask"].sum()),
        "peaks": dict(zip(("jax", "torch"), peaks, strict=False)),
        "sides": result,
        "not_run": not_run,
    }


def _batch(config: Any, rows: str) -> Any:
    """Random full rows, or the loader's first batch of Python's own documentation."""
    from bert_jax.data.loader import batch_at
    from experiments.benchmarks import our_step

    if rows == "full":
        return our_step.random_batch(config)
    with tempfile.TemporaryDirectory() as folder:
        own = config.copy_and_resolve_references()
        own.corpus.sources, own.corpus.data_dir = ("pydocs",), folder
        return batch_at(own, 0)


def _add_torch(
    case: dict[str, Any],
    config: Any,
    batch: Any,
    sides: dict[str, Any],
    not_run: dict[str, str],
) -> dict[str, Any]:
    """Adds torch's sides that run here; returns facts about them.

    Raises:
      RuntimeError: its model has another number of parameters than ours.
    """
    import torch

    from experiments.benchmarks import torch_step

    torch.set_num_threads(measuring.cores())
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU, as JAX does
    networks: dict[str, torch_step.Network] = {}
    rows = torch_step.theirs(batch)
    for side in case["torch"]:
        attention, compiles, gathered = torch_step.SIDES[side]
        if attention not in networks:
            networks[attention] = torch_step.Network(config, attention)
        own = torch_step.TorchStep(
            networks[attention],
            rows,
            case["dtype"],
            compiles=compiles,
            gathered=gathered,
        )
        name = f"torch, {side}"
        try:
            _warm(own)
        except Exception as error:  # torch.compile needs a compiler, and may not manage
            if not compiles:
                raise
            lines = str(error).strip().splitlines() or [""]
            not_run[name] = f"{type(error).__name__}: {lines[0][:200]}"
            continue
        sides[name] = own
    counted = {network.parameters for network in networks.values()}
    ours = {side.parameters for name, side in sides.items() if name.startswith(OURS)}
    if len(counted | ours) > 1:
        raise RuntimeError(f"parameters: ours {ours}, torch's {counted}")
    return {
        "torch_optimizer": {k: f"AdamW {n.optimizer}" for k, n in networks.items()},
        "torch_threads": torch.get_num_threads(),
    }


def _warm(side: Any) -> None:
    """Compiles, and steps until nothing is new.

    Raises:
      RuntimeError: the loss is not finite.
    """
    for _ in range(2):
        loss = side(1)
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss is {loss}")


def rows_of(case: dict[str, Any]) -> list[tuple[str, ...]]:
    """A case's lines of the table."""
    head = (case["size"], str(case["length"]), str(case["batch"]), case["dtype"])
    if "error" in case:
        return [(*head, f"no result: {case['error']}", "", "", "", "", "")]
    peaks = measuring.higher(*case["peaks"].values())
    ours = {k: v for k, v in case["sides"].items() if k.startswith(OURS)}
    best = min(ours.values(), key=lambda side: side["median"], default=None)
    found: list[tuple[str, ...]] = []
    for name, side in case["sides"].items():
        rate = case["flops"] / side["median"]
        ratio = ""
        if best and name not in ours:
            ratio = f"{measuring.ratio(side, best)['median']:.2f}"
        found.append(
            (
                *head,
                name,
                f"{case['batch'] / side['median']:.4g}",
                f"{case['batch'] / side['best']:.4g}",
                f"{rate / 1e9:,.0f}",
                f"{rate / peaks[case['dtype']]:.1%}",
                ratio,
            )
        )
    return found


HEADER = (
    *("size", "length", "batch", "dtype", "side"),
    *("sequences/s", "best turn", "GFLOP/s", "share", "ours / it"),
)


def notes(case: dict[str, Any]) -> list[str]:
    """What the table does not say about a case."""
    if "error" in case:
        return []
    peaks = measuring.higher(*case["peaks"].values())
    reached = ", ".join(
        f"{name} {peaks[name] / 1e9:,.0f} GFLOP/s" for name in ("float32", "bfloat16")
    )
    padding = 1 - case["tokens"] / (case["batch"] * case["length"])
    lines = [
        f"{case['size']}, length {case['length']}, {case['dtype']}: {case['device']}, "
        f"{case['cores_used']} core(s); peaks {reached}, copy "
        f"{peaks['copy'] / 1e9:.1f} GB/s; {case['flops'] / 1e9:,.1f} GFLOP a step, "
        f"{case['parameters']:,} parameters, rows {case['rows']} ({padding:.0%} "
        f"padding), dropout {case['dropout']}"
        + "".join(
            f"; torch's {k}: {v}" for k, v in case.get("torch_optimizer", {}).items()
        )
    ]
    return lines + [f"not run: {name}: {why}" for name, why in case["not_run"].items()]


def cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One for each size, length and dtype."""
    lengths = [int(length) for length in options.lengths.split(",")]
    batches = [int(size) for size in options.batch.split(",")]
    if len(batches) == 1:
        batches *= len(lengths)
    if len(batches) != len(lengths):
        sys.exit("error: --batch: give one, or one for each of --lengths")
    return [
        {
            "size": size,
            "length": length,
            "batch": batch,
            "dtype": dtype,
            "attentions": [name for name in options.attentions.split(",") if name],
            "torch": [name for name in options.torch.split(",") if name],
            "threads": options.threads,
            "dropout": options.dropout,
            "rows": options.rows,
            "rounds": options.rounds,
            "turn": options.turn,
            "peak": [options.peak_size, options.peak_size // 8, options.turn / 2],
        }
        for size in options.sizes.split(",")
        for length, batch in zip(lengths, batches, strict=True)
        for dtype in options.dtypes.split(",")
    ]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="base", help="base, large, LAYERS/HIDDEN")
    parser.add_argument("--lengths", default="128")
    parser.add_argument("--batch", default="16", help="rows; one for each length")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--attentions", default=",".join(ATTENTIONS))
    parser.add_argument("--torch", default=TORCH, help="empty: ours alone")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rows", choices=("full", "text"), default="full")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=4.0, help="least seconds of one")
    parser.add_argument("--peak_size", type=int, default=2048, help="of the products")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a case")
    parser.add_argument("--output", default="", help="JSON; written after each case")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.lengths, options.batch = "1/64", "16", "2"
        options.rounds, options.turn, options.peak_size = 1, 0.0, 64
        options.torch = (
            "sdpa,sdpa-gathered" if options.torch == TORCH else options.torch
        )
    return options


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    if options.case:
        print(json.dumps(measure(json.loads(options.case))))
        return
    facts = measuring.begin(MODULE, arguments)
    finished: list[dict[str, Any]] = []
    # JAX takes most of a GPU's memory otherwise, and torch works on the same one.
    shared = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45", **os.environ}
    for case in cases(options):
        finished.append(measuring.in_process(MODULE, case, options.limit, shared))
        measuring.write(options.output, {**facts, "cases": finished})
        print(f"\n{table(rows_of(finished[-1]), HEADER)}", flush=True)
        print("\n".join(notes(finished[-1])), flush=True)
    if len(finished) > 1:
        every = [line for case in finished for line in rows_of(case)]
        print(f"\n{table(every, HEADER)}")
    if any("error" in case for case in finished):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
