"""Several processes as one run: they start, wait, stop and end together.

All of it rests on JAX's coordination service, which process 0 keeps; nothing here
touches the devices, and one process alone does none of it. JAX ends every process where
one has died; what a process that fails has to say is told to all.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import agreement, launchers, signals

_PARTING = 5.0  # seconds in which processes that fail leave together
_HINT = "every process ends, and the same command goes on from the last checkpoint"


@dataclasses.dataclass(frozen=True)
class _Group:
    """This process among the others."""

    client: Any  # of JAX's service
    index: int
    count: int
    stop: agreement.Stop
    names: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    threads: list[threading.Thread] = dataclasses.field(default_factory=list)


_group: _Group | None = None
_end = threading.Lock()  # held by the thread that ends this process after a failure


def start() -> None:
    """Joins the other processes, if there are to be any; before JAX's first device.

    Raises:
      UserError: variables that do not fit; the others have not come in five minutes.
      Interrupted: a signal came before they did.
    """
    global _group
    given = launchers.arguments(os.environ)
    if given is None:
        return
    import jax
    from jax._src import distributed

    # A signal is told by the loop itself, not by JAX's own handler of SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Two programs under way at once may meet in another order in each process, and
    # wait for each other for ever; on the CPU nothing else keeps their order.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _keep_standard_output()
    initialize = functools.partial(
        jax.distributed.initialize,
        **given,
        heartbeat_timeout_seconds=launchers.heartbeat(os.environ),
    )
    try:
        with signals.deferred(signals.Stop()) as alone:
            signals.run_interruptibly(initialize, alone)
    except (RuntimeError, ValueError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UserError(
            f"the run's processes have not come together: {line}; "
            "BERT_JAX_PROCESSES=1 runs this one alone"
        ) from error
    state = distributed.global_state
    if state.num_processes > 1:
        place = (state.client, state.process_id, state.num_processes)
        _group = _Group(*place, agreement.Stop(*place))
        for key, act in (("stop", _group.stop.agree), ("end", _exit)):
            heard = (state.client, key, act)
            thread = threading.Thread(target=_listen, args=heard, daemon=True)
            thread.start()
            _group.threads.append(thread)


def count() -> int:
    """How many processes make this run."""
    return _group.count if _group else 1


def is_first() -> bool:
    """Whether this process writes what one alone writes."""
    return _group is None or _group.index == 0


def barrier() -> None:
    """Waits until every process is here."""
    if _group:
        _wait(_group.client.wait_at_barrier, f"barrier/{next(_group.names)}")


def all_true(value: bool) -> bool:
    """Whether it is true in every process; all must ask."""
    if _group is None:
        return value
    question = f"no/{next(_group.names)}/"
    if not value:
        _group.client.key_value_set(f"{question}{_group.index}", "no")
    barrier()
    return not _group.client.key_value_dir_get(question)


def check_same(what: str, facts: Mapping[str, Any]) -> None:
    """Raises UserError where process 0 has other facts than this one; all must ask.

    Processes that went on with different ones would wait for each other for ever.
    """
    if _group is None:
        return
    question, said = f"first/{next(_group.names)}", json.dumps(facts)
    if _group.index == 0:
        _group.client.key_value_set(question, said)
    ours = json.loads(said)
    theirs = json.loads(_wait(_group.client.blocking_key_value_get, question))
    differ = sorted(n for n in ours.keys() | theirs if ours.get(n) != theirs.get(n))
    if differ:
        told = ", ".join(
            f"{n} ({theirs.get(n)!r} there, {ours.get(n)!r} here)" for n in differ
        )
        raise UserError(f"{what} of process 0 and of {_group.index} differ: {told}")


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
    barrier()
    with signals.deferred(signals.Stop()):  # from here all go, whatever comes
        group, _group = _group, None
        if group:
            _shut_down()
            for thread in group.threads:
                thread.join()  # its wait is cancelled


def fail(status: int, text: str) -> None:
    """Tells the others that this process ends, so that they do; `leave` comes next."""
    if _group:
        _end.acquire()  # and never released
        words = f"{status} process {_group.index}: {' '.join(text.split())}"
        agreement.tell(_group.client, "end", words)


def leave() -> None:
    """Leaves where `close` was not come to, with those of the others that still can."""
    if _group:
        thread = threading.Thread(target=_shut_down, daemon=True)
        thread.start()
        thread.join(_PARTING + (2.0 if is_first() else 0.0))  # whose service it is


def interrupted(signal_number: int) -> None:
    """Leaves after a signal: with the others where all stopped at the same point."""
    if _group and _group.stop.stops and not signals.insisted():
        for number in signals.SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the others are on their way too
        close()
    else:
        fail(128 + signal_number, f"signal {signal_number}")


def is_loss(error: BaseException) -> bool:
    """Whether a device's error means that another process has gone."""
    signs = ("Gloo", "NCCL", "Connection closed by peer", "CoordinationService")
    return _group is not None and any(sign in str(error) for sign in signs)


def _wait(wait: Callable[..., Any], name: str) -> Any:
    """Waits in a thread: in compiled code no signal would be noticed."""
    wait = functools.partial(wait, name, agreement.EVER)
    return signals.run_interruptibly(wait, signals.Stop())


def _listen(client: Any, key: str, act: Callable[[str], None]) -> None:
    """Acts on what is said under a key, by whoever is first; in a thread."""
    try:
        act(client.blocking_key_value_get(key, agreement.EVER))
    except RuntimeError as error:
        if _group:
            time.sleep(3.0)  # mostly JAX ends this process first
            _exit(f"1 process 0 cannot be reached ({str(error)[:150]})")


def _exit(words: str) -> None:
    """Ends this process, from a thread."""
    _end.acquire()
    status, _, text = words.partition(" ")
    os.write(2, f"error: {text}; {_HINT}\n".encode())
    leave()
    os._exit(int(status))


def _shut_down() -> None:
    """Disconnects from JAX's service, once all do: who goes alone counts as dead."""
    import jax

    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()


def _keep_standard_output() -> None:
    """Keeps Gloo from printing who is connected among what this program prints."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
