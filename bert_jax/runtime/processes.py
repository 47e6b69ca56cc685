"""Several processes as one run: they start, wait and end together.

JAX finds them on Cloud TPU slices, under Slurm (`srun`, a task for each GPU) and under
Open MPI. Elsewhere set for each process BERT_JAX_COORDINATOR=HOST:PORT, where process 0
listens, BERT_JAX_PROCESSES, their number, and BERT_JAX_PROCESS_ID.
BERT_JAX_PROCESSES=1 alone runs one process by itself anywhere. If a process sends none
of JAX's heartbeats for BERT_JAX_HEARTBEAT seconds (40), JAX ends the others.
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

_count, _index = 1, 0
_names = itertools.count()


def connect(trains: bool) -> None:
    """Connects to the other processes, if any, before JAX finds its devices.

    If this run `trains`, SIGTERM then only sets the flag that
    `signals.raise_if_interrupted` reads. Raises UserError if the others do not connect
    in five minutes.
    """
    global _count, _index
    arguments = _arguments()
    if arguments is None:
        return
    import jax
    from jax._src import distributed

    jax.config.update("jax_enable_preemption_service", trains)
    # Two programs in flight may run in a different order in each process and deadlock.
    # On the CPU nothing else keeps them in order.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        # Sends Gloo's messages about connections to /dev/null, not to our stdout.
        sys.stdout.flush()
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    beat = int(os.environ.get("BERT_JAX_HEARTBEAT", "40"))
    try:
        jax.distributed.initialize(**arguments, heartbeat_timeout_seconds=beat)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            "this process could not connect to the run's other processes: "
            f"{first_line(error)}; BERT_JAX_PROCESSES=1 runs it alone"
        ) from error
    state = distributed.global_state
    _count, _index = state.num_processes, state.process_id


def _arguments() -> dict[str, Any] | None:
    """Returns arguments of `jax.distributed.initialize`, None for a single process."""
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
                "several processes need BERT_JAX_COORDINATOR=HOST:PORT, "
                f"BERT_JAX_PROCESSES and BERT_JAX_PROCESS_ID: {error}"
            ) from error
    by_slurm = "SLURM_STEP_NODELIST" in given and given.get("SLURM_NTASKS", "1") != "1"
    if by_slurm or given.get("OMPI_COMM_WORLD_SIZE", "1") != "1":
        return {}
    if (given.get("JAX_PLATFORMS") or "tpu").startswith("tpu"):
        from jax._src import cloud_tpu_init

        return {} if cloud_tpu_init.running_in_cloud_tpu_vm else None
    return None


def process_count() -> int:
    """Returns the number of processes in this run."""
    return _count


def is_first() -> bool:
    """Returns whether this is process 0, which writes files that only one may write."""
    return _index == 0


def _client() -> Any:
    from jax._src import distributed

    return distributed.global_state.client


def barrier() -> None:
    """Waits until every process has called it."""
    if _count > 1:
        _client().wait_at_barrier(f"barrier/{next(_names)}", _EVER)


def broadcast_from_first(value: Any) -> Any:
    """Returns process 0's value, JSON, in every process. All must call it."""
    if _count == 1:
        return value
    key = f"first/{next(_names)}"
    if _index == 0:
        _client().key_value_set(key, json.dumps(value))
    return json.loads(_client().blocking_key_value_get(key, _EVER))


def all_true(value: bool) -> bool:
    """Returns whether `value` is true in every process. All must call it."""
    if _count == 1:
        return value
    from jax.experimental import multihost_utils

    return bool(multihost_utils.process_allgather(value).all())


def check_same(what: str, facts: Mapping[str, Any]) -> None:
    """Raises UserError if process 0's facts differ from this one's. All must call it.

    Processes that continued with different facts would deadlock.
    """
    here = json.loads(json.dumps(facts))
    there = broadcast_from_first(here)
    differ = [n for n in sorted(here.keys() | there) if here.get(n) != there.get(n)]
    if differ:
        names = ", ".join(differ)
        raise UserError(f"{what} of process 0 and of {_index} differ: {names}")


@contextlib.contextmanager
def wait_for_first() -> Iterator[None]:
    """Runs the block in process 0 first, then in the others."""
    if not is_first():
        barrier()
    yield
    if is_first():
        barrier()


def disconnect(seconds: float | None = None) -> None:
    """Disconnects once all have called it. After an error waits at most `seconds`."""
    global _count, _index
    if _count > 1:
        import jax

        if seconds is None:
            barrier()
        thread = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        thread.start()
        thread.join(seconds)
        _count, _index = 1, 0
