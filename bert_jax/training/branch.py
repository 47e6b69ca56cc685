"""`train.branch_from`: a run that begins with another run's whole state.

Parameters, moments and counts are the other run's. Schedule, data, batches, lengths and
the optimizer's values are the new run's own. A branch that changes none of them
continues the other run to the bit.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_steps

# Besides those that weights decide: the shapes of the state, and the outputs' order.
_STATE = (
    *("task.name", "task.kind", "task.labels", "train.seeds", "init_layers"),
    *("optimizer.name", "optimizer.trainable", "optimizer.frozen", "model.lora_rank"),
    "model.scan_layers",
)


class Branch(NamedTuple):
    """The place in another run where a run begins.

    Attributes:
      folder: The other run's work directory.
      only: Step of its checkpoint. None means the newest.
    """

    folder: Path
    only: int | None

    def config(self) -> ConfigDict:
        """Returns the other run's config.

        Raises:
          UserError: There is no such run, or no such checkpoint.
        """
        steps = checkpoint_steps(self.folder)
        if not steps:
            raise UserError(
                f"config.train.branch_from={self.folder}: has no checkpoint; name a "
                "run, as RUN or RUN@STEP"
            )
        if self.only not in (None, *steps):
            raise UserError(
                f"config.train.branch_from={self.folder}@{self.only}: no such step; it "
                f"has {', '.join(map(str, steps))}"
            )
        return workdir.recorded_config(self.folder)

    def restore(self, abstract: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Returns the checkpoint's trees and its step. `Checkpoints.restore` has the
        argument.

        Raises:
          UserError: There is no such checkpoint, or it cannot be read.
        """
        with Checkpoints(self.folder, None, only=self.only) as checkpoints:
            saved = checkpoints.restore(abstract)
        assert saved is not None  # `config` has seen a checkpoint
        return saved


def find_branch(config: ConfigDict) -> Branch | None:
    """Returns the place that `train.branch_from` names, or None if it is empty."""
    name = config.train.branch_from
    if not name:
        return None
    folder, at, step = name.rpartition("@")
    if not (at and re.fullmatch("[0-9]+", step)):
        folder, step = name, ""
    storage.check_path("--config.train.branch_from", folder)
    path, number = storage.split_checkpoint_path(
        storage.absolute_path(storage.storage_path(folder)), "checkpoints"
    )
    return Branch(path, int(step) if step else number)


def check_branch(config: ConfigDict, branch: Branch) -> None:
    """Raises UserError if the state of the other run does not fit a config, all of
    whose values are filled in, or if no step is left."""
    other = branch.config()
    there, here = (dict(fields.iter_fields(x)) for x in (other, config))
    # A running mean has any decay.
    for values in (there, here):
        values["optimizer.ema"] = bool(values["optimizer.ema"])
    known = fields.fields_of(config)
    shapes = [name for name in known if known[name].from_weights]
    for name in (*_STATE, "optimizer.ema", *shapes):
        if there.get(name) != here.get(name):
            raise UserError(
                f"config.{name}={here.get(name)!r}: the state of {branch.folder}, from "
                f"which config.train.branch_from continues, has {there.get(name)!r}; "
                "set the same value, or start from its weights: --config.init_from="
                f"{branch.folder}"
            )
    step = branch.only or max(checkpoint_steps(branch.folder))
    if config.train.branch_step == "continue" and step >= config.train.num_steps:
        raise UserError(
            f"config.train.num_steps={config.train.num_steps}: "
            f"config.train.branch_from continues at step {step}; set it higher, or "
            "config.train.branch_step=zero"
        )
