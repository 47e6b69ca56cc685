"""SWAG and HellaSwag: a context and four endings; one ending is right."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_jax.data.lines import uncompressed
from bert_jax.data.tables import Record, Wanted, as_text, read_rows, read_table
from bert_jax.errors import UserError
from bert_jax.runtime import hub

CHOICES = 4
# SWAG's own columns.
OFFICIAL = ("sent1", "sent2", *(f"ending{n}" for n in range(CHOICES)))


class Choices(NamedTuple):
    """A context and its endings; `label` is the index of the right one, or None."""

    context: str
    endings: tuple[str, ...]
    label: int | None = None


def read_choices(source: str, labelled: bool) -> list[Choices]:
    """Reads SWAG's official CSV, or the same columns from the Hub
    (hf:allenai/swag:regular:train); or `context`, `endings` and `label` from JSON lines
    or TFDS (tfds:hellaswag:train).

    SWAG's own context is `sent1`, a whole sentence. An ending is `sent2`, the start of
    the next sentence, plus one of `ending0` to `ending3` (section 4.4: the given
    sentence is A, a possible continuation is B).

    Args:
      labelled: each record must have a label; otherwise it may be missing, empty or -1.

    Raises:
      UserError: a record has another format; names file and line.
    """
    has_official = uncompressed(source).endswith(".csv")
    if source.startswith(hub.PREFIX):
        has_official = "sent1" in next(iter(read_rows(source)), Record("", {})).fields
    columns = OFFICIAL if has_official else ("context", "endings")
    records = read_table(source, Wanted((*columns, *(("label",) if labelled else ()))))
    return [
        Choices(
            *(official(record.fields) if has_official else _plain(record)),
            _label(record, labelled),
        )
        for record in records
    ]


def official(fields: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The context and the endings of a record with all columns of OFFICIAL."""
    context, begin, *endings = (fields[column] for column in OFFICIAL)
    return context, tuple(f"{begin} {ending}" for ending in endings)


def _plain(record: Record) -> tuple[str, tuple[str, ...]]:
    where, fields = record
    endings: Any = fields["endings"]
    if not isinstance(endings, list):
        raise UserError(f"{where}: 'endings' is {endings!r:.60}; it must be a list")
    if len(endings) != CHOICES:
        raise UserError(f"{where}: {len(endings)} endings; there must be {CHOICES}")
    context = as_text(fields["context"], where, "context")
    return context, tuple(as_text(ending, where, "endings") for ending in endings)


def _label(record: Record, labelled: bool) -> int | None:
    label = str(record.fields.get("label", ""))
    if label in map(str, range(CHOICES)):
        return int(label)
    if not labelled and label in ("", "None", "-1"):
        return None
    raise UserError(
        f"{record.where}: 'label' is {label!r:.60}; it must be a number from 0 to "
        f"{CHOICES - 1}, the right ending's"
    )
