"""Saving and restoring: the only file that knows Orbax.

`checkpoints/<step>` holds trees by name (`params`, `opt_state`, ...), so that whoever
only wants the weights does not read the optimizer's two thirds.
"""

import contextlib
import functools
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp
from ml_collections import ConfigDict
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import quiet

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# Of a step: the shapes, dtypes and shardings to restore to, by name.
Abstract = Callable[[int], Mapping[str, Any]]

_LISTINGS = 4  # of the checkpoints of a run that may go on meanwhile


def checkpoint_name(config: ConfigDict) -> str:
    """The folder with the checkpoint that `config.evaluate.checkpoint` means."""
    return {"last": "checkpoints", "best": "best"}[config.evaluate.checkpoint]


def has_checkpoint(workdir: Path) -> bool:
    """Whether a run there has finished saving anything; reads and makes nothing."""
    return bool(ocp.utils.checkpoint_steps(workdir / "checkpoints"))


class Checkpoints:
    """The checkpoints of a work directory; saved in the background, a few kept.

    Args:
      workdir: the work directory.
      keep: how many, the newest.
      name: of the folder in it.
      keep_every: and those whose step is a multiple of it; 0: none.
      read_only: nothing is made, moved or deleted there, for another's run.
    """

    def __init__(
        self,
        workdir: Path,
        keep: int,
        name: str = "checkpoints",
        keep_every: int = 0,
        *,
        read_only: bool = False,
    ):
        self._folder, self._read_only = storage.absolute(workdir) / name, read_only
        storage.require_bucket(self._folder)
        _check_folder(self._folder)
        kept: list[policies.PreservationPolicy] = [policies.LatestN(keep)]
        if keep_every:
            kept.append(policies.EveryNSteps(keep_every))
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy(kept),
            read_only=read_only,
            # Two may be saving at once: their barriers are not to be mistaken.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                barrier_sync_key_prefix=name
            ),
        )
        items = ("params", "opt_state", "running_stats")
        make = functools.partial(ocp.CheckpointManager, item_names=items)
        with quiet.quietly():  # of what read_only leaves out
            self._manager = self._listed(lambda: make(self._folder, options=options))

    def _listed(self, read: Callable[[], Result]) -> Result:
        """Reads the folder, again where a run has deleted what was listed."""
        for _ in range(_LISTINGS - 1 if self._read_only else 0):
            with contextlib.suppress(FileNotFoundError):
                return read()
        return read()

    @classmethod
    def of_another(cls, workdir: Path, name: str = "checkpoints") -> "Checkpoints":
        """Those of a run that is only read, and that may be going on."""
        return cls(workdir, 1, name, read_only=True)

    def __enter__(self) -> "Checkpoints":
        self._hook = sys.unraisablehook
        sys.unraisablehook = functools.partial(quiet.but_closed_loops, self._hook)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self._manager.close()  # after an error it would tell the same again
        if not error:  # else what is still being written has yet to complain
            sys.unraisablehook = self._hook

    def latest_step(self) -> int | None:
        """The newest finished checkpoint's step; None where there is none."""
        return self._manager.latest_step()

    def check(self, num_steps: int) -> None:
        """Raises UserError where there is a step that a run of `num_steps` has not."""
        newest = self.latest_step() or 0
        if newest > num_steps:
            raise UserError(
                f"{self._folder / str(newest)}: no checkpoint of this run, which has "
                f"{num_steps} steps; move it away"
            )

    def save(self, items: Mapping[str, Any], step: int) -> None:
        """Starts saving trees by name; returns once their arrays may be donated.

        Raises:
          UserError: there is too little room on the disk, or saving failed; this or
            the checkpoint before.
        """
        if step == self.latest_step():
            return
        self._check_room(sum(leaf.nbytes for leaf in jax.tree.leaves(dict(items))))
        args = {name: ocp.args.StandardSave(item) for name, item in items.items()}
        with self._told_in_one_line():
            self._manager.save(step, args=ocp.args.Composite(**args), force=True)

    def _check_room(self, needed: int) -> None:
        if storage.in_bucket(self._folder):
            return
        free = shutil.disk_usage(self._folder).free
        if free < needed:
            raise UserError(
                f"{self._folder}: a checkpoint needs {needed / 1e6:,.0f} MB and "
                f"{free / 1e6:,.0f} MB are free; make room and start the same command "
                f"again: it goes on from step {self.latest_step() or 0}"
            )
        if free < 2 * needed:
            log.warning(
                "%s: %.0f MB are free, room for this checkpoint (%.0f MB) and not for "
                "the next: make room before it comes",
                *(self._folder, free / 1e6, needed / 1e6),
            )

    def drop(self, step: int) -> None:
        """Deletes a checkpoint, if it is there."""
        self.wait()
        if step in self._manager.all_steps():
            self._manager.delete(step)

    def wait(self) -> None:
        """Waits until what was saved is on disk.

        Raises:
          UserError: it could not be written.
        """
        with self._told_in_one_line():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _told_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            why = quiet.first_line(error)
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
            be another than the one it was saved from.

        Returns:
          None where nothing was saved. From a damaged checkpoint it goes to the one
          before, with a warning; a run's own is moved to `damaged_checkpoints/`.

        Raises:
          UserError: there are checkpoints, but none can be read.
        """
        return self._restore_newest(lambda step: abstract)

    def restore_params(self, abstract: Any) -> tuple[Any, int] | None:
        """As `restore`, the parameters only."""
        found = self.restore({"params": abstract})
        return None if found is None else (found[0]["params"], found[1])

    def restore_saved(self, sharding: jax.sharding.Sharding) -> tuple[Any, int] | None:
        """As `restore_params`, of whatever tree was saved, each array placed so."""

        def saved(step: int) -> dict[str, Any]:
            folder = self._folder / str(step) / "params"
            metadata = ocp.StandardCheckpointHandler().metadata(folder)
            return {
                "params": jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                    metadata.tree,
                )
            }

        found = self._restore_newest(saved)
        return None if found is None else (found[0]["params"], found[1])

    def _restore_newest(self, abstract: Abstract) -> tuple[dict, int] | None:
        for _ in range(_LISTINGS - 1 if self._read_only else 0):
            steps = self._manager.all_steps()
            try:
                return self._restore_listed(abstract)
            except UserError:
                # A run that goes on may have deleted what was listed before.
                self._listed(self._manager.reload)
                if self._manager.all_steps() == steps:
                    raise
        return self._restore_listed(abstract)

    def _restore_listed(self, abstract: Abstract) -> tuple[dict, int] | None:
        damaged = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            restored, reason = self._restore(step, abstract)
            if restored is None and storage.in_bucket(self._folder):
                # It may have been the network, of which Orbax does not always tell.
                log.warning("checkpoint %d: %s; trying again", step, reason)
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
        """A checkpoint's items; or None, in every process, and the reason."""
        items, reason = None, "another process could not read it"
        try:
            with quiet.reported_once():
                trees = abstract(step).items()
                args = {k: ocp.args.StandardRestore(v) for k, v in trees}
                found = self._manager.restore(step, args=ocp.args.Composite(**args))
                items = dict(found.items())
        except jax.errors.JaxRuntimeError:
            raise  # the device's trouble, not the file's
        # Whatever a damaged file makes Orbax or TensorStore raise; if no checkpoint
        # can be read, the first of these errors is shown.
        except Exception as error:
            reason = quiet.first_line(error)
        return (items if processes.all_true(items is not None) else None), reason

    def _set_aside(self, step: int) -> None:
        """Moves a damaged checkpoint away, so that its step can be saved again."""
        aside = self._folder.parent / "damaged_checkpoints"
        if processes.is_first():
            storage.move(self._folder / str(step), aside / str(step))
        processes.barrier()
        self._manager.reload()
        log.warning("checkpoint %d moved to %s; going on from before it", step, aside)


def _check_folder(folder: Path) -> None:
    """Raises UserError where TensorStore can have no files, and where a pipe or a
    device lies among them: Orbax would wait for ever for what comes out of it."""
    if "\\" in str(folder):
        raise UserError(
            f"{folder}: no checkpoint can be written or read where a folder's name "
            "holds a backslash; take another --workdir"
        )
    for place, _, names in () if storage.in_bucket(folder) else os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            try:
                storage.require_file(storage.path(path))
            except OSError as error:
                raise UserError(f"{path}: {error.strerror}") from error
