"""Texts in folders: one for each class, one file for each text, as IMDb is laid out."""

from collections.abc import Sequence

from bert_jax.data.lines import read_lines
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path

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
            f"{folder}: no text there; CLASS/*.txt is required, such as pos/0_9.txt"
        )
    return [
        LabelledText(str(path), _content(path), None, path.parent.name)
        for path in paths
    ]


def films(folder: str | Path, texts: Sequence[LabelledText]) -> list[str] | None:
    """The address of each review's film, as IMDb's archive gives it.

    Beside the folders of the classes stand urls_CLASS.txt, in whose line n, from 0, is
    the address of the film of CLASS/n_RATING.txt (the archive's README).

    Args:
      texts: of `read_folders`.

    Returns:
      None where the archive's files are missing.

    Raises:
      UserError: a review has no line there.
    """
    place = storage.path(folder)
    names = {label: place / f"urls_{label}.txt" for label in {x.label for x in texts}}
    if not all(path.exists() for path in names.values()):
        return None
    urls = {label: [u for _, u in read_lines(path)] for label, path in names.items()}
    found = []
    for text in texts:
        number = storage.path(text.where).name.partition("_")[0]
        lines = urls[text.label]
        if not (number.isascii() and number.isdigit() and int(number) < len(lines)):
            raise UserError(
                f"{names[text.label]}: no line for {text.where}; with it, its film is "
                "on one side of train and dev: complete the file, or delete it"
            )
        found.append(lines[int(number)])
    return found


def _content(path: Path) -> str:
    try:
        storage.require_file(path)
        return path.read_bytes().removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8; convert the file, for instance "
            "with iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
