"""bert_jax.main, and a record of which training rows this process was given when.

    python -m experiments.sameness.recorded_run FOLDER STEP -- ARGUMENTS

FOLDER gets `<process>-<pid>.jsonl`, a line for each batch: `step`, `places` (positions
of the rows in the global batch) and `rows` (a hash of each one's content, without its
masks). With STEP, the last process sends itself SIGTERM once it has that step's batch
(-1 means never).
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax._src import distributed as jax_distributed

from bert_jax import main
from bert_jax.runtime import processes
from bert_jax.training import seeds

# Here each process says at which call it was when it learned of a signal.
COUNTERS = "PREEMPTION_CURRENT_COUNTER/"


def record(folder: Path, stop: int) -> None:
    """Records every later run in this process."""
    batches = seeds.Seeds.batches

    def recorded(self: Any, task: Any, step: int, rows: Any) -> Iterator[Any]:
        index = int(os.environ.get("BERT_JAX_PROCESS_ID", 0))
        places = np.arange(task.config.train.batch_size)[rows].tolist()
        with (folder / f"{index}-{os.getpid()}.jsonl").open("w") as file:
            for now, batch in enumerate(batches(self, task, step, rows), start=step):
                line = {"step": now, "places": places, "rows": identities(batch)}
                file.write(json.dumps(line) + "\n")
                file.flush()
                if now == stop and index == processes.process_count() - 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                    await_agreement(processes.process_count())
                yield batch

    seeds.Seeds.batches = recorded  # type: ignore[method-assign]  # on purpose


def await_agreement(processes: int) -> None:
    """Waits until JAX's processes have agreed where to stop.

    JAX looks for a signal once a second, and short runs would end before that.
    """
    client = jax_distributed.global_state.client
    while client and len(client.key_value_dir_get(COUNTERS)) < processes:
        time.sleep(0.01)


def identities(batch: Mapping[str, np.ndarray]) -> list[str]:
    """Returns an identity of each row of a batch: its tokens before masking."""
    ids = batch["input_ids"].copy()
    if "masked_lm_ids" in batch:
        at = np.nonzero(batch["masked_lm_weights"])
        ids[at[0], batch["masked_lm_positions"][at]] = batch["masked_lm_ids"][at]
    lengths = batch["input_mask"].sum(axis=-1)
    return [
        hashlib.sha256(row[:length].tobytes()).hexdigest()[:16]
        for row, length in zip(ids, lengths, strict=True)
    ]


def run(argv: Sequence[str]) -> int:
    """Runs the program and returns the exit status."""
    if argv[2:3] != ["--"]:  # started by a person, not by equal_runs
        sys.exit(__doc__)
    record(Path(argv[0]), int(argv[1]))
    return main.main(argv[3:])


if __name__ == "__main__":
    status = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
