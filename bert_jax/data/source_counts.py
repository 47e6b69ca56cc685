"""How many documents and pairs each source has, in a prepared folder's report."""

from collections.abc import Mapping
from typing import Any


def counts(report: Mapping[str, Any], name: str) -> list[int]:
    """Documents or pairs of each source in train; empty if they were not counted.

    Args:
      name: "documents" or "pairs".
    """
    if not report.get("by_source"):
        return []
    train = report["totals"]["train"]
    return [train.get(key(n, name), 0) for n in range(len(report["sources"]))]


def key(source: int, name: str) -> str:
    """Of a source's own count in the totals."""
    return f"source_{source}_{name}"
