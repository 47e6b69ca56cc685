"""The text of `--help`: modes and flags, or a config's fields with their comments."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from bert_jax.config import configuration, fields

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
_FIELD = re.compile(r"\s+(?:config\.)?(\w+)\.(\w+) = ")
_COMMENT = re.compile(r"\s+# ?(.*)")


def text(spec: str) -> str:
    """The text for a command line with this `--config`, which may be empty.

    Raises:
      UserError: see `configuration.load`.
    """
    if not spec:
        files = sorted(
            path.relative_to(configuration.CONFIGS).as_posix()
            for path in configuration.CONFIGS.rglob("*.py")
            if path.stem not in ("__init__", "common")
        )
        return USAGE.format(names="\n".join(_wrapped(", ".join(files), "  ")))
    config = configuration.load(spec, [])
    path = configuration.named_file(spec.partition(":")[0])
    shared = configuration.CONFIGS
    comments: dict[str, str] = {}
    finetuning, model = shared / "finetune" / "common.py", config.model.architecture
    for file in (shared / "common.py", finetuning, path, shared / f"{model}.py"):
        # A later file's comment says why its value differs, not what the field is.
        comments = {**(comments_of(file) if file.exists() else {}), **comments}
    about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    # A command over several lines, which Python has joined.
    lines = [re.sub(r"(?<=\S) {4,}(?=--)", " \\\\\n        ", about), ""]
    group = ""
    for name, value in fields.each(config):
        if name.rpartition(".")[0] != group:
            group = name.rpartition(".")[0]
            lines.append("")
        lines.append(f"--config.{name}={value!r}")
        lines += _wrapped(comments.get(name, ""), "    ")
    return "\n".join(lines).lstrip("\n") + "\n"


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, 88, initial_indent=indent, subsequent_indent=indent)


def comments_of(path: Path) -> dict[str, str]:
    """The comment above or beside each field's first assignment, in one line."""
    comments: dict[str, str] = {}
    for name, comment in _assignments(path.read_text("utf-8").splitlines()):
        if comment:
            comments.setdefault(name, comment)
    return comments


def _assignments(lines: list[str]) -> Iterator[tuple[str, str]]:
    above: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if field := _FIELD.match(line):
            name = field[2] if field[1] == "config" else f"{field[1]}.{field[2]}"
            beside = line.partition("  # ")[2]
            yield name, " ".join(filter(None, (*above, beside)))
        above = []
