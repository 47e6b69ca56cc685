"""What files hold, by MD5: the same text has the same digest wherever it lies."""

import hashlib
import json
import time
from collections.abc import Mapping

from bert_jax.runtime import storage
from bert_jax.runtime.storage import Found, Path

# Reading terabytes at each start would take hours: digests are kept beside the prepared
# data, by the name, size and time of each file.
_KEPT = ".digests.json"
# Nanoseconds; a file that is younger may change again within one tick of its clock.
_SETTLED = 2_000_000_000
_BLOCK = 1 << 20  # bytes read at a time


def of_files(files: Mapping[str, Found], data_dir: Path) -> list[str]:
    """The digest of each file; from `data_dir` where it has not changed since.

    Args:
      files: from `storage.find`.
      data_dir: where digests are kept, in a file that any number of processes may
        read and replace.
    """
    place = data_dir / _KEPT
    kept = _read(place)
    fresh = {}
    digests = []
    for name, found in files.items():
        full_name, *state = found.state
        if found.md5 is not None:
            digests.append(found.md5)
            continue
        entry = kept.get(str(full_name))
        if entry is None or entry[:-1] != state:
            entry = [*state, _digest(name)]
            if storage.in_bucket(name) or time.time_ns() - int(state[-1]) > _SETTLED:
                fresh[str(full_name)] = entry
        digests.append(entry[-1])
    if fresh:
        _keep(place, fresh)
    return digests


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
        return json.loads(place.read_bytes())
    except ValueError:  # not what was written here: it is made anew
        return {}


def _keep(place: Path, fresh: dict[str, list]) -> None:
    # Another process may have added to it; what two of them add at once may be lost,
    # and is found again.
    try:
        storage.write_atomically(place, json.dumps(_read(place) | fresh))
    except OSError:
        return  # prepared data may lie where nothing can be written
