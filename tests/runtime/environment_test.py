"""Memory of the process, and a reader that is gone."""

import os
import platform
import subprocess
import sys

import pytest

from bert_jax.runtime import environment
from tests import runs
from tests.runs import LIMIT, ROOT

TUNABLES = """
import os, sys
from bert_jax.runtime import environment
environment.prepare_memory()
print(os.environ["GLIBC_TUNABLES"], *sys.argv[1:])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's variable")
def test_huge_pages_and_the_same_arguments():
    done = subprocess.run(
        [sys.executable, "-c", TUNABLES, "one", "two three"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == f"{environment.MALLOC} one two three\n"


@pytest.mark.slow
def test_closed_pipe_is_no_error(plain, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the [MASK]"}\n' * 300)  # more than a pipe holds
    program = f"{sys.executable} -m bert_jax.main --mode=predict --workdir={plain}"
    done = subprocess.run(
        ["bash", "-c", f"{program} <{source} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        env=runs.environment(),
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 141 and done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


# A second start finds its programs compiled, and computes what the first did.


def finished(micro, workdir, cache):
    """Trains four steps, and returns what a run says."""
    process = runs.start(
        f"--config={micro}",
        f"--workdir={workdir}",
        "--config.train.num_steps=4",
        XDG_CACHE_HOME=str(cache),
        JAX_COMPILATION_CACHE_DIR="",
        JAX_LOG_COMPILES="true",  # tells of hits
    )
    return runs.finish(process)[1]


@pytest.mark.slow
def test_second_run_takes_what_the_first_compiled(micro, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    finished(micro, first, tmp_path / "cache")
    err = finished(micro, second, tmp_path / "cache")
    assert "cache hit for 'jit_train_step'" in err
    assert "cache miss for 'jit_train_step'" not in err.lower()
    assert runs.losses(second).tolist() == runs.losses(first).tolist()
