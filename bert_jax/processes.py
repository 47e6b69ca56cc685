"""Several processes as one run: they start, wait, stop and end together.

Process 0 keeps JAX's coordination service. Through it a few short words go from process
to process; nothing here touches the devices, and one process alone does none of it.

Cloud TPU slices, Slurm (`srun`, a task for each GPU) and Open MPI start processes that
find each other. Elsewhere each is told by environment variables:

- `BERT_JAX_COORDINATOR=HOST:PORT`: of process 0, which listens there;
- `BERT_JAX_PROCESSES`: how many there are; 1 alone makes a run of its own anywhere;
- `BERT_JAX_PROCESS_ID`: 0, 1, ...;
- `BERT_JAX_HEARTBEAT`: after so many seconds without a sign of life a process counts as
  dead (default 40).

Stopping at the same step. The loop passes the same points in every process: the ends of
steps, evaluation batches, compilations. A signal to any process is told to all. Each
then says which point is the next it can stop at, and holds its loop until all have
said so; all stop at the furthest of these. So no process is left alone in a collective,
all save the same step, and a step costs nothing more than counting it.
"""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from bert_jax import signals
from bert_jax.errors import Interrupted, UserError

_BEAT = 2.0  # seconds between two signs of life
_START = 300  # seconds in which all processes must have come

# Variables by which JAX knows the launchers that are taken without being asked
# (jax/_src/clusters), and where each says how many processes there are.
_LAUNCHERS = {
    "SLURM_NTASKS": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID"),
    "OMPI_COMM_WORLD_SIZE": ("OMPI_COMM_WORLD_RANK",),
}


def start() -> None:
    """Joins the other processes, if there are to be any; before JAX's first device.

    Raises:
      UserError: variables that do not fit each other; the others have not come.
    """
    global _group
    arguments = _arguments(os.environ)
    if arguments is None:
        return
    import jax
    from jax._src import distributed

    patience = _number(os.environ, "BERT_JAX_HEARTBEAT", default=40, least=5)
    # A signal is told by the loop itself, not by JAX's own handler of SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _keep_standard_output()
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=_START,
            # Only where this file's own sign of life has not been noticed to stop.
            heartbeat_timeout_seconds=patience + 20,
            shutdown_timeout_seconds=patience,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"the run's processes have not come together: {_first_line(error)}; "
            "BERT_JAX_PROCESSES=1 runs this one alone"
        ) from error
    state = distributed.global_state
    if state.num_processes > 1:
        _group = _Group(state.client, state.process_id, state.num_processes, patience)


def count() -> int:
    """How many processes make this run."""
    return _group.count if _group else 1


def is_first() -> bool:
    """Whether this process writes what one alone writes."""
    return _group is None or _group.index == 0


def barrier() -> None:
    """Waits until every process is here."""
    if _group:
        _group.barrier()


@contextlib.contextmanager
def first_alone() -> Iterator[None]:
    """Process 0 goes through the block before the others do."""
    if not is_first():
        barrier()
    yield
    if is_first():
        barrier()


def stop() -> signals.Stop:
    """To remember a signal in; of several processes, all stop at the same point."""
    return _group.stop if _group else signals.Stop()


def close() -> None:
    """Leaves together with the others; afterwards this process may end."""
    global _group
    if _group:
        _group.close()
        _group = None


def fail(status: int, text: str) -> None:
    """Tells the others that this process ends, so that they do; it ends next."""
    if _group:
        _group.fail(status, text)


def interrupted(signal_number: int) -> None:
    """Leaves after a signal: with the others where all stopped at the same point."""
    if _group and _group.stop.is_agreed:
        close()
    else:
        fail(128 + signal_number, f"signal {signal_number}")


def hear() -> None:
    """Gives another process the time to say why it ended; then this one ends too."""
    if _group:
        time.sleep(_BEAT + 1)


def is_loss(error: BaseException) -> bool:
    """Whether a device's error means that another process has gone."""
    signs = ("Gloo", "NCCL", "Connection closed by peer", "coordination service")
    return _group is not None and any(sign in str(error) for sign in signs)


