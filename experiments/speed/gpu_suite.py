"""What a quarter of an hour on a GPU should decide, as one command.

    python -m experiments.speed.gpu_suite --output=FOLDER [--before=CHECKOUT] \
        [--only=ablation,whole,...] [--dry-run]

Each part's results are in FOLDER/suite.json, and its table is printed, as soon as it
ends. A part that fails or takes too long leaves its error there, and the next begins.

    ablation  three layers of Base without one change or another, in turns
    whole     Base as it was and as it is, beside torch.compile, in turns
    profile   the kernels of Base with all changes, beside a model's prediction; its
              program and XLA's choice of kernels are kept in FOLDER
    others    Base with 512 tokens, Large, and Large with packed rows, before and after
    fp8       matrix products in float8 beside bfloat16, by JAX and by torch
    numbers   outputs and gradients on the card beside the processor's (tests/device)
    predict   answers by einsum and by the fused kernel

"As it was" is the code of another commit: a checkout into which this file and sides.py
were copied. A side of "in turns" has a process of its own. Two turns of a side that
differ by more than 1% mark it with *. `--dry-run` runs every part on a processor, with
tiny sizes and interpreted kernels: it proves that the command works and measures
nothing.
"""

import argparse
import contextlib
import gzip
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.runtime.terminal import table
from experiments.lib import ending
from experiments.lib.command_line import Parser, several
from experiments.speed import measuring, sides, train_sides

MODULE = "experiments.speed.gpu_suite"
ROUNDS, TURN = 3, 1.0  # turns of a side, and seconds of a turn
STEADY = 0.01  # by which turns of a side may differ

FUSED = {"attention": "fused", "epilogue": "fused"}
NO_MERGER = {"xla_gpu_dot_merger_threshold_mb": 0}
NO_TRITON = {"xla_gpu_enable_triton_gemm": False}
# What a step has: config fields, XLA's options in place of today's, the logits' dtype,
# and whether its code is that of --before.
BEFORE: dict[str, Any] = {"fields": {"attention": "fused"}, "before": True}
AFTER: dict[str, Any] = {"fields": FUSED}
ABLATION: dict[str, dict[str, Any]] = {
    "before": BEFORE,
    "before, no merged products": {**BEFORE, "options": NO_MERGER},
    "before, no Triton products": {**BEFORE, "options": NO_TRITON},
    "before, neither": {**BEFORE, "options": {**NO_MERGER, **NO_TRITON}},
    "all": AFTER,
    "all but the options": {**AFTER, "options": {}},
    "all but the logits": {**AFTER, "float32_logits": True},
    "all but the epilogue": {"fields": {"attention": "fused"}},
    "all, scanned": {"fields": {**FUSED, "scan_layers": True}},
}
# Operands [rows, summed] and [summed, columns] of a layer's products: of queries, keys
# and values, both of the feed-forward block, and the gradient of a kernel.
TOKENS = 32_768
PRODUCTS = [
    *((TOKENS, 768, 2304), (TOKENS, 768, 3072), (TOKENS, 3072, 768)),
    *((768, TOKENS, 3072), (TOKENS, 1024, 4096), (TOKENS, 4096, 1024)),
]


