"""The work directory: its lock, the run it belongs to, and the run's vocabulary."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import filelock
import jax
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.config.field import PLAIN
from bert_jax.config.fields import fields_of as definitions
from bert_jax.config.phases import phases_of
from bert_jax.errors import UserError
from bert_jax.runtime import storage, untrusted
from bert_jax.runtime.storage import Path, write_atomically

CODE = "code"  # subfolder
log = logging.getLogger(__name__)

# What takes the place of values that are not fitted.
UNFITTED = {"temperature": 1, "thresholds": 0.5, "null_threshold": 0}


@contextlib.contextmanager
def lock_workdir(workdir: Path) -> Iterator[None]:
    """Lets one process at a time train in a work directory, which it creates. Raises
    UserError if another one does. Buckets have no locks."""
    if storage.in_bucket(workdir):
        yield
        return
    storage.make_folder(workdir)
    try:
        with filelock.FileLock(workdir / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        why = "another process is training there; wait for it, or name another folder"
        raise UserError(f"--workdir={workdir}: {why}") from error


def claim_folder(
    workdir: Path,
    config: ConfigDict,
    tokenizer: Tokenizer,
    data: Mapping[str, Any] | None = None,
    *,
    write: bool = True,
) -> None:
    """Claims the folder for this run: writes config.json, vocab.txt, tokenizer.json and
    the record of its `data`. Without `write` it only checks that process 0 has done so.

    Raises UserError if it belongs to a run of another vocabulary or data. `check_run`
    compares the config.
    """
    path = workdir / "tokenizer.json"
    run = tokenization.load(path, whole=False) if path.exists() else tokenizer
    if run.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{path}: not the vocabulary of config.corpus.sources now: the text has "
            "changed since the run started; restore it, or use another --workdir"
        )
    check_data(workdir, data or {})
    if not write:
        if not has_config(workdir):
            why = "does not see what process 0 writes there; share one folder"
            raise UserError(f"--workdir={workdir}: this process {why}")
        return
    for name, text in tokenization.tokenizer_files(tokenizer).items():
        write_atomically(workdir / name, text)
    if data:
        write_atomically(workdir / "data.json", json.dumps(data, indent=2) + "\n")
    record = json.dumps(config.to_dict(), indent=2) + "\n"
    write_atomically(workdir / "config.json", record)


def check_data(workdir: Path, data: Mapping[str, Any]) -> None:
    """Raises UserError if a run's rows or constants are not those it began with.

    Args:
      data: Digests as in data.json, some of them or all.
    """
    began, now = (
        {
            "the training data": each.get("rows"),
            "the content of Task.constants (a teacher)": each.get("constants"),
            "what config.init_from names (LoRA's base)": each.get("base"),
            **{f"the {x} data": digest for x, digest in each.get("dev", {}).items()},
        }
        for each in (read_data(workdir), data)
    )
    for name, digest in began.items():
        if digest and now.get(name) not in (None, digest):
            raise UserError(
                f"--workdir={workdir}: {name} is not what this run began with; restore "
                "it, or use another --workdir"
            )


def digest(arrays: Any) -> str:
    """Returns a digest of a tree of arrays, for `check_data`."""
    found = hashlib.sha256()
    for path, array in jax.tree.leaves_with_path(arrays):
        array = np.ascontiguousarray(array)
        name = jax.tree_util.keystr(path)
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.view(np.uint8).data)
    return found.hexdigest()


def write_code(workdir: Path, code: Mapping[str, bytes]) -> None:
    """Writes a copy of a new run's code.

    Args:
      code: Result of `files.read_code`.
    """
    epath.Path(workdir / CODE).rmtree(missing_ok=True)
    for name, content in code.items():
        write_atomically(workdir / CODE / name, content)


def changed_code_warning(
    workdir: Path, code: Mapping[str, bytes], *, may_add: bool = False
) -> str:
    """Returns a line that names the files that are not as in the run's copy. "" means
    that all are, or that the run has no copy.

    Args:
      may_add: Whether files may be there that the copy lacks, and the package's own
        configs, of which a run that answers takes nothing, may differ.
    """
    kept = workdir if (workdir / CODE).exists() else workdir.parent
    if not has_config(kept) or not (kept / CODE).exists():
        return ""  # not the copy of a run, nor of all its seeds
    copies = {name: kept / CODE / name for name in code}
    if may_add:
        copies = {
            name: copy
            for name, copy in copies.items()
            if copy.exists() and not name.startswith("configs/")
        }
    changed = [
        name
        for name, copy in copies.items()
        if not copy.exists() or copy.read_bytes() != code[name]
    ]
    if not changed:
        return ""
    return (
        f"warning: not the code that this run began with: {', '.join(changed)} (a copy "
        f"is in {kept}/{CODE})"
    )


def has_config(workdir: Path) -> bool:
    """Returns whether the folder has a run's config.json."""
    return (workdir / "config.json").exists()


