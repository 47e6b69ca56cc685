"""Saves and restores checkpoints: the only file that imports Orbax.

`checkpoints/<step>` has trees by name (`params`, `opt_state`, ...), so that loading
the weights alone does not read the optimizer's state, two thirds of the bytes. Its
`_CHECKPOINT_METADATA` has a checksum of each array, because TensorStore reads most
changed bytes as other numbers.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from jax.sharding import Sharding
from ml_collections import ConfigDict
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.data.workers import available_cores
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage, untrusted
from bert_jax.runtime.storage import Path

log = logging.getLogger(__name__)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences Orbax's log messages, and no other program's that imports this file."""
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        yield
    finally:
        absl_logging.set_verbosity(verbosity)


# After a read or write has failed, TensorStore raises "Event loop is closed" for each
# one in progress. The error itself is raised, too.
_show = sys.unraisablehook
sys.unraisablehook = lambda x: "loop is closed" in str(x.exc_value) or _show(x)

# Orbax cuts an array that is on several devices into slices, and each device saves one.
# The training loop waits for the cutting, so slices of less than 1 MB cost too much.
_HANDLER = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=2**20)
with _quietly():  # Orbax warns that this replaces its default
    ocp.type_handlers.register_type_handler(jax.Array, _HANDLER, override=True)


def checkpoint_name(config: ConfigDict) -> str:
    """Returns the checkpoint folder that `config.evaluate.checkpoint` selects."""
    return {"last": "checkpoints", "best": "best"}[config.evaluate.checkpoint]


def checkpoint_steps(workdir: Path) -> list[int]:
    """Returns the steps of the finished checkpoints, sorted. Creates nothing."""
    return sorted(ocp.utils.checkpoint_steps(workdir / "checkpoints"))


def has_checkpoint(workdir: Path) -> bool:
    """Returns whether there is a finished checkpoint. Creates nothing."""
    return bool(checkpoint_steps(workdir))


def checksums(trees: Mapping[str, Any]) -> dict[str, int]:
    """Returns a checksum of each array by name and type, the same on any mesh: the sum
    of all numbers' bits, those in row n multiplied by 2 n + 1. All processes must call
    it."""
    arrays = {
        f"{jax.tree_util.keystr(path, simple=True, separator='/')} {x.dtype}": x
        for path, x in jax.tree.leaves_with_path(dict(trees))
    }
    with ThreadPoolExecutor(available_cores()) as pool:
        sums = np.array([*pool.map(_checksum, arrays.values())], np.uint32)
    if processes.process_count() > 1:
        from jax.experimental import multihost_utils

        sums = multihost_utils.process_allgather(sums).sum(axis=0, dtype=np.uint32)
    return dict(zip(arrays, sums.tolist(), strict=True))


def _checksum(array: jax.typing.ArrayLike) -> int:
    """Returns the part of an array's checksum that is of this process's shards."""
    whole = 0
    for shard in jax.numpy.asarray(array).addressable_shards:
        if shard.replica_id == 0 and shard.data.size:
            numbers = np.atleast_1d(np.asarray(shard.data))
            bits = numbers.view(f"u{numbers.itemsize}").reshape(len(numbers), -1)
            first = shard.index[0].start or 0 if shard.index else 0
            factors = 2 * np.arange(first, first + len(bits), dtype=np.uint32) + 1
            rows = bits.sum(axis=1, dtype=np.uint32)
            whole += int(np.vdot(rows, factors))
    return whole % 2**32