class Suite:
    """The parts, and what they found.

    Args:
      folder: of the results.
      before: the checkout of another commit; None means that it is left out.
      dry: on a processor, with tiny sizes.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], before: Path | None, *, dry: bool
    ):
        self._folder, self._before, self._dry = folder, before, dry
        self.found: dict[str, Any] = {**facts}
        self._start = time.monotonic()

    def run(self, name: str) -> None:
        """Runs a part; it may fail."""
        began = time.monotonic()
        print(f"\n== {name} (at {began - self._start:.0f} s)", flush=True)
        try:
            result = getattr(self, f"_{name}")()
        except Exception as error:  # the card is not at hand for long: the next part
            result = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print(result["error"])
        result["seconds"] = round(time.monotonic() - began, 1)
        self.found[name] = result
        measuring.write(str(self._folder / "suite.json"), self.found)

    def case(self, name: str, size: str, length: int, batch: int, **how: Any) -> dict:
        """A side's case; a rehearsal's is tiny."""
        if self._dry:
            size, length, batch = "1/32", 32, 4
        shape = {"size": size, "length": length, "batch": batch}
        return {"name": name, **shape, "dry": self._dry, **how}

    def _ablation(self) -> dict[str, Any]:
        cases = [
            self.case(name, "3/768", 128, 256, **how) for name, how in ABLATION.items()
        ]
        return self._in_turns(cases, limit=170)

    def _whole(self) -> dict[str, Any]:
        cases = [
            self.case(name, "base", 128, 256, **how)
            for name, how in (("before", BEFORE), ("all", AFTER))
        ]
        torch = self.case("torch", "base", 128, 256, library="torch")
        return self._in_turns([*cases, torch], limit=170)

    def _others(self) -> dict[str, Any]:
        shapes = {
            "base 512": ("base", 512, 64),
            "large 128": ("large", 128, 128),
            "large packed 512": ("large", 512, 32),
        }
        cases = [
            self.case(f"{name}, {when}", *shape, packed="packed" in name, **how)
            for name, shape in shapes.items()
            for when, how in (("before", BEFORE), ("all", AFTER))
        ]
        return self._in_turns(cases, limit=150, rounds=2)

    def _in_turns(
        self, cases: Sequence[Mapping[str, Any]], limit: float, rounds: int = ROUNDS
    ) -> dict[str, Any]:
        """Measures each case in a process of its own, in turns.

        Args:
          limit: seconds in which a process must be ready.
        """
        limit *= 10 if self._dry else 1
        cases = [case for case in cases if self._before or not case.get("before")]
        opened: dict[str, sides.Process] = {}
        errors: dict[str, str] = {}

        def open_one(case: Mapping[str, Any], stack: contextlib.ExitStack) -> None:
            try:
                process = stack.enter_context(opened_in_time(case, limit, self._before))
            except Exception as error:
                errors[case["name"]] = str(error)[:1000]
            else:
                opened[case["name"]] = process

        with contextlib.ExitStack() as stack:
            # A rehearsal's processor has few cores.
            with ThreadPoolExecutor(2 if self._dry else len(cases)) as pool:
                list(pool.map(lambda case: open_one(case, stack), cases))
            if not opened:
                raise RuntimeError(f"no side is ready: {errors}")
            turns = {
                case["name"]: next(iter(opened[case["name"]].turns().values()))
                for case in cases
                if case["name"] in opened
            }
            least = 0.01 if self._dry else TURN
            timed = measuring.alternate(turns, 1 if self._dry else rounds, least)
            about = {name: process.found for name, process in opened.items()}
        rows = []
        for case in cases:
            if (name := case["name"]) not in timed:
                rows.append((name, "no result", errors[name][:60], "", ""))
                continue
            side, more = timed[name], about[name]
            spread = max(side["turns"]) / min(side["turns"]) - 1
            pairs = more.get("pairs", 1)
            rate = case["batch"] * pairs / side["median"]
            mark = "*" if spread > STEADY else ""
            shown = (f"{1e3 * side['median']:.2f}{mark}", f"{rate:,.0f}")
            memory, seconds = more.get("memory") or 0, more.get("ready", 0)
            rows.append((name, *shown, f"{memory / 1e9:.1f}", f"{seconds:.0f}"))
        print(table(rows, ("side", "ms", "sequences/s", "GB", "ready s")), flush=True)
        return {"sides": timed, "about": about, "errors": errors, "cases": list(cases)}

    def _alone(self, what: str, limit: float, **more: Any) -> dict[str, Any]:
        """`measure` of one case in a process of its own."""
        limit *= 10 if self._dry else 1
        case = {"what": what, "dry": self._dry, "folder": str(self._folder), **more}
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if what == "profile" and not self._dry:
            kept = self._folder / "autotuned.txt"
            variables["XLA_FLAGS"] = (
                f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer= "
                f"--xla_gpu_dump_autotune_results_to={kept}"
            )
        found = measuring.in_process(MODULE, case, limit, variables)
        if "error" in found:
            raise RuntimeError(found["error"])
        print(found.pop("table", ""), flush=True)
        return found

    def _profile(self) -> dict[str, Any]:
        return self._alone(
            "profile", 100, **self.case("all", "base", 128, 256, **AFTER)
        )

    def _fp8(self) -> dict[str, Any]:
        return self._alone("fp8", 80)

    def _numbers(self) -> dict[str, Any]:
        chosen = "norm or activation or (test_fused and padded) or losses_are or twice"
        command = [sys.executable, "-m", "pytest", "-q", "-n4", "tests/device"]
        if self._dry:
            command.append("--collect-only")
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if not self._dry:
            environment["JAX_PLATFORMS"] = "cuda,cpu"
        with (self._folder / "numbers.txt").open("w") as output:
            status = subprocess.run(
                [*command, "-k", chosen],
                cwd=measuring.ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=1200 if self._dry else 200,
            ).returncode
        lines = (self._folder / "numbers.txt").read_text().splitlines()
        print("\n".join(lines[-15:]))
        return {"status": status, "last": lines[-1:]}

    def _predict(self) -> dict[str, Any]:
        return {
            attention: self._alone("predict", 70, attention=attention)
            for attention in (("einsum",) if self._dry else ("einsum", "fused"))
        }


PARTS = [*("ablation", "whole", "profile", "others", "fp8", "numbers", "predict")]


@contextlib.contextmanager
def opened_in_time(
    case: Mapping[str, Any], limit: float, before: Path | None
) -> Iterator[sides.Process]:
    """A side's process, which is killed if it is not ready in time."""
    module = MODULE
    if case.get("library") == "torch":
        module = train_sides.MODULE
        case = {
            **{name: case[name] for name in ("size", "length", "batch", "library")},
            **{"model": "bert", "task": "pretraining", "dtype": "bfloat16"},
            **{"dropout": 0.1, "threads": 0, "torch": ["compile-gathered"]},
            "peak": (8192, 1024, 0.5),
        }
        if os.environ.get("JAX_PLATFORMS") == "cpu":
            case["torch"] = ["sdpa-gathered"]
    root = before if case.get("before") else None
    began = time.monotonic()
    process = sides.Process(module, case, wait=False, root=root)
    timer = threading.Timer(limit, process.kill)
    timer.start()
    with process:
        try:
            process.ready()
        finally:
            timer.cancel()
        process.found["ready"] = time.monotonic() - began
        yield process


