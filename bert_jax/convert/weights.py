"""Sources of weights: folders of Hugging Face's and Google's form, runs, finding one.

Nothing in a folder is executed: only JSON, safetensors, msgpack, the tensors of
PyTorch's files and TensorFlow's checkpoints are read. A family's `Layout` has the form
of its files.
"""

import copy
import dataclasses
import functools
import itertools
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import fields
from bert_jax.config.phases import phases_of
from bert_jax.convert import (
    export,
    google,
    layout,
    merge,
    peft,
    sentence_transformers,
    tensors,
)
from bert_jax.convert.layout import Layout, Weights
from bert_jax.convert.sentence_transformers import TextVectors
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, GENERATOR, Family, bert_config
from bert_jax.models import lora
from bert_jax.models.config import BertConfig
from bert_jax.models.stacking import unstack_layers
from bert_jax.runtime import hub, storage, untrusted
from bert_jax.runtime.storage import Path
from bert_jax.types import Params
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import metrics

CHECKPOINTS = "checkpoints"  # a folder in a work directory
# A model has at most so many spare rows, such as those that make their number a
# multiple: NVIDIA's BERT has 6, mDeBERTa-v3 898.
_SPARE = 1024


class Source:
    """A folder of weights, with a subclass for each kind.

    Attributes:
      folder: Folder of the files.
      tokenizer_folder: Folder of the tokenizer.
      family: Family of the model.
      step: Step of the checkpoint to read. None means the newest.
    """

    def __init__(self, folder: Path, family: Family, step: int | None = None):
        self.folder, self.family, self.step = folder, family, step
        self.tokenizer_folder = folder

    def config(self) -> BertConfig:
        """Returns the model's sizes. Raises UserError if they are not supported."""
        raise NotImplementedError

    def shape(self) -> dict[str, Any]:
        """Returns the values of the fields that weights decide, by `GROUP.NAME`.

        Raises:
          UserError: See `config`.
        """
        model = self.config()
        values = vars(model) | dict(model.family_fields)
        known = fields.FIELDS | dict(self.family.fields)
        return {
            f"model.{name}": value
            for name, value in values.items()
            if (field := known.get(f"model.{name}")) and field.from_weights
        }

    def labels(self) -> tuple[str, ...]:
        """Returns the names of a fine-tuned model's outputs, if there are any."""
        return ()

    def heads(self) -> tuple[str, ...]:
        """Returns the heads of weights without a run."""
        return ()

    def named_heads(self) -> tuple[str, ...]:
        """Returns the heads that a folder's config.json names."""
        return ()

    def kind(self) -> str | None:
        """Returns the `task.kind` of a text classifier, if the folder specifies it."""
        return None

    def run_config(self) -> dict[str, Any] | None:
        """Returns the config of the run that wrote the weights, or None if unknown."""
        return None

    def text_vectors(self) -> TextVectors | None:
        """Returns how a text becomes a vector, if the weights specify it.

        Raises:
          UserError: sentence-transformers specifies it in a way that is not supported.
        """
        config = self.run_config()
        if config is None or config["task"].get("name") != "embeddings":
            return None
        task = config["task"]
        return TextVectors(
            pooling=task["pooling"],
            dense=tuple(task["dense"]),
            normalized=task["normalized"],
            max_seq_length=task["max_seq_length"],
            prompt=task["prompt"],
            prompts=tuple(task["prompts"]),
            dimensions=tuple(task["dimensions"]),
        )

    def dense(self) -> dict[str, Any]:
        """Returns the parameters of `text_vectors`' linear layers that `read` lacks."""
        return {}

    def read(self, name: str = "") -> Weights:
        """Reads the weights, as float32 NumPy arrays.

        Args:
          name: Name of a work directory's folder of checkpoints. Empty means that the
            run's config decides.

        Raises:
          UserError: A file is missing or damaged, or the model is of another kind.
        """
        raise NotImplementedError

    def tokenizer(self, config: BertConfig | None = None) -> Tokenizer | None:
        """Returns the tokenizer next to the weights, or None if there is none.

        Args:
          config: Config of the model. Raises UserError if the two do not match.
        """
        folder = self.tokenizer_folder
        tokenizer = tokenization.load_folder_tokenizer(folder)
        if tokenizer is not None and config is not None:
            pieces, rows = tokenizer.get_vocab_size(), config.vocab_size
            padded = 0 < rows - pieces <= _SPARE
            certain = padded and tokenization.has_certain_ids(folder, tokenizer)
            if pieces != rows and not certain:
                raise UserError(
                    f"{folder}: its vocabulary has {pieces} pieces, but the "
                    f"model's vocab_size is {rows}; take the model's own, and add a "
                    "line [unused...] for each piece that vocab.txt lacks at its end"
                )
        return tokenizer

    def start(
        self, task: Any, abstract: Any, name: str = ""
    ) -> tuple[dict[str, Any], merge.Report]:
        """Reads the first parameters of a run. See `training.setup.init_weights`."""
        given = task.config.init_from
        weights, words = self.read(name), tuple(task.config.tokenizer.add)
        if task.options.dense and (dense := self.dense()):
            params = {**weights.params, sentence_transformers.DENSE: dense}
            weights = dataclasses.replace(weights, params=params)
        saved = self.tokenizer(weights.config)
        merge.check_tokenizer(task.tokenizer, saved, given, words)
        if words and saved is not None:
            weights = merge.add_rows(weights, saved, words, task.config)
        if layers := task.config.init_layers:
            weights = merge.keep_layers(weights, layers, given)
        labels = tuple(task.options.labels)
        unnamed = layout.default_labels(len(labels))  # as good as the same
        if weights.labels == unnamed:
            renamed = export.rename_labels(weights.provenance, labels)
            weights = dataclasses.replace(weights, provenance=renamed)
        weights = weights.reorder_labels(labels, given)
        if labels and weights.labels not in (labels, unnamed):
            heads = [part for part in weights.params if part in layout.LABELLED_HEADS]
            others = [f"{part} (of other labels)" for part in heads]
            kept = {n: x for n, x in weights.params.items() if n not in heads}
            left_over = (*others, *weights.left_over)
            weights = dataclasses.replace(weights, params=kept, left_over=left_over)
        return merge.merge_weights(
            abstract, weights, task.model_config, hub.resolve_revision(given)
        )

    def export(
        self,
        target: Path,
        name: str = "",
        params: Params | None = None,
        onnx: str = "",
    ) -> None:
        """Writes a model folder. Arguments and errors are those of `read` and
        `export.export_folder`.

        Args:
          params: Parameters in place of these weights', which have been trained
            further. What was fitted or scored with the weights is then left out.
        """
        weights = self.read(name)
        tokenizer, folder = self.tokenizer(weights.config), pathlib.Path(target)
        provenance = copy.deepcopy(dict(weights.provenance))
        if isinstance(self, Run) and params is None:
            workdir.warn_unfitted(provenance["config"]["task"], provenance["task"])
        if "crf" in weights.params:  # which `transformers` does not have
            provenance["config"]["task"]["crf"] = False
        if params is not None:
            weights = dataclasses.replace(weights, params=params, learned={})
            provenance = {
                key: value
                for key, value in provenance.items()
                if key not in ("scores", "task")
            }
            provenance["trained_further"] = True
        if temperature := provenance.get("task", {}).pop("temperature", None):
            weights = export.divide_logits(weights, temperature)
        if (vectors := self.text_vectors()) is not None:
            params = {sentence_transformers.DENSE: self.dense(), **weights.params}
            weights = dataclasses.replace(weights, params=params, vectors=vectors)
        export.export_folder(weights, tokenizer, folder, provenance, onnx)


