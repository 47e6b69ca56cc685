"""Measurements of a quarter of an hour on a GPU, as one command.

    python -m experiments.speed.gpu_suite --output=FOLDER [--before=CHECKOUT] \
        [--only=ablation,whole] [--dry-run]

Each part's results are in FOLDER/suite.json, and its table is printed, as soon as it
ends. A part that fails or takes too long leaves its error there, and the next begins.

    ablation  three layers of Base without one change or another, in turns
    whole     Base as it was and as it is, beside torch.compile, in turns
    profile   the kernels of Base with all changes, beside a model's prediction; its
              program and XLA's choice of kernels are kept in FOLDER
    others    Base with 512 tokens, Large, and Large with packed rows, before and after
    numbers   outputs and gradients on the card beside the processor's (tests/device)
    predict   answers by einsum and by the fused kernel

"As it was" is the code of another commit: a checkout into which this file and sides.py
were copied. A side of "in turns" has a separate process. Two turns of a side that
differ by more than 1% mark it with *. `--dry-run` runs every part on a processor, with
tiny sizes and interpreted kernels: it proves that the command works and measures
nothing.

It needs neither data nor a network. A profile has no CUDA graphs: it would not name
the kernels that one starts.
"""

import argparse
import contextlib
import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.runtime.terminal import format_table
from experiments.lib import command_line, runner
from experiments.lib.command_line import Parser, several
from experiments.speed import sides

MODULE = "experiments.speed.gpu_suite"
ROUNDS, TURN = 3, 1.0  # turns of a side, and seconds of a turn
STEADY = 0.01  # by which turns of a side may differ
PROFILED_STEPS = 3

FUSED = {"attention": "fused", "epilogue": "fused"}
NO_MERGER = {"xla_gpu_dot_merger_threshold_mb": 0}
NO_TRITON = {"xla_gpu_enable_triton_gemm": False}
# A step's settings: config fields, XLA's options instead of today's, the logits' dtype,
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
OTHERS = {
    "base 512": ("base", 512, 64),
    "large 128": ("large", 128, 128),
    "large packed 512": ("large", 512, 32),
}
# Torch's side, as train_step prepares it.
TORCH: dict[str, Any] = {"library": "torch", "task": "pretraining"}
TORCH |= {"family": "bert", "dtype": "bfloat16"}


