"""An ordered map of a function over many items, on every core, in bounded memory."""

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bert_jax.errors import UserError
from bert_jax.runtime import signals

Item = TypeVar("Item")
Result = TypeVar("Result")

_context: Any = None  # in a worker: the argument shared by all its calls


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def ordered_map(
    function: Callable[[Any, Item], Result], context: Any, items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yields function(context, item) for each item, in the order of the items.

    One or two items run in this process. Otherwise one process per core is spawned
    (not forked: the caller may have threads) and gets `context` once. Only as many
    items are taken as keep the processes busy. An exception, from a worker or by
    Ctrl-C, ends the processes after the items that they have, and so does closing the
    generator. Wrap it in `contextlib.closing` where the caller's code may be
    interrupted.

    `function` must be in an importable module, not in the main program.

    Raises:
      UserError: a process died.
      Exception: any that `function` raised.
    """
    items = iter(items)
    head = list(itertools.islice(items, 3))
    if len(head) < 3:
        for item in head:
            yield function(context, item)
        return
    items = itertools.chain(head, items)
    del head  # frees each item as the chain passes it
    executor = ProcessPoolExecutor(
        available_cores(), multiprocessing.get_context("spawn"), _start, (context,)
    )
    waiting: deque[Future[Result]] = deque()
    try:
        with signals.clean_up_on_signal(_kill_workers):
            for item in items:
                with _hide_main():
                    waiting.append(executor.submit(_call, function, item))
                del item
                if len(waiting) > available_cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process died, perhaps because memory ran out; "
            "run again on fewer cores (taskset) or with more memory"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _kill_workers() -> None:
    """Ends all processes at once, so that they write nothing more."""
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


@contextlib.contextmanager
def _hide_main() -> Iterator[None]:
    """Keeps processes started here from importing the main program again.

    Workers do not need it: importing JAX in each would take hundreds of MB, and a
    script without `if __name__ == "__main__"` would run again from the top.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _start(context: Any) -> None:
    """Prepares a new worker."""
    global _context
    _context = context
    # One thread per worker: there are as many workers as cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # The parent handles a signal sent to the whole process group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _call(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_context, item)
