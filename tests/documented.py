"""Text shown in README and docs/: commands in blocks, and code between backticks."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "experiments/README.md")
    ),
    *(ROOT / "docs").glob("*.md"),
]
# Their docstrings show commands, which `--help` prints.
MODULES = [
    *(ROOT / "bert_jax" / "commands").glob("*.py"),
    *(ROOT / "configs").rglob("*.py"),
    *(ROOT / "experiments").rglob("*.py"),
    *(ROOT / "examples").glob("*.py"),
    *(ROOT / "tests" / "system").glob("*.py"),
    *(ROOT / "tests" / "device").glob("*.py"),
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
_INLINE = re.compile(r"`([^`]+)`")
OURS = ("python", "./launch.sh", "pip", ".venv/bin/pip")
# Other programs in the pages' blocks: the shell's, those of other projects, which are
# not here to parse their arguments, and those that other tests start.
OTHERS = {
    *("cd", "source", "echo", "for", "done", "test", "git", "awk", "cat"),
    *("optimum-cli", "gcloud", "sky", "xpk", "xprof", "docker", "scontrol"),
    *("jupyter", "curl", "jq", "unzip", ".venv/bin/lint-imports", ".venv/bin/ruff"),
}
# Programs that other commands start, users do not.
STARTED = (*("experiments.paper.budget", "experiments.sameness.recorded_run"),)


def experiments() -> dict[str, Path]:
    """Returns the commands of experiments/ as `-m` takes them, and their files."""
    found = {}
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        if '\nif __name__ == "__main__":\n' in path.read_text("utf-8"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__main__")] = path
    return found


# Words that may precede a command.
_BEFORE = ("do", "srun")
_FILE = re.compile(r"# (\w+\.py)\n")


class Command(NamedTuple):
    """One program with its arguments.

    Attributes:
      where: Page and line.
      words: Words as the shell splits them. A variable is 1.
    """

    where: str
    words: tuple[str, ...]


def commands(page: Path) -> Iterator[Command]:
    """Yields the commands of the page's blocks, and inline those of ours."""
    text = page.read_text("utf-8")
    for block in _BLOCK.finditer(text):
        if not block[1] and _has_commands(block[2]):
            for start, line in logical_lines(block[2]):
                where = f"{page.name}:{_line(text, block.start(2) + start)}"
                yield from (Command(where, words) for words in simple(line))
    for start, span in inline(text):
        where = f"{page.name}:{_line(text, start)}"
        line = f"python -m {span}" if re.match(r"experiments\.\w+", span) else span
        line = re.sub(r"^(\w+=\S+ )+", "", line)
        if line.split()[0] in OURS:
            yield from (Command(where, words) for words in simple(line))


def of_docstring(path: Path) -> Iterator[Command]:
    """Yields the commands of a module's docstring: indented, one line each as Python
    joins them."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    for line in re.sub(r"\\\n", "", text).splitlines():
        if line.startswith("    ") and line.split()[0] in OURS:
            where = f"{path.relative_to(ROOT)}: {line.strip()[:60]}"
            yield from (Command(where, words) for words in simple(line))


def _has_commands(block: str) -> bool:
    """Whether its first line is one. Otherwise the block is output.

    Raises:
      AssertionError: A command is further below.
    """
    if "\n$ " in f"\n{block}":
        return True
    lines = [line for line in block.splitlines() if line[:1] not in ("", "#")]
    is_command = [line.split()[0] in (*OURS, *OTHERS, *_BEFORE) for line in lines]
    assert is_command[0] or not any(is_command), f"command below output: {block}"
    return is_command[0]


def logical_lines(block: str) -> Iterator[tuple[int, str]]:
    """Yields the commands of a block, each in one line, and where they begin.

    Lines below a command with a prompt are its output.
    """
    prompted, start, gathered = "\n$ " in f"\n{block}", 0, ""
    at = 0
    for line in block.splitlines(keepends=True):
        start = start if gathered else at
        at += len(line)
        line = line.rstrip("\n")
        if not gathered and (
            prompted != line.startswith("$ ") or line[:1] in ("", "#")
        ):
            continue
        gathered += line.removeprefix("$ ").removesuffix("\\")
        if not line.endswith(("\\", "|")):
            yield start, gathered
            gathered = ""
    assert not gathered, gathered


def simple(line: str) -> Iterator[tuple[str, ...]]:
    """Yields the programs that a line starts, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    redirects = False
    for token in [*lexer, ";"]:
        operator = not set(token) - set("|&;<>()")
        if operator and not set(token) & set("<>"):
            if words:
                yield tuple(words)
            words = []
        elif not operator and not redirects and (words or token not in _BEFORE):
            words.append(re.sub(r"\$\w+", "1", token))
        redirects = operator and bool(set(token) & set("<>"))


def inline(text: str) -> Iterator[tuple[int, str]]:
    """Yields the code between backticks outside of blocks, in one line each, and
    where."""
    outside = _BLOCK.sub(lambda block: " " * len(block[0]), text)
    for span in _INLINE.finditer(outside):
        yield span.start(), " ".join(span[1].split())


def files(page: Path) -> dict[str, str]:
    """Returns the Python files that a page shows, by the name in their first line."""
    found = {}
    for block in _BLOCK.finditer(page.read_text("utf-8")):
        if block[1] == "python" and (named := _FILE.match(block[2])):
            found[named[1]] = block[2]
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
