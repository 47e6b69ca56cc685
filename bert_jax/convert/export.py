"""Writes a Hugging Face model folder, which AutoModel... and AutoTokenizer open."""

import dataclasses
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import onnx_graph, peft, sentence_transformers
from bert_jax.convert.layout import Weights
from bert_jax.convert.tensors import WEIGHTS
from bert_jax.errors import UserError, first_line
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import hub, storage
from bert_jax.scores.calibration import sigmoid

log = logging.getLogger(__name__)

# The field of config.json that names the run a model is from.
PROVENANCE = "bert_jax"
ADAPTER = "adapter"  # folder of a run's adapters, in PEFT's form

# The Hub's names of tasks, by the ends of the architectures' names.
_TAGS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "LMHeadModel": "text-generation",
}


def export_folder(
    weights: Weights,
    tokenizer: Tokenizer | None,
    folder: Path,
    provenance: Mapping[str, Any],
    onnx: str = "",
) -> None:
    """Writes a model folder, complete or not at all.

    Leaves out parameters that the architecture does not have in `transformers`, such
    as a tagger's pooler.

    Args:
      tokenizer: The tokenizer. None leaves its files out.
      folder: A new or empty folder.
      provenance: JSON, saved in config.json under `bert_jax`. Its `max_seq_length` is
        the length to which the tokenizer truncates, if requested.
      onnx: One of `command_line.ONNX_DTYPES`, for an ONNX graph too. Empty means none.

    Raises:
      UserError: The folder has files, or the model cannot be exported.
      OSError: The disk is full, or the folder cannot be made.
    """
    folder = folder.absolute()
    require_empty(folder)
    _check_architecture(weights, provenance)
    if weights.vectors is not None:
        sentence_transformers.check_export(weights.vectors)
    if onnx:
        onnx_graph.check(weights, onnx)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with storage.name_full_disk(folder), storage.temporary_folder(folder) as new:
        _write_folder(weights, tokenizer, new, provenance, folder.name)
        for name, other in weights.others.items():  # the config is not theirs
            length = {"max_seq_length": _length(other.config, provenance)}
            (new / name).mkdir()
            _write_folder(other, tokenizer, new / name, length, name)
        config = provenance.get("config") or {}
        if weights.vectors is not None:
            dense, hidden = weights.params.get("dense", {}), weights.config.hidden_size
            files = sentence_transformers.write_modules(
                weights.vectors, dense, hidden, new
            )
            for name, value in files.items():
                _write_json(new / name, value)
        if weights.learned:
            base, model = config["init_from"], config["model"]
            if not peft.write(weights, base, model["lora_alpha"], new / ADAPTER):
                log.warning("exported without %s/: not PEFT's form", ADAPTER)
        if onnx:
            onnx_graph.write(weights, onnx, new / onnx_graph.FOLDER)
        new.rename(folder)  # also onto an empty folder


def _write_folder(
    weights: Weights,
    tokenizer: Tokenizer | None,
    folder: Path,
    provenance: Mapping[str, Any],
    name: str,
) -> None:
    """Writes model, tokenizer and card. `name` is the model's in the card."""
    _write_model(weights, tokenizer, folder, provenance)
    if tokenizer is not None:
        _write_tokenizer(weights, tokenizer, folder, provenance)
    card = _card(name, weights, provenance)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _check_architecture(weights: Weights, provenance: Mapping[str, Any]) -> None:
    """Raises UserError if `transformers` has no such model."""
    family, what = FAMILIES[weights.config.architecture], weights.architecture
    table, task = family.layout, (provenance.get("config") or {}).get("task")
    if weights.left_over:
        log.warning("exported without %s", ", ".join(weights.left_over))
    ours = ("einsum", "fused", "post_norm", "learnt")
    brought = family.registry_entries
    custom = [  # components from a config file that the model computes with
        f"{field} {name}"
        for field in ("attention", "layer", "positions")
        if (name := getattr(weights.config, field)) not in ours
        and name not in brought.get(f"model.{field}", ())
    ]
    if custom:
        why = f"Hugging Face's BERT has no {' and '.join(custom)} of your own"
    elif task and not family.model_type:
        why = "Hugging Face has no such model"
    elif task and (found := table.export_error(task)):
        why = found
    elif "bilstm" in weights.params:
        why = "config.task.bilstm=True: Hugging Face has no BERT with a BiLSTM"
    elif what in table.further_architectures:
        why = f"Hugging Face has no {what}"
    elif weights.config.causal and what not in table.causal:
        why = (
            f"a left-to-right {what} reads the last [SEP] here, but [CLS] in Hugging "
            "Face's"
        )
    else:
        return
    raise UserError(f"{why}, so it cannot be exported; ask it with --mode=predict")