class HuggingFace(Source):
    """A model that `transformers` or an export saved."""

    CONFIG = "config.json"

    def __init__(self, folder: Path):
        """Reads config.json. Raises UserError if no family has such models."""
        self._path = pathlib.Path(folder / self.CONFIG)
        self._fields = untrusted.read_object(folder / self.CONFIG)
        kind = self._fields.get("model_type") or "bert"  # old folders name none
        known = dict[str, Family]()
        for family in FAMILIES.values():  # one that a config file adds comes last
            known.setdefault(family.model_type, family)
        known.pop("", None)  # for families that `transformers` does not have
        if kind not in [*known]:
            raise UserError(
                f"{self._path}: model_type is {kind!r:.80}; only "
                f"{', '.join(known)} can be read"
            )
        super().__init__(folder, known[kind])
        self._layout: Layout = self.family.layout
        self._modules_folder = self._path.parent

    def config(self) -> BertConfig:
        return self._layout.config(self._fields, self._path)

    def labels(self) -> tuple[str, ...]:
        """Returns the names of a classifier's outputs, LABEL_0 ... if unnamed.

        Raises:
          UserError: `id2label` does not name every output.
        """
        names = self._fields.get("id2label")
        if names is None:
            heads = r"(.*\.)?(classifier|score)\.(out_proj\.)?weight"
            shapes = self._saved_tensors.shapes.items()
            saved = [x for name, x in shapes if re.fullmatch(heads, name)]
            count = next((shape[0] for shape in saved if len(shape) == 2), None)
            return layout.default_labels(self._fields.get("num_labels", count or 2))
        if not {*self.heads()} & {*layout.LABELLED_HEADS}:
            return layout.default_labels(len(names))  # of no output
        labels = tuple(str(names.get(str(index))) for index in range(len(names)))
        if {*names} != {*map(str, range(len(names)))} or len({*labels}) < len(labels):
            raise UserError(
                f"{self._path}: id2label={names!r:.80}; give each of "
                "the outputs 0, 1, ... a name of its own"
            )
        return labels

    def heads(self) -> tuple[str, ...]:
        return self._layout.heads(self._saved_tensors, self._fields, self._path)

    def named_heads(self) -> tuple[str, ...]:
        named = layout.named_architecture(self._fields)
        return self._layout.architectures.get(named, ())

    def kind(self) -> str | None:
        return layout.KINDS.get(self._fields.get("problem_type") or "")

    def run_config(self) -> dict[str, Any] | None:
        return self._provenance().get("config")

    def text_vectors(self) -> TextVectors | None:
        positions = self.config().max_position_embeddings
        return sentence_transformers.read_modules(self._modules_folder, positions)

    def dense(self) -> dict[str, Any]:
        return sentence_transformers.read_dense(self._modules_folder)

    def read(self, name: str = "") -> Weights:
        saved, fields, labels = self._saved_tensors, self._fields, self.labels()
        others = (GENERATOR,) if self.family.replaced_tokens else ()
        folders = {each: self.folder / each for each in others}
        return dataclasses.replace(
            self._layout.read(saved, fields, self._path, labels),
            others={
                each: find_source(folder).read()
                for each, folder in folders.items()
                if (folder / self.CONFIG).exists()
            },
            problem_type=fields.get("problem_type"),
            pad_token_id=fields.get("pad_token_id"),
            provenance=self._provenance(),
        )

    @functools.cached_property
    def _saved_tensors(self) -> Tensors:
        return self._tensors()

    def _tensors(self) -> Tensors:
        return Tensors.open_folder(self._path.parent, self._layout.buffers)

    def _provenance(self) -> dict[str, Any]:
        """Returns `Weights.provenance`. It is of no use if `transformers` has trained
        the model since, which keeps our field and adds its version."""
        recorded = self._fields.get(export.PROVENANCE)
        is_ours = "transformers_version" not in self._fields
        if not isinstance(recorded, dict) or not is_ours:
            return {}
        return export.rename_labels(recorded, self.labels())


