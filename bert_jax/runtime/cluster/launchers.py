"""How the processes of a run find each other: from environment variables.

On Cloud TPU slices, under Slurm (`srun`, a task for each GPU) and under Open MPI, JAX
finds them. Elsewhere set for each process:

- `BERT_JAX_COORDINATOR=HOST:PORT`: where process 0 listens;
- `BERT_JAX_PROCESSES`: their number; 1, set alone, runs one process by itself anywhere;
- `BERT_JAX_PROCESS_ID`: 0, 1, ...;
- `BERT_JAX_HEARTBEAT`: seconds without one of JAX's heartbeats after which a process
  counts as dead (default 40).
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError

# The launchers that are detected: the variable with the number of processes, and the
# other variables that JAX recognizes the launcher by (jax/_src/clusters).
_LAUNCHERS = {
    "SLURM_NTASKS": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID"),
    "OMPI_COMM_WORLD_SIZE": ("OMPI_COMM_WORLD_RANK",),
}


def arguments(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Arguments of `jax.distributed.initialize`; None for a single process."""
    names = ("COORDINATOR", "PROCESSES", "PROCESS_ID")
    named = [n for n in names if environment.get(f"BERT_JAX_{n}")]
    if named:
        number = _number(environment, "BERT_JAX_PROCESSES", default=2, least=1)
        if number == 1:
            return None
        if len(named) < 3:
            (missing, *_) = (n for n in names if n not in named)
            raise UserError(
                f"BERT_JAX_{named[0]} is set and BERT_JAX_{missing} is not: several "
                "processes need BERT_JAX_COORDINATOR=HOST:PORT, BERT_JAX_PROCESSES and "
                "BERT_JAX_PROCESS_ID"
            )
        index = _number(environment, "BERT_JAX_PROCESS_ID", default=0, least=0)
        address = environment["BERT_JAX_COORDINATOR"]
        if index >= number or not address.rpartition(":")[2].isdecimal():
            raise UserError(
                f"BERT_JAX_COORDINATOR={address} BERT_JAX_PROCESSES={number} "
                f"BERT_JAX_PROCESS_ID={index}: required are HOST:PORT and an id below "
                "the number of processes"
            )
        return {
            "coordinator_address": address,
            "num_processes": number,
            "process_id": index,
            "cluster_detection_method": "deactivate",
        }
    for size, others in _LAUNCHERS.items():
        if all(name in environment for name in (size, *others)):
            return {} if int(environment[size]) > 1 else None
    if (environment.get("JAX_PLATFORMS") or "tpu").startswith("tpu"):
        from jax._src import cloud_tpu_init

        if cloud_tpu_init.running_in_cloud_tpu_vm:
            return {}
    return None


def heartbeat(environment: Mapping[str, str]) -> int:
    """Seconds without a heartbeat after which a process counts as dead."""
    return _number(environment, "BERT_JAX_HEARTBEAT", default=40, least=5)


def _number(environment: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environment.get(name) or str(default)
    # isdigit() is true of "²", which int() refuses, as it does thousands of digits.
    if not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise UserError(
            f"{name}={text}: a whole number of at least {least} is required"
        )
    return int(text)
