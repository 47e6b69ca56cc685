"""How far a table's runs are, and how long the rest takes, by their own logs."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.config.phases import phases
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.runtime import terminal
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import metrics
from experiments.lib import kept
from experiments.lib.runs import Run
from experiments.paper import budget

# FLOPs in a second of training, roughly: of tiny on two cores of a Xeon 0.8e11, of an
# EPYC 1.7e11 (README); of NVIDIA's Large on an A100, published, 1.5e14.
# Of English, in a run that has not begun: 0.9 of a small BERT's and of a GPT's pieces
# are words; BERT pads.
_WORDS_A_POSITION = 0.9
_RATES = {"two CPU cores": 1e11, "a data-centre GPU in bfloat16": 1e14}
# What is read of a run's config.json.
_CONFIG = {"train": {"num_steps": int}, "model": {}}


class State(NamedTuple):
    """Where a run is.

    Attributes:
      word: done, begun, failed or to do.
      left: estimated seconds until its end; None if nothing tells.
      error: of a run that failed.
    """

    word: str
    left: float | None
    error: str = ""


def overview(runs: Sequence[Run]) -> str:
    """A table of all runs: what is done, what remains, how long it will take."""
    found = states(runs)
    rows = []
    for run in runs:
        state = found[run.folder]
        left = "" if state.word == "done" else duration(state.left)
        rows.append((state.word, run.kind, str(run.folder), left, state.error))
    header = ("", "kind", "run", "time left", "error")
    first = (run for run in runs if not (run.needs or run.program))
    unknown = [run for run in first if found[run.folder].left is None]
    parts = (terminal.table(rows, header), scale(unknown), estimate(runs))
    return "\n".join(filter(None, parts))


def estimate(runs: Sequence[Run]) -> str:
    """One line: how many runs are left and how long they take."""
    left = _left(runs)
    if not left:
        return f"all {len(runs)} runs are done"
    return f"{len(runs) - len(left)} of {len(runs)} runs done, {_rest(left)}"


def _left(runs: Sequence[Run]) -> list[State]:
    return [state for state in states(runs).values() if state.word != "done"]


def _rest(left: Sequence[State]) -> str:
    known = [state.left for state in left if state.left is not None]
    said = f"{len(left)} left"
    if known:
        said += f": {duration(sum(known))}"
    if unknown := len(left) - len(known):
        rest = f"{unknown} of them" if known else "they"
        said += f"; how long {rest} take is known once one like them has run"
    return said


def outcome(run: Run, runs: Sequence[Run]) -> str:
    """Of a run that has ended: its main score on dev, the mean over its seeds; how long
    it took, and what is left."""
    logs = [metrics.read(folder, "dev") for folder in run.seeds().values()]
    ends = [lines[-1] for lines in logs if lines]
    names = scores_of(ends[0]) if ends else []
    said = []
    if names:
        config = _config(run) or {}
        task, evaluate = config.get("task", {}), config.get("evaluate", {})
        name = main_score(names, task.get("name", ""), evaluate.get("score", ""))
        mean = statistics.fmean(float(line[name]) for line in ends)
        seeds = f" (mean of {len(ends)} seeds)" if len(ends) > 1 else ""
        said = [f"dev {name} {mean:.4g}{seeds}"]
    said.append(duration(kept.read(run.result, {"seconds": float})["seconds"]))
    if left := _left(runs):
        said.append(_rest(left).partition(";")[0])
    return ", ".join(said)


def scores_of(line: Mapping[str, Any]) -> list[str]:
    """What a line of metrics.jsonl has besides step, split and time."""
    return [name for name in line if name not in ("step", "split", "time")]


def main_score(names: Sequence[str], task: str, selects: str = "") -> str:
    """The score, of those that a run has, by which it is compared.

    Args:
      selects: The run's `evaluate.score`.
    """
    if selects in names:
        return selects
    # A pre-training's `loss` is whatever it trains; its cross entropy says more.
    first = "f1" if task in ("ner", "vectors_ner", "squad") else "masked_lm_loss"
    return first if first in names else names[0]


def scale(runs: Sequence[Run]) -> str:
    """What pre-training runs without an estimate take, by their FLOPs; "" of none."""
    total = 0.0
    lengths = []
    for run in runs:
        spec, *fields = run.arguments
        config = configuration.load(spec.removeprefix("--config="), fields)
        if "max_seq_length" in config.task:
            continue  # a sweep's fine-tuning
        if run.words:
            lengths.append(f"{run.words:,} words")
            total += _flops_of_words(run, config)
            continue
        steps = config.train.num_steps
        warmup = config.optimizer.warmup_steps
        warmup = warmup or round(config.optimizer.warmup_fraction * steps)
        lengths.append(
            f"{steps:,} steps of {config.train.batch_size} sequences (warm-up: "
            f"{warmup:,} steps)"
        )
        total += _flops(config, steps)
    if not lengths:
        return ""
    times = (f"{duration(total / rate)} on {what}" for what, rate in _RATES.items())
    return (
        f"pre-training: {len(lengths)} of {', '.join(dict.fromkeys(lengths))}, "
        f"{total:.1e} FLOPs in all: roughly {', '.join(times)}"
    )


def _flops_of_words(run: Run, config: ConfigDict) -> float:
    """Model FLOPs of reading a run's words; before its data is there, roughly."""
    if run.budget.exists():
        return budget.read(run.budget).flops
    from bert_jax import tasks  # JAX, which nothing else here needs

    task = tasks.create(config)
    shapes = [(phase.steps, phase.shapes) for phase in task.phases()]
    flops = sum(steps * task.flops(each) for steps, each in shapes)
    positions = sum(steps * math.prod(each["input_ids"]) for steps, each in shapes)
    return flops * run.words / (_WORDS_A_POSITION * positions)


