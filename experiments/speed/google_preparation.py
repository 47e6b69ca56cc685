"""Preparation beside Google's own create_pretraining_data.py, on the same sentences.

    python -m experiments.speed.google_preparation --code=FOLDER \
        --python=TF_ENVIRONMENT/bin/python --vocab=vocab.txt [--megabytes=20] \
        [--source=pydocs] [--copies=1,10]

`--code` is a clone of google-research/bert, `--python` one with TensorFlow, whose
`compat.v1` the file gets as `tensorflow`. Both read the same file, a sentence a line,
and make pairs of up to 128 tokens; ours all its cores, theirs one process. Speeds are
of CPU time: megabytes of text a second of one core, start included. `copies` are
Google's dupe_factor: so many times each document, masked each time. Ours masks while
it trains, so one copy serves for any number.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bert_jax.data import corpus, prepare
from bert_jax.runtime.terminal import table
from configs import common
from experiments.speed import measuring
from experiments.speed.preparation import make_text

MODULE = "experiments.speed.google_preparation"
LENGTH, PREDICTIONS = 128, 20
# Google's file is for TensorFlow 1.
_THEIRS = """
import runpy, sys
import tensorflow.compat.v1 as tensorflow
sys.modules["tensorflow"] = tensorflow
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[1:]
runpy.run_path(f"{sys.argv[0]}/create_pretraining_data.py", run_name="__main__")
"""


def sentence_file(text: Path) -> Path:
    """A sentence a line and an empty line between documents, as Google's file reads."""
    path = text.with_name("sentences.txt")
    with open(path, "w", encoding="utf-8") as file:
        for document in corpus.documents((f"jsonl:{text}",), text.parent):
            lines = corpus.sentences(document, "en")
            file.write("\n".join(" ".join(line.split()) for line in lines) + "\n\n")
    return path


def cpu_seconds(command: Sequence[str]) -> float:
    """Of a command and its children.

    Raises:
      SystemExit: it failed; with its last line.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {Path(command[0]).name}: {done.stderr.strip()[-300:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ours(sentences: Path, vocab: str) -> float:
    """CPU seconds of the sentence pairs."""
    step = ["--step", str(sentences), "--vocab", vocab]
    return cpu_seconds([sys.executable, "-m", MODULE, *step])


def step(sentences: str, vocab: str) -> None:
    """What `ours` measures."""
    config = common.get_config()
    config.corpus.sources = (f"sentences:{sentences}",)
    config.corpus.data_dir = str(Path(sentences).with_name("data"))
    config.tokenizer.vocab_file = vocab
    prepare.prepare(config, LENGTH)


def theirs(options: argparse.Namespace, sentences: Path, copies: int) -> float:
    """CPU seconds of Google's file."""
    flags = {
        "input_file": sentences,
        "output_file": sentences.with_name("pairs.tfrecord"),
        "vocab_file": Path(options.vocab).resolve(),
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS,
        "dupe_factor": copies,
    }
    given = [f"--{name}={value}" for name, value in flags.items()]
    return cpu_seconds([options.python, "-c", _THEIRS, options.code, *given])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", default="", help="a clone of google-research/bert")
    parser.add_argument("--python", default="", help="a Python with TensorFlow")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--source", default="pydocs", help="as in corpus.sources")
    parser.add_argument("--copies", default="1,10")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step:
        step(options.step, options.vocab)
        return
    if not (Path(options.code) / "create_pretraining_data.py").is_file():
        sys.exit(f"error: --code={options.code}: has no create_pretraining_data.py")
    if not shutil.which(options.python):
        sys.exit(f"error: --python={options.python}: no such program")
    measuring.begin(MODULE, arguments, ("tokenizers", "numpy"))
    with tempfile.TemporaryDirectory() as folder:
        text = make_text(options.source, options.megabytes, Path(folder))
        sentences = sentence_file(text)
        size = os.path.getsize(sentences) / 1e6
        own = ours(sentences, str(Path(options.vocab).resolve()))
        rows = [("ours", f"{own:.1f}", f"{size / own:.2f}", "")]
        for copies in map(int, options.copies.split(",")):
            other = theirs(options, sentences, copies)
            name = f"Google's, copies: {copies}"
            speeds = (f"{other:.1f}", f"{size / other:.2f}", f"{other / own:.1f}")
            rows.append((name, *speeds))
    header = ("side", "CPU s", "MB/s a core", "ours / it")
    print(table(rows, header))


if __name__ == "__main__":
    main(sys.argv[1:])
