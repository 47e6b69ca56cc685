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
import sys
from collections.abc import Iterator

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage

PREFIX = "hf:"
_WEIGHTS = pathlib.Path(__file__).resolve().parents[1] / "weights"  # in the package
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")
_FILES = (
    *("*.json", "*vocab.txt", "*merges.txt"),
    *("*model.safetensors", "model-*-of-*.safetensors"),
)
# Of repositories without safetensors.
_OTHER = ("flax_model.msgpack", "pytorch_model.bin", "pytorch_model-*-of-*.bin")


class NoRevision(UserError):
    """The repository has no such branch, tag or commit."""


def model_folder(text: str | os.PathLike[str]) -> storage.Path:
    """Returns the folder of a model, by its path (`storage.storage_path`), its name on
    the Hub (`download_snapshot`), or mini, unless there is such a path."""
    name = os.fspath(text)
    if name.startswith(PREFIX):
        folder = download_snapshot(name, "model", _FILES)
        if not any(folder.rglob("*.safetensors")):
            folder = download_snapshot(name, "model", (*_FILES, *_OTHER))
        return folder
    if name in os.listdir(_WEIGHTS) and not os.path.exists(name):
        return _WEIGHTS / name
    return storage.storage_path(name)


def resolve_revision(name: str) -> str:
    """Returns the name with the commit as its revision. A path is unchanged."""
    is_path = not name.startswith(PREFIX)
    return name if is_path else f"{name.partition('@')[0]}@{model_folder(name).name}"


@functools.cache
def download_snapshot(name: str, kind: str, patterns: tuple[str, ...]) -> pathlib.Path:
    """Returns the folder of a repository's files, downloaded unless in the cache.

    Args:
      kind: "model" or "dataset".
      patterns: Patterns of file names, such as "*.parquet", where * matches a / too.

    Raises:
      UserError: The Hub has no such repository or revision, or it cannot be reached and
        the cache lacks them.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UserError(f"{name}: hf:OWNER/NAME or hf:OWNER/NAME@REVISION is required")
    with _one_line_errors(name):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            match[1], repo_type=kind, revision=match[2], allow_patterns=list(patterns)
        )
    return pathlib.Path(folder)


@contextlib.contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Turns exceptions of the Hub's client into a UserError."""
    from huggingface_hub import errors, utils

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # the rest is noise
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise NoRevision(f"{name}: no such branch, tag or commit") from error
    except errors.LocalEntryNotFoundError as error:
        reason = first_line(error.__cause__ or error)
        raise UserError(
            f"{name}: not in the cache, and the Hub cannot be reached ({reason}); "
            "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or name a folder"
        ) from error
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        text = " ".join(str(error).split())[:400]
        raise UserError(f"{name}: {text} (hf auth login)") from error
