"""Layouts: the form of a family's models in Hugging Face's files, and the reader."""

import dataclasses
import itertools
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from bert_jax.convert.parameters import Array, Parameter, parameter_shapes
from bert_jax.convert.sentence_transformers import TextVectors
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, bert_config
from bert_jax.models.config import BertConfig
from bert_jax.types import ParamPath

log = logging.getLogger(__name__)

# A text classifier's `task.kind` -> config.json's problem_type.
PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
KINDS = {problem: kind for kind, problem in PROBLEM_TYPES.items()}
# Heads with one output per label.
LABELLED_HEADS = ("sequence_classification", "token_classification")


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model that was read."""

    config: BertConfig  # the sizes
    params: dict[str, Any]  # nested, float32 arrays, layers not stacked
    architecture: str  # a name in its layout, apart from a `bilstm`
    labels: tuple[str, ...] = ()  # names of a classifier's outputs
    problem_type: str | None = None  # of config.json, if it has one
    left_over: tuple[str, ...] = ()  # names in the file that no part here uses
    pad_token_id: int | None = None  # the same
    # How it makes vectors of texts, if that is specified. `dense` in `params` has the
    # linear layers.
    vectors: TextVectors | None = None
    # Other models that the run has trained, by name (`Family.models`).
    others: Mapping[str, "Weights"] = dataclasses.field(default_factory=dict)
    # With LoRA the parameters that have learned, which `params` has merged: adapters
    # and heads.
    learned: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The run that trained it, as JSON: `step`, `config`, fitted values other than
    # weights (`task`), `scores` of each split, `max_seq_length`. Each may be missing.
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads in the parameters."""
        heads = tuple(k for k in self.params if k not in ("bert", "bilstm", "dense"))
        return (*FAMILIES[self.config.architecture].layout.bare_heads, *heads)

    @property
    def kind(self) -> str | None:
        """The `task.kind` of a text classifier, if it is known."""
        one = "regression" if len(self.labels) == 1 else None
        return KINDS.get(self.problem_type or "", one)

    def reorder_labels(self, labels: Sequence[str], path: str) -> "Weights":
        """Returns the model with its labels in this order, if they are the same ones.

        Logs that outputs without names are taken for them.
        """
        number = len(labels)
        if number == 1 and self.kind == "regression":  # whatever its name
            return dataclasses.replace(self, labels=tuple(labels))
        if number > 1 and self.labels == default_labels(number) != tuple(labels):
            said = "%s: its outputs have no names, and are taken for %s, in this order"
            log.info(said, path, ", ".join(labels)[:200])
        known = sorted(self.labels) == sorted(labels) and "crf" not in self.params
        if not known or self.labels == tuple(labels):
            return self
        order, params = [self.labels.index(label) for label in labels], {**self.params}
        for head in params.keys() & {*LABELLED_HEADS}:
            arrays = {name: params[head][name] for name in ("kernel", "bias")}
            params[head] = params[head] | {
                name: x[..., order] for name, x in arrays.items()
            }
        return dataclasses.replace(self, params=params, labels=tuple(labels))


def default_labels(number: int) -> tuple[str, ...]:
    """Returns `transformers`' names for unnamed outputs."""
    return tuple(f"LABEL_{index}" for index in range(number))


def common_architectures(name: str, *pooled: str) -> dict[str, tuple[str, ...]]:
    """Returns the architectures that most encoders have.

    Args:
      name: Name of the model, such as `Bert`.
      pooled: Endings of architectures with a pooler, such as `ForMultipleChoice`.
    """
    heads: dict[str, tuple[str, ...]] = {
        "Model": (),
        "ForMaskedLM": ("masked_lm",),
        "ForSequenceClassification": ("sequence_classification",),
        "ForTokenClassification": ("token_classification",),
        "ForQuestionAnswering": ("question_answering",),
        "ForMultipleChoice": ("multiple_choice",),
    }
    return {
        name + end: (*("pooler",)[: end in pooled], *parts)
        for end, parts in heads.items()
    }


