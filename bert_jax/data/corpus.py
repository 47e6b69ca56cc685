"""Documents from every kind of source, and their sentences.

    sentences:GLOB      one sentence per line, an empty line between documents
    paragraphs:GLOB     one paragraph per line, an empty line between documents
    lines:GLOB          one document per line
    text:GLOB           one document per file
    jsonl:GLOB          one document per line, in its `text` field
    parquet:GLOB        one document per row, in its `text` column
    hf:NAME             the train split of a data set on the Hugging Face Hub
    tfds:NAME           a TFDS data set, by name or by the folder it was prepared in
    pydocs              documentation strings of the Python installation

Files whose names end in .gz, .bz2, .xz or .zst are decompressed. Memory holds one
document at a time (parquet: a batch of rows).
"""

import ast
import hashlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bert_jax.data.lines import read_lines
from bert_jax.data.sources import hub as hub_source
from bert_jax.data.sources import pydocs, wikipedia
from bert_jax.data.sources import tfds as tfds_source
from bert_jax.data.tables import ColumnSpec, read_rows, require_string
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path

FORMS = ("sentences", "lines", "wrapped")


class Document(NamedTuple):
    """A text, and the meaning of its line breaks.

    Attributes:
      text: The text.
      form: "sentences" (a line is a sentence), "lines" (a line is a paragraph) or
        "wrapped" (an empty line ends a paragraph, other breaks are spaces).
      source: Its index in `config.corpus.sources`.
    """

    text: str
    form: str
    source: int = 0


# The text's column and form in a data set by name, unless "text" and "wrapped", and a
# function that keeps an article's text passages.
_SETS: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "wiki40b": ("text", "lines", wikipedia.wiki40b_paragraphs),
    "wikipedia": ("text", "lines", wikipedia.article_paragraphs),
    "wikimedia/wikipedia": ("text", "lines", wikipedia.article_paragraphs),
    "pg19": ("book_text", "wrapped", str),
}


def read_documents(sources: tuple[str, ...], data_dir: Path) -> Iterator[Document]:
    """Yields the documents of all sources, in order, except those without text.

    Args:
      sources: Sources, as `config.corpus.sources`.
      data_dir: Folder where pydocs keeps the text it has extracted.

    Raises:
      UserError: a source is unknown or has no document, or a file is empty, cannot
        be read, is not UTF-8 or has the wrong format.
    """
    for number, source in enumerate(sources):
        has_text = False
        for document in _read(source, data_dir):
            is_one = isinstance(document, Document) and isinstance(document.text, str)
            if not is_one or document.form not in FORMS:
                raise UserError(
                    f"{source}: its reader yields {document!r:.80}; yield "
                    f"Document(text, form), with a form of {', '.join(FORMS)}"
                )
            text = document.text.replace("\r\n", "\n")  # of a JSON string, say
            if any(map(str.isalnum, text)):
                has_text = True
                yield document._replace(text=text, source=number)
        if not has_text:
            raise UserError(f"{source}: no document with text; name another source")


def split_sentences(document: Document, language: str) -> list[str]:
    """Splits a document by a language's rules (`sentencex`, "en" for English)."""
    import sentencex  # of an extra

    if document.form == "sentences":
        return document.text.split("\n")
    if document.form == "wrapped":
        blocks = re.split(r"\n[ \t]*\n", document.text)
        paragraphs = [" ".join(block.split()) for block in blocks]
    else:
        paragraphs = document.text.split("\n")
    stripped = (s.strip() for p in paragraphs for s in sentencex.segment(language, p))
    return [sentence for sentence in stripped if sentence]


def text_identity(sources: tuple[str, ...]) -> list[list[Any]]:
    """Identifies the text without reading it: one list per source.

    Each list has the source's kind, followed for files by their number and a hash of
    their sizes and times, in order, and of the code of a reader that a config file has
    added, for the Hub by the same of its files' revisions, for TFDS by the name,
    version and sizes, and for pydocs by the versions.

    Raises:
      UserError: The extra `pretrain` is not installed: the text could not be split.
    """
    if importlib.util.find_spec("sentencex") is None:
        raise UserError("pre-training needs sentencex: pip install '.[pretrain]'")
    return [_identity(source) for source in sources]


