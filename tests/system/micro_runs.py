"""Micro runs of every task, from which inputs and faults begin.

A stage is a folder with all that a run needs, by relative names, so that a copy of it
works as well: `in/` (config, vocabulary, data, rows for predict), `run/` (a finished
run), `data/` (pre-training's prepared data), `in/model` (its export).
"""

import random
import shutil
import tempfile
import threading
from pathlib import Path

from bert_jax import tokenization
from tests.forked import Server, wait
from tests.micro_data import KINDS, VOCABULARY, Kind, Kinds

SECONDS, MEMORY = 180.0, 4 << 30  # of a run that has nothing wrong

# The others have batches of one length: programs that are compiled once for all.
_OF_EVERY_LENGTH = ("text", "squad2")

CONFIG = """
extends = "{extends}"

def get_config(config):
    config.model.hidden_size = 16
    config.model.num_hidden_layers = 1
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 32
    config.model.max_position_embeddings = 32
    config.model.hidden_dropout_prob = 0.1
    config.model.attention_probs_dropout_prob = 0.1
    config.tokenizer.vocab_file = "in/vocab.txt"
    config.corpus.data_dir = "data"
    if "max_seq_length" in config.task:
        config.task.max_seq_length = 32
        config.task.pad_to_max = {pads}
    config.train.num_steps = 2
    config.train.batch_size = 4
    config.train.log_every = 1
    config.evaluate.batch_size = 4
    config.predict.batch_size = 4
    config.checkpoint.save_every = 1
{lines}
    return config
"""


def write_inputs(name: str, folder: Path, kinds: Kinds = KINDS) -> Kind:
    """Writes `in/` of a kind of data."""
    kind = kinds[name](random.Random(name))
    for file, content in kind.files.items():
        path = folder / "in" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    config = CONFIG.format(
        extends=kind.extends, lines=kind.lines, pads=name not in _OF_EVERY_LENGTH
    )
    (folder / "in" / "micro.py").write_text(config)
    (folder / "in" / "vocab.txt").write_text(VOCABULARY)
    tokenizer = tokenization.load(folder / "in" / "vocab.txt")
    text = tokenization.files(tokenizer)["tokenizer.json"]
    if name.startswith("text_"):  # which have their vocabulary in another form
        (folder / "in" / "tokenizer.json").write_text(text)
        (folder / "in" / "vocab.txt").unlink()
        text = config.replace("in/vocab.txt", "in/tokenizer.json")
        (folder / "in" / "micro.py").write_text(text)
    return kind


class Stages:
    """Makes each stage once, when it is first needed; for any number of threads."""

    def __init__(self, server: Server):
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="bert_jax.stages."))
        self._locks = {name: threading.RLock() for name in KINDS}

    def folder(self, name: str, stage: str) -> Path:
        """The folder of a stage: inputs, run or model; not to be changed.

        Raises:
          RuntimeError: the runs that make it fail.
        """
        made = self._folder / name / stage
        with self._locks[name]:
            if not made.exists():
                self._make(name, stage, made)
        return made

    def copy(self, name: str, stage: str, target: Path) -> None:
        shutil.copytree(self.folder(name, stage), target, symlinks=True)

    def _make(self, name: str, stage: str, made: Path) -> None:
        new = made.with_name(f"{stage}.new")
        if stage == "inputs":
            new.mkdir(parents=True)
            write_inputs(name, new)
            if name == "ax":
                shutil.copytree(self.folder("mnli", "run") / "run", new / "in" / "mnli")
        elif stage == "run":
            self.copy(name, "inputs", new)
            if KINDS[name](random.Random(name)).trains:
                self._run(new, ["--config=in/micro.py", "--workdir=run"])
        else:
            self.copy(name, "run", new)
            own = "run" if (new / "run").exists() else "in/mnli"
            self._run(new, [f"--workdir={own}", "--mode=export", "--output=in/model"])
            shutil.rmtree(new / "run", ignore_errors=True)
            shutil.rmtree(new / "data", ignore_errors=True)
        new.rename(made)

    def _run(self, folder: Path, argv: list[str]) -> None:
        log = folder / "log"
        program = ["-m", "bert_jax.main", *argv]
        run = self._server.start_on_files(program, folder, ("/dev/null", log, log))
        status = wait(run, SECONDS, MEMORY)
        said = log.read_text()
        log.unlink()
        if status:
            raise RuntimeError(f"{folder}: {argv} ended with {status}:\n{said}")

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
