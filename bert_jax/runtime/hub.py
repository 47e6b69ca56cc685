"""The Hugging Face Hub's models and data sets: `hf:OWNER/NAME`, `...@REVISION`.

huggingface_hub downloads, caches and resumes, and reads its own variables: HF_HOME,
HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.
"""

import contextlib
import functools
import logging
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import storage

log = logging.getLogger(__name__)

PREFIX = "hf:"
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")
# What people call the folders of their own runs and models.
_FOLDERS = {
    *("run", "runs", "out", "output", "outputs", "result", "results", "experiments"),
    *("model", "models", "weights", "checkpoint", "checkpoints", "pretrained", "data"),
    *("export", "exports", "exported", "finetuned", "work", "tmp", "logs"),
}
# Nothing that runs code when it is read: no pickles, no programs.
_NAMES = (
    *("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "model.safetensors.index.json"),
    *("vocab.json", "merges.txt"),
    *("model.safetensors", "model-*-of-*.safetensors"),
    *("sentence_*_config.json", "config_sentence_transformers.json", "modules.json"),
)
# Also those of sentence-transformers' modules, such as 1_Pooling/config.json.
_FILES = (*_NAMES, *(f"[0-9]_*/{name}" for name in _NAMES))


def path(text: str | os.PathLike[str]) -> storage.Path:
    """The folder of a model: a path as `storage.path` has it, or a name on the Hub,
    whose files are downloaded unless they are in the cache.

    Raises:
      UserError: the Hub has no such model or revision, it has no safetensors, it does
        not fit the disk, or the Hub cannot be reached and the cache lacks it.
    """
    name = os.fspath(text)
    if not name.startswith(PREFIX):
        return storage.path(name)
    return snapshot(name, "model", _FILES)


def resolved(name: str) -> str:
    """The name with the commit as its revision; a path as it is."""
    if not name.startswith(PREFIX):
        return name
    return f"{name.partition('@')[0]}@{path(name).name}"


def likely(name: str) -> str:
    """The name on the Hub that the name of a missing folder probably meant, such as
    bert-base-cased or OWNER/NAME; empty where it is a path."""
    if re.fullmatch(r"bert-(base|large)[\w.-]*", name):
        return f"{PREFIX}google-bert/{name}"
    owner = os.path.dirname(name)
    is_path = os.path.isdir(owner) or owner.lower() in _FOLDERS or owner[:1] == "."
    if is_path or not _NAME.fullmatch(PREFIX + name):
        return ""
    return PREFIX + name


def check_new(name: str) -> str:
    """The repository of a name to upload to.

    Raises:
      UserError: it is not hf:OWNER/NAME.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[2]:
        raise UserError(f"--push={name}: hf:OWNER/NAME is required")
    return match[1]


def push(folder: pathlib.Path, name: str) -> str:
    """Uploads a folder's files; makes a private model if the Hub has none of the name.

    Returns:
      The commit's address.

    Raises:
      UserError: no right to write there, or the Hub cannot be reached.
    """
    from bert_jax.runtime import hub_exchange

    repository = check_new(name)
    with hub_exchange.explained(name):
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        with contextlib.nullcontext() if sys.stderr.isatty() else _quietly():
            message = "Export of bert_jax"
            done = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=message
            )
    return str(done.commit_url)


def snapshot(name: str, kind: str, patterns: tuple[str, ...]) -> pathlib.Path:
    """The folder of a repository's files, downloaded unless they are in the cache; once
    more if they have been deleted there since this process last asked.

    Args:
      kind: "model" or "dataset".
      patterns: of the files' names, such as "*.parquet", in which * matches a / too.

    Raises:
      UserError: see `path`.
    """
    folder, files = downloaded(name, kind, patterns)
    if not all(file.exists() for file in files):
        downloaded.cache_clear()
        folder, _ = downloaded(name, kind, patterns)
    return folder


@functools.cache
def downloaded(
    name: str, kind: str, patterns: tuple[str, ...]
) -> tuple[pathlib.Path, tuple[pathlib.Path, ...]]:
    """As `snapshot`, once in a process: the folder, and the files and folders in it."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UserError(f"{name}: hf:OWNER/NAME or hf:OWNER/NAME@REVISION is required")
    from bert_jax.runtime import hub_exchange

    with hub_exchange.explained(name) as exchange:
        from huggingface_hub import errors, snapshot_download

        fetch = functools.partial(
            snapshot_download,
            match[1],
            repo_type=kind,
            revision=match[2],
            allow_patterns=patterns,
        )
        with _quietly(), contextlib.suppress(errors.DryRunError):  # offline
            files = fetch(dry_run=True)
            if kind == "model":
                _require_safetensors(name, files)
            exchange.announced = _check_size(name, files)
        with contextlib.nullcontext() if sys.stderr.isatty() else _quietly():
            folder = pathlib.Path(fetch())
    return folder, tuple(folder.rglob("*"))


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars of huggingface_hub."""
    from huggingface_hub import utils

    shown = not utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            utils.enable_progress_bars()


def _require_safetensors(name: str, files: Any) -> None:
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise UserError(
            f"{name}: has no safetensors file (a pickle could run anything when it is "
            "read); name another revision, or convert it"
        )


def _check_size(name: str, files: Any) -> int:
    """Checks the files (DryRunFileInfo) before they are downloaded; gives the bytes."""
    from huggingface_hub import constants

    size = sum(file.file_size or 0 for file in files if file.will_download)
    cache = pathlib.Path(constants.HF_HUB_CACHE)
    place = next(p for p in (cache, *cache.parents) if p.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise UserError(
            f"{name}: {size / 1e6:,.0f} MB, and {cache} has {free / 1e6:,.0f} MB free; "
            "name another folder with HF_HOME"
        )
    if size:
        log.info("%s: downloading %s MB to %s", name, f"{size / 1e6:,.0f}", cache)
    return int(size)
