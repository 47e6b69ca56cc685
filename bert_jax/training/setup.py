"""The start of a run: its resolved config, and the weights of `init_from`."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, SingleDeviceSharding
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tasks, tokenization
from bert_jax.config import fields
from bert_jax.convert import merge, weights
from bert_jax.errors import UserError
from bert_jax.models import lora
from bert_jax.models.initial import InitialParams
from bert_jax.models.stacking import unstack_layers
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Data, Task
from bert_jax.training import run_config, sharding
from bert_jax.training.branch import find_branch
from bert_jax.training.optimizer import with_step
from bert_jax.training.transforms import join
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name, has_checkpoint


def build_task(config: ConfigDict, folder: Path, *, from_data: bool) -> Task:
    """Builds the task, with every open value of its config filled in.

    An existing run keeps its tokenizer. A new run with `init_from` and without a
    vocabulary uses the checkpoint's.

    Args:
      folder: The work directory.
      from_data: False to query a model, whose training data may be gone.

    Raises:
      UserError: See `tasks.create_task` and `tokenization.load_config_tokenizer`.
    """
    decided: dict[str, Any] = {}
    tokenizer: Tokenizer | None
    path = folder / "tokenizer.json"
    # Pre-training prepares its data with the vocabulary trained on the text. With
    # `init_from` it is the checkpoint's, which the run has kept, as a branch has.
    branch = find_branch(config)
    given = config.init_from or branch
    trained = config.task.name == "pretraining" and not given
    keeps = not (from_data and trained)
    if keeps and workdir.has_config(folder) and path.exists():
        tokenizer = tokenization.load(path)
    elif branch is not None and from_data:
        tokenizer = tokenization.load(branch.folder / "tokenizer.json")
    else:
        named = config
        if config.init_from:
            source = weights.find_source(config.init_from)
            here = {"init_from": str(source.tokenizer_folder)}
            named = fields.with_values(config, here)
        tokenizer = tokenization.load_config_tokenizer(named)
    if tokenizer is not None and not config.tokenizer.vocab_file:
        rules = tokenization.normalizer_settings(tokenizer)
        decided["tokenizer.lowercase"] = bool(rules.get("lowercase", True))
    if not from_data:
        values = dict(fields.iter_fields(config))
        if config.init_from and values.get("task.labels") == ():
            labels = weights.find_source(config.init_from).labels()
            _check_outputs(config, labels)
            decided["task.labels"] = labels
        # Does not train, so it does not have to read the data to count epochs.
        decided["train.num_steps"] = config.train.num_steps or 1
    task = tasks.create_task(fields.with_values(config, decided), tokenizer)
    task.resolve()
    return task


def _check_outputs(config: ConfigDict, labels: Sequence[str]) -> None:
    """Raises UserError for classification with one output, whose probability is always
    1, and for regression with several."""
    count, kind = len(labels), fields.task_values(config).kind
    if kind == ("classification" if count == 1 else "regression") and count:
        outputs = "one output" if count == 1 else f"{count} outputs"
        others = "regression or multilabel" if count == 1 else "multilabel"
        raise UserError(
            f"--config.init_from={config.init_from}: has {outputs}, which is not for "
            f"config.task.kind={kind}; set --config.task.kind={others}"
        )


def init_weights(task: Task, abstract: Any, name: str = "") -> tuple[Any, Any] | None:
    """Reads `config.init_from`. Returns None if it is empty.

    Args:
      abstract: Shapes and shardings of the task's parameters.
      name: Name of a work directory's folder of checkpoints. Empty means the one that
        its config selects.

    Returns:
      The parameters, placed on the mesh, with the entries of `abstract` for those that
      the checkpoint lacks, and a `merge.Report` of the weights that were read.

    Raises:
      UserError: The weights or their vocabulary do not fit this model.
    """
    source = task.config.init_from
    if not source:
        return None
    return weights.find_source(source).start(task, abstract, name)


class Base:
    """The trunk of a run with LoRA, as far as `init_from` has it: parameters that do
    not learn, and are not saved.

    Attributes:
      digest: Their digest, for `workdir.check_data`.
      abstract: Their shapes, dtypes and shardings.
    """

    def __init__(self, task: Task, mesh: Mesh, boxed: dict[str, Any]):
        """Takes them as NumPy arrays, boxed with their logical axis names."""
        self._task, self._values = task, nn.meta.unbox(boxed)
        self.abstract = sharding.abstract_arrays(boxed, mesh)
        self.digest = workdir.digest(unstack_layers(self._values))
        whole = sharding.abstract_arrays(task.param_shapes, mesh)
        self._merge = jax.jit(
            lambda params: lora.merge(params, task.config.model),
            out_shardings=sharding.shardings_of(whole),
        )

    @functools.cached_property
    def constants(self) -> dict[str, Any]:
        """These parameters on the devices."""
        shardings = sharding.shardings_of(self.abstract)
        return sharding.place_arrays(self._values, shardings)

    @functools.cached_property
    def initial_params(self) -> InitialParams:
        """A run's own parameters before the first step: the result of
        `lora.init_params`."""
        whole, model = self._task.initial_params, self._task.config.model
        return InitialParams(
            functools.partial(lora.init_params, whole, self._values, model)
        )

    def merged(self, own: Any, step: int) -> Any:
        """Returns the model's parameters, of a run's own after `step` steps."""
        last = max(step - 1, 0)  # what the last step's layers read
        return self._merge(with_step(join(own, self.constants), last))


def read_start(task: Task, mesh: Mesh) -> tuple[Base | None, tuple[Any, Any] | None]:
    """Reads `config.init_from`, whose trunk does not learn with `model.lora_rank`.

    Returns:
      The trunk, if it does not learn, and the result of `init_weights`.

    Raises:
      UserError: See `init_weights`. Also, there are no weights or words to add.
    """
    config, boxed = task.config, task.param_shapes
    abstract = sharding.abstract_arrays(boxed, mesh)
    rank = config.model.lora_rank
    if not rank:
        return None, init_weights(task, abstract)
    if not config.init_from or "bert" not in boxed:
        raise UserError(
            f"config.model.lora_rank={rank}: adapts the encoder of trained weights; "
            "name some with --config.init_from, or set it to 0"
        )
    if config.tokenizer.add:
        raise UserError(
            f"config.model.lora_rank={rank}: rows of config.tokenizer.add would not "
            "learn; set it to 0, or add no words"
        )
    # The trunk stays on the host: only its digest needs all of it in one process.
    host = SingleDeviceSharding(sharding.processor() or jax.local_devices()[0])
    abstract["bert"] = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=host),
        abstract["bert"],
    )
    found = init_weights(task, abstract)
    assert found is not None
    values = {
        path: nn.meta.replace_boxed(boxes[path], np.asarray(x))
        for boxes in [flatten_dict(boxed["bert"])]
        for path, x in flatten_dict(found[0]["bert"]).items()
        if isinstance(x, jax.Array)
    }
    base = {"bert": unflatten_dict(values)}
    return Base(task, mesh, base), found


def recording(data: Data, constants: Any, base: Base | None) -> Data:
    """Adds digests of the arrays that do not learn to `Data.record`, to notice at a
    resume whether they have changed."""
    record = dict(data.record)
    if constants:
        record["constants"] = workdir.digest(constants)
    if base is not None:
        record["base"] = base.digest
    return dataclasses.replace(data, record=record)


class Restored(NamedTuple):
    """Restored weights, for evaluation and prediction."""

    mesh: Mesh
    params: Any
    step: int  # 0 for weights of `init_from`
    fitted: Mapping[str, Any]  # see `Task.fitted`
    missing: tuple[str, ...] = ()  # parts that the weights lack, filled with zeros


def restored_params(
    task: Task,
    folder: Path,
    unused: Collection[str],
    uses: Sequence[str] = (),
    *,
    encoder: bool = False,
) -> Restored:
    """Returns the checkpoint's or `init_from`'s parameters.

    Args:
      unused: Parts of the model that may be missing.
      uses: See `sharding.make_mesh`.
      encoder: Whether to read only the trunk's parameters from `init_from`.
    """
    mesh = sharding.make_mesh(task.config, uses)
    abstract = sharding.abstract_arrays(task.param_shapes, mesh)
    if not has_checkpoint(folder):
        abstract = {"bert": abstract["bert"]} if encoder else abstract
        loaded = init_weights(task, abstract, checkpoint_name(task.config))
        if loaded is None:
            raise run_config.nothing_to_ask(folder)
        params, report = loaded
        params = merge.require_complete(params, report, unused)
        return Restored(mesh, params, 0, report.facts, report.missing)
    base, _ = read_start(task, mesh) if task.config.model.lora_rank else (None, None)
    if base is not None:
        workdir.check_data(folder, {"base": base.digest})
        abstract = sharding.abstract_arrays(base.initial_params.shapes, mesh)
    with Checkpoints(folder, None, checkpoint_name(task.config)) as saved:
        restored = saved.restore_params(abstract)
    if restored is None:
        raise UserError(
            f"--workdir={folder}: the run has no best checkpoint; set "
            "--config.evaluate.checkpoint=last"
        )
    params, now = restored
    if base is not None:
        params = base.merged(params, now)
    return Restored(mesh, params, now, workdir.read_facts(folder, now))
