"""A profile of some training steps, which XProf and TensorBoard show."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.runtime.storage import Path

log = logging.getLogger(__name__)


class Profile(contextlib.ExitStack):
    """A recording of what the devices and the host do, in `profile` of a folder.

    A run that resumes among its steps records the rest of them. One that ends before
    the last of them writes what there is.
    """

    def __init__(self, steps: Sequence[int], resume_step: int, folder: Path):
        """Takes `config.train.profile_steps`, which may be empty."""
        super().__init__()
        first, self._last = steps or (0, 0)
        self._first, self._folder = max(first, resume_step), folder / "profile"

    def before_step(self, step: int) -> None:
        """Begins, if this is the first step to record."""
        if step == self._first < self._last:
            said = "profile: pip install xprof; xprof --logdir=%s"
            self.callback(log.info, said, self._folder)
            self.enter_context(jax.profiler.trace(self._folder))

    def after_step(self, steps: int, outputs: Any) -> None:
        """Writes the profile, if these were the steps. Waits for the last outputs."""
        if steps == self._last:
            jax.block_until_ready(outputs)
            self.close()
