"""Between the shell and the answer: what a mode imports, and what its start costs."""

import subprocess
import sys

import numpy as np
import pytest
from runs import LIMIT
from scipy import special

from bert_jax.scores import probabilities
from tests.forked import ROOT

# What trains a model, prepares data or belongs to another model: each takes a part of a
# second, or brings what does. A name stands for all below it.
OF_TRAINING = (
    *("grain", "tensorflow_datasets", "sentencex", "tensorboardX"),
    *("bert_jax.data.prepare", "bert_jax.data.loader", "bert_jax.data.corpus"),
    *("bert_jax.train", "bert_jax.training.run"),
)
NEEDLESS = {
    "predict": (
        *OF_TRAINING,
        *("optax", "scipy", "pyarrow", "requests", "jax.experimental.pallas.triton"),
        *("bert_jax.evaluate", "bert_jax.extract.mode", "bert_jax.describe"),
        *(
            "families.elmo.pretraining",
            "families.elmo.model",
            "bert_jax.tasks.classification",
        ),
        *("bert_jax.training.optimizer", "bert_jax.models.kernels.fused"),
    ),
    "describe": (
        *OF_TRAINING,
        "scipy",
        "bert_jax.predict",
        "families.elmo.pretraining",
    ),
}
PROGRAM = """
import sys
from bert_jax import main
status = main.main(sys.argv[1:])
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def needless(imported, mode):
    """Those of the imported modules that a mode does without."""
    names = NEEDLESS[mode]
    return sorted(
        m for m in imported if any(f"{m}.".startswith(f"{n}.") for n in names)
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", NEEDLESS)
def test_imports_of(mode, plain):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--workdir={plain}", f"--mode={mode}"],
        cwd=ROOT,
        input='{"text": "the [MASK] fox"}',
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    imported = done.stderr.split()
    assert {"jax", "bert_jax.tasks.pretraining", f"bert_jax.{mode}"} <= set(imported)
    assert needless(imported, mode) == []


def test_probabilities_are_those_of_scipy():
    rows = (
        np.random.default_rng(0).normal(size=(50, 7)) * np.logspace(-3, 3, 50)[:, None]
    )
    for row in rows:
        np.testing.assert_array_equal(probabilities.softmax(row), special.softmax(row))
        ours, theirs = probabilities.sigmoid(row), special.expit(row)
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
