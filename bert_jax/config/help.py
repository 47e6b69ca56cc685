"""The text of `--help`: modes and flags, or a config's fields with their comments."""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.config import configuration, fields, files

USAGE = """usage: python -m bert_jax.main --config=FILE [--mode=MODE] [...]

modes
  train     (the default) prepares the data, trains or resumes, evaluates, predicts
              --config=configs/base.py --workdir=runs/mine
  prepare   only prepares the data of pre-training
              --mode=prepare --config=configs/base.py
  evaluate  scores the newest checkpoint, or weights, on the evaluation splits
              --mode=evaluate --workdir=runs/mine
  predict   JSON lines, .csv, .tsv or .txt in, with answers out
              --mode=predict --workdir=runs/mine --input=rows.jsonl --output=new.jsonl
  serve     answers over HTTP, and on a page for a browser
              --mode=serve --workdir=runs/mine --port=8000
  extract   the same in, vectors of the model's layers out
              --mode=extract --workdir=runs/mine --input=rows.jsonl --output=new.jsonl
  export    writes a Hugging Face model folder (hf upload sends it to the Hub)
              --mode=export --workdir=runs/mine --output=FOLDER
  describe  shows the config, parameters, FLOPs and memory; runs nothing
              --mode=describe --config=configs/large.py

flags
  --config=FILE[:NAME=VALUE,...]  a config file, with arguments if it takes any;
                                  NAME alone is configs/NAME.py
  --config.FIELD=VALUE            another value of one of its fields
  --workdir=FOLDER                of the run; runs/NAME-OF-THE-CONFIG by default
  --input=FILE, --output=FILE     what a mode reads, writes; -: standard input, output

--config=FILE --help shows what a config is for, and every field of it.
In configs/:
{names}
The README has the details, docs/config.md every field.
"""
_FIELD = re.compile(r"\s+(?:\"([\w.]+)\": |(?:config\.)?(task\.\w+) = )")
_COMMENT = re.compile(r"\s+# ?(.*)")


def help_text(spec: str) -> str:
    """Returns the text for a command line with this `--config`, which may be empty.

    Raises:
      UserError: see `configuration.load_config`.
    """
    if not spec:
        names = sorted(
            path.relative_to(files.CONFIGS).as_posix()
            for path in files.CONFIGS.rglob("*.py")
        )
        return USAGE.format(names="\n".join(_wrapped(", ".join(names), "  ")))
    config, path = configuration.load_config(spec, []), files.path_of(spec)
    found = field_meanings(config.model.architecture, path)
    about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    # Split again a command over several lines, which Python has joined.
    lines = [re.sub(r"(?<=\S) {4,}(?=--)", " \\\\\n        ", about), ""]
    group = ""
    for name, value in fields.iter_fields(config):
        if name.rpartition(".")[0] != group:
            group = name.rpartition(".")[0]
            lines.append("")
        lines.append(f"--config.{name}={value!r}")
        lines += _wrapped(found.get(name, ""), "    ")
    return "\n".join(lines).lstrip("\n") + "\n"


def field_meanings(architecture: str, *more: Path) -> dict[str, str]:
    """Returns each field's purpose: the comment where it is defined, in one line.

    Args:
      more: The user's config files, which may define fields of a task.
    """
    family = Path(__file__).parents[1] / "families" / architecture / "fields.py"
    found: dict[str, str] = {}
    for path in filter(Path.exists, (*more, Path(fields.__file__), family)):
        found |= _comments(path.read_text("utf-8").splitlines())
    return found


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, 88, initial_indent=indent, subsequent_indent=indent)


def _comments(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields each field with the comment above or beside its definition."""
    above: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if field := _FIELD.match(line):
            beside = line.partition("  # ")[2]
            yield field[1] or field[2], " ".join(filter(None, (*above, beside)))
        above = []
