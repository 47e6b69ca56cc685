"""`--mode=export`: a Hugging Face folder; perhaps also a model on the Hub."""

import pathlib

from ml_collections import ConfigDict

from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.runtime import hub
from bert_jax.runtime.storage import Path
from bert_jax.training import asked
from bert_jax.workdir.checkpoint import checkpoint_name, has_checkpoint


def export(
    folder: Path, config: ConfigDict, target: str, name: str, dtype: str
) -> None:
    """Exports the checkpoint in `folder`, or else the weights of `config.init_from`.

    Args:
      target: the folder to write.
      name: `hf:OWNER/NAME`, to upload it too; or empty.
      dtype: of the weights: float32 or float16.

    Raises:
      UserError: there are no weights; the folder has other files; the Hub refuses.
    """
    if target == "-":
        raise UserError("--output=DIR is required, the folder to write")
    if name:
        hub.check_new(name)
    is_run = has_checkpoint(folder)
    source = folder if is_run else asked.source(folder, config)
    checkpoint = checkpoint_name(config) if is_run else ""
    if config.task.name == "elmo":
        if dtype != "float32":
            raise UserError(f"--dtype={dtype}: an ELMo's weights are float32")
        _elmo(source, target, name, checkpoint)
        return
    title = name.removeprefix(hub.PREFIX)
    length = weights.export(source, pathlib.Path(target), checkpoint, title, dtype)
    print(f"exported: {target} ({length})")
    if name:
        print(f"pushed: {hub.push(pathlib.Path(target), name)}")


def _elmo(source: Path, target: str, name: str, checkpoint: str) -> None:
    """Writes options.json and weights.hdf5, as bilm does; and the vocabulary."""
    if name:
        raise UserError(f"--push={name}: an ELMo is written to --output only")
    from families.elmo import released as elmo

    elmo.export(source, pathlib.Path(target).absolute(), checkpoint)
    print(f"exported: {target}")
