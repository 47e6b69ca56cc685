"""Distillation: a task's model also learns what a trained one, the teacher, returns.

Each term is a loss of its own, next to the task's:

- `teacher_loss`: how far the outputs are from the teacher's at a temperature (Hinton et
  al. 2015). It and the labels' losses are weighted by `config.task.teacher_share`.
- `teacher_cosine_loss`: 1 minus the cosine of the last layers' vectors (Sanh et al.
  2019).
- `teacher_hidden_loss` and `teacher_attention_loss`: squared errors of every layer's
  vectors and attention scores (Jiao et al. 2020).
"""

import functools
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.convert import layout, merge, weights
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.models.stacking import attention_probabilities
from bert_jax.tasks.task import Task
from bert_jax.types import Arrays, Scalars

log = logging.getLogger(__name__)

_SCORED = 128  # training rows that the teacher is scored on
# Losses of the encoders' layers. Each has a weight, `config.task.teacher_...`.
LAYER_TERMS = ("cosine", "hidden", "attention")
# Outputs that they compare, which no head returns.
LAYERS = ("states", "probabilities")
# The modules whose outputs are the states.
_CAPTURED = (("bert", "embeddings"), ("bert", "encoder"))


class Taught(Task):
    """A task whose model may learn from a teacher too."""

    @property
    def kind(self) -> str:
        """classification, multilabel or regression. Empty for other outputs."""
        return ""

    @functools.cached_property
    def teacher(self) -> "Teacher | None":
        """The teacher of `config.task.teacher`, read on use. None means none."""
        return Teacher(self) if self.options.teacher else None

    def constants(self) -> dict[str, Any]:
        return {"teacher": self.teacher.values} if self.teacher else {}

    @property
    def compared(self) -> tuple[str, ...]:
        """The terms of LAYER_TERMS that have a weight, none without a teacher."""
        options = self.options
        terms = LAYER_TERMS if options.teacher else ()
        return tuple(term for term in terms if options[f"teacher_{term}"])


class Teacher:
    """The model of `config.task.teacher`, for the loss of a task.

    Attributes:
      config: The sizes of the teacher's model.
      task: The same task with the teacher's model.
      terms: The terms of LAYER_TERMS that have a weight.
      values: The teacher's parameters, boxed, for `Task.constants`.
    """

    def __init__(self, task: Taught):
        """Reads the weights.

        Raises:
          UserError: They have another vocabulary, other labels or no head for the task,
            or their layers cannot be compared.
        """
        from bert_jax.tasks import create_task  # which imports the tasks

        path = task.options.teacher
        if task.options.crf:
            raise UserError(
                f"config.task.teacher={path}: the tags of a CRF are not compared; set "
                "config.task.crf=False"
            )
        source = weights.find_source(path)
        read = source.read()
        problem = layout.PROBLEM_TYPES.get(task.kind, read.problem_type)
        if read.problem_type not in (None, problem):
            raise UserError(
                f"config.task.teacher={path}: is of {read.problem_type}, and "
                f"config.task.kind={task.kind}; train it on this task first"
            )
        merge.check_tokenizer(task.tokenizer, source.tokenizer(read.config), path)
        labels = tuple(task.options.labels)
        read = read.reorder_labels(labels, path)
        if read.labels not in ((), labels, layout.default_labels(len(labels))):
            raise UserError(
                f"config.task.teacher={path}: its labels are {', '.join(read.labels)}, "
                f"but the task has {', '.join(labels)}; train it on the same labels"
            )
        self.config, self.terms = task.options, task.compared
        self.task: Any = create_task(_config(task.config, source), task.tokenizer)
        self._check_layers(task)
        boxed = self.task.param_shapes
        found, needed = flatten_dict(read.params), flatten_dict(nn.meta.unbox(boxed))
        unused = self.task.unused_parameters(predicts=True)
        for name, leaf in needed.items():
            if name not in found and "/".join(name).startswith(unused):
                found[name] = np.zeros(leaf.shape, np.float32)
            elif name not in found or found[name].shape != leaf.shape:
                raise UserError(
                    f"config.task.teacher={path}: a {read.architecture} without "
                    f"{'/'.join(name)} of shape {leaf.shape}, which the task requires; "
                    "train it on this task first"
                )
        kept = unflatten_dict({name: found[name] for name in needed})
        self.values = nn.meta.replace_boxed(boxed, kept)

    def log_accuracy(self, rows: Sequence[Row]) -> None:
        """Logs its accuracy on some rows with labels, and a warning if it is below
        chance: then its labels may be in another order than the task's."""
        places = np.linspace(0, len(rows) - 1, min(len(rows), _SCORED)).astype(int)
        params = nn.meta.unbox(self.values)
        scores = self.task.scores_of(params, [rows[place] for place in places])
        name = "accuracy" if "accuracy" in scores else self.task.main_score
        count = len(self.task.labels)
        chance = 0.5**count if self.task.kind == "multilabel" else 1 / count
        where = f"config.task.teacher={self.config.teacher}"
        said = "%s: its %s on %d training rows is %.4g"
        log.info(said, where, name, len(places), scores[name])
        if scores[name] < (chance if name == "accuracy" else 0.0):
            labels = ", ".join(self.task.labels)[:200]
            said = (
                "warning: %s: that is below chance; are its labels %s, in this order?"
            )
            log.warning(said, where, labels)

    def _check_layers(self, task: Task) -> None:
        """Raises UserError if a weighted term cannot compare the two encoders."""
        student, teacher = task.model_config, self.task.model_config
        compared = {
            "hidden_size": ("cosine", "hidden"),
            "embedding_size": ("hidden",),
            "num_attention_heads": ("attention",),
        }
        for name, users in compared.items():
            used = [term for term in self.terms if term in users]
            own, its = getattr(student, name), getattr(teacher, name)
            if used and own != its:
                raise UserError(
                    f"config.task.teacher_{used[0]}: config.model.{name}={own}, but "
                    f"the teacher's is {its}; make it the same, or set the weight 0"
                )
        by_depth = teacher.num_hidden_layers % student.num_hidden_layers
        if by_depth and self.terms not in ((), ("cosine",)):
            raise UserError(
                f"config.model.num_hidden_layers={student.num_hidden_layers}: must "
                f"divide the teacher's {teacher.num_hidden_layers}"
            )

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Any]:
        """Returns the outputs of its model.

        Args:
          params: Parameters of the step, which have `teacher`.
        """
        return self.task.apply(params["teacher"], batch, None, self.terms)

    def join(
        self,
        labelled: Scalars,
        soft: Float[Array, ""],
        student: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Arrays,
    ) -> Scalars:
        """Returns all losses, each times its weight.

        Args:
          labelled: The task's losses by name, summed over rows.
          soft: Sum of the outputs' losses at the temperature.
          student: The model's outputs, with those of its layers if they are compared.
          teacher: The teacher's outputs.
        """
        share = self.config.teacher_share
        losses = {name: (1 - share) * value for name, value in labelled.items()}
        losses["teacher_loss"] = share * soft
        for term in self.terms:
            distance = _TERMS[term](student, teacher, _token_mask(batch))
            losses[f"teacher_{term}_loss"] = self.config[f"teacher_{term}"] * distance
        return losses

    def loss_weights(self, outputs: Float[Array, ""], batch: Arrays) -> Scalars:
        """Returns the divisors of its losses.

        Args:
          outputs: Number of compared outputs.
        """
        tokens = jnp.sum(_token_mask(batch)).astype(jnp.float32)
        terms = {f"teacher_{term}_loss": tokens for term in self.terms}
        return {"teacher_loss": outputs, **terms}


