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
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")
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


class Unreachable(UserError):
    """The Hub cannot be reached, and the cache lacks the repository."""


class NoRevision(UserError):
    """The repository has no such branch, tag or commit."""


def path(text: str | os.PathLike[str]) -> storage.Path:
    """The folder of a model: a path as `storage.path` has it, or a name on the Hub,
    whose files are downloaded unless they are in the cache.

    Raises:
      UserError: the Hub has no such model or revision, it has no safetensors, or the
        Hub cannot be reached and the cache lacks it.
    """
    name = os.fspath(text)
    if not name.startswith(PREFIX):
        return storage.path(name)
    folder = snapshot(name, "model", _FILES)
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{name}: has no safetensors file (a pickle could run anything when it is "
            "read); name another revision, or convert it"
        )
    return folder


def resolved(name: str) -> str:
    """The name with the commit as its revision; a path as it is."""
    if not name.startswith(PREFIX):
        return name
    return f"{name.partition('@')[0]}@{path(name).name}"


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
    repository = check_new(name)
    with _explained(name):
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        message = "Export of bert_jax"
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message
        )
    return str(done.commit_url)


@functools.cache
def snapshot(name: str, kind: str, patterns: tuple[str, ...]) -> pathlib.Path:
    """The folder of a repository's files, downloaded unless they are in the cache.

    Args:
      kind: "model" or "dataset".
      patterns: of the files' names, such as "*.parquet", in which * matches a / too.

    Raises:
      UserError: see `path`.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UserError(f"{name}: hf:OWNER/NAME or hf:OWNER/NAME@REVISION is required")
    with _explained(name):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            match[1], repo_type=kind, revision=match[2], allow_patterns=list(patterns)
        )
    return pathlib.Path(folder)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns what the Hub's client raises into a UserError."""
    from huggingface_hub import constants, errors, utils

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # the rest is noise
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{name}: its owner asks for consent first: give it on its page, "
            "then log in (hf auth login)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{name}: the Hub has no such repository, or it is private (hf auth login)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise NoRevision(f"{name}: no such branch, tag or commit") from error
    except errors.LocalEntryNotFoundError as error:
        raise Unreachable(
            f"{name}: not in the cache, and the Hub ({constants.ENDPOINT}) cannot be "
            f"reached ({first_line(error.__cause__ or error)}); check the network (or "
            "HF_HUB_OFFLINE), or name a folder"
        ) from error
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        raise UserError(f"{name}: {first_line(error)} (hf auth login)") from error
