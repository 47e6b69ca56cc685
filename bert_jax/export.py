"""`--mode=export`: a Hugging Face folder."""

import pathlib

from ml_collections import ConfigDict

from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.training import run_config
from bert_jax.workdir.checkpoint import checkpoint_name, has_checkpoint


def export(folder: Path, config: ConfigDict, target: str, onnx: str = "") -> None:
    """Exports the checkpoint in `folder`, or else the weights of `config.init_from`.

    Args:
      target: The folder to write.
      onnx: See `convert.export.export_folder`.

    Raises:
      UserError: There are no weights, or the folder has files.
    """
    if target == "-":
        raise UserError("--output=DIR is required, the folder to write")
    is_run = has_checkpoint(folder)
    if not is_run and not config.init_from:
        raise run_config.nothing_to_ask(folder)
    checkpoint = checkpoint_name(config) if is_run else ""
    source = weights.find_source(folder if is_run else config.init_from)
    source.export(pathlib.Path(target), checkpoint, onnx=onnx)
    print(f"exported: {target}")
