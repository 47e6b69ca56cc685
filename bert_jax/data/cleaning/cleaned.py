"""Cleans a corpus: decides once what to leave out of each document, and remembers it.

    documents -> (on every core) stages -> fingerprints -> duplicates -> verdicts

The text itself is not copied. `<corpus.data_dir>/cleaned-<fingerprint>` has a line for
each document, in their order (taken.txt.gz), and what each stage took (cleaning.json).
What is taken from a document depends on the text and the settings alone.
"""

import contextlib
import functools
import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from bert_jax.data import atomic_folder, corpus, workers
from bert_jax.data.cleaning import (
    duplicates,
    evaluation,
    languages,
    paragraphs,
    settings,
    stages,
)
from bert_jax.data.corpus import Document
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage

FORMAT = 1  # raise it when the same settings would take something else
_REPORT = "cleaning.json"
_TAKEN = "taken.txt.gz"
_BATCH = 1 << 20  # characters that a core judges at a time


def documents(config: ConfigDict) -> Iterator[Document]:
    """The documents of `config.corpus.sources`, cleaned as `config.corpus.clean` says.

    Raises:
      UserError: see `corpus.documents` and `clean`; the text has changed meanwhile.
    """
    place = storage.path(config.corpus.data_dir)
    originals = corpus.documents(tuple(config.corpus.sources), place)
    folder = clean(config)
    verdicts = (line for _, line in read_lines(folder / _TAKEN))
    for document, verdict in zip_longest(originals, verdicts):
        if document is None or verdict is None:
            raise UserError(
                "config.corpus.sources: the text has changed since it was cleaned; "
                f"start again, or delete {folder} first"
            )
        if not verdict:
            yield document
        elif ":" in verdict:
            left = _without(document, verdict)
            if any(map(str.isalnum, left.text)):
                yield left


def clean(config: ConfigDict) -> storage.Path:
    """Returns the folder of the verdicts on a corpus; makes it if it is missing.

    Raises:
      UserError: see `settings.of`, `evaluation.sequences` and `corpus.documents`;
        nothing is left.
    """
    chosen = settings.of(config)
    place = storage.path(config.corpus.data_dir)
    identity = chosen.identity() | {
        "format": FORMAT,
        "sources": corpus.identity(tuple(config.corpus.sources), place),
    }
    if "overlap" in chosen.stages:
        against = tuple(config.corpus.clean_against)
        identity["against"] = evaluation.identity(against, place)
    if "language" in chosen.stages:
        identity["library"] = languages.version()
    folder = place / f"cleaned-{atomic_folder.fingerprint(identity)}"
    if not atomic_folder.is_whole(folder, _REPORT):
        with atomic_folder.made_whole(folder, _REPORT) as temporary:
            _write(config, chosen, identity, temporary)
    _tell(folder)
    return folder


@functools.cache
def _tell(folder: storage.Path) -> None:
    """Prints what was taken, once however often the text is read."""
    if processes.is_first():
        print("\n".join(lines(report(folder))), file=sys.stderr)


def report(folder: storage.Path) -> dict[str, Any]:
    """What was taken: `read`, `kept` and `taken` (documents, bytes), and `examples`.

    Args:
      folder: from `clean`.
    """
    report = json.loads((folder / _REPORT).read_bytes())
    return {name: report[name] for name in ("read", "kept", "taken", "examples")}


def lines(told: dict[str, Any]) -> list[str]:
    """What each stage took, a line each.

    Args:
      told: from `report`.
    """
    read, kept = told["read"], told["kept"]
    rows = [
        f"cleaned {read['documents']:,} documents ({read['bytes'] / 1e6:.1f} MB): "
        f"{kept['documents']:,} ({kept['bytes'] / 1e6:.1f} MB) are left"
    ]
    for stage, its in told["taken"].items():
        paragraphs = f"{its['paragraphs']:,} paragraphs, " if its["paragraphs"] else ""
        example = ""
        for shown in told["examples"].get(stage, ())[:1]:
            example = f": {shown['text'][:60]!r}"
        rows.append(
            f"  {stage.replace('_', ' ')} took {paragraphs}{its['documents']:,} "
            f"documents ({its['bytes'] / 1e6:.2f} MB){example}"
        )
    return rows


