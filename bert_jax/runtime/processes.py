"""Several processes as one run: they start, wait, stop and end together.

Uses JAX's coordination service, which process 0 hosts; nothing here touches the devices
and a single process skips all of it. If one process dies, JAX ends the others; a
process that fails sends its error message to all.
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
from bert_jax.runtime import signals
from bert_jax.runtime.cluster import launchers

_PARTING = 5.0  # seconds that a failed process waits for the others to disconnect
_HINT = "every process ends, and the same command goes on from the last checkpoint"


@dataclasses.dataclass(frozen=True)
class _Group:
    """This process's connection to the others."""

    client: Any  # of JAX's service
    index: int
    count: int
    stop: Any  # cluster.agreement.Stop
    names: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    threads: list[threading.Thread] = dataclasses.field(default_factory=list)


_group: _Group | None = None
_end = threading.Lock()  # held by the thread that ends this process after a failure


def start() -> None:
    """Connects to the other processes, if any; call it before JAX finds its devices.

    Raises:
      UserError: inconsistent variables; the others did not connect in five minutes.
      Interrupted: a signal arrived first.
    """
    global _group
    arguments = launchers.arguments(os.environ)
    if arguments is None:
        return
    from bert_jax.runtime.cluster import agreement, connecting

    state = connecting.connect(arguments)
    if state.num_processes > 1:
        place = (state.client, state.process_id, state.num_processes)
        _group = _Group(*place, agreement.Stop(*place))
        for key, act in (("stop", _group.stop.agree), ("end", _exit)):
            args = (state.client, key, act)
            thread = threading.Thread(target=_listen, args=args, daemon=True)
            thread.start()
            _group.threads.append(thread)


def count() -> int:
    """The number of processes in this run."""
    return _group.count if _group else 1


def is_first() -> bool:
    """Whether this is process 0, which writes the files that only one may write."""
    return _group is None or _group.index == 0


def barrier() -> None:
    """Waits until every process has called it."""
    if _group:
        _wait(_group.client.wait_at_barrier, f"barrier/{next(_group.names)}")


def all_true(value: bool) -> bool:
    """Whether `value` is true in every process; all must call it."""
    if _group is None:
        return value
    question = f"no/{next(_group.names)}/"
    if not value:
        _group.client.key_value_set(f"{question}{_group.index}", "no")
    barrier()
    return not _group.client.key_value_dir_get(question)


def of_first(value: Any) -> Any:
    """Returns process 0's value, JSON, in every process; all must call it."""
    if _group is None:
        return value
    key = f"first/{next(_group.names)}"
    if _group.index == 0:
        _group.client.key_value_set(key, json.dumps(value))
    return json.loads(_wait(_group.client.blocking_key_value_get, key))


def check_same(what: str, facts: Mapping[str, Any]) -> None:
    """Raises UserError if process 0's facts differ from this one's; all must call it.

    Processes that continued with different facts would deadlock.
    """
    if _group is None:
        return
    here, there = json.loads(json.dumps(facts)), of_first(facts)
    differ = sorted(n for n in here.keys() | there if here.get(n) != there.get(n))
    if differ:
        listed = ", ".join(
            f"{n} ({there.get(n)!r} there, {here.get(n)!r} here)" for n in differ
        )
        raise UserError(f"{what} of process 0 and of {_group.index} differ: {listed}")


@contextlib.contextmanager
def first_alone() -> Iterator[None]:
    """Process 0 runs the block first, then the others do."""
    if not is_first():
        barrier()
    yield
    if is_first():
        barrier()


def stop() -> signals.Stop:
    """The object that remembers a signal; all processes stop at the same point."""
    return _group.stop if _group else signals.Stop()


def close() -> None:
    """Disconnects together with the others; afterwards this process may exit."""
    global _group
    barrier()
    with signals.deferred(signals.Stop()):  # past this point all finish
        group, _group = _group, None
        if group:
            _shut_down()
            for thread in group.threads:
                thread.join()  # the shutdown has cancelled its wait


def fail(status: int, text: str) -> None:
    """Makes the other processes exit with this error; call `leave` next."""
    if _group:
        from bert_jax.runtime.cluster import agreement

        _end.acquire()  # never released
        words = f"{status} process {_group.index}: {' '.join(text.split())}"
        agreement.tell(_group.client, "end", words)


def leave() -> None:
    """Disconnects after a failure, if `close` has not; waits briefly for the others."""
    if _group:
        thread = threading.Thread(target=_shut_down, daemon=True)
        thread.start()
        thread.join(_PARTING + (2.0 if is_first() else 0.0))  # 0 hosts the service


def interrupted(signal_number: int) -> None:
    """Disconnects after a signal: in order if all stopped at the same point."""
    if _group and _group.stop.stops and not signals.insisted():
        for number in signals.SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the others are leaving too
        close()
    else:
        fail(128 + signal_number, f"signal {signal_number}")


def is_loss(error: BaseException) -> bool:
    """Whether a device's error means that another process has died."""
    signs = ("Gloo", "NCCL", "Connection closed by peer", "CoordinationService")
    return _group is not None and any(sign in str(error) for sign in signs)


def _wait(wait: Callable[..., Any], name: str) -> Any:
    """Waits in a thread: compiled code in the main thread would block signals."""
    from bert_jax.runtime.cluster.agreement import EVER

    wait = functools.partial(wait, name, EVER)
    return signals.run_interruptibly(wait, signals.Stop())


def _listen(client: Any, key: str, act: Callable[[str], None]) -> None:
    """Waits, in a thread, for a process to set the key; calls `act` with the value."""
    from bert_jax.runtime.cluster.agreement import EVER

    try:
        act(client.blocking_key_value_get(key, EVER))
    except RuntimeError as error:
        if _group:
            time.sleep(3.0)  # JAX usually ends this process first
            _exit(f"1 process 0 cannot be reached ({str(error)[:150]})")


def _exit(words: str) -> None:
    """Ends this process, from a thread."""
    _end.acquire()
    status, _, text = words.partition(" ")
    os.write(2, f"error: {text}; {_HINT}\n".encode())
    leave()
    os._exit(int(status))


def _shut_down() -> None:
    """Disconnects from JAX's service, when all do: a process that left alone would
    count as dead."""
    import jax

    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()