class Checkpoints:
    """The checkpoints of a work directory, saved in the background, the newest kept.

    Args:
      keep: Number of newest checkpoints to keep. None reads those of another run:
        creates, moves and deletes nothing.
      name: Name of the folder in the work directory.
      keep_every: Step whose multiples are kept too. 0 means none.
      only: Step of the checkpoint to read. None means the newest.
    """

    def __init__(
        self,
        workdir: Path,
        keep: int | None,
        name: str = "checkpoints",
        keep_every: int = 0,
        only: int | None = None,
    ):
        self._folder = storage.absolute_path(workdir) / name
        self._read_only, self._only = keep is None, only
        kept: list[policies.PreservationPolicy] = [policies.LatestN(keep)]
        if keep_every:
            kept.append(policies.EveryNSteps(keep_every))
        # Two managers may save at once: keeps their barriers apart.
        barriers = ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name)
        with _quietly(), self._one_line_errors("read"):  # Orbax warns about read_only
            self._manager = ocp.CheckpointManager(
                self._folder,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=policies.AnyPreservationPolicy(kept),
                    read_only=self._read_only,
                    multiprocessing_options=barriers,
                ),
            )
        if only is not None and only not in (steps := self._manager.all_steps()):
            raise UserError(f"{self._folder / str(only)}: no such step; it has {steps}")

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self._manager.close()  # after an error it may raise the same error again

    def latest_step(self) -> int | None:
        """Returns the newest finished checkpoint's step, or None if there is none."""
        return self._manager.latest_step()

    def save(self, items: Mapping[str, Any], step: int) -> None:
        """Starts saving trees by name. Returns once their arrays may be donated. Raises
        UserError if this or the previous save fails, of which nothing is left."""
        if step != self.latest_step():
            # Orbax saves no tree without arrays, such as the state of plain SGD.
            trees = {n: tree for n, tree in items.items() if jax.tree.leaves(tree)}
            args = {name: ocp.args.StandardSave(tree) for name, tree in trees.items()}
            saved = ocp.args.Composite(**args)
            sums = {"checksums": checksums(trees)}
            with self._one_line_errors("written"):
                self._manager.save(step, args=saved, force=True, custom_metadata=sums)

    def wait(self) -> None:
        """Waits until all saves are on disk. Raises UserError if one failed."""
        with self._one_line_errors("written"):
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _one_line_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            text = f"a checkpoint cannot be {verb}: {_first_line(error)}"
            raise UserError(f"{self._folder}: {text}") from error

    def restore(self, abstract: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
        """Restores the newest checkpoint's trees by name, and its step, or None.

        Skips a damaged checkpoint with a warning. A run moves its own damaged ones to
        `damaged_checkpoints/`. Raises UserError if none can be read.

        Args:
          abstract: Shapes, dtypes and shardings by name, for any mesh, or one sharding
            for any saved tree.
        """
        damaged: list[int] = []
        steps = self._manager.all_steps() if self._only is None else [self._only]
        for step in sorted(steps, reverse=True):
            trees, reason = None, "another process cannot read it"
            try:
                with _quietly():
                    path = self._folder / str(step) / "_CHECKPOINT_METADATA"
                    about = untrusted.read_optional(path).get("custom_metadata") or {}
                    saved = dict(about.get("checksums", {}))  # none in an older version
                    trees = self._restore(step, abstract)
            except jax.errors.JaxRuntimeError:
                raise  # a device failed, not the file
            except Exception as error:  # Orbax and TensorStore may raise anything
                reason = _first_line(error)
            is_right = False
            if processes.all_true(trees is not None) and trees is not None:
                found = checksums(trees)
                wrong = [n for n in found if saved.get(n, found[n]) != found[n]]
                is_right = not wrong
                reason = f"{', '.join(wrong[:1])} is not what was saved"
            if is_right and trees is not None:
                for bad in () if self._read_only else damaged:
                    self._set_aside(bad)
                return trees, step
            log.warning("checkpoint %d cannot be read: %s", step, reason)
            damaged.append(step)
        if damaged:
            raise UserError(
                f"{self._folder}: no checkpoint can be read ({step}: {reason}); copy "
                "it here again, or use another --workdir"
            )
        return None

    def restore_params(self, abstract: Any) -> tuple[Any, int] | None:
        """Restores only the parameters, like `restore`."""
        restored = self.restore({"params": abstract})
        return restored and (restored[0]["params"], restored[1])

    def _restore(self, step: int, abstract: Mapping[str, Any]) -> dict[str, Any]:
        trees = {
            name: self._saved_arrays(step, name, tree)
            if isinstance(tree, Sharding)
            else tree
            for name, tree in abstract.items()
        }
        args = {
            name: ocp.args.StandardRestore(tree)
            for name, tree in trees.items()
            if tree is None or jax.tree.leaves(tree)  # None means as saved
        }
        restored = self._manager.restore(step, args=ocp.args.Composite(**args))
        return {**trees, **dict(restored.items())}

    def _saved_arrays(self, step: int, name: str, sharding: Sharding) -> Any:
        saved = ocp.StandardCheckpointHandler().metadata(
            self._folder / f"{step}" / name
        )
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            saved.tree,
        )

    def _set_aside(self, step: int) -> None:
        """Moves a damaged checkpoint away, so that its step can be saved again."""
        aside = self._folder.parent / "damaged_checkpoints"
        if processes.is_first():
            storage.move_folder(self._folder / str(step), aside / str(step))
        processes.barrier()
        self._manager.reload()
        log.warning("checkpoint %d moved to %s; using the one before", step, aside)


def _first_line(error: Exception) -> str:
    text = str(error).partition(" See full TensorStore details")[0]
    text = next(iter(text.splitlines()), type(error).__name__)
    return text if len(text) < 200 else f"{text[:80]} ... {text[-110:]}"  # why is last
