"""Measurements of a quarter of an hour on a GPU, as one command.

    python -m experiments.speed.gpu_suite --output=FOLDER [--only=steps,profile] \
        [--dry-run]

Each part is a command of its own. Its output is printed and kept in FOLDER/PART.txt,
and its JSON in FOLDER/PART1.json. A part that fails or takes too long leaves its error
there, and the next begins.

    steps     Base's training step, beside torch.compile's, in turns
    profile   Base's kernels by their time; its program and XLA's choice of kernels are
              kept in FOLDER
    others    Base with 512 tokens, Large, and Large with packed rows
    numbers   outputs and gradients on the card beside the processor's (tests/device)
    predict   answers by einsum and by the fused kernel, beside the pipeline

`--dry-run` runs every part on a processor, with tiny sizes and without kernels: it
proves that the commands work and measures nothing. It needs neither data nor a network.
A profile has no CUDA graphs: it would not name the kernels that one starts.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.commands import command_line, report
from bert_jax.commands.command_line import Parser, several
from bert_jax.commands.runner import ROOT

MODULE, TEXTS = "experiments.speed.gpu_suite", "texts.jsonl"
VOCABULARY = ROOT / "bert_jax" / "weights" / "mini" / "vocab.txt"
PACKED = "--config.corpus.packing=True"
_STEP = (
    "-m experiments.speed.train_step --dtypes=bfloat16 --rounds=3 --turn=1 "
    "--attentions=fused --config.model.epilogue=fused"
)
_ALONE = f"{_STEP} --torch="
_TESTS = "norm or activation or (test_fused and padded) or losses_are or twice"
# Commands of Python. {output} is the part's file of JSON.
PARTS = {
    "steps": [
        f"{_STEP} --lengths=128 --batch=256 --torch=compile-gathered "
        "--output={output}"
    ],
    "profile": [f"{_ALONE} --lengths=128 --batch=256 --profile={{folder}}"],
    "others": [
        f"{_ALONE} --lengths=512 --batch=64 --output={{output}}",
        f"{_ALONE} --sizes=large --lengths=128 --batch=128 --output={{output}}",
        f"{_ALONE} --sizes=large --lengths=512 --batch=32 {PACKED} --output={{output}}",
    ],
    "numbers": [f"-m pytest -q -n4 tests/device -k '{_TESTS}'"],
    "predict": [
        f"-m experiments.speed.inference --vocabulary={VOCABULARY} --texts={{texts}} "
        "--layers=12 --hidden=768 --rows=1024 --batch=64 --dtype=bfloat16 --rounds=3 "
        "--turn=1 --attentions=einsum,fused --output={output}"
    ],
}
# Seconds in which a part's command must end. A rehearsal has ten times as many.
LIMITS = {"steps": 200, "profile": 120, "others": 150, "numbers": 200, "predict": 300}
# What a rehearsal adds: the last of an option counts. Its torch may have no compiler.
_TINY_STEP = (
    " --sizes=1/64 --lengths=16 --batch=2 --rounds=1 --turn=0 --attentions=einsum "
    "--config.model.epilogue=xla"
)
TINY = {
    "steps": f"{_TINY_STEP} --torch=sdpa-gathered",
    **{"profile": _TINY_STEP, "others": _TINY_STEP, "numbers": " --collect-only"},
    "predict": " --layers=1 --hidden=64 --rows=8 --rounds=1 --turn=0 "
    "--attentions=einsum",
}


def write_texts(path: Path, count: int) -> None:
    """Writes random texts as long as film reviews."""
    words = [word for word in VOCABULARY.read_text().split() if word.isalpha()]
    rng = np.random.default_rng(0)
    sizes = np.minimum(1000, rng.lognormal(5.2, 0.6, count)).astype(int)
    texts = (" ".join(rng.choice(words, size)) for size in sizes)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def run_part(part: str, folder: Path, *, dry: bool) -> str:
    """Runs a part's commands. Returns an error, or an empty string."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if dry or part == "numbers":
        environment["JAX_PLATFORMS"] = "cpu" if dry else "cuda,cpu"
    if part == "profile" and not dry:
        environment["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer= "
            f"--xla_gpu_dump_autotune_results_to={folder / 'autotuned.txt'}"
        )
    errors, limit = [], LIMITS[part] * (10 if dry else 1)
    with (folder / f"{part}.txt").open("w+") as printed:
        for number, command in enumerate(PARTS[part], 1):
            output = folder / f"{part}{number}.json"
            places = {"output": output, "folder": folder, "texts": folder / TEXTS}
            arguments = shlex.split(command.format(**places) + TINY[part] * dry)
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                errors.append(f"stopped after {limit:.0f} s")
                process.send_signal(signal.SIGINT)  # it ends its own processes
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
            else:
                errors += [f"status {status}"] * bool(status)
        printed.write("".join(f"{error}\n" for error in errors))
        printed.seek(0)
        print(printed.read(), flush=True)
    return "; ".join(errors)


@command_line.command
def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status, 1 where a part failed."""
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--output", required=True, type=Path, help="a folder")
    parser.add_argument("--only", type=several(str, PARTS), default=[*PARTS])
    parser.add_argument("--dry-run", action="store_true", help="on a processor, tiny")
    options = parser.parse_args(arguments)
    folder, start = options.output.resolve(), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    write_texts(folder / TEXTS, 1024)
    print(report.introduction(report.facts(MODULE, arguments)))
    failed = []
    for part in options.only:
        print(f"\n== {part} (at {time.monotonic() - start:.0f} s)", flush=True)
        failed += [part] * bool(run_part(part, folder, dry=options.dry_run))
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    command_line.start(main)
