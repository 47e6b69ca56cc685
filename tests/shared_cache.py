"""Makes JAX's compilation cache safe for processes that share it.

JAX writes a compiled program in place: a process that reads it meanwhile, or is left
half of it by one that was killed, warns and compiles again.
"""

import os
import tempfile

from jax._src.lru_cache import LRUCache


def write_whole() -> None:
    """From now on this process, and those forked from it, rename what they have
    written into the cache."""
    LRUCache.put = _put


def _put(self: LRUCache, key: str, value: bytes) -> None:
    path = os.path.join(self.path, f"{key}-cache")
    if os.path.exists(path):
        return
    number, temporary = tempfile.mkstemp(dir=self.path)
    with os.fdopen(number, "wb") as file:
        file.write(value)
    os.replace(temporary, path)
