"""The held-out documents of a pre-training run, by the kind of their text.

They are found again as the preparation found them: by the same rule, from the same
files. That none was trained on is checked, not assumed: the digests of the files are
those of the run's data, no document has the words of a training document, and
sentences that a training document has as well are left out.
"""

import contextlib
import glob
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.config.phases import PhaseFields
from bert_jax.convert import weights
from bert_jax.data import chunks, corpus, loader, overlap, pairs, shards, workers
from bert_jax.data.corpus import Document
from bert_jax.data.prepare import Prepared
from bert_jax.data.rows import Batch
from bert_jax.data.shards import Chunk, Job
from bert_jax.data.words import Words
from bert_jax.errors import UserError
from bert_jax.runtime import storage, temporary, terminal
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import run_config, setup
from bert_jax.workdir import folder as workdir

# 05-encyclopedia-2.jsonl.gz is of the kind encyclopedia.
_NUMBERS = re.compile(r"^\d+-|-\d+$")
_ONE_RECORD_FILE = "pairs-dev.array_record-00000-of-00001"


class HeldOut(NamedTuple):
    """The held-out documents.

    Attributes:
      kinds: by kind the documents, each as its pieces.
      known: keys (`overlap.keys`) of held-out sentences that were trained on.
      trained: the number of training documents.
      copies: held-out documents that were left out, because one of these has the same
        words.
    """

    kinds: Mapping[str, list[list[Document]]]
    known: UInt64[np.ndarray, " known"]
    trained: int
    copies: int


@contextlib.contextmanager
def opened(
    path: str, overrides: list[str]
) -> Iterator[tuple[Pretraining, setup.Restored]]:
    """Opens a run, or a model folder that an export wrote.

    Args:
      overrides: --config.FIELD=VALUE, such as where the text is now.

    Raises:
      UserError: no pre-training run of masked LM wrote these weights.
    """
    nowhere = storage.path(tempfile.gettempdir()) / "no-run-here"
    config = run_config.config_of(
        nowhere, None, [f"--config.init_from={path}", *overrides], asks=True
    )
    task = setup.build_task(config, nowhere, from_data=False)
    if not isinstance(task, Pretraining) or config.task.objective != "mlm":
        raise UserError(f"{path}: not a model that was pre-trained on masked text")
    with setup.restored_params(task, nowhere, (), uses=("evaluate",)) as found:
        yield task, found


def read(task: Pretraining, path: str) -> HeldOut:
    """Finds the held-out documents again; reads the whole text once.

    Args:
      task: of the run; its `config.corpus` matters.
      path: the run, whose record of its data is compared with the text.

    Raises:
      UserError: the text is missing, or is not the one that the run was trained on.
    """
    check_text(task.config, path)
    own, kinds = by_file(task.config)
    job = _job(task, Path())
    held: list[list[Document]] = []
    digests: set[bytes] = set()
    trained = 0

    def training() -> Iterator[Chunk]:
        nonlocal trained
        found = chunks.chunks(chunks.documents(own), chunks.split_rule(own))
        for chunk in found:
            if chunk.split == "dev":
                held.extend(chunk.documents)
                continue
            trained += len(chunk.documents)
            digests.update(map(_digest, chunk.documents))
            yield chunk._replace(split="dev")  # asks for its sentences' keys only

    keys = [np.zeros(0, np.uint64)]
    results = workers.ordered_map(shards.first_pass, job, training())
    with contextlib.closing(results):
        keys += [np.unique(shard.keys) for shard in results]
    seen = np.unique(np.concatenate(keys))
    new = [document for document in held if _digest(document) not in digests]
    grouped: dict[str, list[list[Document]]] = {kind: [] for kind in kinds}
    for document in new:
        grouped[kinds[document[0].source]].append(document)
    copies = len(held) - len(new)
    return HeldOut({k: v for k, v in grouped.items() if v}, seen, trained, copies)


