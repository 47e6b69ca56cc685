"""Two whole runs: pairs in packed rows, and a language model with a carry.

Each is a finished run on one device, which other tests read too.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.families.elmo import __main__ as elmo_main
from tests.runs import here

ELMO = """
extends = "elmo:size=tiny"

def get_config(config):
    config.model.hidden_size, config.model.intermediate_size = 8, 12
    config.task.filters = ("1:4", "2:6")
    config.task.max_characters = 8
    config.task.unroll = 6
    config.task.samples = 6
    config.tokenizer.vocab_size = 14
    config.corpus.sources = ("sentences:CORPUS",)
    config.corpus.data_dir = "DATA"
    config.corpus.dev_fraction = 0.2
    config.train.num_steps = 20
    config.train.batch_size = 16
    config.train.log_every = 1
    config.train.eval_every = 0
    config.checkpoint.save_every = 10
    config.evaluate.batch_size = 16
    return config
"""
# Two phases, each packed at its own length.
PACKED = (
    "--config.corpus.packing",
    "--config.corpus.short_seq_prob=0.5",
    "--config.phase2.fraction=0.25",
    "--config.phase2.max_seq_length=24",
    "--config.phase2.max_predictions_per_seq=4",
)

Once = Callable[[str, Callable[[Path], None]], Path]


class Run(NamedTuple):
    """A run that has finished.

    Attributes:
      arguments: Command-line arguments other than config and folder.
      out: Output of the run.
    """

    config: Path
    arguments: tuple[str, ...]
    workdir: Path
    out: str


def packed(once: Once, micro: str) -> Run:
    """Pre-trains on packed rows, in two phases."""
    folder = _trained(once, "packed", lambda _: Path(micro), PACKED)
    return _run(Path(micro), PACKED, folder)


def elmo(once: Once, corpus: Path) -> Run:
    """Pre-trains an ELMo, whose LSTMs' state is carried from step to step."""

    def write(folder: Path) -> Path:
        text = ELMO.replace("CORPUS", str(corpus))
        (folder / "small.py").write_text(text.replace("DATA", str(folder / "data")))
        return folder / "small.py"

    folder = _trained(once, "elmo", write, (), elmo_main.run)
    return _run(folder / "small.py", (), folder)


def _trained(
    once: Once,
    name: str,
    write: Callable[[Path], Path],
    given: tuple[str, ...],
    program: Callable[[Sequence[str]], None] | None = None,
) -> Path:
    def train(folder: Path) -> None:
        arguments = (f"--config={write(folder)}", f"--workdir={folder / 'run'}")
        out, _ = here(*arguments, *given, program=program)
        (folder / "out.txt").write_text(out)

    return once(f"contract_{name}", train)


def _run(config: Path, given: tuple[str, ...], folder: Path) -> Run:
    out = (folder / "out.txt").read_text()
    return Run(config, given, folder / "run", out)
