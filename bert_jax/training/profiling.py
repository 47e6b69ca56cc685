"""A profile of some training steps, which XProf and TensorBoard show."""

import logging
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.runtime.storage import Path

log = logging.getLogger(__name__)


class Profile:
    """A recording of what the devices and the host do, in `profile` of a folder.

    A run that resumes among its steps records the rest of them. One that ends before
    the last of them writes what there is.
    """

    def __init__(self, steps: Sequence[int], folder: Path):
        """Takes `config.train.profile_steps`, which may be empty."""
        self._first, self._last = steps or (0, 0)
        self._folder, self._active = folder / "profile", False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._active:
            self._stop()

    def before_step(self, step: int) -> None:
        """Begins, if this is the first step to record."""
        if not self._active and self._first <= step < self._last:
            jax.profiler.start_trace(str(self._folder))
            self._active = True

    def after_step(self, steps: int, outputs: Any) -> None:
        """Writes the profile, if these were the steps. Waits for the last outputs."""
        if self._active and steps == self._last:
            jax.block_until_ready(outputs)
            self._stop()

    def _stop(self) -> None:
        self._active = False
        jax.profiler.stop_trace()
        log.info("profile: pip install xprof; xprof --logdir=%s", self._folder)
