"""A malformed input: a folder, a command line, and what may come of it."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.micro_data import KINDS
from tests.system.micro_runs import Stages

# What can be asked of a folder at each stage (micro_runs.py).
MODES = {
    "inputs": ("train", "prepare", "describe"),
    "run": ("predict", "evaluate", "export", "train", "describe"),
    "model": ("predict", "evaluate", "export", "train", "describe"),
}
# A task that is only asked, with the weights of another's run.
MODES_UNTRAINED = {
    "inputs": ("predict", "evaluate", "describe"),
    "model": ("predict", "export", "describe"),
}
OUTPUTS = {
    "predict": "out/answers.jsonl",
    "export": "out/exported",
    "describe": "out/facts.json",
}


@dataclass
class Case:
    """An input that is to be tried.

    Attributes:
      rule: by which it was made.
      description: what is wrong with it, for a reader.
      flags: of the command line, without --mode.
      env: of its environment, besides the campaign's.
      refused: it is wrong by construction: status 0 is a failure.
      accepted: it is good by construction: another status is a failure.
      stdin: a file.
      output: what --output names; empty where it is not given.
      is_stream: the output is a pipe, whose text is in `out/read`.
    """

    rule: str
    folder: Path
    task: str
    stage: str
    mode: str
    flags: list[str]
    description: str = ""
    env: dict[str, str] = field(default_factory=dict)
    refused: bool = False
    accepted: bool = False
    stdin: str = "/dev/null"
    output: str = ""
    is_stream: bool = False

    @property
    def argv(self) -> list[str]:
        return [*self.flags, f"--mode={self.mode}"]

    def set_flag(self, name: str, value: str) -> None:
        """Gives a flag another value, in the place of the one it has."""
        self.flags = [x for x in self.flags if not x.startswith(f"--{name}=")]
        self.flags.append(f"--{name}={value}")
        if name == "output":
            self.output = value

    def uses_config(self) -> bool:
        """Whether the config file is read."""
        return any(flag.startswith("--config=") for flag in self.flags)


@dataclass
class Draw:
    """What a rule makes a case from.

    Attributes:
      turn: how many cases the same rule has made before.
      order: for what is taken one after the other, in an order of the seed's.
    """

    stages: Stages
    tasks: tuple[str, ...]
    folder: Path
    rng: random.Random
    turn: int
    order: random.Random

    def shuffled(self, items: list) -> list:
        """The same order for each turn."""
        return random.Random(self.order.random()).sample(items, len(items))


Rule = Callable[[Draw], Case]


def modes_of(task: str) -> dict[str, tuple[str, ...]]:
    """The modes of each stage of a task."""
    trains = KINDS[task](random.Random(task)).trains
    return MODES if trains else MODES_UNTRAINED


def begin(
    draw: Draw, rule: str, stages: tuple[str, ...] = (), modes: tuple[str, ...] = ()
) -> Case:
    """A good command line in a folder of its own; what is wrong comes later.

    Args:
      stages, modes: of these only; empty: of all.
    """
    every = [
        (task, stage, mode)
        for task in draw.tasks
        for stage, its in modes_of(task).items()
        for mode in its
        if (not stages or stage in stages) and (not modes or mode in modes)
    ]
    task, stage, mode = draw.shuffled(every)[draw.turn % len(every)]
    return prepare(draw, rule, task, stage, mode)


def prepare(draw: Draw, rule: str, task: str, stage: str, mode: str) -> Case:
    """As `begin`, of a task, stage and mode."""
    folder = draw.folder
    draw.stages.copy(task, stage, folder)
    (folder / "out").mkdir()
    (folder / "tmp").mkdir()
    rows = KINDS[task](random.Random(task)).rows
    (folder / "in" / "rows.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows)
    )
    asks = mode in ("predict", "evaluate", "export")
    flags = ["--workdir=run"]
    if stage == "inputs" or not asks:
        flags.insert(0, "--config=in/micro.py")
    if stage == "run" and mode == "train":  # which has something to do still
        steps = sorted((folder / "run" / "checkpoints").iterdir())
        shutil.rmtree(steps[-1])
    if stage == "model":
        flags.append("--config.init_from=in/model")
        if not asks:
            flags.append("--config.tokenizer.vocab_file=")
    if mode == "predict":
        flags.append("--input=in/rows.jsonl")
    case = Case(rule, folder, task, stage, mode, flags, env={"TMPDIR": f"{folder}/tmp"})
    if mode in OUTPUTS:
        case.set_flag("output", OUTPUTS[mode])
    return case
