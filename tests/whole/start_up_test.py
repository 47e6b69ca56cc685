"""Between the shell and the answer: libraries that a mode does without."""

import subprocess
import sys

import pytest

from tests.runs import LIMIT, ROOT

# Each takes a part of a second, or brings what does. A name covers all below it.
NEEDLESS = (
    *("grain", "tensorflow_datasets", "sentencex", "tensorboardX"),
    *("scipy", "pyarrow", "requests", "jax.experimental.pallas.triton"),
    *("bert_jax.families.elmo",),
)
PROGRAM = """
import sys
from bert_jax import main
status = main.main(sys.argv[1:])
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.slow
def test_imports_of_predict(plain):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--workdir={plain}", "--mode=predict"],
        cwd=ROOT,
        input='{"text": "the [MASK] fox"}',
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    imported = done.stderr.split()
    assert {"jax", "bert_jax.tasks.pretraining", "bert_jax.predict"} <= {*imported}
    below = tuple(f"{name}." for name in NEEDLESS)
    assert [name for name in imported if f"{name}.".startswith(below)] == []
