"""Makes JAX's compilation cache safe for processes that share it.

JAX writes a compiled program directly into its file. A process that reads it during the
write, or after a writer was killed halfway, warns and compiles again.
"""

import os
import tempfile
from typing import Any

from jax._src import compiler, distributed
from jax._src.lru_cache import LRUCache

_write = compiler._cache_write


def write_whole() -> None:
    """Makes this process, and those forked from it, rename the files that they have
    written into the cache.

    Of several processes of a run, each writes. JAX leaves it to the first, but on a CPU
    the others have keys of their own, and would compile in each run.
    """
    LRUCache.put = _put
    compiler._cache_write = _write_in_each


def _write_in_each(*arguments: Any) -> None:
    state = distributed.global_state
    process, state.process_id = state.process_id, 0
    try:
        _write(*arguments)
    finally:
        state.process_id = process


def _put(self: LRUCache, key: str, value: bytes) -> None:
    path = os.path.join(self.path, f"{key}-cache")
    if os.path.exists(path):
        return
    number, temporary = tempfile.mkstemp(dir=self.path)
    with os.fdopen(number, "wb") as file:
        file.write(value)
    os.replace(temporary, path)
