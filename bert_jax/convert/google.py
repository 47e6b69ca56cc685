"""The variables of Google's TensorFlow checkpoints, by the names of `transformers`."""

import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np

from bert_jax.convert.tensors import Entry
from bert_jax.errors import UserError

# The optimizer's variables in Google's checkpoints (optimization.py).
_NOT_WEIGHTS = ("adam_m", "adam_v", "global_step")
# Replacements, in order, that turn Google's names into those of `transformers`.
_FROM_GOOGLE = (
    (r"^cls/squad/output_", "qa_outputs/output_"),
    (r"^cls/predictions/output_", "cls/predictions/"),
    (r"^output_", "classifier/output_"),
    (r"(_embeddings)$", r"\1/weight"),
    (r"layer_(\d+)", r"layer/\1"),
    (r"(kernel|gamma|output_weights)$", "weight"),
    (r"(beta|output_bias)$", "bias"),
    ("/", "."),
)


def variables(prefix: pathlib.Path) -> Iterator[Entry]:
    """Yields a checkpoint's weights as the tensors that PyTorch has for them."""
    # Otherwise its C++ code prints about devices.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import tensorflow  # slow, and an extra
    except ImportError as error:
        raise UserError(
            f"{prefix}: a TensorFlow checkpoint: pip install -e '.[google]'"
        ) from error
    for kind in ("GPU", "TPU"):
        tensorflow.config.set_visible_devices([], kind)
    reader = tensorflow.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()

    def entry(variable: str, name: str, shape: tuple[int, ...]) -> Entry:
        # [inputs, outputs], but `output_weights` are multiplied with transpose_b=True.
        transposed = variable.endswith("/kernel")

        def read() -> np.ndarray:
            array = np.asarray(reader.get_tensor(variable))
            return array.T if transposed else array

        return Entry(name, shape[::-1] if transposed else shape, True, read)

    for variable, shape in shapes.items():
        if variable.rpartition("/")[2] not in _NOT_WEIGHTS:
            name = variable
            for pattern, replacement in _FROM_GOOGLE:
                name = re.sub(pattern, replacement, name)
            yield entry(variable, name, tuple(shape))