class Peft(HuggingFace):
    """A model of another folder, with the adapters that PEFT saved merged into it."""

    def __init__(self, folder: Path):
        """Reads both configs. Raises UserError if one of them is not supported."""
        self._adapter = peft.Adapter(folder)
        try:
            base = find_source(self._adapter.base)
        except UserError as error:
            where = f"{folder / peft.CONFIG}: its base_model_name_or_path"
            raise UserError(f"{where}: {error}") from error
        if type(base) is not HuggingFace:
            raise UserError(
                f"{folder / peft.CONFIG}: its base_model_name_or_path, {base.folder}, "
                "is no folder of Hugging Face's form"
            )
        super().__init__(base.folder)
        self._adapter.complete(self._fields, self._layout)
        # Its own files come first, as in `transformers` and sentence-transformers.
        if tokenization.has_vocabulary(folder):
            self.tokenizer_folder = folder
        if (folder / sentence_transformers.MODULES).exists():
            self._modules_folder = pathlib.Path(folder)

    def _tensors(self) -> Tensors:
        tensors = super()._tensors()
        self._adapter.apply(tensors, self._layout)
        return tensors

    def read(self, name: str = "") -> Weights:
        found = super().read(name)
        self._adapter.check_read(found, self._layout)
        return found

    def _provenance(self) -> dict[str, Any]:
        return {}  # the base's is of another model


