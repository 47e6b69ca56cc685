"""No file has too many statements. Lines are not counted, so that names are free."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "bert_jax",
    "configs",
    "examples",
    "experiments",
    "launch",
    "tests",
)
MOST = 350


def test_files_have_not_too_many_statements():
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(paths) > 100
    counts = {
        path.relative_to(ROOT).as_posix(): sum(
            isinstance(node, ast.stmt)
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
        for path in paths
    }
    assert [path for path, count in counts.items() if count > MOST] == []
    assert [path for path in counts if path.endswith("/utils.py")] == []
