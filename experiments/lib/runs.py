"""A run of a plan: its command, and what it leaves.

`result.json` in a run's folder says that it has ended well; `NAME.failed.json` beside
the folder has the error of one that has not, `NAME.log` what it printed, and
`NAME.budget.json` the steps that read the words it is to read.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.workdir import metrics
from experiments.lib import kept

_CONFIG = {"train": {"num_steps": int, "early_stop": int, "seeds": int}}


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

    @property
    def again(self) -> str:
        """What to do where a file that it has left is damaged."""
        if not self.arguments:  # somebody's weights
            return "restore it"
        return f"delete {self.folder}, and the same command trains it again"

    def config(self, kind: Mapping) -> dict[str, Any]:
        """Its config.json; raises UserError unless it is of a kind of `kept`'s."""
        return kept.read(self.folder / "config.json", kind, self.again)

    def log(
        self, split: str = "dev", needs: Collection[str] = (), *, may_lack: bool = False
    ) -> dict[int, list[dict[str, float]]]:
        """The lines of a split by seed, in order, of a run that has ended.

        Args:
          needs: scores that every line has.
          may_lack: there may be no line: no data of the split.

        Raises:
          UserError: a seed's folder is missing; a file is missing, cut or damaged.
        """
        train, folders, found = self.config(_CONFIG)["train"], self.seeds(), {}
        if len(folders) != train["seeds"]:
            count = f"has {len(folders)} of {train['seeds']} seeds"
            raise UserError(f"{self.folder}: damaged: {count}; {self.again}")
        end = train["num_steps"]
        if train["early_stop"]:  # the heartbeat has the step at which it stopped
            beat = self.folder / "heartbeat.json"
            end = kept.read(beat, {"step": int}, self.again)["step"]
        for seed, folder in folders.items():
            require_whole(folder, end, self.again)
            lines = found[seed] = metrics.read(folder, split)
            if not (lines or may_lack) or any(set(needs) - x.keys() for x in lines):
                raise UserError(
                    f"{folder / 'metrics.jsonl'}: damaged: it has no "
                    f"{' and '.join(needs)} on {split}; {self.again}"
                )
        return found


def require_whole(folder: Path, end: int, hint: str) -> None:
    """Raises UserError unless metrics.jsonl has dev's line of a run's last step, which
    is written after those of training and of other dev splits; and where a line is
    damaged, which `metrics.read` leaves out, as a kill may have cut a run's last."""
    path, dev = folder / "metrics.jsonl", metrics.read(folder, "dev")
    text = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(text.splitlines(), 1):
        untrusted.parse(line, f"{path}:{number}", f"; {hint}")
    if not dev or dev[-1]["step"] < end:
        raise UserError(
            f"{path}: {'cut' if text else 'missing or empty'}: it has no line on dev "
            f"of step {end:,}, the run's last; {hint}"
        )


def digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