class Google(HuggingFace):
    """A checkpoint that Google released, or run_classifier.py or run_squad.py wrote:
    bert_config.json, bert_model.ckpt.* and vocab.txt."""

    CONFIG = "bert_config.json"

    def __init__(self, folder: Path):
        super().__init__(folder)
        # The default of modeling.py.
        self._fields = {"type_vocab_size": 16, **self._fields}

    def _tensors(self) -> Tensors:
        folder = self._path.parent
        indices = sorted(folder.glob("bert_model.ckpt.index"))
        indices = indices or sorted(folder.glob("*.ckpt*.index"))
        if len(indices) != 1 or not [*folder.glob(f"{indices[0].stem}.data-*")]:
            raise UserError(
                f"{folder}: one checkpoint is required, bert_model.ckpt.index with "
                "bert_model.ckpt.data-...; found "
                + (", ".join(path.name for path in sorted(folder.glob("*.ckpt*"))))
            )
        prefix = indices[0].with_suffix("")
        return Tensors(prefix, google.variables(prefix))


class Run(Source):
    """A run of pre-training or fine-tuning."""

    def shape(self) -> dict[str, Any]:
        return fields.decided_values(workdir.recorded_config(self.folder, code=False))

    def labels(self) -> tuple[str, ...]:
        return tuple(workdir.read_config(self.folder)["task"].get("labels", ()))

    def run_config(self) -> dict[str, Any] | None:
        return workdir.read_config(self.folder)

    def tokenizer(self, config: BertConfig | None = None) -> Tokenizer | None:
        """Returns the tokenizer. A run may have more embedding rows than tokens."""
        return super().tokenizer()

    def read(self, name: str = "") -> Weights:
        config, params, step = read_checkpoint(self.folder, name, self.step)
        learned: dict[str, Any] = {}
        if config.model.lora_rank:
            adapters = unstack_layers(params[lora.NAME])
            learned = {**unstack_layers(params), lora.NAME: adapters}
            params = merge_base(self.folder, config, learned)
        vocabulary = tokenization.load(self.folder / "tokenizer.json")
        config.model.update(epilogue="xla", scan_layers=False, remat="none")
        if config.model.attention == "fused":  # it computes the same
            config.model.attention = "einsum"
        model = bert_config(config.model, vocabulary.get_vocab_size())
        if model.causal:  # no next sentence head was trained
            params.pop("next_sentence", None)
        params = unstack_layers(jax.device_get(params))
        models = self.family.models(model, params)
        weights = {name: self._weights(*model) for name, model in models.items()}
        own = weights.pop("")
        return dataclasses.replace(
            own,
            learned=learned,
            others=weights,
            labels=_labels(config, own.params),
            problem_type=_problem_type(config, own.params),
            provenance={
                "step": step,
                "config": workdir.read_config(self.folder),
                "task": workdir.read_facts(self.folder, step),
                "scores": read_scores(self.folder, step, config.evaluate.splits),
                **trained_length(config, step),
            },
        )

    def _weights(self, config: BertConfig, params: Mapping[str, Any]) -> Weights:
        """Returns a model without custom heads, which the layout does not have."""
        layout = self.family.layout
        parts = itertools.chain(
            *layout.architectures.values(), *layout.further_architectures.values()
        )
        known = {"bert", "bilstm", "crf", sentence_transformers.DENSE}
        user_heads = params.keys() - {*parts} - known
        params = {k: v for k, v in params.items() if k not in user_heads}
        architecture = layout.name_of(params.keys() - known, config.causal)
        left_over = tuple(sorted(user_heads))
        return Weights(config, params, architecture, left_over=left_over)


def read_checkpoint(
    folder: Path, name: str = "", only: int | None = None
) -> tuple[ConfigDict, dict[str, Any], int]:
    """Reads a run's config, and a checkpoint's parameters and step.

    Args:
      name: Name of the folder of checkpoints. Empty means the one that the run's config
        selects.
      only: Step of a checkpoint in `checkpoints`. None means the newest.

    Raises:
      UserError: There is none, or the run has several seeds.
    """
    # Imported here: weights of other kinds do not need Orbax.
    from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name

    config = workdir.recorded_config(folder, code=False)
    workdir.require_one_seed(folder, config)
    name = CHECKPOINTS if only is not None else name or checkpoint_name(config)
    # On one device, whatever mesh it was trained on.
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints(folder, None, name, only=only) as checkpoints:
        restored = checkpoints.restore_params(sharding)
    if restored is None:
        raise UserError(f"{folder}: has no checkpoint yet")
    return config, *restored


