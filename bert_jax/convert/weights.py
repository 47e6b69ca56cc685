"""Finds the source of weights by the files of a folder."""

from typing import Any

from tokenizers import Tokenizer

from bert_jax.convert import huggingface, runs, sentence_transformers, tensors
from bert_jax.convert.google import CONFIG as GOOGLE_CONFIG
from bert_jax.convert.google import Google
from bert_jax.convert.layout import Place, Weights, as_it_is
from bert_jax.convert.source import Source
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, named
from bert_jax.models.config import BertConfig
from bert_jax.runtime import hub, storage, untrusted
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

_ADAPTER = "adapter_config.json"  # beside an adapter's weights


def find(path: str | Path) -> Source:
    """Finds weights.

    Args:
      path: a work directory, one of its checkpoints (RUN/checkpoints/STEP), a Hugging
        Face folder, a model on its Hub (hf:OWNER/NAME), a folder with a checkpoint of
        Google's code, or one of a family's released weights.

    Raises:
      UserError: the folder is none of these.
    """
    folder, step = storage.split_checkpoint_path(hub.path(path), runs.CHECKPOINTS)
    if not storage.in_bucket(folder):
        folder = sentence_transformers.encoder_folder(folder)
    try:
        names = {entry.name for entry in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder}: no such folder; a work directory, a Hugging Face folder, one "
            "with Google's bert_config.json and bert_model.ckpt.*, or hf:OWNER/NAME of "
            "the Hugging Face Hub is required"
        ) from error
    if storage.in_bucket(folder) and names & {GOOGLE_CONFIG, *tensors.FILES}:
        raise UserError(
            f"{folder}: in a bucket only work directories can be read; copy it to this "
            "machine (gcloud storage cp -r) and name the copy"
        )
    if names & set(tensors.FILES):
        return huggingface.HuggingFace(folder)
    if _ADAPTER in names:
        base = untrusted.read_json(folder, _ADAPTER).get("base_model_name_or_path")
        raise UserError(
            f"{folder}: an adapter of PEFT for {untrusted.shown(base)}, not a whole "
            "model; merge it into that one with peft's merge_and_unload(), and name "
            "the folder to which save_pretrained() writes the result"
        )
    if GOOGLE_CONFIG in names:
        return Google(folder, FAMILIES["bert"])
    if {"config.json", runs.CHECKPOINTS} <= names:
        fields = workdir.read_config(folder)
        architecture = fields["model"].get("architecture", "bert")
        family = named(fields["task"].get("name", ""), architecture)
        return _of_family(family, folder, step)
    for family in FAMILIES.values():
        if family.released and family.released in names:
            return _of_family(family, folder)
    if "config.json" in names:
        raise UserError(
            f"{folder}: has no {tensors.WEIGHTS} and no {runs.CHECKPOINTS}/"
        )
    google = any(".ckpt" in name for name in names)
    raise UserError(f"{folder}: has no {GOOGLE_CONFIG if google else 'config.json'}")


def _of_family(family: Any, folder: Path, step: int | None = None) -> Source:
    source: Source = family.source(folder, family, step)
    return source


def read(path: str | Path, place: Place = as_it_is, name: str = "") -> Weights:
    """Reads the weights that `find` finds; arguments as of `Source.read`."""
    return find(path).read(place, name)


def read_tokenizer(
    path: str | Path, config: BertConfig | None = None
) -> Tokenizer | None:
    """Reads the tokenizer beside weights; arguments as of `Source.tokenizer`."""
    return find(path).tokenizer(config)