def _identity(source: str) -> list[Any]:
    kind, name = _kind(source)
    if kind == "pydocs":
        return [kind, *pydocs.pydocs_versions()]
    if kind == "tfds":
        info = tfds_source.prepared_builder(name).info
        splits = sorted(info.splits.items())
        sizes = [[split, i.num_examples, i.num_bytes] for split, i in splits]
        return [kind, info.full_name, sizes]
    if kind == "hf":
        files = [file.resolve().name for file in hub_source.split_files(name, "train")]
        kind = "hf passages" if _set_name(kind, name) in _SETS else kind
    else:
        files = [f"{size} {version} " for size, version in _files(source).values()]
        module = sys.modules[FILE_KINDS[kind].__module__]
        if module.__name__ != __name__:
            # A config file has added this reader, and other code may read other text.
            code = storage.storage_path(str(module.__file__)).read_bytes()
            parsed = ast.parse(code).body
            own = [x for x in parsed if getattr(x, "name", "") != "get_config"]
            files += map(ast.dump, own)
    return [kind, len(files), hashlib.sha256("".join(files).encode()).hexdigest()]


def _kind(source: str) -> tuple[str, str]:
    kind, _, name = source.partition(":")
    if source == "pydocs" or (kind in (*FILE_KINDS, "hf", "tfds") and name):
        return kind, name
    raise UserError(
        f"corpus.sources: unknown source {source!r}; write "
        f"{', '.join(f'{kind}:GLOB' for kind in FILE_KINDS)}, hf:NAME, tfds:NAME or "
        "pydocs; a kind of your own needs the --config file that adds it"
    )


def _read(source: str, data_dir: Path) -> Iterator[Document]:
    kind, name = _kind(source)
    if kind == "pydocs":
        yield from _read_table(pydocs.extract_docstrings(data_dir), "jsonl")
    elif kind in ("hf", "tfds"):
        how = _SETS.get(_set_name(kind, name), ())
        yield from _read_table(f"{source}:train", "", *how)
    else:
        for file in _files(source):
            yield from FILE_KINDS[kind](file)


def _set_name(kind: str, name: str) -> str:
    """Returns a key of _SETS, where the data set is one of them."""
    if kind == "tfds":
        return str(tfds_source.prepared_builder(name).name)
    return re.split("[@:]", name)[0]


def _files(source: str) -> dict[str, tuple[int, int | str]]:
    files = storage.list_matching(source.partition(":")[2])
    if not files:
        raise UserError(f"{source}: no file matches; this folder is {os.getcwd()}")
    return files


def _read_blocks(path: str | Path, form: str) -> Iterator[Document]:
    """Yields documents with an empty line between them."""
    # A document also ends with its file, unlike in Google's code.
    lines = (line.strip() for _, line in read_lines(path))
    for is_text, group in itertools.groupby(lines, bool):
        if is_text:
            yield Document("\n".join(group), form)


def _read_table(
    source: str | Path,
    kind: str,
    column: str = "text",
    form: str = "wrapped",
    passages: Callable[[str], str] = str,
) -> Iterator[Document]:
    """Yields the texts of a column of data/tables.py. Nothing is an empty text."""
    wanted = ColumnSpec((column,), format=kind, alone=True)
    for where, row in read_rows(str(source), wanted):
        text = "" if row[column] is None else require_string(row[column], where, column)
        yield Document(passages(text), form)


# A config file may add one: FILE_KINDS["srt"] = read_subtitles.
FILE_KINDS: dict[str, Callable[[str | Path], Iterable[Document]]] = {
    "sentences": lambda path: _read_blocks(path, "sentences"),
    "paragraphs": lambda path: _read_blocks(path, "lines"),
    "lines": lambda path: (Document(text, "lines") for _, text in read_lines(path)),
    "text": lambda path: [
        Document("\n".join(line for _, line in read_lines(path)), "wrapped")
    ],
    "jsonl": lambda path: _read_table(path, "jsonl"),
    "parquet": lambda path: _read_table(path, "parquet"),
}
