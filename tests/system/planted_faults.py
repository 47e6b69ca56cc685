"""Breaks one line of the code at a time, and looks which tier of the tests notices.

    python -m tests.system.planted_faults [--only=NAME,NAME] [--all]

Each fault is planted in a copy of the repository. There the tests named beside it run
first, and the rest of the tier if none of them fails; a tier is red as soon as one test
fails. Without --all the tier is that of `./launch.sh test`.

The exit status is 0 if every fault is noticed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.runtime.terminal import table
from tests.forked import ROOT

_LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis")
_OF_RUNS = {"runs", "data"}  # in the repository's root
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_SECONDS = 3600  # of one pytest


class Fault(NamedTuple):
    """A fault.

    Attributes:
      file: in the repository.
      right, wrong: a text that the file has once, and what takes its place.
      first: where a test that notices it is looked for first.
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
        "bert_jax/data/record_source.py",
        "ArrayRecordDataSource(files)",
        "ArrayRecordDataSource(files[:7])",
        "tests/data",
    ),
    Fault(
        "accents are kept",
        "bert_jax/tokenization/wordpiece.py",
        "strip_accents=lowercase and strip_accents,",
        "strip_accents=False,",
        "tests/tokenization",
    ),
    Fault(
        "padding is attended to",
        "bert_jax/models/attention.py",
        "jnp.where(input_mask == 0, 0, 1)\n",
        "jnp.ones_like(input_mask)\n",
        "tests/models",
    ),
    Fault(
        "rows of padding count in the loss",
        "bert_jax/data/rows.py",
        "(indices < len(self)).astype(np.float32)",
        "np.ones(len(indices), np.float32)",
        "tests/data",
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
        "tests/training",
    ),
    Fault(
        "a resumed run takes the batch before again",
        "bert_jax/training/session.py",
        "self.seeds.batches(task, self.now, self._rows)",
        "self.seeds.batches(task, max(self.now - 1, 0), self._rows)",
        "tests/contract_test.py",
    ),
    Fault(
        "queries and keys change places in a Hugging Face folder",
        "bert_jax/convert/layout.py",
        'f"{attention}.self.{which}", hidden, heads)',
        "f\"{attention}.self.{dict(query='key', key='query').get(which, which)}\", "
        "hidden, heads)",
        "tests/convert",
    ),
    Fault(
        "a damaged checkpoint is an end, not passed over",
        "bert_jax/workdir/checkpoint.py",
        'log.warning("checkpoint %d cannot be read: %s", step, reason)',
        "break",
        "tests/workdir",
    ),
    Fault(
        "LayerNorm and biases decay",
        "bert_jax/training/optimizer.py",
        "            NOT_DECAYED.search(name)\n            or any(",
        "            any(",
        "tests/training",
    ),
    Fault(
        "articles count in SQuAD's scores",
        "bert_jax/tasks/squad/scores.py",
        '_ARTICLES.sub(" ", bare)',
        "bare",
        "tests/scores",
    ),
)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Of the copy."""
    found = shutil.ignore_patterns(*_LEFT_OUT)(folder, names)
    return found | _OF_RUNS if Path(folder) == ROOT else found


def plant(fault: Fault, root: Path) -> None:
    """Writes a fault into a copy.

    Raises:
      ValueError: its text is not there exactly once: the code has changed.
    """
    path = root / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.file}: {text.count(fault.right)} x {fault.right!r}")
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")


def noticed(fault: Fault, tier: Sequence[str]) -> str:
    """The first test that fails; empty if none does."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ROOT.name
        shutil.copytree(ROOT, root, ignore=_left_out)
        shared = ROOT.parent / "shared"
        if shared.exists():
            (root.parent / "shared").symlink_to(shared)
        plant(fault, root)
        for path in (fault.first, "tests"):
            workers = ("--numprocesses=2", "--dist=loadfile", "--maxfail=1")
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", *workers, *tier, path],
                cwd=root,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
            if found := _FAILED.search(ran.stdout):
                return found[1]
            if ran.returncode not in (0, 5):  # 5: the tier has no test there
                raise RuntimeError(f"pytest failed:\n{ran.stdout}\n{ran.stderr}")
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="words of the names, with commas")
    parser.add_argument("--all", action="store_true", help="the tier of every test")
    options = parser.parse_args(arguments)
    words = options.only.split(",")
    rows = []
    for fault in FAULTS:
        if any(word in fault.name for word in words):
            start = time.monotonic()
            test = noticed(fault, () if options.all else ("--heart",))
            rows.append((fault.name, fault.file, test or "NOT NOTICED"))
            print(f"{time.monotonic() - start:5.0f} s  {rows[-1]}", flush=True)
    print(table(rows, ("fault", "in", "the first test that failed")))
    return int(any(test == "NOT NOTICED" for _, _, test in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