def read_scores(
    folder: Path, step: int, splits: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns each split's scores at a step, as far as the run has evaluated it there.

    Raises:
      UserError: The metrics.jsonl is damaged.
    """
    return {
        split: {
            name: float(value)
            for name, value in line.items()
            if name not in ("step", "time") and math.isfinite(value)
        }
        for split in splits
        for line in metrics.read_metrics(folder, split)
        if line["step"] == step
    }


def trained_length(config: ConfigDict, step: int) -> dict[str, int]:
    """Returns `max_seq_length`: the maximum tokens of a text that the run has trained
    on until a step. Empty where the run trains every position, or for a custom task."""
    if fields.is_finetuning(config):
        return {"max_seq_length": config.task.max_seq_length}
    if config.task.name != "pretraining" or config.corpus.shift_positions:
        return {}
    seen = [phase for phase in phases_of(config) if phase.first_step < max(step, 1)]
    return {"max_seq_length": max(phase.max_seq_length for phase in seen)}


def _labels(config: ConfigDict, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the task's names of a classifier's outputs, LABEL_0 ... if unnamed."""
    for head in params.keys() & {*layout.LABELLED_HEADS}:
        labels = tuple(fields.task_values(config).labels)
        return labels or layout.default_labels(len(params[head]["bias"]))
    return ()


def _problem_type(config: ConfigDict, params: Mapping[str, Any]) -> str | None:
    """Returns config.json's problem_type of a text classifier."""
    classifier = params.get("sequence_classification")
    if classifier is None:
        return None
    kind = "regression" if len(classifier["bias"]) == 1 else "classification"
    is_multilabel = fields.task_values(config).kind == "multilabel"
    return layout.PROBLEM_TYPES["multilabel" if is_multilabel else kind]


def merge_base(
    folder: Path, config: ConfigDict, learned: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the model's parameters of a run with LoRA, merged with its base's.

    Args:
      folder: The work directory.
      config: The run's config.
      learned: The run's own parameters, layers not stacked.

    Raises:
      UserError: The base is not there, or has changed since the run began.
    """
    read = find_source(config.init_from).read()
    if config.init_layers:
        read = merge.keep_layers(read, config.init_layers, config.init_from)
    base = {"bert": read.params["bert"]}
    workdir.check_data(folder, {"base": workdir.digest(base)})
    flat = flatten_dict(base) | flatten_dict(learned)
    return dict(lora.merge(unflatten_dict(flat), config.model))


def find_source(path: str | Path) -> Source:
    """Finds weights.

    Args:
      path: A work directory, one of its checkpoints (RUN/checkpoints/STEP), a Hugging
        Face folder, a model on its Hub (hf:OWNER/NAME), or a folder with a checkpoint
        of Google's code.

    Raises:
      UserError: The folder is none of these.
    """
    folder, step = storage.split_checkpoint_path(hub.model_folder(path), CHECKPOINTS)
    if not storage.in_bucket(folder):
        folder = sentence_transformers.encoder_folder(folder)
    try:
        names = {entry.name for entry in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder}: no such folder; a work directory, a folder of Hugging Face's "
            "or Google's form, or hf:OWNER/NAME is required"
        ) from error
    files = {Google.CONFIG, peft.CONFIG, *tensors.FILES}
    if storage.in_bucket(folder) and names & files:
        raise UserError(
            f"{folder}: in a bucket only work directories can be read; copy it to this "
            "machine (gcloud storage cp -r) and name the copy"
        )
    if peft.CONFIG in names:
        return Peft(folder)
    if names & {*tensors.FILES}:
        return HuggingFace(folder)
    if Google.CONFIG in names:
        return Google(folder)
    if {"config.json", CHECKPOINTS} <= names:
        architecture = workdir.read_config(folder)["model"].get("architecture", "bert")
        return Run(folder, FAMILIES.lookup(architecture), step)
    wanted = f"{tensors.WEIGHTS}, {CHECKPOINTS}/ or {Google.CONFIG}"
    raise UserError(f"{folder}: no weights: has none of {wanted}")


def read_weights(path: str | Path) -> Weights:
    """Reads the weights that `find_source` finds."""
    return find_source(path).read()
