"""Texts in folders: one for each class, one file for each text, as IMDb is laid out."""

from bert_jax import storage
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.storage import Path

_BOM = b"\xef\xbb\xbf"
_UNLABELLED = "unsup"  # IMDb's further reviews, of no class


def read_folders(folder: str | Path) -> list[LabelledText]:
    """Reads FOLDER/CLASS/*.txt, in the order of the names of classes and files.

    An empty file is an empty text.

    Raises:
      UserError: there is no such file, or one is not UTF-8.
    """
    found = storage.path(folder).glob("*/*.txt")
    paths = sorted(path for path in found if path.parent.name != _UNLABELLED)
    if not paths:
        raise UserError(
            f"{folder}: no text there; CLASS/*.txt is wanted, such as pos/0_9.txt"
        )
    return [
        LabelledText(str(path), _content(path), None, path.parent.name)
        for path in paths
    ]


def _content(path: Path) -> str:
    try:
        return path.read_bytes().removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8; convert the file, for instance "
            "with iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
