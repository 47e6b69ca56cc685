"""Texts in folders: one folder per class, one file per text, as in IMDb."""

from collections.abc import Sequence

from bert_jax.data.lines import read_lines
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path

_BOM = b"\xef\xbb\xbf"
_UNLABELLED = "unsup"  # IMDb's reviews without a class


def read_folders(folder: str | Path) -> list[LabelledText]:
    """Reads FOLDER/CLASS/*.txt, sorted by class and file name.

    An empty file is an empty text.

    Raises:
      UserError: no file matches, or one is not UTF-8.
    """
    files = storage.path(folder).glob("*/*.txt")
    paths = sorted(path for path in files if path.parent.name != _UNLABELLED)
    if not paths:
        raise UserError(
            f"{folder}: has no texts; CLASS/*.txt is required, such as pos/0_9.txt"
        )
    return [
        LabelledText(str(path), _content(path), None, path.parent.name)
        for path in paths
    ]


def films(folder: str | Path, texts: Sequence[LabelledText]) -> list[str] | None:
    """Returns the URL of each review's film, from IMDb's archive.

    Line n (from 0) of urls_CLASS.txt, beside the class folders, is the URL of the film
    that CLASS/n_RATING.txt reviews (the archive's README).

    Args:
      texts: from `read_folders`.

    Returns:
      None where urls_CLASS.txt is missing for a class.

    Raises:
      UserError: a review has no line in urls_CLASS.txt.
    """
    place = storage.path(folder)
    names = {label: place / f"urls_{label}.txt" for label in {x.label for x in texts}}
    if not all(path.exists() for path in names.values()):
        return None
    urls = {label: [u for _, u in read_lines(path)] for label, path in names.items()}
    film_urls = []
    for text in texts:
        number = storage.path(text.where).name.partition("_")[0]
        lines = urls[text.label]
        if not (number.isascii() and number.isdigit() and int(number) < len(lines)):
            raise UserError(
                f"{names[text.label]}: no line for {text.where}, so its film could be "
                "in both train and dev: complete the file, or delete it"
            )
        film_urls.append(lines[int(number)])
    return film_urls


def _content(path: Path) -> str:
    try:
        return path.read_bytes().removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
