"""Opens TFDS data sets without TensorFlow (array_record)."""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from bert_jax.errors import UserError
from bert_jax.runtime import storage


def builder(name: str) -> tfds.core.DatasetBuilder:
    """Opens a data set that is prepared, or that TFDS can prepare.

    Args:
      name: its name, in TFDS_DATA_DIR, or the folder it was prepared in.

    Raises:
      UserError: it is not prepared, and preparing it needs TensorFlow.
    """
    if (storage.path(name) / "dataset_info.json").exists():
        return tfds.builder_from_directory(name)
    data_dir = os.environ.get("TFDS_DATA_DIR")  # TFDS reads it only when imported
    try:
        found = tfds.builder(name, data_dir=data_dir)
    except (ValueError, ImportError, AssertionError) as error:
        # TFDS also says "not found" where its code for the name needs TensorFlow.
        raise UserError(_not_there(name)) from error
    if not found.info.splits and importlib.util.find_spec("tensorflow") is None:
        raise UserError(_not_there(name))
    return found


def prepared(name: str) -> tfds.core.DatasetBuilder:
    """As `builder`; downloads and prepares the data if necessary."""
    found = builder(name)
    if not found.info.splits:
        found.download_and_prepare(file_format="array_record")
    return found


def examples(name: str, found: tfds.core.DatasetBuilder, split: str) -> Iterator[Any]:
    """Yields the records of a split, in order, without TensorFlow if possible.

    Raises:
      UserError: it was prepared in a format that needs TensorFlow.
    """
    try:
        source = found.as_data_source(split)
    except NotImplementedError as error:
        if importlib.util.find_spec("tensorflow") is None:
            raise UserError(
                f"tfds:{name}: {found.data_dir} is not array_record, so reading it "
                "needs TensorFlow: install the extra (pip install '.[google]')"
            ) from error
        yield from tfds.as_numpy(found.as_dataset(split=split))
    else:
        for index in range(len(source)):
            yield source[index]


def _not_there(name: str) -> str:
    where = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    return (
        f"tfds:{name}: not prepared in {where}, and TFDS knows no such data set or "
        "needs TensorFlow to make it: install the extra (pip install '.[google]'), "
        "or prepare it elsewhere with file_format=array_record and set TFDS_DATA_DIR"
    )
