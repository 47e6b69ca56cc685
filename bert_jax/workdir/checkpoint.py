"""Saves and restores checkpoints: the only file that knows Orbax.

`checkpoints/<step>` has trees by name (`params`, `opt_state`, ...), so that loading
the weights alone does not read the optimizer's state, two thirds of the bytes.
"""

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from ml_collections import ConfigDict
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import silence_orbax

log = logging.getLogger(__name__)

# Orbax cuts an array that is on several devices into slices, and each device saves one.
# The training loop waits for the cutting, so slices of less than 1 MB cost too much.
_HANDLER = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=2**20)
with silence_orbax.quietly():  # Orbax warns that this replaces its default
    ocp.type_handlers.register_type_handler(jax.Array, _HANDLER, override=True)

# Maps a step to the shapes, dtypes and shardings to restore to, by name.
Abstract = Callable[[int], Mapping[str, Any]]


def checkpoint_name(config: ConfigDict) -> str:
    """The folder of the checkpoint that `config.evaluate.checkpoint` selects."""
    return {"last": "checkpoints", "best": "best"}[config.evaluate.checkpoint]


def has_checkpoint(workdir: Path) -> bool:
    """Whether there is a finished checkpoint; creates nothing."""
    return bool(ocp.utils.checkpoint_steps(workdir / "checkpoints"))


