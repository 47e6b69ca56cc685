"""TFDS data sets: read without TensorFlow (array_record) where that is possible.

TFDS is imported on use: it takes seconds, and most runs have no data of its.
"""

import contextlib
import math
import os
import sys
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage


def prepared_builder(name: str) -> Any:
    """Returns the builder of a data set, which TFDS downloads and prepares if missing.

    Without TensorFlow, TFDS prepares data sets of single files (MRPC, SQuAD,
    HellaSwag). To unpack an archive (GLUE's others, IMDb) it needs TensorFlow.

    Args:
      name: Name of the data set, in TFDS_DATA_DIR, or the folder it was prepared in.

    Raises:
      UserError: TFDS is not installed, has no such data set, or cannot prepare it, or
        its files name a class that is not TFDS's.
    """
    try:
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.read_only_builder import builder_from_files
    except ModuleNotFoundError as error:
        raise UserError(
            f"tfds:{name}: needs tensorflow-datasets: pip install '.[pretrain]'"
        ) from error

    _refuse_other_classes(tfds.features.FeatureConnector)
    data_dir = os.environ.get("TFDS_DATA_DIR")  # TFDS reads it only when imported
    is_folder = (storage.storage_path(name) / "dataset_info.json").exists()
    try:
        if is_folder:
            return tfds.builder_from_directory(name)
        # TFDS prints on standard output, where our answers go.
        with contextlib.redirect_stdout(sys.stderr):
            # Use any version in the folder: by default TFDS accepts only its code's.
            with contextlib.suppress(tfds.core.DatasetNotFoundError):
                return builder_from_files(name, data_dir=data_dir)
            builder = tfds.builder(name, data_dir=data_dir)
            builder.download_and_prepare(file_format="array_record")
    except UserError as error:
        raise UserError(f"tfds:{name}: {error}") from error
    except Exception as error:  # the network's, an archive's, a missing package's
        raise UserError(
            f"tfds:{name}: not in {data_dir or '~/tensorflow_datasets'}, and TFDS "
            f"cannot prepare it ({first_line(error)}): install TensorFlow (pip install "
            "'.[google]'), or prepare it elsewhere with file_format=array_record, and "
            "set TFDS_DATA_DIR"
        ) from error
    return builder


def _refuse_other_classes(connector: Any) -> None:
    """Makes TFDS import classes that a data set's files name only from itself: any
    other module may be a file in the current folder."""
    find = connector.cls_from_name.__func__

    def cls_from_name(cls: Any, name: str) -> Any:
        if not name.startswith("tensorflow_datasets."):
            raise UserError(
                f"features.json: names the class {name:.80}; only classes of "
                "tensorflow_datasets are imported; write the rows as .jsonl or .parquet"
            )
        return find(cls, name)

    if find.__module__ != __name__:
        connector.cls_from_name = classmethod(cls_from_name)


def split_rows(
    name: str, split: str, columns: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a split, in order, as JSON has them, classes by their names.

    Args:
      columns: As in `hub.parquet_rows`.

    Raises:
      UserError: See `prepared_builder`, or there is no such split, or its format needs
        TensorFlow.
    """
    builder = prepared_builder(name)
    import tensorflow_datasets as tfds

    try:
        try:
            source = builder.as_data_source(split)
            examples = map(source.__getitem__, range(len(source)))
        except NotImplementedError:  # not array_record
            examples = iter(tfds.as_numpy(builder.as_dataset(split=split)))
    except (ValueError, KeyError, ImportError) as error:
        raise UserError(
            f"tfds:{name}:{split}: cannot be read ({first_line(error)}); its splits "
            f"are {', '.join(builder.info.splits)}, and formats other than "
            "array_record need TensorFlow (pip install '.[google]')"
        ) from error
    features = builder.info.features
    names = columns if columns and {*columns} <= {*features} else features
    for example in examples:
        yield {name: _convert_value(features[name], example[name]) for name in names}


def has_split(name: str, split: str) -> bool:
    """Returns whether there is such a split. Raises as `prepared_builder`."""
    return split in prepared_builder(name).info.splits


def _convert_value(feature: Any, value: Any) -> Any:
    """Converts a TFDS value to a JSON value."""
    if hasattr(feature, "int2str") and np.ndim(value) == 0:  # a class
        return feature.int2str(int(value)) if value >= 0 else None
    feature = getattr(feature, "feature", feature)  # of a list's items
    if isinstance(value, dict):
        features = feature or {}
        types = {name: features[name] for name in value if name in features}
        return {
            name: _convert_value(types.get(name), item) for name, item in value.items()
        }
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_convert_value(feature, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.decode("utf-8") if isinstance(value, bytes) else value