def _arguments(environment: Any) -> dict[str, Any] | None:
    """What JAX must be told to bring the processes together; None for one alone."""
    names = ("COORDINATOR", "PROCESSES", "PROCESS_ID")
    given = [n for n in names if environment.get(f"BERT_JAX_{n}")]
    if given:
        number = _number(environment, "BERT_JAX_PROCESSES", default=2, least=1)
        if number == 1:
            return None
        if len(given) < 3:
            (missing, *_) = (n for n in names if n not in given)
            raise UserError(
                f"BERT_JAX_{given[0]} is set and BERT_JAX_{missing} is not: several "
                "processes need BERT_JAX_COORDINATOR=HOST:PORT, BERT_JAX_PROCESSES and "
                "BERT_JAX_PROCESS_ID"
            )
        index = _number(environment, "BERT_JAX_PROCESS_ID", default=0, least=0)
        address = environment["BERT_JAX_COORDINATOR"]
        if index >= number or not address.rpartition(":")[2].isdigit():
            raise UserError(
                f"BERT_JAX_COORDINATOR={address} BERT_JAX_PROCESSES={number} "
                f"BERT_JAX_PROCESS_ID={index}: HOST:PORT, and an id below the number"
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
    if environment.get("JAX_PLATFORMS", "tpu").startswith("tpu"):
        from jax._src import cloud_tpu_init

        if cloud_tpu_init.running_in_cloud_tpu_vm:
            return {}
    return None


def _keep_standard_output() -> None:
    """Keeps Gloo from printing who is connected among what this program prints."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def _number(environment: Any, name: str, default: int, least: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdigit() or int(text) < least:
        raise UserError(f"{name}={text}: a whole number of at least {least} is wanted")
    return int(text)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]


class _Group:
    """This process among the others.

    Words stand under word/0, word/1, ... of the coordination service, each written
    once: `stop NUMBER`, a signal; `end STATUS TEXT`, a failure; `bye`.
    """

    def __init__(self, client: Any, index: int, count: int, patience: int):
        self.index, self.count = index, count
        self.stop = _Stop(self)
        self._client, self._patience = client, patience
        self._waits = itertools.count()
        self._end = threading.Lock()  # held by whoever ends this process
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def barrier(self) -> None:
        wait = next(self._waits)
        if self._client.key_value_increment(f"at/{wait}", 1) == self.count:
            self._client.key_value_set(f"go/{wait}", "go")
        while self.get(f"go/{wait}", 1.0) is None:
            pass  # in short spells, so that a signal is noticed between them

    def get(self, key: str, seconds: float) -> str | None:
        """What stands there, as soon as it does; None where it takes too long."""
        try:
            return self._client.blocking_key_value_get(key, int(1000 * seconds))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def set(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value)

    def tell(self, word: str) -> None:
        """Says a word to all, after those said before."""
        for place in itertools.count():
            try:
                self._client.key_value_set(f"word/{place}", word)
                return
            except RuntimeError as error:
                if "ALREADY_EXISTS" not in str(error):
                    raise

    def close(self) -> None:
        self.barrier()
        if self.index == 0:
            self.tell("bye")
        self._listener.join()
        import jax

        jax.distributed.shutdown()

    def fail(self, status: int, text: str) -> None:
        self._end.acquire()  # and never released
        with contextlib.suppress(RuntimeError):
            self.tell(f"end {status} process {self.index}: {' '.join(text.split())}")
        self._let_them_hear()

    def _listen(self) -> None:
        heard = _Heard(self.count)
        words, beat = itertools.count(), itertools.count()
        place = next(words)
        try:
            while True:
                self._client.key_value_set(
                    f"alive/{self.index}", str(next(beat)), allow_overwrite=True
                )
                if self.index == 0:
                    entries = self._client.key_value_dir_get("alive/")
                    silent = heard.silent(dict(entries), self._patience)
                    if silent:
                        self.tell(
                            f"end 1 process {silent[0]} has given no sign of life for "
                            f"{self._patience} s"
                        )
                word = self.get(f"word/{place}", _BEAT)
                if word is None:
                    continue
                place = next(words)
                match word.split(maxsplit=2):
                    case ["stop", number]:
                        self.stop.agree(int(number), self._patience)
                    case ["end", status, text]:
                        self._exit(int(status), text)
                    case _:
                        return
        except RuntimeError:
            self._exit(1, "process 0 has ended, and the run with it")

    def _exit(self, status: int, text: str) -> NoReturn:
        """Ends this process from the listening thread."""
        self._end.acquire()
        os.write(2, f"error: {text}{_ADVICE}\n".encode())
        self._let_them_hear()
        os._exit(status)

    def _let_them_hear(self) -> None:
        """Process 0 stays until the others have heard: its service goes with it."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.index == 0:
            time.sleep(1.0)


_ADVICE = "; every process ends, and the same command goes on from the last checkpoint"


class _Heard:
    """When each process was last heard."""

    def __init__(self, count: int):
        now = time.monotonic()
        self._last = {str(index): ("", now) for index in range(count)}

    def silent(self, entries: dict[str, str], patience: float) -> list[str]:
        """The processes whose sign of life has been the same for too long."""
        now = time.monotonic()
        for key, beat in entries.items():
            index = key.rpartition("/")[2]
            if self._last[index][0] != beat:
                self._last[index] = (beat, now)
        return [i for i, (_, when) in self._last.items() if now - when > patience]


class _Stop(signals.Stop):
    """A signal that all processes act on at the same point; see above."""

    def __init__(self, group: "_Group"):
        super().__init__()
        self._group = group
        self._lock = threading.Lock()
        self._point = 0  # how many the loop has come to
        self._stays = False  # it is still at the last of them
        self._last: int | None = None  # the point to stop at
        self._agreed = 0  # the signal
        self._told = False

    @property
    def is_agreed(self) -> bool:
        """Whether the processes know where to stop."""
        return self._last is not None

    def check(self) -> None:
        """A point of the loop; raises Interrupted where all processes stop."""
        self._tell()
        with self._lock:
            self._point += 1
            self._raise_if_last()

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """A point that lasts as long as the block; gives what to call in it."""
        with self._lock:
            self._point += 1
            self._stays = True
            self._raise_if_last()

        def check() -> None:
            self._tell()
            with self._lock:
                self._raise_if_last()

        yield check
        with self._lock:
            self._stays = False
            self._raise_if_last()

    def agree(self, signal_number: int, patience: float) -> None:
        """Finds the point to stop at, together with the other processes."""
        with self._lock:
            if self._last is not None:
                return
            mine = self._point if self._stays else self._point + 1
            self._group.set(f"stop/{self._group.index}", str(mine))
            points = [
                self._group.get(f"stop/{index}", patience)
                for index in range(self._group.count)
            ]
            if None in points:
                raise RuntimeError("a process does not answer")
            self._agreed = signal_number
            self._last = max(int(point) for point in points if point)

    def _tell(self) -> None:
        if self.signal_number is not None and not self._told:
            self._told = True
            self._group.tell(f"stop {self.signal_number}")

    def _raise_if_last(self) -> None:
        if self._last is not None and self._point >= self._last:
            raise Interrupted(self._agreed)


_group: _Group | None = None