class Checkpoints:
    """The checkpoints of a work directory; saves in the background, keeps a few.

    Args:
      workdir: the work directory.
      keep: number of newest checkpoints to keep.
      name: of the folder in the work directory.
      keep_every: also keeps checkpoints at multiples of this step; 0: none.
      read_only: for another run's folder: creates, moves and deletes nothing.
      only: reads the checkpoint of this step; None: all.
    """

    def __init__(
        self,
        workdir: Path,
        keep: int,
        name: str = "checkpoints",
        keep_every: int = 0,
        *,
        read_only: bool = False,
        only: int | None = None,
    ):
        self._folder, self._read_only = storage.absolute(workdir) / name, read_only
        self._only = only
        kept: list[policies.PreservationPolicy] = [policies.LatestN(keep)]
        if keep_every:
            kept.append(policies.EveryNSteps(keep_every))
        with silence_orbax.quietly():  # Orbax warns about read_only
            options = ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy(kept),
                read_only=read_only,
                # Two managers may save at once: keeps their barriers apart.
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    barrier_sync_key_prefix=name
                ),
            )
            items = ("params", "opt_state", "running_stats", "carry")
            try:
                self._manager = ocp.CheckpointManager(
                    self._folder, item_names=items, options=options
                )
            except (ValueError, OverflowError, TypeError) as error:
                raise UserError(
                    f"{self._folder}: a checkpoint's _CHECKPOINT_METADATA cannot be "
                    f"read ({silence_orbax.first_line(error)}); move it away"
                ) from error
        if only is not None and only not in (steps := self._manager.all_steps()):
            there = ", ".join(map(str, sorted(steps))) or "none"
            raise UserError(f"{self._folder / str(only)}: no such step; it has {there}")

    @classmethod
    def of_another(
        cls, workdir: Path, name: str = "checkpoints", only: int | None = None
    ) -> "Checkpoints":
        """The checkpoints of another run, read-only."""
        return cls(workdir, 1, name, read_only=True, only=only)

    def __enter__(self) -> "Checkpoints":
        self._hook = sys.unraisablehook
        sys.unraisablehook = functools.partial(
            silence_orbax.but_closed_loops, self._hook
        )
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self._manager.close()  # after an error it may raise the same error again
        if not error:  # after an error, background writes may still complain later
            sys.unraisablehook = self._hook

    def latest_step(self) -> int | None:
        """The newest finished checkpoint's step; None if there is none."""
        return self._manager.latest_step()

    def check(self, num_steps: int) -> None:
        """Raises UserError if a checkpoint's step is larger than `num_steps`."""
        newest = self.latest_step() or 0
        if newest > num_steps:
            raise UserError(
                f"{self._folder / str(newest)}: not a checkpoint of this run, which "
                f"has {num_steps} steps; move it away"
            )

    def save(self, items: Mapping[str, Any], step: int) -> None:
        """Starts saving trees by name; returns once their arrays may be donated.

        Raises:
          UserError: saving this or the previous checkpoint failed, such as on a full
            disk; no half-written checkpoint stays.
        """
        if step == self.latest_step():
            return
        # Orbax saves no tree without arrays, such as the state of plain SGD.
        args = {
            name: ocp.args.StandardSave(item)
            for name, item in items.items()
            if jax.tree.leaves(item)
        }
        with self._one_line_errors():
            self._manager.save(step, args=ocp.args.Composite(**args), force=True)

    def wait(self) -> None:
        """Waits until all saves are on disk.

        Raises:
          UserError: a save failed.
        """
        with self._one_line_errors():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            why = silence_orbax.first_line(error)
            raise UserError(
                f"{self._folder}: a checkpoint cannot be written: {why}"
            ) from error

    def save_params(self, params: Any, step: int) -> None:
        """As `save`, the parameters only."""
        self.save({"params": params}, step)

    def restore(self, abstract: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
        """The newest checkpoint that can be read, its trees by name, and its step.

        Args:
          abstract: shapes, dtypes and shardings to restore to, by name; the mesh may
            differ from the one that saved it.

        Returns:
          None where nothing was saved. Skips a damaged checkpoint with a warning; a
          run moves its own damaged ones to `damaged_checkpoints/`.

        Raises:
          UserError: there are checkpoints, but none can be read.
        """
        return self._restore_newest(lambda step: abstract)

    def restore_params(self, abstract: Any) -> tuple[Any, int] | None:
        """As `restore`, the parameters only."""
        restored = self.restore({"params": abstract})
        return None if restored is None else (restored[0]["params"], restored[1])

    def restore_saved(self, sharding: jax.sharding.Sharding) -> tuple[Any, int] | None:
        """As `restore_params`, for whatever tree was saved, with one sharding."""

        def saved(step: int) -> dict[str, Any]:
            folder = self._folder / str(step) / "params"
            metadata = ocp.StandardCheckpointHandler().metadata(folder)
            return {
                "params": jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                    metadata.tree,
                )
            }

        restored = self._restore_newest(saved)
        return None if restored is None else (restored[0]["params"], restored[1])

    def _restore_newest(self, abstract: Abstract) -> tuple[dict, int] | None:
        damaged = []
        steps = self._manager.all_steps() if self._only is None else [self._only]
        for step in sorted(steps, reverse=True):
            restored, reason = self._restore(step, abstract)
            if restored is None:
                log.warning("checkpoint %d cannot be read: %s", step, reason)
                damaged.append((step, reason))
                continue
            for bad, _ in () if self._read_only else damaged:
                self._set_aside(bad)
            return restored, step
        if damaged:
            raise UserError(
                f"{self._folder}: no checkpoint can be read (newest: step "
                f"{damaged[0][0]}: {damaged[0][1]}); restore one from a copy, or "
                f"start again with another --workdir"
            )
        return None

    def _restore(
        self, step: int, abstract: Abstract
    ) -> tuple[dict[str, Any] | None, str]:
        """A checkpoint's items; or None in every process if one failed, and why."""
        items, reason = None, "another process could not read it"
        try:
            with silence_orbax.quietly():
                trees = abstract(step)
                args = {
                    name: ocp.args.StandardRestore(tree)
                    for name, tree in trees.items()
                    if tree is None or jax.tree.leaves(tree)  # None: as it was saved
                }
                restored = self._manager.restore(step, args=ocp.args.Composite(**args))
                items = {**trees, **dict(restored.items())}
        except jax.errors.JaxRuntimeError:
            raise  # a device failed, not the file
        # A damaged file can make Orbax or TensorStore raise anything. If no checkpoint
        # can be read, the error message has the first reason.
        except Exception as error:  # see above
            reason = silence_orbax.first_line(error)
        return (items if processes.all_true(items is not None) else None), reason

    def _set_aside(self, step: int) -> None:
        """Moves a damaged checkpoint away, so that its step can be saved again."""
        aside = self._folder.parent / "damaged_checkpoints"
        if processes.is_first():
            storage.move(self._folder / str(step), aside / str(step))
        processes.barrier()
        self._manager.reload()
        log.warning("checkpoint %d moved to %s; using the one before", step, aside)
