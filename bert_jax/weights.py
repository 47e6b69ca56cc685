"""Weights from wherever they come: read, put into a run's parameters, taken out."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import storage, tokenization
from bert_jax.convert import export as huggingface_export
from bert_jax.convert import files, google, huggingface, layout
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import stack_layers
from bert_jax.storage import Path
from bert_jax.workdir import read_facts

_CHECKPOINTS = "checkpoints"
_WEIGHT_FILES = (
    *(huggingface.WEIGHTS, huggingface.INDEX, huggingface.PICKLE),
    f"{huggingface.PICKLE}.index.json",
)


def read(
    path: str | Path, place: Callable[[layout.Array], Any] = layout.as_it_is
) -> Weights:
    """Reads weights, as float32 NumPy arrays or what `place` makes of them.

    Args:
      path: a work directory, a Hugging Face folder, or a folder with a checkpoint of
        Google's code.
      place: see `layout.build`.

    Raises:
      UserError: it is none of these, or damaged.
    """
    folder = storage.path(path)
    match _origin(folder):
        case "google":
            return google.read(folder, place)
        case "huggingface":
            return huggingface.read(folder, place)
        case _:
            return _read_workdir(folder)[0]


def read_tokenizer(
    path: str | Path, config: BertConfig | None = None
) -> Tokenizer | None:
    """The tokenizer that stands beside the weights; None where there is none.

    Args:
      config: the model's, to check that the two go together.

    Raises:
      UserError: it is damaged, or does not go with the model.
    """
    folder = storage.path(path)
    match _origin(folder):
        case "google":
            return google.read_tokenizer(folder, config)
        case "huggingface":
            return huggingface.read_tokenizer(folder, config)
        case _:
            return tokenization.load(folder / "tokenizer.json")


def read_task(path: str | Path) -> dict[str, Any]:
    """What a fine-tuned model knows besides its weights: `labels`, the names of its
    outputs, and `facts`, such as a threshold; what there is of them."""
    folder = storage.path(path)
    match _origin(folder):
        case "workdir":
            labels = _workdir_config(folder)["task"].get("labels", ())
            return {"labels": tuple(labels), "facts": read_facts(folder)}
        case "huggingface":
            fields = files.read_json(folder, "config.json")
            own = fields.get(huggingface_export.PROVENANCE, {})
            return {
                "labels": huggingface.read_labels(fields, folder / "config.json"),
                "facts": own.get("task", {}),
            }
        case _:
            return {}


def export(workdir: Path, folder: Path, name: str = "") -> None:
    """Writes a work directory's checkpoint as a Hugging Face model folder.

    Args:
      name: of the folder of checkpoints; empty: as the run's own config says.

    Raises:
      UserError: there is no checkpoint; the folder holds something else.
    """
    huggingface_export.check_target(folder.absolute())
    if _origin(workdir) != "workdir":
        raise UserError(f"--workdir={workdir}: no run there; train one first")
    weights, step = _read_workdir(workdir, name)
    tokenizer = tokenization.load(workdir / "tokenizer.json")
    provenance = {
        "step": step,
        "config": _workdir_config(workdir),
        "task": read_facts(workdir),
    }
    huggingface_export.export(weights, tokenizer, folder, provenance)


class Report(NamedTuple):
    """What `merge` did: names of parameters."""

    source: str
    architecture: str
    taken: tuple[str, ...]
    initialised: tuple[str, ...]
    left_over: tuple[str, ...]

    def table(self) -> tuple[list[tuple[str, int, str]], tuple[str, str, str]]:
        """Rows and header of a short table: what, how many arrays, of which parts."""
        rows = []
        for what in ("taken", "initialised", "left_over"):
            names = getattr(self, what)
            # "bert/pooler/kernel" -> bert; a foreign name as it is.
            parts = dict.fromkeys(name.partition("/")[0] for name in names)
            shown = ", ".join(list(parts)[:6]) + (", ..." if len(parts) > 6 else "")
            rows.append((what.replace("_", " "), len(names), shown))
        return rows, ("", "arrays", "of")

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=2) + "\n"


def merge(
    initial: Mapping[str, Any], weights: Weights, config: BertConfig, source: str | Path
) -> tuple[dict[str, Any], Report]:
    """Puts weights in the place of initial parameters, where they have the same name.

    Args:
      initial: the model's own parameters, without boxes; layers stacked or not.
      weights: what was read.
      config: the model's.
      source: where `weights` are from, for the report and errors.

    Returns:
      Parameters of the same structure and sharding, and what was done. Everything of
      `bert` but the pooler is taken; heads and the pooler that the weights lack keep
      their initial values.

    Raises:
      UserError: the model is another one: a shape differs, or the number of layers, the
        activation, the epsilon.
    """
    stacked = "layers" in initial["bert"]["encoder"]
    params = weights.params
    if stacked:
        params = stack_layers(params, weights.config.num_hidden_layers)
    theirs, ours = flatten_dict(params), flatten_dict(initial)
    for field in ("num_hidden_layers", "hidden_act", "layer_norm_eps"):
        mine, there = getattr(config, field), getattr(weights.config, field)
        if mine != there:
            raise UserError(
                f"config.model.{field}={mine!r}, but {source} has {there!r}: set "
                f"--config.model.{field}={there}"
            )
    if "masked_lm" in initial and "decoder" in weights.params:
        raise UserError(
            f"{source}: its masked LM has an output matrix of its own; here it is the "
            "embeddings', so pre-training cannot go on from it"
        )
    _check_shapes(ours, theirs, source)
    taken = []
    merged = dict(ours)
    for path, leaf in ours.items():
        if path in theirs:
            taken.append("/".join(path))
            merged[path] = _placed(theirs.pop(path), leaf.sharding)
    report = Report(
        source=str(source),
        architecture=weights.architecture,
        taken=tuple(taken),
        initialised=tuple(n for n in map("/".join, ours) if n not in taken),
        left_over=(*("/".join(path) for path in theirs), *weights.left_over),
    )
    return unflatten_dict(merged), report


def _placed(array: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """The array on its devices; each process places what its own hold."""
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)


def check_vocabulary(
    tokenizer: Tokenizer, theirs: Tokenizer | None, source: str | Path
) -> None:
    """Raises UserError where a run has another vocabulary than the weights it begins
    with; pieces that fill up the end, [unusedN], do not count."""
    if theirs is None:
        return
    mine, there = _pieces(tokenizer), _pieces(theirs)
    for index in range(max(len(mine), len(there))):
        pair = [x[index] if index < len(x) else None for x in (mine, there)]
        if pair[0] != pair[1]:
            raise UserError(
                f"the vocabulary is not that of {source}: piece {index} is {pair[0]!r} "
                f"here and {pair[1]!r} there; leave config.tokenizer.vocab_file empty "
                "to keep the checkpoint's"
            )


def _pieces(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    while pieces and pieces[-1].startswith("[unused"):
        pieces.pop()
    return pieces


def _origin(folder: Path) -> str:
    """What a folder is: "workdir", "huggingface" or "google".

    Raises:
      UserError: none of these.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder}: no such folder; a work directory, a Hugging Face folder or "
            "one with Google's bert_config.json and bert_model.ckpt.* is wanted"
        ) from error
    if storage.in_bucket(folder) and names & {google.CONFIG, *_WEIGHT_FILES}:
        raise UserError(
            f"{folder}: in a bucket, only work directories are read; copy it here "
            "(gcloud storage cp -r) and name the copy"
        )
    if names & set(_WEIGHT_FILES):
        return "huggingface"
    if google.CONFIG in names:
        return "google"
    if "config.json" not in names:
        wanted = google.CONFIG if list(folder.glob("*.ckpt*")) else "config.json"
        raise UserError(f"{folder}: no {wanted} there")
    if _CHECKPOINTS in names:
        return "workdir"
    raise UserError(f"{folder}: no {huggingface.WEIGHTS} and no {_CHECKPOINTS}/ there")


