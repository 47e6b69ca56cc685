"""Mutants: small faults written into the code, to see which the quick tests catch.

    python -m tests.system.mutants --coverage=.coverage --output=mutants.jsonl

`.coverage` says which tests run a line: it is what pytest-cov writes when the quick
tests run with its options --cov=bert_jax and --cov-context=test. Each mutant changes
one expression of one function: a comparison, an operation, a condition, a number or a
returned value. It is written into a copy of the checkout, where the tests that run its
line are started, the module's own first. The first that fails ends them. OUTPUT has a
line for each mutant: what was changed, and which test failed. The same command
continues a file that is not complete. `--again` repeats the mutants of a file, such as
one made with other tests.
"""

import argparse
import ast
import collections
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOMS = {
    "training": 25,
    "models": 20,
    "data": 25,
    "tasks": 25,
    "convert": 15,
    "scores": 10,
}
LIMIT = 300  # seconds for a mutant's tests; a mutant that hangs is caught
_MOST_TESTS = 40  # of other modules, evenly from all that run the line
_COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}


def change(node: ast.AST) -> ast.expr | None:
    """Returns a node with a fault in place of this one. None means that it has none."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _COMPARED:
            return ast.Compare(left, [_COMPARED[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATED:
            return ast.BinOp(left, _OPERATED[type(operator)](), right)
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            return ast.BoolOp(other, values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            return ast.Constant(value + 1)
    return None


def find_mutants(path: str, text: str) -> Iterator[dict[str, Any]]:
    """Yields the mutants of a module, by function.

    Types, messages of errors and text in f-strings are left as they are.
    """
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = collections.deque[ast.AST](function.body)
        while nodes:
            node = nodes.popleft()
            if isinstance(
                node, ast.Raise | ast.Assert | ast.JoinedStr | ast.FunctionDef
            ):
                continue
            nodes += ast.iter_child_nodes(node)
            new = change(node)
            if new is None or not isinstance(node, ast.expr):
                continue
            if node.end_lineno is None or node.end_col_offset is None:
                continue
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            yield {
                "path": path,
                "function": function.name,
                "line": node.lineno,
                "start": start,
                "old": text.encode()[start:end].decode(),
                "new": f"({ast.unparse(ast.fix_missing_locations(new))})",
            }


def choose_mutants(root: Path) -> list[dict[str, Any]]:
    """Returns as many mutants of each room as ROOMS says, each of another function."""
    chosen = []
    for room, count in ROOMS.items():
        by_function = collections.defaultdict(list)
        for path in sorted((root / "bert_jax" / room).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            for mutant in find_mutants(name, path.read_text("utf-8")):
                by_function[name, mutant["function"]].append(mutant)
        drawn = random.Random(room)
        for key in drawn.sample(sorted(by_function), count):
            chosen.append(drawn.choice(by_function[key]))
    return chosen


def read_mutants(path: Path) -> list[dict[str, Any]]:
    """Reads the mutants of an OUTPUT."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def choose_tests(root: Path, mutant: dict[str, Any], contexts: Any) -> list[str]:
    """Returns the tests to run on a mutant: those of its module, then others."""
    path = Path(mutant["path"])
    own = Path("tests", *path.parts[1:]).with_name(f"{path.stem}_test.py")
    chosen = [own.as_posix()] if (root / own).exists() else []
    lines = contexts.contexts_by_lineno(str(root / mutant["path"]))
    covering = lines.get(mutant["line"], [])
    ids = dict.fromkeys(context.partition("|")[0] for context in covering if context)
    others = [name for name in ids if not name.startswith(tuple(chosen) or "\0")]
    room = f"tests/{path.parts[1]}/"
    others.sort(key=lambda name: not name.startswith(room))
    step = max(1, len(others) // _MOST_TESTS)
    return [*chosen, *others[::step][:_MOST_TESTS]]


def try_mutant(root: Path, mutant: dict[str, Any], tests: list[str]) -> str:
    """Returns the first test that fails, or "" if all pass."""
    path = root / mutant["path"]
    whole, size = path.read_bytes(), len(mutant["old"].encode())
    start = mutant["start"]
    assert whole[start : start + size].decode() == mutant["old"], mutant
    path.write_bytes(whole[:start] + mutant["new"].encode() + whole[start + size :])
    options = ("-x", "-m", "not slow", "-p", "no:cacheprovider", "--no-header")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        ended = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return "none ended in time"
    finally:
        path.write_bytes(whole)
    if ended.returncode in (0, 5):  # 5: all of them are slow
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.M)
    return failed[1] if failed else f"status {ended.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--coverage", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--again", type=Path, help="mutants of an earlier OUTPUT")
    options = parser.parse_args()
    from coverage import CoverageData  # type: ignore[import-not-found]

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        subprocess.run(["git", "clone", "-q", here, root], check=True)
        data = CoverageData(str(options.coverage))
        data.read()
        again = options.again and read_mutants(options.again)
        mutants = again or choose_mutants(root)
        options.output.touch()
        known = read_mutants(options.output)
        caught = sum(bool(mutant["caught_by"]) for mutant in known)
        with options.output.open("a", encoding="utf-8") as file:
            for number, mutant in enumerate(mutants[len(known) :], len(known) + 1):
                tests, begin = choose_tests(here, mutant, data), time.monotonic()
                failed = try_mutant(root, mutant, tests) if tests else ""
                mutant["caught_by"] = failed
                caught += bool(failed)
                file.write(json.dumps(mutant) + "\n")
                file.flush()
                where = f"{mutant['path']}:{mutant['line']}"
                seconds = time.monotonic() - begin
                print(f"{number} {where} {failed or 'SURVIVES'} {seconds:.0f} s")
    print(f"caught: {caught} of {len(mutants)}")


if __name__ == "__main__":
    main()
