"""Training steps on the device, against the processor's and against themselves."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.device.losses import losses
from tests.runs import ROOT


def of_a_process(*arguments: object, **variables: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.losses", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return of_a_process("einsum", "float32", 5, JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("attention", ["einsum", "fused"])
@pytest.mark.parametrize(
    ("precision", "error"), [("highest", 1e-5), ("float32", 1e-3), ("bfloat16", 1e-2)]
)
def test_losses_are_the_processor_s(expected, attention, precision, error):
    """Dropout drops the same elements. float32 multiplies in TF32 by default."""
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    with jax.default_matmul_precision("highest" if precision == "highest" else None):
        found = losses(attention, dtype, 5)
    np.testing.assert_allclose(found, expected, rtol=error)
    assert found[-1] < found[0]


@pytest.mark.parametrize("attention", ["einsum", "fused"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_give_the_same_losses_twice(attention, dtype, tmp_path):
    """To the last bit, of two processes with one program."""
    one, other = (
        of_a_process(attention, dtype, 50, JAX_COMPILATION_CACHE_DIR=str(tmp_path))
        for _ in range(2)
    )
    assert one == other
    assert one[-1] < one[0]
