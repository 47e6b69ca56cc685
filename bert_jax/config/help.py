"""The text of `--help`: modes and flags, or a config's fields with their purposes."""

import ast
import re
import textwrap

from bert_jax.config import configuration, fields, files
from bert_jax.config.field import PLAIN, value_words

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
              --mode=export --workdir=runs/mine --output=FOLDER [--onnx=float32]
  describe  shows the config, parameters, FLOPs and memory; runs nothing
              --mode=describe --config=configs/large.py

commands, in place of flags: python -m bert_jax NAME --help
  sweep           compares config files and values of fields, or searches for values
  cross-validate  trains and scores on every part of a table in turn
  search          finds the texts nearest to a query, by their vectors

flags
  --config=FILE[:NAME=VALUE,...]  a config file, with arguments if it takes any;
                                  NAME alone is configs/NAME.py
  --config.FIELD=VALUE            another value of one of its fields
  --workdir=FOLDER                of the run; runs/NAME-OF-THE-CONFIG by default
  --input=FILE, --output=FILE     what a mode reads, writes; -: standard input, output
  --host=ADDRESS, --port=NUMBER   where serve listens: 127.0.0.1 and 8000 by default
  --onnx=float32, --onnx=int8     also exports an ONNX graph, with int8 a second one

--config=FILE --help shows what a config is for, and the fields that its task reads.
In configs/:
{names}
The README has the details, docs/config.md every field.
"""
# Fine-tuning reads none of these groups.
_PRETRAINING = ("corpus", "masking", "phase2", "train.phases")


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
        return USAGE.format(names="\n".join(_wrap_line(", ".join(names), "  ")))
    config, path = configuration.load_config(spec, []), files.path_of(spec)
    known = fields.fields_of(config)
    about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    # Split again a command over several lines, which Python has joined.
    lines = [re.sub(r"(?<=\S) {4,}(?=--)", " \\\\\n        ", about), ""]
    group, finetunes = "", fields.is_finetuning(config)
    for name, value in fields.iter_fields(config):
        if finetunes and name.startswith(_PRETRAINING):
            continue
        if name.rpartition(".")[0] != group:
            group = name.rpartition(".")[0]
            lines.append("")
        field = known.get(name, PLAIN)
        allowed = f"  # {value_words(field)}" if field is not PLAIN else ""
        lines.append(f"--config.{name}={value!r}{allowed}")
        lines += _wrap_line(field.doc, "    ")
    return "\n".join(lines).lstrip("\n") + "\n"


def _wrap_line(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, 88, initial_indent=indent, subsequent_indent=indent)