def _config(config: ConfigDict, source: weights.Source) -> ConfigDict:
    """Returns the student's config with the teacher's model."""
    return fields.with_values(config, source.shape() | {"model.scan_layers": False})


def apply_model(
    model: nn.Module, params: Any, inputs: Any, terms: Collection[str] = ()
) -> dict[str, Any]:
    """Returns a model's outputs.

    `layer_losses` are added if a layer sows into `losses`: the sum of each name's.

    Args:
      terms: Terms of LAYER_TERMS whose outputs to add: `states`, the embeddings' output
        and each layer's [batch, length, hidden], and for `attention` `probabilities`,
        each layer's [batch, heads, length, length].
    """
    if not terms:
        outputs, kept = model.apply({"params": params}, *inputs, mutable=["losses"])
        return _with_layer_losses(outputs, kept)
    outputs, kept = model.apply(
        {"params": params},
        *inputs,
        mutable=["intermediates", "losses"],
        capture_intermediates=lambda module, method: (
            method == "__call__" and module.path in _CAPTURED
        ),
    )
    trunk = kept["intermediates"]["bert"]
    first, (_, states) = (
        trunk[name].pop("__call__")[0] for name in ("embeddings", "encoder")
    )
    found = {**_with_layer_losses(outputs, kept), "states": [first, *states]}
    if "attention" in terms:
        found["probabilities"] = attention_probabilities({"bert": trunk})
    return found


def _with_layer_losses(outputs: Any, kept: Mapping[str, Any]) -> dict[str, Any]:
    if "losses" not in kept:
        return outputs
    totals: dict[str, Any] = {}
    for (*_, name), sown in flatten_dict(kept["losses"]).items():
        for value in sown:  # one for each call of the layer, of scanned layers an array
            totals[name] = totals.get(name, 0.0) + jnp.sum(value)
    return {**outputs, "layer_losses": totals}