def require_one_seed(workdir: Path, config: ConfigDict) -> None:
    """Raises UserError if the run's weights are in a folder for each seed."""
    if config.train.seeds > 1:
        one = workdir / f"seed_{config.seed}"
        raise UserError(
            f"{workdir}: has a folder for each seed; name one, such as {one}"
        )


def read_config(workdir: Path) -> dict[str, Any]:
    """Reads the fields of the run's config.json. Raises UserError if it is invalid."""
    if not has_config(workdir):
        raise UserError(f"--workdir={workdir}: has no run; train one first")
    found = untrusted.read_object(workdir / "config.json")
    if not all(isinstance(found.get(x), dict) for x in ("model", "task", "train")):
        raise UserError(f"{workdir}: not a run's config.json; is this a run's folder?")
    return found


def recorded_config(workdir: Path, *, code: bool = True) -> ConfigDict:
    """Returns the run's complete config. `configuration.complete_config` has the
    arguments."""
    path = workdir / "config.json"
    return configuration.complete_config(read_config(workdir), path, code=code)


def check_run(workdir: Path, config: ConfigDict) -> None:
    """Raises UserError if the config of the run there, where newer fields have their
    defaults, differs in fields that shape it."""
    if not has_config(workdir):
        return
    recorded = recorded_config(workdir, code=False)
    there, here = _flatten(recorded), _flatten(config)
    known = definitions(config)
    for name in here.keys() & known - there.keys():  # for a custom task
        there[name] = json.loads(json.dumps(known[name].default))
    differ = sorted(
        name
        for name in there.keys() | here.keys()
        if there.get(name) != here.get(name)
        and known.get(name, PLAIN).fixed_by != "none"
    )
    longer = there["train.num_steps"] < here["train.num_steps"]
    grows = {*differ} <= {"train.num_steps", "train.num_epochs"} and longer
    if differ and not (grows and config.train.extend):
        # A run of another task differs in nearly all fields.
        named = ["task.name"] if "task.name" in differ else differ[:8]
        values = [f"{n} ({there.get(n)!r} there, {here.get(n)!r} now)" for n in named]
        if more := len(differ) - len(named):
            values.append(f"and {more} other field{'s' * (more > 1)}")
        extend = "add --config.train.extend=True to train it longer, or "
        raise UserError(
            f"--workdir={workdir} belongs to a run of another config: "
            f"{', '.join(values)}; {extend if grows else ''}use another --workdir"
        )
    starts = ([p.first_step for p in phases_of(c)] for c in (recorded, config))
    if grows and len({*map(tuple, starts)}) > 1:
        raise UserError(
            f"--workdir={workdir}: config.train.extend would move the start of a "
            "phase; begin another run with --config.train.branch_from"
        )


def _flatten(config: ConfigDict) -> dict[str, Any]:
    return flatten_dict(json.loads(json.dumps(config.to_dict())), sep=".")


def agreed_fields(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields that all processes must agree on: all but corpus.data_dir."""
    found = _flatten(config)
    return {n: found[n] for n in found if n != "corpus.data_dir"}


def read_facts(workdir: Path, step: int) -> dict[str, Any]:
    """Reads a run's fitted values other than weights: from its data (`facts` in
    data.json), and at the checkpoint of a step (task.json)."""
    facts = untrusted.read_optional(workdir / "task.json").get(str(step), {})
    return {**read_data(workdir).get("facts", {}), **facts}


def write_facts(workdir: Path, facts: Mapping[str, Any], step: int) -> None:
    """Saves a run's fitted values other than weights at a step, if any."""
    if facts:
        known = untrusted.read_optional(workdir / "task.json") | {str(step): facts}
        write_atomically(workdir / "task.json", json.dumps(known, indent=2) + "\n")


def warn_unfitted(task: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Warns of values that a run fits on dev and a checkpoint of it lacks.

    Args:
      task: The fields `task` of the run's config.
      facts: The checkpoint's fitted values.
    """
    options = {"calibration": "none", "null_answers": False, **task}
    null = "null_threshold" if options["null_answers"] else ""
    for name in (options["calibration"], null):
        if name in UNFITTED and name not in facts:
            log.warning(
                "warning: this checkpoint has no fitted %s, and %s is used; fit it on "
                "dev with --mode=evaluate",
                *(name, UNFITTED[name]),
            )


def read_data(workdir: Path) -> dict[str, Any]:
    """Reads the record of prepared data that `claim_folder` wrote, empty without a
    run."""
    return untrusted.read_optional(workdir / "data.json")


def drop_best(workdir: Path, after: int = -1) -> None:
    """Deletes the best parameters of steps later than the one where a run resumes."""
    for path in epath.Path(workdir).glob("best/*"):
        if path.name.isdecimal() and int(path.name) > after:
            path.rmtree()