def divide_logits(weights: Weights, temperature: float) -> Weights:
    """Divides the last layer of a text classifier by the temperature of its logits."""
    head = dict(weights.params["sequence_classification"])
    for name in {"kernel", "bias"} & head.keys():
        head[name] = np.asarray(head[name] / temperature, np.float32)
    divided = {"sequence_classification": head}
    learned = weights.learned and {**weights.learned, **divided}
    params = {**weights.params, **divided}
    return dataclasses.replace(weights, params=params, learned=learned)


def rename_labels(
    provenance: Mapping[str, Any], labels: Sequence[str]
) -> dict[str, Any]:
    """Returns an export's provenance with the labels that `id2label` has now, which may
    be better names: in the config, and those of fitted thresholds."""
    config = dict(provenance.get("config") or {})
    fields, fitted = dict(config.get("task", {})), dict(provenance.get("task", {}))
    recorded = tuple(fields.get("labels", ()))
    if not recorded or len(recorded) != len(labels):
        return dict(provenance)
    names = dict(zip(recorded, labels, strict=True))
    fields["labels"] = [*names.values()]
    if positive := fields.get("positive_label"):
        fields["positive_label"] = names.get(positive, positive)
    if thresholds := fitted.get("thresholds"):
        fitted["thresholds"] = {names.get(n, n): x for n, x in thresholds.items()}
    return {**provenance, "config": {**config, "task": fields}, "task": fitted}


def require_empty(folder: Path) -> None:
    """Raises UserError if a folder to write has files, or is a file."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"--output={folder}: is not empty; name a new folder")


def _write_model(
    weights: Weights,
    tokenizer: Tokenizer | None,
    folder: Path,
    provenance: Mapping[str, Any],
) -> None:
    family = FAMILIES[weights.config.architecture]
    tensors = family.layout.tensors(weights)
    try:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk, known only by the text
        raise OSError(0, f"{WEIGHTS}: {first_line(error)}") from error
    fields = family.layout.config_fields(weights)
    pad = weights.pad_token_id
    if tokenizer is not None:
        pad = tokenization.special_ids(tokenizer).pad
    # Some models' default is beyond a small vocabulary.
    fields["pad_token_id"] = fields.get("pad_token_id", 0) if pad is None else pad
    if weights.labels:
        fields["id2label"] = {str(i): name for i, name in enumerate(weights.labels)}
        fields["label2id"] = {name: i for i, name in enumerate(weights.labels)}
    if weights.problem_type is not None:
        fields["problem_type"] = weights.problem_type
    _write_json(folder / "config.json", {**fields, PROVENANCE: dict(provenance)})
    # safetensors makes its file readable by the owner only.
    shutil.copymode(folder / "config.json", folder / WEIGHTS)


def _write_tokenizer(
    weights: Weights, tokenizer: Tokenizer, folder: Path, provenance: Mapping[str, Any]
) -> None:
    family = FAMILIES[weights.config.architecture]
    heads = family.layout.architectures[weights.architecture]
    kind = tokenization.kind_of(tokenizer)
    tokenizer, fields, special = kind.export_content(tokenizer, heads)
    segments = ("token_type_ids",) if family.has_segments else ()
    tokenizer_config = {
        # A class of the model's would build its own tokenizer from the vocabulary:
        # BertTokenizer maps words of more than 100 characters to [UNK].
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **fields,
        "model_max_length": _length(weights.config, provenance),
        **special,
    }
    tokenizer = tokenization.fill_ids(tokenizer, weights.config.vocab_size)
    tokenization.save_tokenizer(tokenizer, folder)
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    _write_json(folder / "special_tokens_map.json", special)


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def _length(config: BertConfig, provenance: Mapping[str, Any]) -> int:
    """Returns the maximum tokens of a text: the length of the run that trained the
    model, or the number of positions where no run is recorded."""
    positions = config.max_position_embeddings
    return min(provenance.get("max_seq_length", positions), positions)


def _results(tag: str, scores: Mapping[str, Mapping[str, float]]) -> list[dict]:
    """Returns the scores of each split in the form of the Hub's `model-index`."""
    return [
        {
            "task": {"type": tag},
            "dataset": {"name": split, "type": split},
            "metrics": [{"type": n, "value": round(x, 4)} for n, x in values.items()],
        }
        for split, values in scores.items()
    ]


