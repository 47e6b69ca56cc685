"""The work directory: whose run it is, and its vocabulary."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.errors import UserError

# Where and on what a run goes on, and how it is asked: none of it shapes its numbers.
FREE_FIELDS = ("mesh.", "predict.", "corpus.data_dir")


def claim(workdir: Path, config: ConfigDict, tokenizer: Tokenizer) -> None:
    """Makes the folder this run's: writes config.json, vocab.txt, tokenizer.json.

    Raises:
      UserError: it belongs to a run with another config or vocabulary, or cannot be
        written.
    """
    check(workdir, config)
    check_vocabulary(workdir, tokenizer)
    resolved = json.dumps(config.to_dict(), indent=2) + "\n"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tokenizer.", dir=workdir) as whole:
            tokenization.save(tokenizer, whole)
            for path in Path(whole).iterdir():
                path.replace(workdir / path.name)
        write_atomically(workdir / "config.json", resolved)
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror or error}") from error


def check(workdir: Path, config: ConfigDict) -> None:
    """Raises UserError where config.json there and `config` differ, naming fields."""
    path = workdir / "config.json"
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir={workdir}: not a folder")
    if not path.exists():
        return
    try:
        theirs = flatten_dict(json.loads(path.read_text()), sep=".")
    except ValueError as error:
        raise UserError(
            f"{path}: not JSON ({error}); is this a work directory?"
        ) from error
    ours = flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")
    fields = sorted(
        field
        for field in theirs.keys() | ours.keys()
        if theirs.get(field) != ours.get(field) and not field.startswith(FREE_FIELDS)
    )
    if fields:
        told = ", ".join(
            f"{f} ({theirs.get(f)!r} there, {ours.get(f)!r} now)" for f in fields
        )
        raise UserError(
            f"--workdir={workdir} belongs to a run of another config: {told}; "
            f"take another --workdir"
        )


def check_vocabulary(workdir: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError where the run's vocabulary is another one.

    A trained vocabulary changes with the text it is trained on, under the same config.
    """
    path = workdir / "tokenizer.json"
    if path.exists() and tokenization.load(path).get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{path}: not the vocabulary that config.corpus.sources gives now; the "
            "text has changed since the run began: restore it, or take another "
            "--workdir"
        )


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file to write that takes the place of `path` once it is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