def open_sides(case: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our step of a case, in this process."""
    import jax

    step, config = _step(case)
    step(2)
    device = jax.local_devices()[0]
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use")
    pairs = 2 if config.corpus.packing else 1
    return {case["name"]: step}, {
        "device": device.device_kind,
        "memory": memory,
        "pairs": pairs,
    }


def _step(case: Mapping[str, Any]) -> tuple[Any, Any]:
    """The step and its config, with what the case leaves out of today's code."""
    from bert_jax.models import heads
    from bert_jax.runtime import compilation_cache
    from bert_jax.training import compilation
    from experiments.speed import our_step

    compilation_cache.keep()
    if case["dry"]:
        _interpret()
    config = our_step.sized_config(case["size"], case["length"], case["batch"])
    config.model.update({"dtype": "bfloat16", **case["fields"]})
    config.corpus.packing = bool(case.get("packed"))
    if "options" in case:
        compilation.PRODUCTS = {}
        compilation.IN_ORDER = {**compilation.IN_ORDER, **case["options"]}
    if case.get("float32_logits"):  # of the vocabulary's own size
        heads.platform = lambda: "cpu"
    return our_step.OurStep(config, [our_step.random_batch(config)]), config


def _interpret() -> None:
    """Has the GPU's kernels run as JAX operations."""
    import functools

    from bert_jax.models.kernels import fused, requirements

    fused.fused_attention = functools.partial(fused.fused_attention, interpret=True)
    requirements.check = lambda *_, **__: None
    with contextlib.suppress(ImportError):  # an older commit
        from bert_jax.models.kernels import activation, norm

        norm.fused_norm = functools.partial(norm.fused_norm, interpret=True)
        activation.fused_activation = functools.partial(
            activation.fused_activation, interpret=True
        )


def measure(case: Mapping[str, Any]) -> dict[str, Any]:
    """What a process alone measures; `table` is for the reader."""
    parts = {"profile": profile, "fp8": fp8, "predict": predict}
    return parts[case["what"]](case)


def profile(case: Mapping[str, Any]) -> dict[str, Any]:
    """The kernels of a step; its program goes into the folder."""
    from experiments.speed import gpu

    size, megabytes, seconds = (64, 1, 0.01) if case["dry"] else (8192, 1024, 0.3)
    peaks = measuring.peaks("jax", size, megabytes, seconds)
    step, _ = _step(case)
    step(2)
    text = (step.compiled.as_text() or "").replace(f"{measuring.ROOT}/", "")
    Path(case["folder"], "program.txt.gz").write_bytes(gzip.compress(text.encode()))
    found = gpu.profile(step, peaks, top=2000)
    longest = {**found, "kernels": found["kernels"][:30]}
    shown = gpu.show_profile(longest) if not case["dry"] else ""
    return {"peaks": peaks, **found, "table": shown}


def _timed(
    lowered: Mapping[str, Mapping[str, Any]], dry: bool
) -> dict[str, dict[str, float]]:
    """Milliseconds of each function and its arguments; all are compiled first."""

    def compiled(one: tuple) -> Any:
        try:
            return one[0].compile()
        except Exception as error:  # a choice that does not fit is an answer, too
            print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr)
            return None

    flat = [one for functions in lowered.values() for one in functions.values()]
    with ThreadPoolExecutor() as pool:
        programs = dict(zip(map(id, flat), pool.map(compiled, flat), strict=True))
    return {
        kernel: {
            name: _milliseconds(programs[id(one)], one[1], dry)
            for name, one in functions.items()
        }
        for kernel, functions in lowered.items()
    }


