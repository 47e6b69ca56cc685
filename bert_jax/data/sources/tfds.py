"""TFDS data sets: opened without TensorFlow (array_record) where that is possible.

TFDS is imported on use: it takes seconds, and most runs have no data of its.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage

_NO_TENSORFLOW = "needs TensorFlow: install the extra (pip install '.[google]')"


def prepared_builder(name: str) -> Any:
    """Returns the builder of a data set, which TFDS downloads and prepares if missing.

    Without TensorFlow, TFDS prepares data sets of single files (MRPC, SQuAD,
    HellaSwag). To unpack an archive (GLUE's others, IMDb) it needs TensorFlow.

    Args:
      name: Name of the data set, in TFDS_DATA_DIR, or the folder it was prepared in.

    Raises:
      UserError: TFDS has no such data set, or cannot prepare it.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    if (storage.storage_path(name) / "dataset_info.json").exists():
        return tfds.builder_from_directory(name)
    data_dir = os.environ.get("TFDS_DATA_DIR")  # TFDS reads it only when imported
    try:
        # TFDS prints on standard output, where our answers go.
        with contextlib.redirect_stdout(sys.stderr):
            # Use any version in the folder: by default TFDS accepts only its code's.
            with contextlib.suppress(tfds.core.DatasetNotFoundError):
                return builder_from_files(name, data_dir=data_dir)
            builder = tfds.builder(name, data_dir=data_dir)
            builder.download_and_prepare(file_format="array_record")
    except Exception as error:  # the network's, an archive's, a missing package's
        why = first_line(error)
        if importlib.util.find_spec("tensorflow") is None:
            why = f"{why}; or it {_NO_TENSORFLOW}"
        raise UserError(
            f"tfds:{name}: not in {data_dir or '~/tensorflow_datasets'}, and TFDS "
            f"cannot prepare it ({why}); or prepare it elsewhere with "
            "file_format=array_record, and set TFDS_DATA_DIR"
        ) from error
    return builder


def read_examples(name: str, builder: Any, split: str) -> Iterator[Any]:
    """Yields the records of a split, in order, without TensorFlow if possible.

    Args:
      builder: Builder of the data set.

    Raises:
      UserError: It was prepared in a format that needs TensorFlow, or there is no such
        split.
    """
    where = f"tfds:{name}:{split}"
    try:
        source = builder.as_data_source(split)
    except (ValueError, KeyError) as error:
        why = f"no such split; there are: {', '.join(builder.info.splits)}"
        if split.partition("[")[0] in builder.info.splits:  # the brackets are wrong
            why = f"cannot be read ({first_line(error)})"
        raise UserError(f"{where}: {why}") from error
    except NotImplementedError as error:
        if importlib.util.find_spec("tensorflow") is None:
            raise UserError(
                f"{where}: {builder.data_dir} is not array_record, so reading it "
                f"{_NO_TENSORFLOW}"
            ) from error
        import tensorflow_datasets as tfds

        yield from tfds.as_numpy(builder.as_dataset(split=split))
    else:
        yield from map(source.__getitem__, range(len(source)))


def split_rows(source: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of tfds:NAME:SPLIT, as JSON has them, classes by their names.

    Raises:
      UserError: It does not have this form. See also `prepared_builder` and
        `read_examples`.
    """
    name, split = _parts(source)
    builder = prepared_builder(name)
    for example in read_examples(name, builder, split):
        features = builder.info.features
        yield {k: _plain(features[k], value) for k, value in example.items()}


def has_split(source: str) -> bool:
    """Returns whether tfds:NAME has the SPLIT. Raises as `split_rows`."""
    name, split = _parts(source)
    return split in prepared_builder(name).info.splits


def _parts(source: str) -> tuple[str, str]:
    _, name, split = [*source.split(":", 2), ""][:3]
    if not name or not split:
        raise UserError(
            f"{source}: write tfds:NAME:SPLIT, such as tfds:imdb_reviews:train"
        )
    return name, split


def _plain(feature: Any, value: Any) -> Any:
    """Converts a TFDS value to a JSON value."""
    import tensorflow_datasets as tfds

    each = getattr(feature, "feature", None)  # a sequence's items
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each, item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(None, item) for name, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value
