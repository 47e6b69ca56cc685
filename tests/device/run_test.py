"""The tiny job on the device: trained, killed, resumed and queried."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from tests.runs import ROOT

MAIN = (sys.executable, "-m", "bert_jax.main")
STEPS = 200
JOB = (
    *("--config=configs/tiny.py:recipe=plain", f"--config.train.num_steps={STEPS}"),
    *("--config.train.log_every=10", "--config.checkpoint.save_every=20"),
    *("--config.model.hidden_dropout_prob=0.1", "--config.model.dtype=bfloat16"),
    "--config.tokenizer.vocab_file=bert_jax/weights/mini/vocab.txt",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


def job(folder: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    where = (f"--workdir={folder / name}", f"--config.corpus.data_dir={folder / 'd'}")
    return subprocess.Popen(
        [*MAIN, *JOB, *where, *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output[-3000:]
    return output


def losses(workdir: Path) -> dict[int, float]:
    file = workdir / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row["loss"] for row in rows if row["split"] == "train"}


@pytest.fixture(scope="module")
def both(folder) -> Path:
    """The folder with `whole`, and with `killed`, which has half of its steps.

    The second finds the programs of the first, as a resumed run does: compiled again,
    XLA may choose other kernels.
    """
    killed = job(folder, "killed")
    limit = time.monotonic() + 300
    while killed.poll() is None and time.monotonic() < limit:
        if max(losses(folder / "killed"), default=0) >= STEPS // 2:
            killed.send_signal(signal.SIGKILL)
            break
        time.sleep(0.05)
    assert killed.wait() == -signal.SIGKILL, killed.communicate()
    assert f" x {jax.devices()[0].device_kind}" in finished(job(folder, "whole"))
    return folder


def test_device_run_learns(both):
    found = losses(both / "whole")
    assert found[STEPS] < found[10] - 0.5


def test_killed_and_started_again_it_writes_the_same_losses(both):
    """Bit for bit."""
    assert max(losses(both / "killed")) < STEPS
    finished(job(both, "killed"))
    assert losses(both / "killed") == losses(both / "whole")
