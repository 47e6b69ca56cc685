"""The language of a document, by the library py3langid (an extra)."""

import functools
import importlib.util
from importlib import metadata
from typing import Any

from bert_jax.errors import UserError

_LIBRARY = "py3langid"
# Reading all of a text would cost more than preparing it. Stretches from all over a
# document, because its first lines may be a quotation or a licence.
_STRETCHES, _CHARACTERS = 4, 500
_OTHER_CODES = {"nb": "no"}


def code(language: str) -> str:
    """The library's code of a language (`config.corpus.language`).

    Raises:
      UserError: the library is not installed or does not know the language.
    """
    _require()
    short = language.partition("-")[0]
    short = _OTHER_CODES.get(short, short)
    known = _identifier().labels
    if short not in known:
        raise UserError(
            f"config.corpus.language={language}: {_LIBRARY} does not know it, so "
            "leave language out of config.corpus.clean; it knows "
            f"{', '.join(sorted(known))}"
        )
    return short


def version() -> str:
    """The library and its version, on which the answers depend.

    Raises:
      UserError: it is not installed.
    """
    _require()
    return f"{_LIBRARY} {metadata.version(_LIBRARY)}"


def identify(text: str) -> tuple[str, float]:
    """The most probable language of a text, and its probability."""
    language, share = _identifier().classify(_sample(text))
    return language, float(share)


def _require() -> None:
    if importlib.util.find_spec(_LIBRARY) is None:
        raise UserError(
            "config.corpus.clean: language needs the extra: pip install '.[clean]'"
        )


def _sample(text: str) -> str:
    step = len(text) // _STRETCHES
    if step <= _CHARACTERS:
        return text
    starts = range(0, step * _STRETCHES, step)
    return "\n".join(text[start : start + _CHARACTERS] for start in starts)


@functools.cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
