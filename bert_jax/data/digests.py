"""Digests of files' contents: equal text has equal digests wherever it is."""

import hashlib
import json
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path

log = logging.getLogger(__name__)

# Reading terabytes at each start would take hours, so digests are cached beside the
# prepared data, keyed by each file's name, size and time.
_KEPT = ".digests.json"
# Nanoseconds; a younger file may change again without a change of its time stamp.
_SETTLED = 2_000_000_000
_BLOCK = 1 << 20  # bytes read at a time


def of_files(files: Mapping[str, list[str | int]], data_dir: Path) -> list[str]:
    """Returns each file's digest; a cached one where the file has not changed.

    Args:
      files: from `storage.find`.
      data_dir: where the cache is, one file that any process may read and replace.
    """
    place = data_dir / _KEPT
    kept = _read(place)
    fresh = {}
    digests = []
    for name, file in files.items():
        full_name, *state = file
        entry = kept.get(str(full_name))
        if entry is None or entry[:-1] != state:
            entry = [*state, _digest(name)]
            if storage.in_bucket(name) or time.time_ns() - int(state[-1]) > _SETTLED:
                fresh[str(full_name)] = entry
        digests.append(entry[-1])
    if fresh:
        _keep(place, fresh)
    return digests


def of_source(
    source: str, files: Callable[[], Sequence[pathlib.Path]], data_dir: Path
) -> list[str]:
    """The names that the Hub's cache gives files by their contents; those of the last
    time, kept as above, while the Hub does not give them.

    Raises:
      UserError: it does not, and there was no last time.
    """
    place = data_dir / _KEPT
    kept = _read(place).get(source)
    try:
        names = [path.resolve().name for path in files()]
    except UserError as error:
        if kept is None:
            raise
        log.warning("warning: %s; its text is taken to be as it was last time", error)
        return kept
    if names != kept:
        _keep(place, {source: names})
    return names


def _digest(name: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with storage.reading(storage.path(name)) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _read(place: Path) -> dict[str, list]:
    if not place.exists():
        return {}
    try:
        kept = json.loads(place.read_bytes())
    except (ValueError, RecursionError):  # damaged: it is written again
        return {}
    entries = kept.items() if isinstance(kept, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, list)}


def _keep(place: Path, fresh: dict[str, list]) -> None:
    # Read again: another process may have added to it. What two processes add at the
    # same time may be lost; it is then computed again.
    try:
        storage.write_atomically(place, json.dumps(_read(place) | fresh))
    except OSError:
        return  # data_dir may be read-only
