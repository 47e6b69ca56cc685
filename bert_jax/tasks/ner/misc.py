"""Tags in MISC, the last of CoNLL-U's ten columns: `SpaceAfter=No|NER=B-LOC`."""

import collections
from collections.abc import Iterable, Sequence

from bert_jax.tasks.ner import scores

COLUMN = 9


def values(fields: Sequence[str]) -> dict[str, str]:
    """The values in a line's MISC by their names."""
    parts = "".join(fields[COLUMN : COLUMN + 1]).split("|")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def tags_name(lines: Iterable[Sequence[str]]) -> str | None:
    """The name of the tags of entities: all its values are such. None if there is none.

    Args:
      lines: the columns of each.
    """
    by_name: dict[str, list[str]] = collections.defaultdict(list)
    for fields in lines:
        for name, value in values(fields).items():
            by_name[name].append(value)
    tags = [name for name, some in by_name.items() if all(map(scores.is_tag, some))]
    return max(tags, key=lambda name: len(by_name[name]), default=None)
