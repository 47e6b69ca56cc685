"""Several processes as one run: they start, wait and end together.

JAX finds them on Cloud TPU slices, under Slurm (`srun`, a task for each GPU) and under
Open MPI. Elsewhere set for each process:

- `BERT_JAX_COORDINATOR=HOST:PORT`: where process 0 listens;
- `BERT_JAX_PROCESSES`: their number; 1, set alone, runs one process by itself anywhere;
- `BERT_JAX_PROCESS_ID`: 0, 1, ...;
- `BERT_JAX_HEARTBEAT`: seconds without one of JAX's heartbeats after which a process
  counts as dead (default 40). JAX then ends the others.

A single process skips all of it.
"""

import contextlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.errors import UserError, first_line

# Timeout of a wait, milliseconds: years, since process 0 may prepare data for days. If
# a process dies, JAX ends those that wait for it.
_EVER = 10 * 365 * 24 * 3600 * 1000
_PARTING = 5.0  # seconds that a failed process waits for the others to disconnect

_count, _index = 1, 0
_names = itertools.count()
_points = itertools.count()


def start(trains: bool) -> None:
    """Connects to the other processes, if any; call it before JAX finds its devices.

    Args:
      trains: SIGTERM sets the flag that `reached_stop` reads; else it ends a process.

    Raises:
      UserError: inconsistent variables; the others did not connect in five minutes.
    """
    global _count, _index
    arguments = _arguments()
    if arguments is None:
        return
    import jax

    jax.config.update("jax_enable_preemption_service", trains)
    # Two programs in flight may run in a different order in each process and deadlock;
    # on the CPU nothing else keeps them in order.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _keep_standard_output()
    try:
        jax.distributed.initialize(
            **arguments,
            heartbeat_timeout_seconds=int(os.environ.get("BERT_JAX_HEARTBEAT", "40")),
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            "this process could not connect to the run's other processes: "
            f"{first_line(error)}; BERT_JAX_PROCESSES=1 runs it alone"
        ) from error
    from jax._src import distributed

    _count = distributed.global_state.num_processes
    _index = distributed.global_state.process_id


def _arguments() -> dict[str, Any] | None:
    """Arguments of `jax.distributed.initialize`; None for a single process."""
    given = os.environ
    if given.get("BERT_JAX_PROCESSES") == "1":
        return None
    if "BERT_JAX_COORDINATOR" in given or "BERT_JAX_PROCESSES" in given:
        try:
            return {
                "coordinator_address": given["BERT_JAX_COORDINATOR"],
                "num_processes": int(given["BERT_JAX_PROCESSES"]),
                "process_id": int(given["BERT_JAX_PROCESS_ID"]),
                "cluster_detection_method": "deactivate",
            }
        except (KeyError, ValueError) as error:
            raise UserError(
                f"several processes need BERT_JAX_COORDINATOR=HOST:PORT, "
                f"BERT_JAX_PROCESSES and BERT_JAX_PROCESS_ID: {error}"
            ) from error
    by_slurm = "SLURM_STEP_NODELIST" in given and given.get("SLURM_NTASKS", "1") != "1"
    if by_slurm or given.get("OMPI_COMM_WORLD_SIZE", "1") != "1":
        return {}
    if (given.get("JAX_PLATFORMS") or "tpu").startswith("tpu"):
        from jax._src import cloud_tpu_init

        return {} if cloud_tpu_init.running_in_cloud_tpu_vm else None
    return None


def _keep_standard_output() -> None:
    """Sends Gloo's messages about connections to /dev/null, not to our stdout."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def count() -> int:
    """The number of processes in this run."""
    return _count


def is_first() -> bool:
    """Whether this is process 0, which writes the files that only one may write."""
    return _index == 0


def _client() -> Any:
    from jax._src import distributed

    return distributed.global_state.client


def barrier() -> None:
    """Waits until every process has called it."""
    if _count > 1:
        _client().wait_at_barrier(f"barrier/{next(_names)}", _EVER)


def all_true(value: bool) -> bool:
    """Whether `value` is true in every process; all must call it."""
    if _count == 1:
        return value
    import numpy as np
    from jax.experimental import multihost_utils

    return bool(np.all(multihost_utils.process_allgather(np.array(value))))


def of_first(value: Any) -> Any:
    """Returns process 0's value, JSON, in every process; all must call it."""
    if _count == 1:
        return value
    key = f"first/{next(_names)}"
    if _index == 0:
        _client().key_value_set(key, json.dumps(value))
    return json.loads(_client().blocking_key_value_get(key, _EVER))


def check_same(what: str, facts: Mapping[str, Any]) -> None:
    """Raises UserError if process 0's facts differ from this one's; all must call it.

    Processes that continued with different facts would deadlock.
    """
    if _count == 1:
        return
    here, there = json.loads(json.dumps(facts)), of_first(facts)
    differ = sorted(n for n in here.keys() | there if here.get(n) != there.get(n))
    if differ:
        listed = ", ".join(
            f"{n} ({there.get(n)!r} there, {here.get(n)!r} here)" for n in differ
        )
        raise UserError(f"{what} of process 0 and of {_index} differ: {listed}")


@contextlib.contextmanager
def first_alone() -> Iterator[None]:
    """Process 0 runs the block first, then the others do."""
    if not is_first():
        barrier()
    yield
    if is_first():
        barrier()


def reached_stop() -> bool:
    """Whether a process was sent SIGTERM and all stop here; all must call it as often.

    JAX picks the point: the first one that no process has passed.
    """
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(next(_points))


def close() -> None:
    """Disconnects together with the others; afterwards this process may exit."""
    barrier()
    _shut_down()


def leave() -> None:
    """Disconnects, if `close` has not; waits briefly for the others."""
    if _count > 1:
        thread = threading.Thread(target=_shut_down, daemon=True)
        thread.start()
        thread.join(_PARTING)


def _shut_down() -> None:
    global _count, _index
    if _count > 1:
        import jax

        with contextlib.suppress(RuntimeError):
            jax.distributed.shutdown()
        _count, _index = 1, 0