def _milliseconds(compiled: Any, given: Sequence[Any], dry: bool) -> float:
    """Of a call, the best of five turns of twenty calls; infinite without a program."""
    import jax

    if compiled is None:
        return float("inf")
    jax.block_until_ready(compiled(*given))
    best, count = float("inf"), 1 if dry else 20
    for _ in range(1 if dry else 5):
        start = time.perf_counter()
        for _ in range(count):
            result = compiled(*given)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / count)
    return 1e3 * best


def fp8(case: Mapping[str, Any]) -> dict[str, Any]:
    """TFLOP/s of a layer's products in bfloat16 and float8, by JAX and by torch."""
    import jax
    import jax.numpy as jnp

    shapes = [(16, 16, 16)] if case["dry"] else PRODUCTS
    lowered: dict[str, dict[str, Any]] = {}

    def product(one: Any, other: Any) -> Any:
        # Both have the summed axis last, as cuBLASLt wants them of float8.
        axes, result = (((1,), (1,)), ((), ())), jnp.bfloat16
        return jax.lax.dot_general(one, other, axes, preferred_element_type=result)

    for rows, summed, columns in shapes:
        key = jax.random.key(0)
        wide = [jax.random.normal(key, (n, summed)) for n in (rows, columns)]
        by_type = lowered[f"{rows} x {summed} x {columns}"] = {}
        for dtype in (jnp.bfloat16, jnp.float8_e4m3fn):
            given = [x.astype(dtype) for x in wide]
            name = f"jax {jnp.dtype(dtype).name}"
            by_type[name] = (jax.jit(product).lower(*given), given)
    timed = _timed(lowered, case["dry"])
    found = {}
    for (rows, summed, columns), by_name in zip(shapes, timed.values(), strict=True):
        work = 2e-9 * rows * summed * columns
        rates = {name: work / ms for name, ms in by_name.items()}
        rates |= _torch_products(rows, summed, columns) if not case["dry"] else {}
        found[f"{rows} x {summed} x {columns}"] = rates
    names = list(next(iter(found.values())))
    lines = [
        (shape, *(f"{rates[name]:,.0f}" for name in names))
        for shape, rates in found.items()
    ]
    return {"TFLOP/s": found, "table": table(lines, ("product", *names))}


