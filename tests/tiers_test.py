"""What each tier of the tests runs and leaves out."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import durations, tiers

ROOT = Path(__file__).resolve().parents[1]
ITEMS = ("a::quick", "a::slow[1]", "b::slow", "b::beats", "c::quick")
SLOW = {"a": {"slow": 60.0}, "b": {"slow": 90.0, "beats": 8.0}}


class Item(SimpleNamespace):
    def get_closest_marker(self, name):
        return name if self.nodeid.endswith("beats") and name == tiers.MARK else None

    def __hash__(self):
        return hash(self.nodeid)


@pytest.fixture
def collected(monkeypatch):
    """Gives what a command runs, and what the plugin says at the end."""

    def collect(*flags, skipped=()):
        gone, printed = [], []
        hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
        config = SimpleNamespace(getoption=lambda name: name in flags, hook=hook)
        items = [Item(nodeid=name) for name in ITEMS]
        plugin = tiers.Chosen()
        plugin.pytest_collection_modifyitems(config, items)
        reporter = SimpleNamespace(
            stats={"skipped": list(skipped)}, write_line=printed.append
        )
        plugin.pytest_terminal_summary(reporter)
        assert len(items) + len(gone) == len(ITEMS)
        return sorted(item.nodeid for item in items), printed

    monkeypatch.setattr(durations, "read", lambda: SLOW)
    return collect


def test_all_runs_everything_and_says_nothing(collected):
    assert collected() == (sorted(ITEMS), [])


def test_heart_runs_the_quick_tests_and_those_marked(collected):
    ran, printed = collected("--heart")
    assert ran == ["a::quick", "b::beats", "c::quick"]
    assert printed == [
        "left out: 2 slow tests (2 min of CPU); ./launch.sh test --all runs them too"
    ]


def test_quick_leaves_the_heart_out_too(collected):
    for flags in (("--quick",), ("--quick", "--heart")):
        ran, printed = collected(*flags)
        assert ran == ["a::quick", "c::quick"]
        assert printed[0].startswith("left out: 3 slow tests (3 min of CPU)")


def test_skipped_tests_are_counted_by_their_reasons(collected):
    reports = [
        SimpleNamespace(longrepr=("file", 1, f"Skipped: needs the {extra} extra"))
        for extra in ("elmo", "parity", "elmo")
    ]
    _, printed = collected(skipped=reports)
    assert printed == [
        "skipped: 2, needs the elmo extra",
        "skipped: 1, needs the parity extra",
    ]


def test_the_heart_is_some_twenty_tests():
    marked = set()
    for path in sorted((ROOT / "tests").rglob("*_test.py")):
        if f"mark.{tiers.MARK}" not in path.read_text(encoding="utf-8"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = getattr(node, "decorator_list", ())
            if any(f"mark.{tiers.MARK}" in ast.unparse(one) for one in decorators):
                marked.add((path.relative_to(ROOT).as_posix(), node.name))
    assert 15 <= len(marked) <= 30
