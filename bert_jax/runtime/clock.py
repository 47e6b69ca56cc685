"""A stopwatch of wall time by activity."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator


class Stopwatch:
    """Total wall time by name: `with clock("evaluation"): ...`."""

    def __init__(self) -> None:
        self.totals = defaultdict[str, float](float)  # in the order of first use

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.totals[name] += time.perf_counter() - start