def duration(seconds: float | None) -> str:
    """Days, or hours and minutes; "?" if nothing tells."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 72 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes / 60 / 24:,.0f} days"


def states(runs: Sequence[Run]) -> dict[Path, State]:
    """Where each run is, and how long it will still take by the runs' own speeds."""
    own = {run.folder: seconds(run) for run in runs}
    totals: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        total = own[run.folder]
        if total is not None:
            totals.setdefault((run.kind, run.model), []).append(total)
    found = {}
    for run in runs:
        total = own[run.folder]
        alike = totals.get((run.kind, run.model))
        if total is None and alike:
            total = statistics.median(alike)
        found[run.folder] = _state(run, total)
    return found


def _state(run: Run, total: float | None) -> State:
    if run.is_done:
        return State("done", 0.0)
    done = _share(run)
    left = None if total is None else total * (1 - done)
    failed = run.beside(".failed.json")
    if failed.exists():
        return State("failed", left, kept.read(failed, {"error": str})["error"])
    return State("begun" if done else "to do", left)


def seconds(run: Run) -> float | None:
    """How long the whole run takes: its FLOPs at the pace of its log, or, if it is
    done, what it took where the log is too short."""
    took = kept.read(run.result, {"seconds": float})["seconds"] if run.is_done else None
    total, ends = _log(run)
    paces = [
        (b - a) / (done - before)
        for (a, before), (b, done) in itertools.pairwise(ends)
        if done > before
    ]
    by_pace = statistics.median(paces) * total if paces else None
    # A resumed run took longer than its last process, but not less than its steps.
    return max(filter(None, (took, by_pace)), default=None)


def _share(run: Run) -> float:
    """The share of the run that its log says is done; 0 before."""
    total, ends = _log(run, slice(-1, None))
    return ends[-1][1] / total if ends and total else 0.0


def _log(
    run: Run, part: slice = slice(None)
) -> tuple[float, list[tuple[float, float]]]:
    """The work of the whole run; and by its log, or a part of its lines, when how much
    of it was done."""
    if (config := _config(run)) is None:
        return 0.0, []
    lines = metrics.read(run.folder, "train")[part]
    ends = [(line["time"], _work(config, line["step"])) for line in lines]
    return _work(config, config.train.num_steps), ends


def _config(run: Run) -> ConfigDict | None:
    """A run's config.json; None before it, and for experiments.paper.features."""
    path = run.folder / "config.json"
    if not path.exists():
        return None
    found = kept.read(path, _CONFIG, run.again)
    second = found.get("phase2", {"fraction": 0})
    kept.check(second, {"fraction": float}, path, run.again)
    if not second["fraction"]:
        return ConfigDict(found)
    config = configuration.complete(workdir.read_config(run.folder), path)
    try:  # what `_flops` reads of it
        BertConfig.create(config.model, config.tokenizer.vocab_size)
        phases(config)
    except UserError as error:
        raise UserError(f"{path}: {error}; {run.again}") from error
    return config


def _work(config: ConfigDict, end: float) -> float:
    """A run's steps before `end`, weighed by their FLOPs where they are not alike."""
    has_phases = "phase2" in config and config.phase2.fraction
    return _flops(config, end) if has_phases else end


def _flops(config: ConfigDict, end: float) -> float:
    """Model FLOPs of a pre-training's steps before `end`."""
    model = BertConfig.create(config.model, config.tokenizer.vocab_size)
    total = 0.0
    for phase in phases(config):
        length, predictions = phase.max_seq_length, phase.max_predictions_per_seq
        if config.task.get("objective") == "ltr":
            predictions = length - 1
        steps = max(0.0, min(end, phase.end_step) - phase.first_step)
        rows = steps * phase.batch_size
        total += rows * pretraining_flops(model, length, predictions)
    return total
