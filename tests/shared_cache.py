"""Makes JAX's compilation cache safe for processes that share it.

JAX writes a compiled program directly into its file. A process that reads it during the
write, or after a writer was killed halfway, warns and compiles again.
"""

import os
import tempfile

from jax._src.lru_cache import LRUCache


def write_whole() -> None:
    """Makes this process, and those forked from it, rename the files that they have
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
