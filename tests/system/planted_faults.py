"""Plants one fault at a time in a copy of the code, and runs the quick tests.

    python -m tests.system.planted_faults [--only=WORDS]

The copy is that of the last commit. The tests named with a fault run first. If none
of them fails, all quick tests run. The exit status is 0 if some test fails for each
fault.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.forked import ROOT

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Fault(NamedTuple):
    """A fault: in `file`, the text `wrong` replaces `right`.

    Attributes:
      first: File of tests that should notice it.
    """

    name: str
    file: str
    right: str
    wrong: str
    first: str


FAULTS = (
    Fault(
        "the positions of masks are off by one",
        "bert_jax/data/masking.py",
        "positions[row, column] = position\n",
        "positions[row, column] = position - 1\n",
        "tests/data/masking_test.py",
    ),
    Fault(
        "the last shard is not read",
        "bert_jax/data/records.py",
        "ArrayRecordDataSource(list(paths))",
        "ArrayRecordDataSource(list(paths)[:7])",
        "tests/data/loader_test.py",
    ),
    Fault(
        "accents are kept",
        "bert_jax/tokenization/wordpiece.py",
        "strip_accents=lowercase and strip_accents,",
        "strip_accents=False,",
        "tests/tokenization/wordpiece_test.py",
    ),
    Fault(
        "padding is attended to",
        "bert_jax/models/attention.py",
        "jnp.where(input_mask == 0, 0, 1)\n",
        "jnp.ones_like(input_mask)\n",
        "tests/convert/google_test.py",
    ),
    Fault(
        "rows of padding count in the loss",
        "bert_jax/data/rows.py",
        "(indices < len(self)).astype(np.float32)",
        "np.ones(len(indices), np.float32)",
        "tests/data/rows_test.py",
    ),
    Fault(
        "the carry is not saved",
        "bert_jax/training/step.py",
        'return {**items, "carry": self.carry} if self.carry else items',
        "return items",
        "tests/contract_test.py",
    ),
    Fault(
        "each micro-batch is divided by its own weights",
        "bert_jax/training/step.py",
        "total / weights[name] for name, total in sums.items()}",
        "total / micro_batches / jnp.maximum(loss_weights(rows)[name], 1e-6)\n"
        "            for name, total in sums.items()}",
        "tests/training/step_test.py",
    ),
    Fault(
        "a resumed run takes the batch before again",
        "bert_jax/training/run.py",
        "self.seeds.batches(task, self.step, rows)",
        "self.seeds.batches(task, max(self.step - 1, 0), rows)",
        "tests/contract_test.py",
    ),
    Fault(
        "queries and keys change places in a Hugging Face folder",
        "bert_jax/convert/layout.py",
        '(r"attention\\.(query|key|value)", r"attention.self.\\1"),',
        '(r"attention\\.query", "attention.self.key"),\n'
        '        (r"attention\\.key", "attention.self.query"),\n'
        '        (r"attention\\.value", "attention.self.value"),',
        "tests/convert/huggingface_test.py",
    ),
    Fault(
        "a damaged checkpoint is an end, not passed over",
        "bert_jax/workdir/checkpoint.py",
        'log.warning("checkpoint %d cannot be read: %s", step, reason)',
        "break",
        "tests/errors_test.py",
    ),
    Fault(
        "LayerNorm and biases decay",
        "bert_jax/training/optimizer.py",
        "not (NOT_DECAYED.search(name) or _is_in(name, unused))",
        "not _is_in(name, unused)",
        "tests/training/optimizer_test.py",
    ),
    Fault(
        "articles count in SQuAD's scores",
        "bert_jax/tasks/squad/scores.py",
        '_ARTICLES.sub(" ", bare)',
        "bare",
        "tests/scores/squad_scores_test.py",
    ),
)


def plant(fault: Fault, root: Path) -> None:
    """Writes a fault into a copy.

    Raises:
      ValueError: The code has changed: it does not have `right` exactly once.
    """
    path = root / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.file}: {text.count(fault.right)} x {fault.right!r}")
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")


def noticed(fault: Fault) -> str:
    """Returns the first test that fails, or an empty string if none does."""
    archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        plant(fault, Path(folder))
        for path in (fault.first, "tests"):
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-m", "not slow", path],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": folder},
                capture_output=True,
                text=True,
            )
            if failed := _FAILED.search(ran.stdout):
                return failed[1]
            if ran.returncode not in (0, 5):  # 5: no test was selected
                raise RuntimeError(f"pytest failed:\n{ran.stdout}\n{ran.stderr}")
    return ""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="words of the names")
    words = parser.parse_args(arguments).only
    faults = [fault for fault in FAULTS if words in fault.name]
    tests = []
    for fault in faults:
        tests.append(noticed(fault))
        print(f"{fault.name}: {tests[-1] or 'NOT NOTICED'}", flush=True)
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
