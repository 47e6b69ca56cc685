"""Opens TFDS data sets without TensorFlow (array_record).

TFDS is imported on use: it is slow, and most runs have no data of its.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage

# What TFDS may lack, by the name of the package.
_EXTRAS = {
    "tensorflow": "TensorFlow: install the extra (pip install '.[google]')",
    "apache_beam": "Apache Beam: install the extra (pip install '.[beam]')",
}


def prepared(name: str) -> Any:
    """The builder of a data set; TFDS downloads and prepares what is missing.

    Without TensorFlow TFDS prepares data sets of single files (MRPC, SQuAD, HellaSwag);
    to take an archive apart (GLUE's others, IMDb) it needs it.

    Args:
      name: its name, in TFDS_DATA_DIR, or the folder it was prepared in.

    Raises:
      UserError: TFDS has no such data set, or cannot prepare it.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    if (storage.path(name) / "dataset_info.json").exists():
        return _opened(name)
    data_dir = os.environ.get("TFDS_DATA_DIR")  # TFDS reads it only when imported
    try:
        # TFDS prints on standard output, where our answers go.
        with contextlib.redirect_stdout(sys.stderr):
            # Of any version that is there; TFDS by itself looks for its code's alone.
            with contextlib.suppress(tfds.core.DatasetNotFoundError):
                return builder_from_files(name, data_dir=data_dir)
            builder = tfds.builder(name, data_dir=data_dir)
            builder.download_and_prepare(file_format="array_record")
    except _failures() as error:
        raise UserError(
            f"tfds:{name}: not in {data_dir or '~/tensorflow_datasets'}, and TFDS "
            f"cannot prepare it ({_reason(error)}); or prepare it elsewhere with "
            "file_format=array_record, and set TFDS_DATA_DIR"
        ) from error
    return builder


def _opened(folder: str) -> Any:
    import tensorflow_datasets as tfds
    from google.protobuf.json_format import Error  # of a damaged dataset_info.json

    try:
        return tfds.builder_from_directory(folder)
    except (
        *(AttributeError, ImportError, LookupError, OSError, TypeError, ValueError),
        Error,
    ) as error:
        raise UserError(
            f"tfds:{folder}: dataset_info.json or features.json is damaged "
            f"({first_line(error)}); prepare it again"
        ) from error


def _failures() -> tuple[type[Exception], ...]:
    from tensorflow_datasets.core.download import download_manager, extractor, util

    return (
        *(ImportError, OSError, ValueError, AssertionError),
        *(util.DownloadError, extractor.ExtractError),
        download_manager.NonMatchingChecksumError,
    )


def _reason(error: BaseException) -> str:
    """What a person can do about it, or the error's first line."""
    import tensorflow_datasets as tfds

    if isinstance(error, tfds.core.DatasetNotFoundError):
        return f"it knows none of this name, or lacks {_EXTRAS['tensorflow']}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) and cause.name in _EXTRAS:
            return f"it needs {_EXTRAS[cause.name]}"
        cause = cause.__cause__
    return first_line(error)


def examples(name: str, builder: Any, split: str) -> Iterator[Any]:
    """Yields the records of a split, in order, without TensorFlow if possible.

    Args:
      builder: its.

    Raises:
      UserError: it was prepared in a format that needs TensorFlow; there is no such
        split; a record cannot be read.
    """
    from google.protobuf.message import DecodeError  # of a damaged record

    try:
        source = builder.as_data_source(split)
    except (ValueError, KeyError) as error:
        there = ", ".join(builder.info.splits)
        why = f"no such split; there are: {there}"
        if (
            split.partition("[")[0] in builder.info.splits
        ):  # of train[:10%] the brackets
            why = f"cannot be read ({first_line(error)})"
        raise UserError(f"tfds:{name}:{split}: {why}") from error
    except NotImplementedError as error:
        if importlib.util.find_spec("tensorflow") is None:
            raise UserError(
                f"tfds:{name}: {builder.data_dir} is not array_record, so reading it "
                "needs TensorFlow: install the extra (pip install '.[google]')"
            ) from error
        import tensorflow_datasets as tfds

        yield from tfds.as_numpy(builder.as_dataset(split=split))
    else:
        for index in range(len(source)):
            try:
                example = source[index]
            except (ValueError, KeyError, OSError, RuntimeError, DecodeError) as error:
                raise UserError(
                    f"tfds:{name}: record {index + 1} of {split} cannot be read "
                    f"({first_line(error)}); delete {builder.data_dir}, and prepare it "
                    "again"
                ) from error
            yield example
