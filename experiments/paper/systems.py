"""The parts of a table: pre-training runs, the systems on them, columns."""

from typing import NamedTuple

from experiments.lib.published import Published
from experiments.lib.verdicts import Claim
from experiments.paper.tasks import TASKS

# Scores as they are shown.
_SCORES = {
    **{"f1": "F1", "exact_match": "EM"},
    **{"matthews": "Matthews", "spearman": "Spearman"},
}


class Pretraining(NamedTuple):
    """A pre-training run.

    Attributes:
      name: Prefix of its folder's name.
      fields: Fields of the config, FIELD=VALUE.
      shape: Layers, hidden size and heads. None means those of the size.
      size: Size that replaces the requested one, if not empty.
      kept: Whether checkpoints along the run stay, for figure 5.
      model: System whose config it takes, a key of `beside.SYSTEMS`.
      weights: Weights that exist already, as `init_from` names them. Empty means that
        it is trained.
    """

    name: str
    fields: tuple[str, ...] = ()
    shape: tuple[int, int, int] | None = None
    size: str = ""
    kept: bool = False
    model: str = "bert"
    weights: str = ""


class System(NamedTuple):
    """A row of a table.

    Attributes:
      name: Name as shown.
      pretraining: Pre-training that it starts from.
      paper: Row of the paper's table. Empty means that the paper has none.
      fields: Fields of the fine-tuning config.
      share: Percent of the pre-training steps that it starts from.
      choice: Choice of experiments.paper.features, where the row is not fine-tuned.
      line: Line of a plot along `Table.axis` whose point it is. `at` is its position.
    """

    name: str
    pretraining: Pretraining
    paper: str = ""
    fields: tuple[str, ...] = ()
    share: int = 100
    choice: str = ""
    line: str = ""
    at: float = 0.0


class Column(NamedTuple):
    """A column: a task's score on a split. `key` is its name in `published`."""

    key: str
    task: str
    score: str
    split: str = "dev"

    @property
    def title(self) -> str:
        if self == AVERAGE:
            return "average"
        task = TASKS[self.task].title
        if self.split == "dev_mismatched":
            task = "MNLI-mm"
        score = "F1" if self.task == "features" else self.score
        return f"{task}, {_SCORES.get(score, score)}"

    @property
    def scale(self) -> float:
        """Factor that makes points of the score: SQuAD's are percentages already."""
        return 1.0 if self.task.startswith("squad") else 100.0


# The mean of several columns, which no task gives by itself.
AVERAGE = Column("average", "", "")


class Table(NamedTuple):
    """A table or figure of the paper. `columns` beyond `usual` run only on request.

    An added column has the mean of the columns in `averaged`. `axis` names the axis
    along which systems are points of lines, for a plot. Empty means that they are not.
    """

    name: str
    published: Published
    systems: tuple[System, ...]
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...]
    usual: tuple[str, ...] = ()
    note: str = ""
    averaged: tuple[str, ...] = ()
    axis: str = ""

    def tasks(self) -> list[str]:
        return list(dict.fromkeys(column.task for column in self.columns))
