"""The tables of BERT itself: GLUE, SQuAD, SWAG; at size=large Base beside Large."""

from collections.abc import Callable, Sequence

from bert_jax.tasks.glue.data import TASKS as GLUE
from experiments.lib import published
from experiments.lib.published import Published
from experiments.lib.verdicts import Claim, Pair
from experiments.paper.systems import Column, Pretraining, System, Table

MLM = Pretraining("mlm", kept=True)
# Of systems that are fine-tuned on it first (section 4.2).
TRIVIAQA = "triviaqa"


def column(task: str, score: str = "", key: str = "") -> Column:
    """Of a task's main score on dev, unless another is named."""
    main = {"swag": "accuracy", "imdb": "accuracy"}
    given = score or main.get(task) or (GLUE[task].main_score if task in GLUE else "f1")
    return Column(key or task, task, given)


def against(
    first: str, second: str, columns: Sequence[Column] | Sequence[str]
) -> tuple[Pair, ...]:
    """Two systems on each column."""
    keys = [own.key if isinstance(own, Column) else own for own in columns]
    return tuple(Pair(first, second, key) for key in keys)


# WNLI is none of table 1's columns.
TABLE_1 = (
    column("mnli"),
    Column("mnli_mismatched", "mnli", "accuracy", "dev_mismatched"),
    *map(column, ("qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")),
)
SQUAD = (column("squad", "exact_match", "squad/exact_match"), column("squad"))
SQUAD2 = (column("squad2", "exact_match", "squad2/exact_match"), column("squad2"))
BOTH = Published(
    "SQuAD 1.1 and 2.0",
    "tables 2 and 3, sections 4.2 and 4.3: exact match and F1 on dev",
    {
        row: {
            **published.TABLE_2.rows.get(row, {}),
            **published.TABLE_3.rows.get(row, {}),
        }
        for row in (*published.TABLE_2.rows, *published.TABLE_3.rows)
    },
)
_ENSEMBLE = (
    "An ensemble is one, of the row's fine-tuning seeds, so it has no interval; the "
    "paper's are of seven systems from different pre-training checkpoints."
)


def whole(
    title: Published, *columns: Column, source: str = "", usual: tuple[str, ...] = ()
) -> Callable[[str, str], Table]:
    """A table of BERT itself at its size; of Large beside Base, which is a claim where
    the paper has both.

    Args:
      source: of the claim.
      usual: see `Table`.
    """

    def make(name: str, size: str) -> Table:
        paper = {"base": "BERT-Base", "large": "BERT-Large"}
        row = next((r for r in title.rows if r.startswith(paper.get(size, "-"))), "")
        systems = [System(f"BERT, {size}", MLM, row)]
        claims = []
        base = next((r for r in title.rows if r.startswith("BERT-Base")), "")
        if size == "large":
            systems.insert(0, System("BERT, base", MLM._replace(size="base"), base))
        if size == "large" and base:
            both = [c for c in columns if title.rows[base].get(c.key) is not None]
            pairs = against("BERT, large", "BERT, base", both)
            claims.append(Claim("Large is better than Base", source, pairs))
        notes = [] if claims or not base else ["Its claim needs --size=large."]
        if title is published.TABLE_1:
            notes.append("The paper's figures are on test, ours on dev.")
        if columns[: len(SQUAD)] == SQUAD:
            systems += squad_rows(systems[-1], title)
            notes.append(_ENSEMBLE)
        rows, note = (tuple(systems), columns, tuple(claims)), " ".join(notes)
        return Table(name, title, *rows, usual=usual, note=note)

    return make


def squad_rows(single: System, title: Published) -> list[System]:
    """Table 2's other rows of a system: its ensemble, and both after TriviaQA."""
    paper = single.paper.partition(" (")[0]
    found = []
    for ensemble, after in ((True, ""), (False, TRIVIAQA), (True, TRIVIAQA)):
        said = "ensemble" if ensemble else "single"
        row = f"{paper} ({said}, with TriviaQA)" if after else f"{paper} ({said})"
        parts = ("ensemble",) * ensemble + ("with TriviaQA",) * bool(after)
        found.append(
            single._replace(
                name=f"{single.name}, {', '.join(parts)}",
                paper=row if row in title.rows else "",
                tasks=("squad",),
                after=after,
                ensemble=ensemble,
            )
        )
    return found


TABLES = {
    "table1": whole(
        published.TABLE_1,
        *(*TABLE_1, column("imdb")),
        source="section 4.1",
        usual=tuple(dict.fromkeys(own.task for own in TABLE_1)),
    ),
    "table2": whole(published.TABLE_2, *SQUAD, source="table 2, by its figures"),
    "table3": whole(published.TABLE_3, *SQUAD2),
    "table4": whole(
        published.TABLE_4, column("swag"), source="table 4, by its figures"
    ),
    "squad": whole(BOTH, *SQUAD, *SQUAD2, source="table 2, by its figures"),
}
