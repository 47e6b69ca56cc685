"""How fast preparation is, for each core, and how much memory it takes.

    python -m experiments.speed.preparation [--megabytes=50] [--source=pydocs]

Text of the requested size is a corpus's paragraphs, reordered and repeated. Preparation
runs in a process of its own; the memory is the sum over it and its workers, sampled ten
times a second. Beside it stands what the tokenizer alone does with the same sentences
on one core."""

import argparse
import json
import os
import platform
import random
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib import metadata
from pathlib import Path

import psutil
from ml_collections import ConfigDict

from bert_jax.data import corpus, prepare, workers
from configs import common
from experiments.lib.report import processor

MODULE = "experiments.speed.preparation"
DOCUMENT_BYTES = 20_000


def make_text(source: str, megabytes: int, folder: Path) -> Path:
    """Writes JSON lines of about `megabytes` MB of text, in documents of 20 kB."""
    rng = random.Random(0)
    paragraphs = [
        paragraph
        for document in corpus.documents((source,), folder)
        for paragraph in document.text.split("\n\n")
    ]
    path = folder / "text.jsonl"
    wanted = megabytes * 1_000_000
    with open(path, "w", encoding="utf-8") as file:
        while wanted > 0:
            rng.shuffle(paragraphs)
            text: list[str] = []
            size = 0
            for paragraph in paragraphs:
                text.append(paragraph)
                size += len(paragraph.encode()) + 2
                if size >= DOCUMENT_BYTES:
                    file.write(json.dumps({"text": "\n\n".join(text)}) + "\n")
                    wanted -= size
                    text, size = [], 0
                    if wanted <= 0:
                        break
    return path


def make_config(path: Path, max_seq_length: int, vocab_size: int) -> ConfigDict:
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{path}",)
    config.corpus.data_dir = str(path.parent)
    config.corpus.max_seq_length = max_seq_length
    config.tokenizer.vocab_size = vocab_size
    return config


def measure(command: list[str]) -> tuple[float, int]:
    """Runs a command: seconds, and the peak memory of all its processes in bytes."""
    start, peak = time.monotonic(), 0
    with subprocess.Popen(command) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            total = 0
            try:
                for one in [root, *root.children(recursive=True)]:
                    total += one.memory_info().rss
            except psutil.NoSuchProcess:
                pass  # ended between the listing and the reading
            peak = max(peak, total)
            time.sleep(0.1)
    if process.returncode:
        sys.exit(f"preparation ended with status {process.returncode}")
    return time.monotonic() - start, peak


def tokenizer_speed(config: ConfigDict) -> float:
    """MB of text a second through encode_batch, one core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = prepare.prepare_tokenizer(config)
    batches, size = [], 0
    for document in corpus.documents(config.corpus.sources, Path()):
        batches.append(corpus.sentences(document, "en"))
        size += len(document.text.encode())
        if size > 10_000_000:
            break
    start = time.monotonic()
    for batch in batches:
        tokenizer.encode_batch(batch, add_special_tokens=False)
    return size / 1e6 / (time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--source", default="pydocs", help="as in corpus.sources")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--vocab_size", type=int, default=30_522)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        step, path = args.step
        config = make_config(Path(path), args.max_seq_length, args.vocab_size)
        if step == "vocabulary":
            prepare.prepare_tokenizer(config)
        else:
            prepare.prepare(config, args.max_seq_length)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make_text(args.source, args.megabytes, Path(folder))
        config = make_config(path, args.max_seq_length, args.vocab_size)
        command = [sys.executable, "-m", MODULE, *sys.argv[1:], "--step"]
        training, training_peak = measure([*command, "vocabulary", str(path)])
        seconds, peak = measure([*command, "pairs", str(path)])
        alone = tokenizer_speed(config)
    cores = workers.cores()
    speed = args.megabytes / seconds
    versions = ", ".join(f"{n} {metadata.version(n)}" for n in ("tokenizers", "numpy"))
    print(f"$ python -m {MODULE} {shlex.join(sys.argv[1:])}")
    print(f"{date.today()}, {processor()}, {cores} cores, Python", end=" ")
    print(f"{platform.python_version()}, {versions}")
    print(f"text                        {args.megabytes:9,} MB ({args.source})")
    print(f"vocabulary of {args.vocab_size:6,} pieces {training:9.1f} s")
    print(f"  peak memory               {training_peak / 1e6:9.0f} MB")
    print(f"sentence pairs              {seconds:9.1f} s")
    print(f"  all cores                 {speed:9.2f} MB/s")
    print(f"  a core                    {speed / cores:9.2f} MB/s")
    print(f"  the tokenizer alone       {alone:9.2f} MB/s a core")
    print(f"  peak memory, all processes{peak / 1e6:9.0f} MB")


if __name__ == "__main__":
    main()
