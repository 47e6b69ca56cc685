"""Reads and exports weights of every kind; chooses the reader by the folder."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import config as theirs
from bert_jax.convert import export as huggingface_export
from bert_jax.convert import google, huggingface, layout, reading
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.runtime import outside, storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

# The fields of `config.model` that must match for weights to be usable.
SHAPE = theirs.DECISIVE
_CHECKPOINTS = "checkpoints"
_WEIGHT_FILES = (
    *(huggingface.WEIGHTS, huggingface.INDEX, huggingface.PICKLE),
    f"{huggingface.PICKLE}.index.json",
)


def read(
    path: str | Path,
    place: Callable[[layout.Array], Any] = reading.as_it_is,
    name: str = "",
) -> Weights:
    """Reads weights, as float32 NumPy arrays or what `place` returns for them.

    Args:
      path: a work directory, one of its checkpoints (RUN/checkpoints/STEP), a Hugging
        Face folder, or a folder with a checkpoint of Google's code.
      place: see `reading.build`.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.

    Raises:
      UserError: the folder is none of these, or damaged.
    """
    folder, step = _located(path)
    match _origin(folder):
        case "google":
            return google.read(folder, place)
        case "huggingface":
            return huggingface.read(folder, place)
        case _:
            return _read_workdir(folder, name, step)[0]


def check(path: str | Path) -> None:
    """Raises UserError if `path` is not a folder of weights."""
    folder, step = _located(path)
    if _origin(folder) == "workdir" and step is not None:
        from bert_jax.workdir.checkpoint import Checkpoints

        with Checkpoints.of_another(folder, only=step):
            pass  # opening it checks that it is there


def read_tokenizer(
    path: str | Path, config: BertConfig | None = None
) -> Tokenizer | None:
    """The tokenizer beside the weights; None if there is none.

    Args:
      config: the model's, to check that the two match.

    Raises:
      UserError: it is damaged, or does not match the model.
    """
    folder, _ = _located(path)
    origin = _origin(folder)
    tokenizer = tokenization.of_folder(folder)
    if tokenizer is not None and config is not None:
        pieces = tokenizer.get_vocab_size()
        if pieces != config.vocab_size and origin != "workdir":
            raise UserError(
                f"{folder}: its vocabulary has {pieces} pieces, but the model's "
                f"vocab_size is {config.vocab_size}; if the model has spare rows, "
                "pad the vocabulary with lines [unused0], [unused1], ..."
            )
    return tokenizer


def read_labels(path: str | Path) -> tuple[str, ...]:
    """The names of a fine-tuned model's outputs, if the folder has any."""
    folder, _ = _located(path)
    match _origin(folder):
        case "workdir":
            return tuple(workdir.read_config(folder)["task"].get("labels", ()))
        case "huggingface":
            fields = outside.read_json(folder, "config.json")
            return huggingface.read_labels(fields, folder / "config.json")
        case _:
            return ()


def read_shape(path: str | Path) -> dict[str, Any]:
    """The fields of SHAPE that the weights have.

    Raises:
      UserError: see `read`.
    """
    folder, _ = _located(path)
    match _origin(folder):
        case "workdir":
            fields = workdir.read_config(folder)["model"]
            return {name: fields[name] for name in SHAPE if name in fields}
        case "huggingface":
            model = huggingface.read_config(folder)
        case _:
            model = google.read_config(folder)
    return {name: getattr(model, name) for name in SHAPE}


def recorded(path: str | Path) -> dict[str, Any] | None:
    """The config of the run that wrote these weights; None if unknown."""
    folder, _ = _located(path)
    match _origin(folder):
        case "workdir":
            return workdir.read_config(folder)
        case "huggingface":
            return huggingface.provenance(folder).get("config")
        case _:
            return None


def export(source: Path, folder: Path, name: str = "") -> None:
    """Writes weights as a Hugging Face model folder.

    Args:
      source: a work directory, a Hugging Face folder or one of Google's.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.

    Raises:
      UserError: there are no weights; the folder has other files.
    """
    huggingface_export.check_target(folder.absolute())
    match _origin(source):
        case "workdir":
            found, step = _read_workdir(source, name)
            config = workdir.read_config(source)
            provenance = {"step": step, "config": config, "task": dict(found.facts)}
        case "huggingface":
            found, provenance = read(source), huggingface.provenance(source)
        case _:
            found, provenance = read(source), {}
    tokenizer = read_tokenizer(source, found.config)
    huggingface_export.export(found, tokenizer, folder, provenance)


def _located(path: str | Path) -> tuple[Path, int | None]:
    """The folder, and the step where `path` is RUN/checkpoints/STEP."""
    return storage.numbered(storage.path(path), _CHECKPOINTS)


