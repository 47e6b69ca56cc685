"""What fits where: a table of configs and devices, by the vendors' compilers.

    python -m experiments.capacity.fits --output=fits.json \
        [--docs=docs/what_fits.md] [--jobs=2]

Compiles every phase of every config for every device (`plan --compile`, effort quick).
Where a config does not fit by the formulas, it takes the cheapest change that does;
where the compiler disagrees, the next. A batch that has fewer rows than a slice has
chips is raised to one row for each. What --output has already is not compiled again.
All of it takes 12 minutes on two cores.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.runtime import untrusted
from bert_jax.runtime.terminal import table
from experiments.capacity import compile_report, devices, estimate, plan
from experiments.lib import ending, programs, report
from experiments.lib.command_line import Parser
from experiments.speed import measuring

MODULE = "experiments.capacity.fits"
CONFIGS = (
    *("configs/base.py", "configs/large.py", "configs/lamb.py"),
    *("configs/finetune/glue.py:task=mnli,size=base", "configs/finetune/squad.py"),
    "configs/finetune/glue.py:task=mnli,size=large",
    "configs/finetune/squad.py:size=large",
)
NAMES = ("v5e:4x4", "v5e:16x16", "v5p:4x4x4", "v6e:8x8", "h100", "h200")
# As one trains on such devices. Layers in a loop compile in seconds; unrolled ones take
# minutes and less memory, because the compiler sees all of them.
FIELDS = ("--config.model.dtype=bfloat16", "--config.model.scan_layers=True")
EFFICIENCY = 0.4
EFFORT = "quick"


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status: 1 where a case failed."""
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--output", default="", help="JSON; grows with each case")
    parser.add_argument("--docs", default="", help="the page to write the table to")
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--devices", nargs="+", default=NAMES)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    options = parser.parse_args(arguments)
    facts = measuring.begin(MODULE, arguments)
    path = Path(options.output)
    kept = untrusted.read_object(path).get("cases", []) if path.is_file() else []
    kept = [case for case in kept if "error" not in case]
    asked = [
        {"config": config, "device": device}
        for device in options.devices
        for config in options.configs
    ]
    asked = [case for case in asked if not any(case.items() <= k.items() for k in kept)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(one, asked):
            kept += found
            measuring.write(options.output, {**facts, "cases": kept})
            print(table([row(case) for case in found], HEADER), flush=True)
    if options.docs:
        Path(options.docs).write_text(page(facts, kept), encoding="utf-8")
    return int(any("error" in case for case in kept))


def one(case: dict[str, str]) -> list[dict[str, Any]]:
    """A config on a device, in a process: its mesh is of simulated devices."""
    done = measuring.in_process(MODULE, case, 3600.0)
    return [done] if "error" in done else done["phases"]


def measure(case: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """What each of the `phases` needs, with the change that makes it fit."""
    config, device = case["config"], case["device"]
    chips = devices.count(device) or 1
    plan.simulate(chips)
    fields = [*FIELDS, *_rows(config, chips)]
    task = programs.task_of(programs.load(config, fields))
    told = plan.advice(task.config, devices.chip(device))
    asked = {**case, "fields": fields, "effort": EFFORT}
    found: list[dict[str, Any]] = []
    for change in told.changes or [[]]:
        found = list(compile_report.phases(asked, change))
        if all(phase["fits"] for phase in found):
            break
    return {"phases": [{**phase, "hours": _hours(phase)} for phase in found]}


def _rows(spec: str, chips: int) -> list[str]:
    """Fields that give each chip a row."""
    config = programs.load(spec, FIELDS)
    sizes = {
        "train.batch_size": config.train.batch_size,
        "evaluate.batch_size": config.evaluate.batch_size,
    }
    return [f"--config.{name}={chips}" for name, n in sizes.items() if n < chips]


def _hours(case: dict[str, Any]) -> list[float]:
    """Of a phase, if traffic overlaps with computing and if not; empty where the
    number of steps depends on data."""
    task = programs.task_of(programs.load(case["config"], case["fields"]))
    if task.config.task.name != "pretraining":
        return []
    phase = task.phases()[case["phase"]]
    chip = devices.chip(case["device"])
    mesh = estimate.mesh_of(task.config, chip.compiler)
    flops = task.flops(phase.shapes)
    times = plan.seconds(task.config, chip, mesh, case["phase"], flops, EFFICIENCY)
    return [x * phase.steps / 3600 for x in plan.bounds(times)]


HEADER = (
    *("config", "device", "mesh", "rows x length", "change", "compiler GB"),
    *("formulas GB", "fits", "tokens a step", "hours"),
)


def row(case: dict[str, Any]) -> tuple[str, ...]:
    """A line of the table."""
    name = case["config"].removeprefix("configs/").replace("finetune/", "")
    if "error" in case:
        return (name, case["device"], case["error"], *[""] * (len(HEADER) - 3))
    axes = " ".join(f"{axis}={n}" for axis, n in case["mesh"].items() if n > 1)
    formulas, needed = f"{case['formulas'] / 1e9:.2f}", "does not fit"
    if "bytes" in case:
        total = compile_report.total(case)
        formulas += f" ({case['formulas'] / total - 1:+.1%})"
        needed = f"{total / 1e9:.2f}"
    return (
        name,
        case["device"],
        axes or "one",
        f"{case['rows']:,} x {case['length']}",
        " ".join(flag.removeprefix("--config.") for flag in case["change"]),
        needed,
        formulas,
        "yes" if case["fits"] else "no",
        f"{case['rows'] * case['length']:,}",
        " to ".join(f"{hours:.3g}" for hours in case["hours"]),
    )


def page(facts: dict[str, Any], kept: list[dict[str, Any]]) -> str:
    """The table as a page of docs/."""
    lines = [
        "# What fits where",
        "",
        "Written by a command. The devices' own compilers (libtpu, XLA for CUDA) "
        "compiled the programs on a machine without such devices; they have not run:",
        "",
        "```",
        report.introduction(facts),
        "```",
        "",
        f"With `{' '.join(FIELDS)}`. `change` is the cheapest that makes a config fit "
        "(more micro-batches, recomputation, fsdp), found by the formulas of "
        "`experiments.capacity.plan` and checked by the compiler. `formulas GB` is "
        "what `experiments.capacity.plan` says without a compiler, and its error. "
        "Hours are of a "
        f"phase, by formulas at {EFFICIENCY:.0%} of the peak: if the traffic between "
        "devices overlaps with computing wholly, and if not at all. Fine-tuning's "
        "depend on the data.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"|{'---|' * len(HEADER)}",
        *(f"| {' | '.join(row(case))} |" for case in kept),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    ending.start(main)
