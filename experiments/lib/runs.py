"""A run of a plan: its command, and what it leaves.

`result.json` in a run's folder says that it has ended well; `NAME.failed.json` beside
the folder has the error of one that has not, `NAME.log` what it printed, and
`NAME.budget.json` the steps that read the words it is to read.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A process to run.

    Attributes:
      kind: "pre-training" or the task.
      folder: its work directory.
      arguments: of its program, but for the folder.
      model: its size; runs of one kind and model take about equally long.
      needs: the folders of the runs that it starts from.
      words: that it is to read; its steps follow from the data. 0: those of its config.
      program: what is run; empty: bert_jax.main.
      file: that it writes, in its folder; empty: the folder.
    """

    kind: str
    folder: Path
    arguments: tuple[str, ...]
    model: str
    needs: tuple[Path, ...] = ()
    words: int = 0
    program: tuple[str, ...] = ()
    file: str = ""

    @property
    def budget(self) -> Path:
        """What `experiments.paper.budget` writes."""
        return self.beside(".budget.json")

    @property
    def result(self) -> Path:
        """Its command, time and devices; written at its end."""
        return self.folder / "result.json"

    @property
    def is_done(self) -> bool:
        return self.result.exists()

    def seeds(self) -> dict[int, Path]:
        """The work directory of each seed; of a run of one its own, as seed 0 unless
        it is named after another."""
        folders = sorted(self.folder.glob("seed_*"), key=lambda x: int(x.name[5:]))
        if not folders and not self.folder.name.startswith("seed_"):
            return {0: self.folder}
        return {int(x.name[5:]): x for x in folders or [self.folder]}

    def beside(self, end: str) -> Path:
        return self.folder.with_name(self.folder.name + end)


def digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