class Layout:
    """BERT's form in Hugging Face's files. A family's subclass has the differences.

    Attributes:
      family: Name in FAMILIES.
      architectures: Each architecture's parts other than `bert`, named like their
        parameters. The first one is the default of a config.json that names none.
      further_architectures: Those that are not in `transformers`.
      bare_heads: Heads without their own parameters.
      causal: Architectures that compute the same in `transformers` if attention is
        causal. The pooler reads [CLS] there, which attends only to itself, and the last
        [SEP] here.
      shared: Parts whose names are unique, so that any file may have them.
      prefix: Prefix of the trunk's tensors, left out by a model without a head.
      names: Patterns and replacements, in order, from a parameter's path, joined by
        dots, to the name of its tensor. No name means that `transformers` has no such
        parameter.
      renames: More of them, from BERT's names to the family's.
      fuses: Whether one tensor has query, key and value.
      conv: Pattern of the names of a `Conv1D`.
      tied: Copies of tied parameters, which a file may have, and their originals.
      buffers: Pattern of the names of saved tensors that are not parameters.
      fields: Our fields of the model (a family's too), their names in config.json, and
        the values of a file that leaves them out, as in `transformers`' BertConfig.
      activation: The field of the activation, and its values in config.json with ours.
        If several mean the same one of ours, the last is written.
      fixed: Fields of config.json that have the same value in all models here.
      fixed_of_parts: The same, by part. A model with another value is read without the
        part.
      first_position: Row of the table of positions where texts begin.
      numbers: Pattern of a layer's number in names. Empty means that layers are not
        numbered.
      has_direction: Whether `is_decoder` is True if attention is causal.
    """

    family = "bert"
    architectures: Mapping[str, tuple[str, ...]] = {
        "BertModel": ("pooler",),
        "BertForPreTraining": ("pooler", "masked_lm", "next_sentence"),
        "BertForMaskedLM": ("masked_lm",),
        "BertLMHeadModel": ("masked_lm",),  # left to right
        "BertForNextSentencePrediction": ("pooler", "next_sentence"),
        "BertForSequenceClassification": ("pooler", "sequence_classification"),
        "BertForTokenClassification": ("token_classification",),
        "BertForQuestionAnswering": ("question_answering",),
        "BertForMultipleChoice": ("pooler", "multiple_choice"),
    }
    further_architectures: Mapping[str, tuple[str, ...]] = {}
    bare_heads: tuple[str, ...] = ()
    causal: Collection[str] = (
        *("BertForMaskedLM", "BertLMHeadModel"),
        *("BertForTokenClassification", "BertForQuestionAnswering"),
    )
    shared: tuple[str, ...] = ("pooler", "masked_lm", "next_sentence")
    prefix = "bert."
    names: tuple[tuple[str, str], ...] = (
        (r"(kernel|scale|embedding)$", "weight"),
        (r"layer_(\d+)", r"layer.\1"),
        (r"attention\.(query|key|value)", r"attention.self.\1"),
        (r"(output|intermediate)\.", r"\1.dense."),
        ("attention_layer_norm", "attention.output.LayerNorm"),
        (r"(layer\.\d+)\.layer_norm", r"\1.output.LayerNorm"),
        ("layer_norm", "LayerNorm"),
        (r"^bert\.pooler", "bert.pooler.dense"),
        (r"^masked_lm\.bias", "cls.predictions.bias"),
        ("^masked_lm", "cls.predictions.transform"),
        ("^next_sentence", "cls.seq_relationship"),
        ("^question_answering", "qa_outputs"),
        (
            "^(sequence_classification|token_classification|multiple_choice)",
            "classifier",
        ),
    )
    renames: tuple[tuple[str, str], ...] = ()
    fuses = False
    conv = "$^"
    tied: Mapping[str, str] = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    buffers = r"(.*\.)?embeddings\.(position|token_type)_ids"
    fields: Mapping[str, tuple[str, int | float]] = {
        "vocab_size": ("vocab_size", 30522),
        "hidden_size": ("hidden_size", 768),
        "num_hidden_layers": ("num_hidden_layers", 12),
        "num_attention_heads": ("num_attention_heads", 12),
        "intermediate_size": ("intermediate_size", 3072),
        "max_position_embeddings": ("max_position_embeddings", 512),
        "type_vocab_size": ("type_vocab_size", 2),
        "hidden_dropout_prob": ("hidden_dropout_prob", 0.1),
        "attention_probs_dropout_prob": ("attention_probs_dropout_prob", 0.1),
        "initializer_range": ("initializer_range", 0.02),
        "layer_norm_eps": ("layer_norm_eps", 1e-12),
    }
    activation: tuple[str, Mapping[str, str]] = (
        "hidden_act",
        {
            "gelu": "gelu",
            "gelu_new": "gelu_tanh",
            "gelu_pytorch_tanh": "gelu_tanh",
            "relu": "relu",
        },
    )
    fixed: Mapping[str, Any] = {
        "position_embedding_type": "absolute",
        "add_cross_attention": False,
    }
    fixed_of_parts: Mapping[str, Mapping[str, Any]] = {}
    first_position = 0
    numbers = r"\b(?:layers?|h)[._](\d+)\b"
    has_direction = True

    def parameters(
        self, part: str, config: BertConfig, labels: int = 0
    ) -> list[Parameter]:
        """Returns the parameters of a part, those of one tensor in its order.

        Args:
          part: `bert` (without its pooler), `pooler`, or a head.
          labels: Number of outputs of a head that has one for each label.
        """
        parts = itertools.chain(
            *self.architectures.values(), *self.further_architectures.values()
        )
        heads = tuple(sorted({*parts} - {"pooler"}))
        three, found = ("query", "key", "value"), []
        for path, shape in parameter_shapes(config, heads, labels).items():
            if not self.is_of(part, path):
                continue
            name = ".".join(path)
            for pattern, replacement in (*self.names, *self.renames):
                name = re.sub(pattern, replacement, name)
            joined = self.fuses and path[-2] in three
            fused = (three.index(path[-2]), 3) if joined else (0, 1)
            conv = bool(re.match(self.conv, name))
            found.append(Parameter(path, shape, name, fused, conv))
        return sorted(found, key=lambda parameter: parameter.fused)

    def is_of(self, part: str, path: ParamPath) -> bool:
        """Returns whether a part has this parameter."""
        return part == ("pooler" if path[:2] == ("bert", "pooler") else path[0])

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns fields of the model that the tables do not give, or change.

        Args:
          values: Values from the tables.
          fields, path: See `config`.
        """
        return {"causal": bool(fields.get("is_decoder", False))}

    def adapt(self, tensors: Tensors, config: BertConfig) -> None:
        """Changes the tensors of a file before they are read."""

    def export_error(self, task: Mapping[str, Any]) -> str:
        """Returns why a run with this `config.task` cannot be exported, or ""."""
        return ""

    def config(self, fields: Mapping[str, Any], path: Path) -> BertConfig:
        """Returns the model's sizes. Raises UserError if they are not supported.

        Args:
          fields: Fields of config.json.
          path: Path of config.json.
        """
        family = FAMILIES[self.family]
        for name, value in self.fixed.items():
            if (saved := fields.get(name, value)) != value:
                raise UserError(
                    f"{path}: {name}={saved!r:.80}; only "
                    f"{family.title} with {value!r} can be read"
                )
        values: dict[str, Any] = {"dtype": "float32", "attention": "einsum"}
        values |= {"remat": "none", "scan_layers": False}
        for ours, (name, default) in self.fields.items():
            value, kind = fields.get(name, default), type(default)
            fits = (kind is float and type(value) is int) or type(value) is kind
            if not fits or value < 0:
                raise UserError(f"{path}: {name}={value!r:.80} is not a valid number")
            values[ours] = kind(value)
        values["max_position_embeddings"] -= self.first_position
        name, known = self.activation
        if (act := fields.get(name, "gelu")) not in [*known]:
            supported = ", ".join(known)
            raise UserError(f"{path}: {name}={act!r:.80}; supported are {supported}")
        values |= {"hidden_act": known[act], "architecture": self.family}
        try:
            values |= self.model_fields(values, fields, path)
            config = bert_config(values, values["vocab_size"])
        except UserError as error:
            text = str(error).removeprefix(f"{path}: ")
            raise UserError(f"{path}: {text}") from error
        return config

    def name_of(self, heads: Collection[str], causal: bool) -> str:
        """Returns the architecture with these heads. Raises UserError if none has."""
        without = {"pooler", *self.bare_heads}
        found = [
            name
            for name, parts in (
                *self.architectures.items(),
                *self.further_architectures.items(),
            )
            if set(parts) - without == set(heads) - without
        ]
        found = [name for name in found if causal and "LMHead" in name] + found
        if not found:
            raise UserError(f"a model with the heads {', '.join(heads)} has no name")
        return found[0]

    def read(
        self,
        tensors: Tensors,
        fields: Mapping[str, Any],
        path: Path,
        labels: tuple[str, ...],
    ) -> Weights:
        """Reads a model that `transformers` saved, as float32.

        Args:
          fields, path: See `config`.
          labels: Names of a classifier's outputs.

        Raises:
          UserError: A tensor is missing or damaged, or the model is of another kind.
        """
        config, named = self.config(fields, path), named_architecture(fields)
        is_known = not named or named in self.architectures
        if fields.get("auto_map") and not is_known:
            raise UserError(
                f"{path}: architecture {named!r:.80} has code of its own (auto_map), "
                "which is not run"
            )
        self.rename(tensors, fields, config)
        parts, left_out = self._complete_parts(tensors, fields, config)
        architecture = self._architecture(parts, fields, config)
        if self.has_direction and config.causal and architecture not in self.causal:
            raise UserError(
                f"{path}: is_decoder is set, left to right, and {architecture} reads "
                "[CLS], which has seen nothing then; only "
                f"{', '.join(self.causal)} can be read"
            )
        self.adapt(tensors, config)
        if self.numbers:
            self._check_layers(tensors, config.num_hidden_layers)
        every = {*self.architectures[architecture], *self.shared}
        parts = {part: names for part, names in parts.items() if part in every}
        wanted = [
            parameter
            for part in ("bert", *parts)
            for parameter in self.parameters(part, config, len(labels))
        ]
        params = {p.path: _read(tensors, p) for p in wanted}
        known = {parameter.name for parameter in wanted}
        known |= self.tied.keys() if "masked_lm" in parts else set()
        left_over = sorted(tensors.shapes.keys() - known)
        self._check_trunk(tensors, left_over, config)
        if left_over and not is_known:
            raise UserError(
                f"{path}: architecture {named!r:.80} is not supported, and "
                f"{left_over[0]} is in no other; supported are "
                f"{', '.join(self.architectures)}"
            )
        # Files with one head often have everything from pre-training. Nothing is lost.
        needed = set(self.architectures[architecture])
        for name, other in self.architectures.items():
            if needed < set(other) == set(parts):
                architecture = name
        return Weights(
            config=config,
            params=unflatten_dict(params),
            architecture=architecture,
            labels=labels if set(parts) & set(LABELLED_HEADS) else (),
            left_over=(*left_out, *left_over),
        )

    def heads(
        self, tensors: Tensors, fields: Mapping[str, Any], path: Path
    ) -> tuple[str, ...]:
        """Returns the parts other than the trunk that `read` reads."""
        config = self.config(fields, path)
        self.rename(tensors, fields, config)
        parts, _ = self._complete_parts(tensors, fields, config)
        return self.architectures[self._architecture(parts, fields, config)]

    def rename(
        self, tensors: Tensors, fields: Mapping[str, Any], config: BertConfig
    ) -> None:
        """Gives tensors the names of a model with a head, and originals theirs.

        Args:
          fields: Fields of config.json.
        """
        for part in ("bert", *self.shared):
            for parameter in self.parameters(part, config):
                if (name := parameter.name) not in tensors.shapes:
                    tensors.rename(name.removeprefix(self.prefix), name)
        for copy, original in self.tied.items():
            if original not in tensors.shapes:
                tensors.rename(copy, original)

    def _complete_parts(
        self, tensors: Tensors, fields: Mapping[str, Any], config: BertConfig
    ) -> tuple[dict[str, set[str]], list[str]]:
        """Returns the names of the tensors of each part that a file has whole, and the
        parts that it has otherwise, each with the reason."""
        complete: dict[str, set[str]] = {}
        left_out = []
        named = self.architectures.get(named_architecture(fields), ())
        for part in dict.fromkeys(
            (*self.shared, *itertools.chain(*self.architectures.values()))
        ):
            names = self._names([part], config)
            missing = sorted(names - tensors.shapes.keys())
            fault = ""
            if missing and part in named and len(missing) < len(names):
                fault = f"{missing[0]} is missing"
            elif not missing:
                fault = (
                    self._describe_untied(tensors, fields)
                    if part == "masked_lm"
                    else ""
                )
                for name, value in self.fixed_of_parts.get(part, {}).items():
                    if (saved := fields.get(name, value)) != value:
                        fault = f"{name}={saved!r:.80}"
            if fault and part in self.bare_heads:
                raise UserError(
                    f"{tensors.where}: {fault}; such a model cannot be read"
                )
            if fault:
                left_out.append(f"{part} ({fault})")
            elif not missing:
                complete[part] = names
        return complete, left_out

    def _describe_untied(self, tensors: Tensors, fields: Mapping[str, Any]) -> str:
        """Returns how the masked LM's matrix or bias differs from the embeddings' or
        the original, or an empty text."""
        present = [copy for copy in self.tied if copy in tensors.shapes]
        for copy in present:
            original = self.tied[copy]
            if not np.array_equal(tensors.read(copy), tensors.read(original)):
                return f"{copy} differs from {original}"
        is_tied = fields.get("tie_word_embeddings") is not False
        matrix = next(iter(self.tied), "")
        return "" if is_tied or matrix in present else f"{matrix} is missing"

    def _architecture(
        self,
        parts: Mapping[str, Collection[str]],
        fields: Mapping[str, Any],
        config: BertConfig,
    ) -> str:
        """Returns the architecture of a file by its tensors. Where heads share names,
        config.json decides.

        Args:
          parts: Names of the tensors of each part that the file has.
        """
        name = named_architecture(fields)
        # A model without a head needs no pooler: it may be untrained and left out.
        there = {
            architecture: {*needed} - {"pooler"}
            for architecture, needed in self.architectures.items()
            if {*needed} <= parts.keys() or {*needed} == {"pooler"}
        }
        if there.get(name):
            return name
        # What it names is not there, so its tensors are not another head's either.
        absent = {*self.architectures.get(name, ())} - {"pooler", *self.shared}
        absent_names = self._names(absent, config)

        def count_explained(architecture: str) -> tuple[int, int, bool]:
            used = parts.keys() & {*there[architecture], "pooler", *self.shared}
            names = {n for part in used for n in parts[part]} - absent_names
            heads = [
                x
                for x in there[architecture]
                if {*parts[x]} - absent_names or not parts[x]
            ]
            return len(names), len(heads), architecture == name

        return max(there, key=count_explained)

    def _names(self, parts: Collection[str], config: BertConfig) -> set[str]:
        """Returns the names of the tensors of parts."""
        every = (self.parameters(part, config) for part in parts)
        return {parameter.name for parameter in itertools.chain(*every)} - {""}

    def _check_trunk(
        self, tensors: Tensors, left_over: Collection[str], config: BertConfig
    ) -> None:
        """Raises UserError if a tensor of the encoder has not been read: the model
        computes something else."""

        def root(name: str) -> str:
            return name.removeprefix(self.prefix).partition(".")[0]

        roots = {root(parameter.name) for parameter in self.parameters("bert", config)}
        for name in left_over:
            if root(name) in roots:
                raise UserError(
                    f"{tensors.where}: {name} is not a part of "
                    f"{FAMILIES[self.family].title} here, and its outputs would be "
                    "wrong without it"
                )

    def _check_layers(self, tensors: Tensors, configured: int) -> None:
        """Raises UserError if the config has another number of layers than the file."""
        count = len({*re.findall(self.numbers, "\n".join(tensors.shapes))})
        if count != configured:
            raise UserError(
                f"{tensors.where}: has {count} layers, but the config has "
                f"{self.fields['num_hidden_layers'][0]}={configured}"
            )

    def tensors(self, weights: Weights) -> dict[str, Array]:
        """Returns the tensors of model.safetensors."""
        params, parts = weights.params, list(self.architectures[weights.architecture])
        bare = not set(parts) - {"pooler"}
        if bare and "pooler" not in params["bert"]:
            parts = []
        joined: dict[str, tuple[int, list[Array]]] = {}
        for part in ("bert", *parts):
            for parameter in self.parameters(part, weights.config, len(weights.labels)):
                array = parameter.convert_to_torch(
                    np.asarray(parameter.get_value(params))
                )
                joined.setdefault(parameter.name, (parameter.axis, []))[1].append(array)
        joined.pop("", None)  # `transformers` has no such parameter
        tensors = {
            name: np.concatenate(arrays, axis) if arrays[1:] else arrays[0]
            for name, (axis, arrays) in joined.items()
        }
        if bare:
            return {name.removeprefix(self.prefix): v for name, v in tensors.items()}
        return tensors

    def config_fields(self, weights: Weights) -> dict[str, Any]:
        """Returns the model's fields of config.json, without its labels. Raises
        UserError if `transformers` has no such activation or sizes."""
        config, family = weights.config, FAMILIES[self.family]
        name, known = self.activation
        acts = {ours: theirs for theirs, ours in known.items()}
        if config.hidden_act not in acts:
            raise UserError(
                f"config.model.hidden_act={config.hidden_act}: in Hugging Face's form "
                f"{family.title} has {', '.join(acts)} only, so it cannot be exported"
            )
        fields = {
            theirs: getattr(config, ours) for ours, (theirs, _) in self.fields.items()
        }
        fields[self.fields["max_position_embeddings"][0]] += self.first_position
        if config.causal and self.has_direction:
            fields["is_decoder"] = True
        return {
            "architectures": [weights.architecture],
            "model_type": family.model_type,
            **fields,
            name: acts[config.hidden_act],
            **self.fixed,
            "tie_word_embeddings": True,
        }


BERT = Layout()


def named_architecture(fields: Mapping[str, Any]) -> str:
    """Returns the architecture that a config.json names, or an empty text."""
    named = fields.get("architectures") or [""]
    return str(named[0] if isinstance(named, list) else named)


def _read(tensors: Tensors, parameter: Parameter) -> Array:
    """Reads a parameter. Returns zeros if `transformers` has none of the kind."""
    name, shape = parameter.name, parameter.torch_shape
    if not name:
        return np.zeros(parameter.shape, np.float32)
    if name not in tensors.shapes:
        example = next((f" (it has {other})" for other in tensors.shapes), "")
        raise UserError(
            f"{tensors.where}: {name} is missing, but the config requires it{example}"
        )
    if (actual := tensors.shapes[name]) != shape:
        raise UserError(
            f"{tensors.where}: {name} has the shape {actual}, but the config requires "
            f"{shape}"
        )
    array = tensors.read(name)
    if not np.isfinite(array).all():
        raise UserError(
            f"{tensors.where}: {name} has NaN or infinity; the file is damaged"
        )
    return parameter.convert_from_torch(array)