def soft_loss(
    student: Float[Array, "*batch classes"],
    teacher: Float[Array, "*batch classes"],
    temperature: float,
) -> Float[Array, "*batch"]:
    """Returns the divergence of the teacher's probabilities from the student's, in
    nats, times the squared temperature.

    With that factor its gradient is as large at every temperature (Hinton et al.).
    """
    # A low temperature would turn the lowest number, which padding has, into -inf.
    own, its = (
        jax.nn.log_softmax(jnp.maximum(x / temperature, jnp.finfo(x.dtype).min))
        for x in (student, teacher)
    )
    return temperature**2 * jnp.sum(jnp.exp(its) * (its - own), axis=-1)


def output_losses(
    student: Arrays, teacher: Arrays, batch: Arrays, kind: str, temperature: float
) -> Float[Array, "batch *tokens"]:
    """Returns how far a model's logits are from a teacher's, of each row or token.

    Args:
      student: The model's logits by name, the classes on the last axis.
      teacher: The teacher's.
      kind: `TaskDefinition.kind`. For `multilabel` each label is two classes, whose
        divergences are averaged. For `regression` the squared difference counts. For
        `spans` padding is no class.
      temperature: Temperature of `soft_loss`.
    """
    if kind == "regression":
        return jnp.square(student["logits"][:, 0] - teacher["logits"][:, 0])
    if kind == "multilabel":
        # A label is one of two classes, whose logits are 0 and its own.
        own, its = (
            jnp.stack([0 * x, x], axis=-1)
            for x in (student["logits"], teacher["logits"])
        )
        return soft_loss(own, its, temperature).mean(axis=-1)
    if kind == "spans":
        student, teacher = (hide_padding(x, batch) for x in (student, teacher))
    losses = [soft_loss(student[name], teacher[name], temperature) for name in student]
    return jnp.mean(jnp.stack(losses), axis=0)


def hide_padding(logits: Arrays, batch: Arrays) -> dict[str, Array]:
    """Returns `start_logits` and `end_logits` [batch, length], whose exponential is 0
    at padding."""
    real = batch["input_mask"] > 0
    spans = {name: logits[name] for name in ("start_logits", "end_logits")}
    return {k: jnp.where(real, x, jnp.finfo(x.dtype).min) for k, x in spans.items()}


def _token_mask(batch: Arrays) -> Int[Array, "rows length"]:
    """Returns 1 for each token of rows, windows or choices, 0 for padding."""
    return batch["input_mask"].reshape(-1, batch["input_mask"].shape[-1])


def _pairs(student: Any, teacher: Any) -> list[tuple[Array, Array]]:
    """Pairs each layer's output with that of the teacher's layer at the same fraction
    of the depth."""
    step = len(teacher) // len(student)
    return list(zip(student, teacher[step - 1 :: step], strict=True))


def _cosine_loss(student: Any, teacher: Any, mask: Int[Array, "rows length"]) -> Array:
    own, its = (
        x["states"][-1].astype(jnp.float32) for x in (student, teacher)
    )  # [rows, length, hidden]
    lengths = jnp.linalg.norm(own, axis=-1) * jnp.linalg.norm(its, axis=-1)
    cosines = jnp.sum(own * its, axis=-1) / jnp.maximum(lengths, 1e-12)
    return jnp.sum(mask * (1 - cosines))


def _hidden_loss(student: Any, teacher: Any, mask: Int[Array, "rows length"]) -> Array:
    """Returns the sum over tokens of the mean over layers and numbers."""
    (first, *own), (its_first, *its) = student["states"], teacher["states"]
    pairs = [(first, its_first), *_pairs(own, its)]
    errors = [
        jnp.mean(jnp.square((a - b).astype(jnp.float32)), axis=-1) for a, b in pairs
    ]
    return jnp.sum(mask * sum(errors)) / len(pairs)


def _attention_loss(
    student: Any, teacher: Any, mask: Int[Array, "rows length"]
) -> Array:
    """Returns the sum over queries of the mean over layers, heads and keys.

    The scores are those of the probabilities' logarithms: without a constant for each
    query, which softmax does not see.
    """

    def error(own: Array, its: Array) -> Float[Array, "rows length"]:
        seen = its > 0  # not padding, nor another sequence of the row
        count = jnp.maximum(jnp.sum(seen, axis=-1, keepdims=True), 1)
        tiny = math.exp(-80)  # below it float32 has no exact logarithm
        logs = [jnp.log(jnp.where(seen, jnp.maximum(x, tiny), 1.0)) for x in (own, its)]
        apart = logs[0] - logs[1]
        mean = jnp.sum(apart, axis=-1, keepdims=True) / count
        squares = jnp.where(seen, jnp.square(apart - mean), 0.0)
        return jnp.mean(jnp.sum(squares / count, axis=-1), axis=1)  # over heads

    pairs = _pairs(student["probabilities"], teacher["probabilities"])
    return jnp.sum(mask * sum(error(*pair) for pair in pairs)) / len(pairs)


_TERMS = {"cosine": _cosine_loss, "hidden": _hidden_loss, "attention": _attention_loss}