def check_text(config: ConfigDict, path: str) -> None:
    """Raises UserError if the text is not the one that a run was trained on."""
    folder, _ = storage.split_checkpoint_path(storage.path(path), "checkpoints")
    record = workdir.read_data(folder)
    data_dir = storage.path(config.corpus.data_dir)
    now = corpus.identity(tuple(config.corpus.sources), data_dir)
    if not record:
        terminal.say(
            f"{path}: an exported model has no digests of its text; whether "
            f"config.corpus.sources={tuple(config.corpus.sources)} is that text is not "
            "checked"
        )
    elif record["shaped_by"]["sources"] != now:
        raise UserError(
            f"{path}: config.corpus.sources={tuple(config.corpus.sources)} is not the "
            "text that this run was trained on, so what it held out cannot be told"
        )
    recorded = weights.recorded(path)
    if recorded is None:
        return
    theirs = chunks.identity(configuration.complete(recorded, path))
    ours = chunks.identity(config)
    if other := [name for name, value in ours.items() if theirs.get(name) != value]:
        raise UserError(
            f"{path}: config.corpus.{other[0]} is not this run's, which held out other "
            "documents; leave it out"
        )


def by_file(config: ConfigDict) -> tuple[ConfigDict, list[str]]:
    """The config with a source for each file, and the kinds of these.

    The documents are the same, in the same order, and know their source.
    """
    own = config.copy_and_resolve_references()
    found: list[tuple[str, str]] = []
    for source in config.corpus.sources:
        kind, _, pattern = source.partition(":")
        files = storage.find(pattern) if kind in corpus.FILE_KINDS else {}
        named = [(f"{kind}:{glob.escape(name)}", kind_of(name)) for name in files]
        found += named or [(source, source)]
    own.corpus.sources, own.corpus.weights = tuple(source for source, _ in found), ()
    return own, [kind for _, kind in found]


def kind_of(name: str) -> str:
    """The kind that a file's name tells: without its numbers and its ending."""
    return _NUMBERS.sub("", Path(name).name.partition(".")[0])


@contextlib.contextmanager
def batches(
    task: Pretraining,
    phase: PhaseFields,
    documents: list[list[Document]],
    held: HeldOut,
) -> Iterator[tuple[Mapping[str, int], Iterator[Batch]]]:
    """The totals and the dev batches of some documents, as the run would make them.

    A random second sentence comes from another of these documents.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = _job(task, folder)
        settings = job.settings._replace(max_seq_length=phase.max_seq_length)
        job = job._replace(settings=settings, known=held.known)
        job.aside().mkdir()
        with temporary.naming(folder):
            shard = shards.write_shard(job, Chunk("dev", 0, documents))
        shards.part_path(folder, "dev", 0).rename(folder / _ONE_RECORD_FILE)
        data = Prepared(storage.path(folder), task.tokenizer, {})
        found = loader.dataset(task.config, phase, data, "dev")
        yield shard.totals, (found[i] for i in range(len(found)))


def sentences(held: HeldOut, kind: str, language: str) -> Iterator[str]:
    """The sentences of a kind that no training document has, in order."""
    for document in held.kinds[kind]:
        for piece in document:
            found = corpus.sentences(piece, language)
            known = overlap.among(overlap.keys(found), held.known)
            yield from (s for s, seen in zip(found, known, strict=True) if not seen)


def _job(task: Pretraining, folder: Path) -> Job:
    """What the preparation of the run's text had."""
    own, pieces = task.config.corpus, task.tokenizer.get_vocab_size()
    settings = pairs.Settings(own.max_seq_length, own.short_seq_prob, own.nsp)
    words = Words(task.tokenizer)
    return Job(folder, words, pieces, own.language, own.seed, settings)


def _digest(document: list[Document]) -> bytes:
    words = b" ".join(overlap.words(piece.text) for piece in document)
    return hashlib.blake2b(words, digest_size=16).digest()
