"""Which tests a command runs: all of them, the quick ones, or these and the heart.

A test is quick if it took less than `durations.SLOW` when it was last measured. The
heart is marked so, some twenty runs of the whole program, each for a promise of the
README.
"""

from collections import Counter
from typing import Any

import pytest

from tests import durations

MARK = "heart"
ALL = "./launch.sh test --all"


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="without the slow tests")
    parser.addoption(
        "--heart", action="store_true", help="of the slow tests those marked so alone"
    )


class Chosen:
    """The plugin that leaves tests out, and says so at the end."""

    def __init__(self) -> None:
        self._left_out = (0, 0.0)  # tests, and their seconds when they were measured

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        quick, heart = config.getoption("--quick"), config.getoption("--heart")
        slow = list(durations.slow(items)) if quick or heart else []
        if heart and not quick:
            slow = [item for item in slow if not item.get_closest_marker(MARK)]
        if slow:
            left = set(slow)
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in left]
        self._left_out = (len(slow), durations.seconds(slow))
        if hasattr(config, "workeroutput"):  # of xdist, for the process that reports
            config.workeroutput[MARK] = self._left_out
        durations.sort(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left_out = getattr(node, "workeroutput", {}).get(MARK, self._left_out)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in lines(*self._left_out, terminalreporter.stats.get("skipped", ())):
            terminalreporter.write_line(line)


def lines(count: int, seconds: float, skipped: Any) -> list[str]:
    """What did not run: tests left out, and skipped ones by their reasons."""
    found = []
    if count:
        found.append(
            f"left out: {count:,} slow tests ({seconds / 60:.0f} min of CPU); "
            f"{ALL} runs them too"
        )
    reasons: Counter[str] = Counter()
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reasons[reason.removeprefix("Skipped: ") or "without a reason"] += 1
    found += [
        f"skipped: {number}, {reason}" for reason, number in reasons.most_common()
    ]
    return found
