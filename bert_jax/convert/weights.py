"""Reads and exports weights of every kind; chooses the reader by the folder."""

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import config as theirs
from bert_jax.convert import layout, reading, runs
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import outside, storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

# The fields of `config.model` that must match for weights to be usable.
SHAPE = theirs.DECISIVE
# A model's spare rows, which make their number a multiple, as NVIDIA's 30,528.
_PADDED, _SPARE = 8, 128
_WEIGHT_FILES = (
    *(reading.WEIGHTS, reading.INDEX, reading.PICKLE),
    f"{reading.PICKLE}.index.json",
)
_ELMOS_FILE = "options.json"


def read(
    path: str | Path,
    place: Callable[[layout.Array], Any] = reading.as_it_is,
    name: str = "",
) -> Weights:
    """Reads weights, as float32 NumPy arrays or what `place` returns for them.

    Args:
      path: a work directory, one of its checkpoints (RUN/checkpoints/STEP), a Hugging
        Face folder, a model on its Hub (hf:OWNER/NAME), or a folder with a checkpoint
        of Google's code.
      place: see `reading.build`.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.

    Raises:
      UserError: the folder is none of these, or damaged.
    """
    folder, step = _located(path)
    match _origin(folder):
        case "google":
            from bert_jax.convert import google

            return google.read(folder, place)
        case "huggingface":
            from bert_jax.convert import huggingface

            return huggingface.read(folder, place)
        case "elmo":
            raise only_an_elmo(folder)
        case _:
            return runs.read(folder, name, step)[0]


def read_elmo(path: str | Path, name: str = "") -> Any:
    """Reads an ELMo, an `elmo_sources.Found`; arguments as in `read`.

    Raises:
      UserError: it is none, or damaged.
    """
    folder, step = _located(path)
    if _origin(folder) != "elmo":
        raise UserError(
            f"{folder}: not an ELMo's weights; name a folder with options.json and "
            "weights.hdf5, or a run of configs/elmo.py"
        )
    from bert_jax.convert import elmo_sources

    return elmo_sources.read(folder, name, step)


def check(path: str | Path) -> None:
    """Raises UserError if `path` is not a folder of weights."""
    folder, step = _located(path)
    if _origin(folder) in ("workdir", "elmo") and step is not None:
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
        pieces, rows = tokenizer.get_vocab_size(), config.vocab_size
        padded = rows % _PADDED == 0 and 0 < rows - pieces < _SPARE
        if pieces != rows and not padded and origin != "workdir":
            raise UserError(
                f"{folder}: its vocabulary has {pieces} pieces, but the model's "
                f"vocab_size is {rows}; is it of another model? If the model has spare "
                "rows, add a line [unused...] of its own for each to vocab.txt"
            )
    return tokenizer


def read_labels(path: str | Path) -> tuple[str, ...]:
    """The names of a fine-tuned model's outputs, if the folder has any."""
    folder, _ = _located(path)
    if workdir.has_config(folder) and _origin(folder) in ("workdir", "elmo"):
        return tuple(workdir.read_config(folder)["task"].get("labels", ()))
    match _origin(folder):
        case "huggingface":
            from bert_jax.convert import huggingface

            fields = outside.read_json(folder, "config.json")
            return huggingface.read_labels(fields, folder / "config.json")
        case _:
            return ()


def read_kind(path: str | Path) -> str | None:
    """The `task.kind` of a text classifier, if its folder says it."""
    folder, _ = _located(path)
    if _origin(folder) != "huggingface":
        return None
    from bert_jax.convert import huggingface

    return huggingface.read_kind(outside.read_json(folder, "config.json"))


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
        case "elmo":
            return {"architecture": "elmo"}
        case "huggingface":
            from bert_jax.convert import huggingface

            model = huggingface.read_config(folder)
        case _:
            from bert_jax.convert import google

            model = google.read_config(folder)
    return {name: getattr(model, name) for name in SHAPE}


def decisive(architecture: str) -> tuple[str, ...]:
    """The fields, by `GROUP.NAME`, that a run takes from its weights."""
    if architecture == "elmo":
        from bert_jax.convert import elmo_sources

        return elmo_sources.FIELDS
    return tuple(f"model.{name}" for name in SHAPE)


def read_elmo_shape(path: str | Path) -> dict[str, Any]:
    """An ELMo's fields; see `elmo_sources.shape`."""
    from bert_jax.convert import elmo_sources

    return elmo_sources.shape(_located(path)[0])