def _torch_products(rows: int, summed: int, columns: int) -> dict[str, float]:
    import torch

    one = torch.randn(rows, summed, device="cuda")
    other = torch.randn(columns, summed, device="cuda")
    unit = torch.ones((), device="cuda")
    half = [x.to(torch.bfloat16) for x in (one, other)]
    eight = [x.to(torch.float8_e4m3fn) for x in (one, other)]

    def scaled() -> Any:
        return torch._scaled_mm(
            eight[0],
            eight[1].T,
            scale_a=unit,
            scale_b=unit,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    sides_of = {
        "torch bfloat16": lambda: torch.mm(half[0], half[1].T),
        "torch float8": scaled,
    }
    found = {}
    for name, act in sides_of.items():
        act()
        torch.cuda.synchronize()
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(20):
                act()
            torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / 20)
        found[name] = 2e-12 * rows * summed * columns / best
    return found


def predict(case: Mapping[str, Any]) -> dict[str, Any]:
    """Texts a second of a classifier of Base's size with random weights, and
    milliseconds of a text alone; the texts are as long as film reviews."""
    import faulthandler
    import tempfile

    import numpy as np

    from experiments.speed import inference, inference_sides

    faulthandler.dump_traceback_later(30)
    inference.has = lambda library: False  # no export to ONNX
    vocabulary = measuring.ROOT / "pretrained" / "mini" / "vocab.txt"
    words = [word for word in vocabulary.read_text().split() if word.isalpha()]
    rng = np.random.default_rng(0)
    count, batch = (8, 4) if case["dry"] else (1024, 64)
    texts = [
        " ".join(rng.choice(words, min(1000, int(rng.lognormal(5.2, 0.6)))))
        for _ in range(count)
    ]
    size = {"layers": 1, "hidden": 64} if case["dry"] else {"layers": 12, "hidden": 768}
    args = argparse.Namespace(vocabulary=str(vocabulary), model="bert", **size)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        inference.make_model(args, Path(folder))
        for name, rows, given in (
            ("texts/s", batch, texts),
            ("ms, alone", 1, texts[:8]),
        ):
            side = inference_sides.Ours(
                Path(folder), rows, "bert", "bfloat16", case["attention"]
            )
            calls = [given] if rows > 1 else [[text] for text in given]
            seconds = []
            for _ in range(2 if case["dry"] else 5):
                start = time.perf_counter()
                for texts_of_a_call in calls:
                    side.predict(texts_of_a_call)
                seconds.append((time.perf_counter() - start) / len(calls))
            best = min(seconds[1:])
            found[name] = len(texts) / best if rows > 1 else 1e3 * best
            found[f"first call, {name}"] = seconds[0]
    faulthandler.cancel_dump_traceback_later()
    lines = [(name, f"{value:,.2f}") for name, value in found.items()]
    title = f"predict, {case['attention']}"
    return {**found, "table": table(lines, (title, ""))}


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status: 1 where a part failed."""
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--output", required=True, type=Path, help="a folder")
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--only", type=several(str, PARTS), default=PARTS, help="parts")
    parser.add_argument("--dry-run", action="store_true", help="on a processor, tiny")
    options = parser.parse_args(arguments)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if options.dry_run:
        os.environ["JAX_PLATFORMS"] = "cpu"
    options.output.mkdir(parents=True, exist_ok=True)
    facts = measuring.begin(MODULE, arguments)
    before = options.before and options.before.resolve()
    suite = Suite(options.output, facts, before, dry=options.dry_run)
    for name in options.only:
        suite.run(name)
    failed = [name for name in options.only if "error" in suite.found[name]]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    ending.start(main)
