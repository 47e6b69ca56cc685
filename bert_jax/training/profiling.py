"""A profile of some training steps, which XProf and TensorBoard show."""

import logging
from typing import Any

import jax

from bert_jax.runtime.storage import Path

log = logging.getLogger(__name__)


def start_profile(folder: Path) -> None:
    """Begins to record what the devices and the host do, for `folder`/profile."""
    jax.profiler.start_trace(str(folder / "profile"))


def stop_profile(folder: Path, outputs: Any) -> None:
    """Waits for the last step's outputs, and writes the profile."""
    jax.block_until_ready(outputs)
    jax.profiler.stop_trace()
    log.info("profile: pip install xprof; xprof --logdir=%s", folder / "profile")