def _read_workdir(folder: Path, name: str = "") -> tuple[Weights, int]:
    """A checkpoint's parameters, and its step.

    Args:
      name: of the folder of checkpoints; empty: as the run's own config says.
    """
    # Imported here: reading the other two needs neither Orbax nor the data's libraries.
    from bert_jax import tasks
    from bert_jax.checkpoint import Checkpoints, checkpoint_name

    config = ConfigDict(_workdir_config(folder))
    config.tokenizer.vocab_file = str(folder / "tokenizer.json")
    name = name or checkpoint_name(config)
    task = tasks.create(config)
    model_config = task.model_config
    # On one device, whatever mesh it was trained on.
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    boxed = jax.eval_shape(task.init_params, jax.random.key(0))
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.meta.unbox(boxed),
    )
    with Checkpoints(folder, 1, name) as checkpoints:
        restored = checkpoints.restore_params(abstract)
    if restored is None:
        raise UserError(f"{folder}: no checkpoint there yet")
    params, step = jax.device_get(restored[0]), restored[1]
    if model_config.scan_layers:
        params = _unstacked(params, model_config.num_hidden_layers)
    found = Weights(
        config=dataclasses.replace(model_config, scan_layers=False, remat="none"),
        params=params,
        architecture=_architecture(params),
        labels=_labels(task, params),
        problem_type=getattr(task, "problem_type", None),
    )
    return found, step


def _workdir_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_bytes())
        fields["model"], fields["task"], fields["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a run's config; is this a work directory?") from (
            error
        )
    return fields


def _architecture(params: Mapping[str, Any]) -> str:
    heads = set(params) - {"bert"}
    for name, parts in layout.ARCHITECTURES.items():
        if set(parts) - {"pooler"} == heads:
            return name
    raise UserError(f"a model with the heads {', '.join(sorted(heads))} has no name")


def _labels(task: Any, params: Mapping[str, Any]) -> tuple[str, ...]:
    """The task's names of a classifier's outputs; LABEL_0 ... where it has none."""
    for head in layout.LABELLED_HEADS:
        if head in params:
            number = len(params[head]["bias"])
            return tuple(getattr(task, "labels", ()) or layout.default_labels(number))
    return ()


def _unstacked(params: Mapping[str, Any], num_layers: int) -> dict[str, Any]:
    """A scanned encoder's parameters as an unrolled one's."""
    stacked = params["bert"]["encoder"]["layers"]
    encoder = {
        f"layer_{index}": jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
        for index in range(num_layers)
    }
    return {**params, "bert": {**params["bert"], "encoder": encoder}}


def _check_shapes(
    ours: Mapping[tuple, Any], theirs: Mapping[tuple, Any], source: str | Path
) -> None:
    for path, leaf in ours.items():
        if path in theirs and leaf.shape != theirs[path].shape:
            raise UserError(
                f"{'/'.join(path)} has the shape {theirs[path].shape} in {source}, but "
                f"the config asks for {leaf.shape}"
            )