class Suite:
    """The parts, and their results.

    Args:
      folder: Folder of the results.
      before: Checkout of another commit. None means that it is left out.
      dry: Whether to run on a processor, with tiny sizes.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], before: Path | None, *, dry: bool
    ):
        self._folder, self._before, self._dry = folder, before, dry
        self.found: dict[str, Any] = {**facts}
        self._start = time.monotonic()

    def run(self, name: str) -> None:
        """Runs a part, which may fail."""
        began = time.monotonic()
        print(f"\n== {name} (at {began - self._start:.0f} s)", flush=True)
        try:
            result = getattr(self, f"_{name}")()
        except Exception as error:  # the card is not at hand for long: the next part
            result = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print(result["error"])
        result["seconds"] = round(time.monotonic() - began, 1)
        self.found[name] = result
        runner.write_json(self._folder / "suite.json", self.found)

    def case(self, name: str, size: str, length: int, batch: int, **how: Any) -> dict:
        """Returns a side's case. A rehearsal's is tiny."""
        if self._dry:
            size, length, batch = "1/32", 32, 4
        shape = {"size": size, "length": length, "batch": batch}
        return {"name": name, **shape, "dry": self._dry, **how}

    def _ablation(self) -> dict[str, Any]:
        shape = ("3/768", 128, 256)
        return self._in_turns(
            [self.case(name, *shape, **how) for name, how in ABLATION.items()], 170
        )

    def _whole(self) -> dict[str, Any]:
        names = ["sdpa-gathered" if self._dry else "compile-gathered"]
        torch = {**TORCH, "torch": names}
        parts = {"before": BEFORE, "all": AFTER, "torch": torch}
        shape = ("base", 128, 256)
        return self._in_turns(
            [self.case(name, *shape, **how) for name, how in parts.items()], 170
        )

    def _others(self) -> dict[str, Any]:
        cases = [
            self.case(f"{name}, {when}", *shape, packed="packed" in name, **how)
            for name, shape in OTHERS.items()
            for when, how in (("before", BEFORE), ("all", AFTER))
        ]
        return self._in_turns(cases, 150, rounds=2)

    def _process(self, module: str, case: Mapping[str, Any], limit: float, **more: Any):
        """Returns a process for a case. A rehearsal's has more time."""
        return sides.Process(module, case, limit * (10 if self._dry else 1), **more)

    def _in_turns(
        self, cases: Sequence[Mapping[str, Any]], limit: float, rounds: int = ROUNDS
    ) -> dict[str, Any]:
        """Measures each case in a separate process, in turns.

        Args:
          limit: Seconds in which a process must be ready.
        """
        cases = [case for case in cases if self._before or not case.get("before")]
        opened: dict[str, sides.Process] = {}
        errors: dict[str, str] = {}

        def open_one(case: Mapping[str, Any], stack: contextlib.ExitStack) -> None:
            module = "experiments.speed.train_step" if "library" in case else MODULE
            root = self._before if case.get("before") else None
            began = time.monotonic()
            try:
                process = self._process(module, case, limit, root=root)
                opened[case["name"]] = stack.enter_context(process)
            except Exception as error:
                errors[case["name"]] = str(error)[:1000]
            else:
                process.found["ready"] = time.monotonic() - began

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
            how = (1, 0.01) if self._dry else (rounds, TURN)
            timed = sides.alternate(turns, *how)
        about = {name: process.found for name, process in opened.items()}
        rows = []
        for case in cases:
            if (name := case["name"]) not in timed:
                rows.append((name, "no result", errors[name][:60], "", ""))
                continue
            side, more = timed[name], about[name]
            spread = max(side["turns"]) / min(side["turns"]) - 1
            rate = case["batch"] * more.get("pairs", 1) / side["median"]
            mark = "*" if spread > STEADY else ""
            shown = (f"{1e3 * side['median']:.2f}{mark}", f"{rate:,.0f}")
            memory = (more.get("memory") or 0) / 1e9
            rows.append((name, *shown, f"{memory:.1f}", f"{more['ready']:.0f}"))
        print(
            format_table(rows, ("side", "ms", "sequences/s", "GB", "ready s")),
            flush=True,
        )
        return {"sides": timed, "about": about, "errors": errors, "cases": list(cases)}

    def _profile(self) -> dict[str, Any]:
        folder = self._folder.resolve()
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if not self._dry:
            variables["XLA_FLAGS"] = (
                f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer= "
                f"--xla_gpu_dump_autotune_results_to={folder / 'autotuned.txt'}"
            )
        case = self.case("all", "base", 128, 256, folder=str(folder), **AFTER)
        with self._process(MODULE, case, 100, variables=variables) as process:
            print(process.found.pop("table"), flush=True)
            return process.found

    def _numbers(self) -> dict[str, Any]:
        chosen = "norm or activation or (test_fused and padded) or losses_are or twice"
        command = [sys.executable, "-m", "pytest", "-q", "-n4", "tests/device"]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if self._dry:
            command.append("--collect-only")
        else:
            environment["JAX_PLATFORMS"] = "cuda,cpu"
        done = subprocess.run(
            [*command, "-k", chosen],
            cwd=sides.ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=1200 if self._dry else 200,
        )
        (self._folder / "numbers.txt").write_text(done.stdout)
        lines = done.stdout.splitlines()
        print("\n".join(lines[-15:]))
        return {"status": done.returncode, "last": lines[-1:]}

    def _predict(self) -> dict[str, Any]:
        """Measures prediction of texts as long as film reviews, many and one.

        The model is a classifier of Base's size with random weights.
        """
        import numpy as np

        from experiments.speed import inference

        (layers, hidden), count = ((1, 64), 8) if self._dry else ((12, 768), 1024)
        vocabulary = sides.ROOT / "bert_jax" / "weights" / "mini" / "vocab.txt"
        words = [word for word in vocabulary.read_text().split() if word.isalpha()]
        rng = np.random.default_rng(0)
        sizes = np.minimum(1000, rng.lognormal(5.2, 0.6, count)).astype(int)
        texts = [" ".join(rng.choice(words, size)) for size in sizes]
        how = {"vocabulary": str(vocabulary), "layers": layers, "hidden": hidden}
        how |= {"dtype": "bfloat16", "batch": 64, "rounds": ROUNDS, "turn": TURN}
        how |= {"answer": "predict", "family": "bert"}
        how["attentions"] = ("einsum",) if self._dry else ("einsum", "fused")
        found = inference.measure(argparse.Namespace(**how), texts, ("jax",))
        print(format_table(inference.rows(found), inference.HEADER), flush=True)
        return found