def _summary(
    chosen: settings.Settings,
    counts: Counter[tuple[str, str]],
    examples: dict[str, list[stages.Example]],
) -> dict[str, Any]:
    def of(stage: str, *names: str) -> dict[str, int]:
        return {name: counts[stage, name] for name in names}

    return {
        "read": of("read", "documents", "bytes"),
        "kept": of("kept", "documents", "bytes"),
        "taken": {
            stage: of(stage, "documents", "paragraphs", "bytes")
            for stage in chosen.stages
        },
        "examples": {
            stage: [
                {"document": example.document, "text": example.text}
                | ({"of": example.of} if example.of else {})
                for example in examples.get(stage, ())
            ]
            for stage in chosen.stages
        },
    }


def _without(document: Document, verdict: str) -> Document:
    numbers = (part.partition(":")[2].split(",") for part in verdict.split(" "))
    taken = {int(number) for part in numbers for number in part}
    parts = enumerate(paragraphs.split(document))
    return paragraphs.joined(document, [part for n, part in parts if n not in taken])


def _write(
    config: ConfigDict,
    chosen: settings.Settings,
    identity: dict[str, Any],
    folder: Path,
) -> None:
    sequences = None
    if "overlap" in chosen.stages:
        sequences = folder / "sequences.npy"
        against = tuple(config.corpus.clean_against)
        np.save(sequences, evaluation.sequences(against, chosen.overlap_words))
    place = storage.path(config.corpus.data_dir)
    originals = corpus.documents(tuple(config.corpus.sources), place)
    if "language" in chosen.stages:
        chosen = chosen._replace(language=languages.code(chosen.language))
    job = stages.Job(chosen, sequences)
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[str, list[stages.Example]] = {}
    with (
        tqdm(desc="cleaning", unit="B", unit_scale=True, disable=None) as progress,
        (folder / "verdicts").open("w", encoding="utf-8") as verdicts,
        (folder / "prints").open("wb") as prints,
        contextlib.closing(
            workers.ordered_map(stages.judge, job, _batches(originals))
        ) as results,
    ):
        for judged in results:
            verdicts.writelines(f"{verdict}\n" for verdict in judged.verdicts)
            prints.write(judged.prints)
            counts.update(judged.counts)
            for stage, some in judged.examples.items():
                for example in some:
                    stages.keep(examples, stage, example)
            progress.update(judged.counts["read", "bytes"])
    _finish(chosen, folder, counts, examples)
    if not counts["kept", "documents"]:
        raise UserError(
            "config.corpus.clean: the stages took every document ("
            + ", ".join(f"{s}: {counts[s, 'documents']:,}" for s in chosen.stages)
            + "); leave some out, or lower their limits"
        )
    told = identity | _summary(chosen, counts, examples)
    (folder / _REPORT).write_text(json.dumps(told, indent=1), encoding="utf-8")
    for name in ("verdicts", "prints", "sequences.npy"):
        (folder / name).unlink(missing_ok=True)


def _batches(originals: Iterable[Document]) -> Iterator[stages.Documents]:
    first, batch, size = 0, list[Document](), 0
    for document in originals:
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH:
            yield stages.Documents(first, batch)
            first, batch, size = first + len(batch), [], 0
    if batch:
        yield stages.Documents(first, batch)


def _finish(
    chosen: settings.Settings,
    folder: Path,
    counts: Counter[tuple[str, str]],
    examples: dict[str, list[stages.Example]],
) -> None:
    """Writes the verdicts, those on duplicates too."""
    size = (folder / "prints").stat().st_size
    copies: Iterator[duplicates.Duplicate] = iter(())
    if size:
        prints = np.memmap(folder / "prints", duplicates.PRINT, "r")
        copies = duplicates.find(prints, chosen)
    copy = next(copies, None)
    with _compressed(folder / _TAKEN) as file, (folder / "verdicts").open() as before:
        for number, verdict in enumerate(before):
            if copy is None or copy.document != number:
                file.write(verdict)
                continue
            file.write(f"{copy.stage}\n")
            for name, amount in (("documents", 1), ("bytes", copy.bytes)):
                counts[copy.stage, name] += amount
                counts["kept", name] -= amount
            rank = stages.rank(copy.stage, number)
            of = f"document {copy.of:,}: {copy.excerpt_of}"
            example = stages.Example(rank, number, copy.excerpt, of)
            stages.keep(examples, copy.stage, example)
            copy = next(copies, None)


@contextlib.contextmanager
def _compressed(path: Path) -> Iterator[TextIO]:
    # Without its time: equal text gives equal bytes.
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as opened,
    ):
        yield opened