def _inherited(source: str) -> dict[str, Any]:
    """Returns `language` and `license` of the card in the folder of weights from which
    a run began, as far as it has them."""
    card = Path(source or "nowhere", "README.md")
    if not card.is_file():
        return {}
    from huggingface_hub import metadata_load  # slow

    fields = metadata_load(card) or {}
    return {name: fields[name] for name in ("language", "license") if name in fields}


def _card(name: str, weights: Weights, provenance: Mapping[str, Any]) -> str:
    """Returns README.md: the model, how to open it, its scores, how it was trained.

    Args:
      provenance: Fields of config.json: `step`, `config`, `scores` and
        `max_seq_length` of the run, if this code trained the model.
    """
    size, what = weights.config, weights.architecture
    config = provenance.get("config") or {}
    source = str(config.get("init_from", ""))
    base = source.removeprefix(hub.PREFIX).partition("@")[0]
    library = "transformers" if weights.vectors is None else "sentence-transformers"
    header = f"library_name: {library}\ntags:\n- bert_jax\n"
    header += f"base_model: {base}\n" if source.startswith(hub.PREFIX) else ""
    tags = (tag for end, tag in _TAGS.items() if what.endswith(end))
    tag = next(tags, "feature-extraction")
    tag = "sentence-similarity" if weights.vectors is not None else tag
    header += f"pipeline_tag: {tag}\n"
    for field, value in _inherited(source).items():
        header += f"{field}: {json.dumps(value)}\n"  # JSON is YAML
    if scores := provenance.get("scores"):
        index = [{"name": name, "results": _results(tag, scores)}]
        header += f"model-index: {json.dumps(index)}\n"
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(weights.params))
    text = f"""---
{header}---

# {name}

A {what}: {size.num_hidden_layers} layers, {size.hidden_size} hidden, \
{size.num_attention_heads} heads, {count:,} parameters, {size.vocab_size:,} tokens, \
up to {_length(size, provenance)} in a text.

```python
from transformers import AutoTokenizer, {what}

tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})
model = {what}.from_pretrained({json.dumps(name)})
```
"""
    if weights.vectors is not None:
        text += _vectors_card(name, weights)
    if thresholds := provenance.get("task", {}).get("thresholds"):
        least = sigmoid(np.array([*thresholds.values()], np.float64))
        text += "\nA label is given from this probability on, fitted on dev:\n\n"
        text += "| label | from |\n| --- | --- |\n"
        pairs = zip(thresholds, least, strict=True)
        text += "".join(f"| {label} | {value:.4f} |\n" for label, value in pairs)
    for split, scores in provenance.get("scores", {}).items():
        text += f"\nScores on {split}:\n\n| score | value |\n| --- | --- |\n"
        text += "".join(f"| {n} | {value:.4g} |\n" for n, value in scores.items())
    if config:
        text += (
            f"\nTrained with bert_jax (JAX and Flax): {config['task'].get('name')}, "
            f"{provenance.get('step', 0):,} steps. `config.json` has the whole config, "
            "under `bert_jax`.\n"
        )
    if provenance.get("trained_further"):
        text += "\nThe parameters were then trained further, by other code.\n"
    return text


def _vectors_card(name: str, weights: Weights) -> str:
    """Returns the part of a card about vectors of texts."""
    how, config = weights.vectors, weights.config
    assert how is not None
    size = config.hidden_size * (1 + how.pooling.count("+"))
    size = int(how.dense[-1].partition(":")[0]) if how.dense else size
    steps = [f"pooling `{how.pooling}`", *(f"a linear layer `{x}`" for x in how.dense)]
    steps += ["length 1"] * how.normalized
    prompt = f" Texts begin with `{how.prompt}`." if how.prompt else ""
    sizes = ", ".join(map(str, how.dimensions))
    cut = f" Vectors may be cut to {sizes} numbers." if sizes else ""
    return f"""
A text of up to {how.max_seq_length} tokens becomes a vector of {size} numbers: the last
layer, {", then ".join(steps)}.{prompt}{cut}

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer({json.dumps(name)}).encode(["A text."])
```
"""
