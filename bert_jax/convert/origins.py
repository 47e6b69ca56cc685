"""Whose weights a folder has."""

from bert_jax.convert import reading, runs
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family, named
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

_WEIGHT_FILES = (
    *(reading.WEIGHTS, reading.INDEX, reading.FLAX, reading.PICKLE),
    f"{reading.PICKLE}.index.json",
)
ADAPTER = "adapter_config.json"  # beside an adapter's weights


def located(path: str | Path) -> tuple[Path, int | None]:
    """The folder, and the step where `path` is RUN/checkpoints/STEP.

    In older folders of sentence-transformers the encoder is in a folder inside.
    """
    from bert_jax.runtime import hub

    folder, step = storage.split_checkpoint_path(hub.path(path), runs.CHECKPOINTS)
    if not storage.in_bucket(folder) and (folder / "modules.json").exists():
        from bert_jax.convert import sentence_transformers

        folder = sentence_transformers.encoder_folder(folder)
    return folder, step


def family_of(path: str | Path) -> Family:
    """The family whose weights a folder has.

    Raises:
      UserError: it is no folder of weights.
    """
    folder, _ = located(path)
    match kind(folder):
        case "huggingface":
            from bert_jax.convert import huggingface

            family: Family = FAMILIES[huggingface.read_config(folder).architecture]
        case "workdir":
            fields = workdir.read_config(folder)
            architecture = fields["model"].get("architecture", "bert")
            family = named(fields["task"].get("name", ""), architecture)
        case "google":
            family = FAMILIES["bert"]
        case other:
            family = FAMILIES[other]
    return family


def kind(folder: Path) -> str:
    """The kind of a folder: "workdir", "huggingface", "google"; or the name of a family
    whose released weights it has.

    Raises:
      UserError: it is none of these.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder}: no such folder; a work directory, a Hugging Face folder, one "
            "with Google's bert_config.json and bert_model.ckpt.*, or hf:OWNER/NAME of "
            "the Hugging Face Hub is required"
        ) from error
    if storage.in_bucket(folder) and names & {reading.GOOGLE_CONFIG, *_WEIGHT_FILES}:
        raise UserError(
            f"{folder}: in a bucket only work directories can be read; copy it to this "
            "machine (gcloud storage cp -r) and name the copy"
        )
    if names & set(_WEIGHT_FILES):
        return "huggingface"
    if ADAPTER in names:
        from bert_jax.runtime import untrusted

        base = untrusted.read_json(folder, ADAPTER).get("base_model_name_or_path")
        raise UserError(
            f"{folder}: an adapter of PEFT for {untrusted.shown(base)}, not a whole "
            "model; merge it into that one with peft's merge_and_unload(), and name "
            "the folder to which save_pretrained() writes the result"
        )
    if reading.GOOGLE_CONFIG in names:
        return "google"
    if {"config.json", runs.CHECKPOINTS} <= names:
        return "workdir"
    for family in FAMILIES.values():
        if family.released and family.released in names:
            return family.name
    if "config.json" not in names:
        missing = (
            reading.GOOGLE_CONFIG if list(folder.glob("*.ckpt*")) else "config.json"
        )
        raise UserError(f"{folder}: has no {missing}")
    raise UserError(f"{folder}: has no {reading.WEIGHTS} and no {runs.CHECKPOINTS}/")