PARTS = ["ablation", "whole", "profile", "others", "numbers", "predict"]


def prepare(case: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns our step of a case, in this process, or its profile."""
    if "folder" in case:
        return {}, profile(case)
    import jax

    step, config = _step(case)
    step(2)
    device = jax.local_devices()[0]
    return {case["name"]: step}, {
        "device": device.device_kind,
        "memory": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "pairs": 2 if config.corpus.packing else 1,
    }


def _step(case: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the step and its config, without the changes that the case omits."""
    from bert_jax.models import heads
    from bert_jax.runtime import environment
    from bert_jax.training import step
    from experiments.speed import our_step

    environment.keep_programs()
    if case["dry"]:
        _interpret()
    config = our_step.sized_config(case["size"], case["length"], case["batch"])
    config.model.update({"dtype": "bfloat16", **case["fields"]})
    config.corpus.packing = bool(case.get("packed"))
    if "options" in case:
        step.PRODUCTS = {}
        step.IN_ORDER = {**step.IN_ORDER, **case["options"]}
    if case.get("float32_logits"):  # logits with the vocabulary's own size
        heads.platform_name = lambda: "cpu"
    return our_step.OurStep(config, [our_step.random_batch(config)]), config


def _interpret() -> None:
    """Makes the GPU's kernels run as JAX operations."""
    import functools

    from bert_jax.models.kernels import fused, requirements

    fused.fused_attention = functools.partial(fused.fused_attention, interpret=True)
    requirements.check_attention = lambda *_, **__: None
    with contextlib.suppress(ImportError):  # an older commit
        from bert_jax.models.kernels import activation, norm

        norm.fused_norm = functools.partial(norm.fused_norm, interpret=True)
        activation.fused_activation = functools.partial(
            activation.fused_activation, interpret=True
        )


def profile(case: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the kernels of a step, as the model predicts them and as they ran.

    The step's program goes into the folder.
    """
    import jax

    from experiments.capacity import hlo, kernels

    peaks = _peaks(*((64, 1) if case["dry"] else (8192, 1024)))
    step, _ = _step(case)
    step(2)
    text = (step.compiled.as_text() or "").replace(f"{sides.ROOT}/", "")
    Path(case["folder"], "program.txt.gz").write_bytes(gzip.compress(text.encode()))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            step(PROFILED_STEPS)
        seen = kernels.measured(Path(folder))
    flops = {name: peaks[name] for name in ("float32", "bfloat16")}
    known = kernels.Peaks(flops, bytes=peaks["copy"], integer=kernels.INTEGER)
    program = kernels.kernels(hlo.Program(text))
    found = kernels.beside(program, seen, known, PROFILED_STEPS, top=2000)
    kinds = "; ".join(
        f"{kind} {real:.2f} ms ({model:.2f})"
        for kind, (model, real) in sorted(found["kinds"].items())
    )
    lines = format_table(kernels.lines(found["kernels"][:30]), kernels.HEADER)
    shown = f"measured ms (by the model): {kinds}\n{lines}"
    return {"peaks": peaks, **found, "table": shown}


def _peaks(size: int, megabytes: int) -> dict[str, float]:
    """Measures the peaks that JAX reaches: FLOP/s of a square product of `size` by
    dtype, and bytes/s read and written by a copy of `megabytes`."""
    import jax
    import jax.numpy as jnp

    found = {}
    product, add = jax.jit(jnp.matmul), jax.jit(jnp.add)
    for dtype in ("float32", "bfloat16"):
        x = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
        found[dtype] = 2.0 * size**3 / _best(product, x, x)
    source = jnp.ones(megabytes * 250_000, jnp.float32)
    # A sum with an argument: XLA would drop a plain copy.
    seconds = _best(add, source, 1.0)
    return {**found, "copy": 2e6 * megabytes / seconds}


def _best(function: Callable[..., Any], *arguments: Any) -> float:
    """Returns seconds of a call, the best of five turns of twenty calls."""
    import jax

    jax.block_until_ready(function(*arguments))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20):
            result = function(*arguments)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / 20)
    return best


@command_line.command
def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status, 1 where a part failed."""
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
    facts = sides.begin(MODULE, arguments)
    before = options.before and options.before.resolve()
    suite = Suite(options.output, facts, before, dry=options.dry_run)
    for name in options.only:
        suite.run(name)
    failed = [name for name in options.only if "error" in suite.found[name]]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    command_line.start(main)
