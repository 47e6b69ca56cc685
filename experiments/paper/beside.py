"""Tables with the systems that BERT is compared with trained here too.

Figure 3 and table 1 compare BERT with OpenAI's GPT, and so does table 4. BERT's figures
on SQuAD and NER are those of tables 2 and 7.
"""

import itertools
from collections.abc import Sequence

from bert_jax.errors import UserError
from experiments.lib import published
from experiments.lib.published import Published
from experiments.lib.verdicts import Claim, Pair
from experiments.paper import tables
from experiments.paper.systems import Column, Pretraining, System, Table
from experiments.paper.tables import against

# Each system's name, and its row of table 1 and of table 4. BERT's row is that of its
# size.
SYSTEMS = {
    "bert": ("BERT", "BERT-Base", "BERT-Base"),
    "gpt": ("GPT", "OpenAI GPT", "OpenAI GPT"),
}
ALONE = ("bert",)
# What the paper reports of BERT elsewhere, F1 on dev.
_ELSEWHERE = {
    "BERT-Base": (("squad", "BERT-Base (single)"), ("ner", "BERT-Base, fine-tuned")),
    "BERT-Large": (("squad", "BERT-Large (single)"), ("ner", "BERT-Large, fine-tuned")),
}
_TOKENS = (Column("squad", "squad", "f1"), Column("ner", "ner", "f1"))
_NOTE = (
    "The paper's figures are on test, ours on dev, except SQuAD and NER, where both "
    "are on dev. It has no GPT there. The average is over this report's columns of "
    "table 1, in brackets too. Rows of SQuAD are windows, which each system cuts by "
    "its own tokens."
)


def build(table: str, size: str, systems: Sequence[str]) -> Table:
    """Returns the table of these systems.

    Raises:
      UserError: There is no such table, or it has BERT only.
    """
    if tuple(systems) == ALONE:
        return tables.build(table, size)
    if table not in _BUILDERS:
        tables.build(table, size)
        raise UserError(
            f"--systems: {table} is of BERT alone; {', '.join(_BUILDERS)} compare "
            "systems"
        )
    rows = [row for name in systems for row in _rows_of(name, size, table)]
    return _BUILDERS[table](rows)._replace(name="-".join((table, *systems)))


def _rows_of(name: str, size: str, table: str) -> list[System]:
    """Returns a system's row, or at Large two of BERT's."""
    title, glue, swag = SYSTEMS[name]
    row = {"table1": glue, "table4": swag}.get(table, "")
    own = "base" if size == "large" else ""
    first = Pretraining("mlm" if name == "bert" else name, size=own, model=name)
    if table == "imdb" and name == "bert" and size in ("base", "large"):
        row = "BERT-Base"
    if name != "bert" or size != "large":
        return [System(title, first, row)]
    large = "" if table == "imdb" else "BERT-Large"
    return [
        System(f"{title}, large", first._replace(size=""), large),
        System(f"{title}, base", first, row),
    ]


def _table1(rows: Sequence[System]) -> Table:
    columns = (*tables.TABLE_1, *_TOKENS, tables.column("imdb"))
    source = f"{published.TABLE_1.source}; SQuAD 1.1: table 2; NER: table 7"
    return Table(
        "table1",
        Published("GLUE, SQuAD and NER", source, _published()),
        *(tuple(rows), columns, _claims(rows)),
        usual=tuple(dict.fromkeys(c.task for c in columns if c.task != "imdb")),
        note=_NOTE,
        averaged=tuple(column.key for column in tables.TABLE_1),
    )


def _table4(rows: Sequence[System]) -> Table:
    columns = (tables.column("swag"),)
    source = "section 4.4: Large is above GPT by 8.3"
    claims = _all_better(rows, "on SWAG", source, columns)
    note = "The paper's figures are on dev; of GPT it has test only (78.0)."
    return Table("table4", published.TABLE_4, tuple(rows), columns, claims, note=note)


def imdb(rows: Sequence[System]) -> Table:
    columns = (tables.column("imdb"),)
    claims = _all_better(rows, "on IMDb", "not of the paper", columns)
    note = (
        "Scores are on IMDb's test set. The figure in brackets is of Sun et al. 2019, "
        "after four epochs."
    )
    return Table("imdb", published.IMDB, tuple(rows), columns, claims, note=note)


_BUILDERS = {"table1": _table1, "table4": _table4, "imdb": imdb}


def _published() -> dict[str, published.Row]:
    """Returns table 1's rows, with the same systems' figures of tables 2 and 7."""
    elsewhere = {"squad": published.TABLE_2.rows, "ner": published.TABLE_7.rows}
    return {
        name: {
            **row,
            **{key: elsewhere[key][r][key] for key, r in _ELSEWHERE.get(name, ())},
        }
        for name, row in published.TABLE_1.rows.items()
    }


def _all_better(
    rows: Sequence[System], where: str, source: str, columns: Sequence[Column]
) -> tuple[Claim, ...]:
    """Claims that each BERT is better than GPT, and Large than Base."""
    pairs = _each(rows, "gpt", columns)
    claims = [Claim(f"BERT is better than GPT {where}", source, pairs)] if pairs else []
    large, base = "BERT, large", "BERT, base"
    if {large, base} <= {row.name for row in rows}:
        pairs = against(large, base, columns)
        claims.append(Claim(f"Large is better than Base {where}", source, pairs))
    return tuple(claims)


def _claims(rows: Sequence[System]) -> tuple[Claim, ...]:
    """Returns Table 1's claims about the systems that are there."""
    glue = tables.TABLE_1
    everywhere = "section 4.1: Base and Large outperform all systems on all tasks"
    next_to = list(itertools.pairwise(rows))
    ranks = tuple(Pair(a.name, b.name, "average") for a, b in next_to)
    said = (f"{a.name} is above {b.name}" for a, b in next_to)
    claims = (
        Claim("BERT is better than GPT on all tasks of GLUE", everywhere,
              _each(rows, "gpt", glue)),
        Claim(f"On average over GLUE {' and '.join(said)}", "table 1, by its figures",
              ranks),
        Claim("Left to right is worse where a token needs both sides: BERT is better "
              "than GPT on SQuAD and NER", "section 1, which has no figures",
              _each(rows, "gpt", _TOKENS)),
    )  # fmt: skip
    return tuple(claim for claim in claims if claim.pairs)


def _each(
    rows: Sequence[System], other: str, columns: Sequence[Column]
) -> tuple[Pair, ...]:
    """Pairs each BERT against the systems of another model."""
    names = {
        model: [row.name for row in rows if row.pretraining.model == model]
        for model in ("bert", other)
    }
    both = itertools.product(names["bert"], names[other])
    return tuple(pair for names in both for pair in against(*names, columns))