def _origin(folder: Path) -> str:
    """The kind of a folder: "workdir", "huggingface" or "google".

    Raises:
      UserError: it is none of these.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder}: no such folder; a work directory, a Hugging Face folder or "
            "one with Google's bert_config.json and bert_model.ckpt.* is required"
        ) from error
    if storage.in_bucket(folder) and names & {google.CONFIG, *_WEIGHT_FILES}:
        raise UserError(
            f"{folder}: in a bucket only work directories can be read; copy it to this "
            "machine (gcloud storage cp -r) and name the copy"
        )
    if names & set(_WEIGHT_FILES):
        return "huggingface"
    if google.CONFIG in names:
        return "google"
    if "config.json" not in names:
        missing = google.CONFIG if list(folder.glob("*.ckpt*")) else "config.json"
        raise UserError(f"{folder}: has no {missing}")
    if _CHECKPOINTS in names:
        return "workdir"
    raise UserError(f"{folder}: has no {huggingface.WEIGHTS} and no {_CHECKPOINTS}/")


def _read_workdir(
    folder: Path, name: str = "", only: int | None = None
) -> tuple[Weights, int]:
    """A checkpoint's parameters, and its step.

    Args:
      name: of the folder of checkpoints; empty: the run's config decides.
      only: the step of one in `checkpoints`; None: the newest.
    """
    # Imported here: the other two kinds do not need Orbax.
    from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name

    config = configuration.complete(workdir.read_config(folder), folder / "config.json")
    name = name or checkpoint_name(config)
    if only is not None:
        name = _CHECKPOINTS
    if config.train.seeds > 1:
        raise UserError(
            f"{folder}: a run of {config.train.seeds} seeds; name one seed's folder, "
            f"such as {folder / f'seed_{config.seed}'}"
        )
    # On one device, whatever mesh it was trained on.
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints.of_another(folder, name, only) as checkpoints:
        restored = checkpoints.restore_saved(sharding)
    if restored is None:
        raise UserError(f"{folder}: has no checkpoint yet")
    params, step = jax.device_get(restored[0]), restored[1]
    vocabulary = tokenization.load(folder / "tokenizer.json").get_vocab_size()
    model_config = BertConfig.create(config.model, vocabulary)
    if model_config.causal:  # no next sentence was learnt
        params = {k: v for k, v in params.items() if k != "next_sentence"}
    architecture = _architecture(params, model_config.causal)
    params = _unstacked(params)
    _check_shapes(params, model_config, folder)
    found = Weights(
        config=dataclasses.replace(
            model_config, attention="einsum", scan_layers=False, remat="none"
        ),
        params=params,
        architecture=architecture,
        labels=_labels(config, params, folder),
        problem_type=_problem_type(config, params),
        facts=workdir.read_facts(folder, step),
    )
    return found, step


def _check_shapes(params: Mapping[str, Any], config: BertConfig, folder: Path) -> None:
    """Raises UserError if config.json describes another model than the checkpoint."""
    labelled = params.keys() & set(layout.LABELLED_HEADS)
    labels = [len(params[head]["bias"]) for head in labelled]
    by_config = {
        "/".join(parameter.path): parameter.shape
        for part in (*params, *({"pooler"} & params["bert"].keys()))
        for parameter in layout.parameters(part, config, *labels)
    }
    there = {name: x.shape for name, x in flatten_dict(params, sep="/").items()}
    for name in sorted(by_config.keys() | there):
        ours, saved = by_config.get(name), there.get(name)
        if ours != saved:
            raise UserError(
                f"{folder}: {name} has the shape {saved} in the checkpoint, but {ours} "
                "by config.json; restore the run's own config.json"
            )


def _architecture(params: Mapping[str, Any], causal: bool) -> str:
    heads = set(params) - {"bert", "bilstm"}
    if causal and heads == {"masked_lm"}:
        return "BertLMHeadModel"
    for name, parts in layout.ARCHITECTURES.items():
        if set(parts) - {"pooler"} == heads:
            return name
    raise UserError(f"a model with the heads {', '.join(sorted(heads))} has no name")


def _labels(
    config: ConfigDict, params: Mapping[str, Any], folder: Path
) -> tuple[str, ...]:
    """The task's names of a classifier's outputs; LABEL_0 ... if unnamed.

    Raises:
      UserError: there are more or fewer labels than outputs.
    """
    for head in layout.LABELLED_HEADS:
        if head in params:
            number = len(params[head]["bias"])
            given = tuple(config.task.get("labels", ()))
            if given and len(given) != number:
                raise UserError(
                    f"{folder}: {head} has {number} outputs in the checkpoint, but "
                    f"config.json names {len(given)} labels; restore the run's own"
                )
            return given or layout.default_labels(number)
    return ()


def _problem_type(config: ConfigDict, params: Mapping[str, Any]) -> str | None:
    """config.json's problem_type of a text classifier."""
    classifier = params.get("sequence_classification")
    if classifier is None:
        return None
    kind = "regression" if len(classifier["bias"]) == 1 else "classification"
    return layout.PROBLEM_TYPES[config.task.get("kind", kind)]


def _unstacked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a scanned encoder's parameters to an unrolled one's."""
    stacked = params["bert"]["encoder"].get("layers")
    if stacked is None:
        return dict(params)
    encoder = {
        f"layer_{index}": jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
        for index in range(len(jax.tree.leaves(stacked)[0]))
    }
    return {**params, "bert": {**params["bert"], "encoder": encoder}}
