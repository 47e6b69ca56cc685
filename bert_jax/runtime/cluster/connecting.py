"""Connects the processes of a run; a single process does not load it."""

import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

import jax
from jax._src import distributed

from bert_jax.errors import UserError
from bert_jax.runtime import signals
from bert_jax.runtime.cluster import launchers


def connect(arguments: Mapping[str, Any]) -> Any:
    """JAX's state of the processes, once all have connected.

    Args:
      arguments: of `jax.distributed.initialize`.

    Raises:
      UserError: the others did not connect in five minutes.
      Interrupted: a signal arrived first.
    """
    # The loop announces a signal itself, instead of JAX's own handler of SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Two programs in flight may run in a different order in each process and deadlock;
    # on the CPU nothing else keeps them in order.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _keep_standard_output()
    initialize = functools.partial(
        jax.distributed.initialize,
        **arguments,
        heartbeat_timeout_seconds=launchers.heartbeat(os.environ),
    )
    try:
        with signals.deferred(signals.Stop()) as alone:
            signals.run_interruptibly(initialize, alone)
    except (RuntimeError, ValueError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UserError(
            f"this process could not connect to the run's other processes: {line}; "
            "BERT_JAX_PROCESSES=1 runs it alone"
        ) from error
    return distributed.global_state


def _keep_standard_output() -> None:
    """Sends Gloo's messages about connections to /dev/null, not to our stdout."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