def recorded(path: str | Path) -> dict[str, Any] | None:
    """The config of the run that wrote these weights; None if unknown."""
    folder, _ = _located(path)
    if workdir.has_config(folder) and _origin(folder) in ("workdir", "elmo"):
        return workdir.read_config(folder)
    match _origin(folder):
        case "huggingface":
            from bert_jax.convert import huggingface

            config = huggingface.provenance(folder).get("config")
            labels = (config or {}).get("task", {}).get("labels", ())
            named = read_labels(path)
            if config and labels and len(named) == len(labels):
                config["task"]["labels"] = list(named)  # they may have better names now
            return config
        case _:
            return None


def export(
    source: Path,
    folder: Path,
    name: str = "",
    title: str = "",
    dtype: str = "float32",
) -> str:
    """Writes weights as a Hugging Face model folder; returns its lengths, in words.

    Args:
      source: a work directory, a Hugging Face folder or one of Google's.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.
      title: the model's name in its card; empty: the folder's.
      dtype: float32, or float16 to round them.

    Raises:
      UserError: there are no weights; the folder has other files.
    """
    from bert_jax.convert import export as huggingface_export
    from bert_jax.convert import huggingface, model_card

    huggingface_export.check_target(folder.absolute())
    match _origin(source):
        case "elmo":
            raise only_an_elmo(source)
        case "workdir":
            found, step = runs.read(source, name)
            config = workdir.read_config(source)
            own = [f"head {name}" for name in found.left_over]
            if own := own + found.config.of_your_own():
                raise UserError(
                    f"{source}: the {' and '.join(own)} of your own cannot be "
                    "exported; Hugging Face's BERT has no such part"
                )
            if why := FAMILIES[found.config.architecture].unexported(config["task"]):
                raise UserError(
                    f"{source}: {why}, so it cannot be exported; ask it with "
                    "--mode=predict"
                )
            provenance = {
                "step": step,
                "config": config,
                "task": dict(found.facts),
                "scores": runs.scores(source, step, config["evaluate"]["splits"]),
                **runs.trained_length(source, step),
            }
        case "huggingface":
            found, provenance = read(source), huggingface.provenance(source)
        case _:
            found, provenance = read(source), {}
    tokenizer = read_tokenizer(source, found.config)
    huggingface_export.export(found, tokenizer, folder, provenance, title, dtype)
    return model_card.lengths(found.config, provenance)


def _located(path: str | Path) -> tuple[Path, int | None]:
    """The folder, and the step where `path` is RUN/checkpoints/STEP."""
    from bert_jax.runtime import hub

    return storage.numbered(hub.path(path), runs.CHECKPOINTS)


def _origin(folder: Path) -> str:
    """The kind of a folder: "workdir", "huggingface", "google"; or "elmo", which may be
    a work directory too.

    Raises:
      UserError: it is none of these.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        from bert_jax.runtime import hub

        name = hub.likely(str(folder))
        raise UserError(
            f"{folder}: no such folder; a work directory, a Hugging Face folder or "
            "one with Google's bert_config.json and bert_model.ckpt.* is required"
            + (f"; on the Hugging Face Hub it would be {name}" if name else "")
        ) from error
    if storage.in_bucket(folder) and names & {reading.GOOGLE_CONFIG, *_WEIGHT_FILES}:
        raise UserError(
            f"{folder}: in a bucket only work directories can be read; copy it to this "
            "machine (gcloud storage cp -r) and name the copy"
        )
    if names & set(_WEIGHT_FILES):
        return "huggingface"
    if reading.GOOGLE_CONFIG in names:
        return "google"
    if _ELMOS_FILE in names:
        return "elmo"
    if "config.json" not in names:
        missing = (
            reading.GOOGLE_CONFIG if list(folder.glob("*.ckpt*")) else "config.json"
        )
        raise UserError(f"{folder}: has no {missing}")
    if runs.CHECKPOINTS in names:
        own = workdir.read_config(folder)
        named = own["task"].get("name"), own["model"].get("architecture")
        return "elmo" if "elmo" in named else "workdir"
    raise UserError(f"{folder}: has no {reading.WEIGHTS} and no {runs.CHECKPOINTS}/")


def only_an_elmo(folder: Path) -> UserError:
    """For a folder with an ELMo, where a BERT or GPT is required."""
    if workdir.has_config(folder):
        name = workdir.read_config(folder)["task"].get("name")
        if name != "elmo":
            return UserError(
                f"{folder}: {name} with an ELMo; Hugging Face has no such model, so it "
                "is neither exported nor loaded; ask it with --mode=predict"
            )
    return UserError(
        f"{folder}: ELMo's weights; bert_jax.elmo.load opens them, and configs of "
        "configs/finetune/ with model=elmo start from them"
    )
