"""Times as a user writes them: 90s, 20min, 1.5h."""

import re

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|min|h)")


def seconds(text: str) -> float:
    """The seconds of such a time.

    Raises:
      ValueError: another form, or no time at all.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(text)
    return float(match[1]) * _SECONDS[match[2]]
