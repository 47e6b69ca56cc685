"""Table 1 with the systems that BERT is compared with trained here too.

Figure 3 and table 1 set BERT beside OpenAI's GPT and ELMo. Their figures on SQuAD and
NER are of tables 2 and 7.
"""

import itertools
from collections.abc import Sequence

from bert_jax.errors import UserError
from experiments import published
from experiments.paper import tables
from experiments.paper.systems import Column, Pretraining, System, Table
from experiments.paper.verdicts import Claim, Pair
from experiments.published import Published

# Each system's name, and its row of table 1; BERT's is by its size.
SYSTEMS = {
    "bert": ("BERT", "BERT-Base"),
    "gpt": ("GPT", "OpenAI GPT"),
    "elmo": ("ELMo", "BiLSTM+ELMo+Attn"),
}
ALONE = ("bert",)
# ELMo was released in one size, which is that of neither BERT.
_ELMO_SIZES = ("tiny", "base")
# What the paper reports of these systems elsewhere, F1 on dev.
_ELSEWHERE = {
    "BERT-Base": (("squad", "BERT-Base (single)"), ("ner", "BERT-Base, fine-tuned")),
    "BERT-Large": (("squad", "BERT-Large (single)"), ("ner", "BERT-Large, fine-tuned")),
    "BiLSTM+ELMo+Attn": (("squad", "BiDAF+ELMo (Single)"), ("ner", "ELMo")),
}
_TOKENS = (Column("squad", "squad", "f1"), Column("ner", "ner", "f1"))
_NOTE = (
    "The paper's figures are on test, ours on dev, except SQuAD and NER, where both "
    "are on dev. The paper's systems for ELMo are three: BiLSTM+ELMo+Attn on GLUE, "
    "BiDAF+ELMo on SQuAD (table 2), and Peters et al.'s BiLSTM-CRF on NER (table 7). "
    "It has no GPT there. The average is over this report's columns of table 1, in "
    "brackets too; the margins that a claim quotes are of the paper's own average, "
    "over all nine. ELMo reads upper and lower case; BERT and GPT read lower case "
    "only, on NER too, unless --config.tokenizer.lowercase says otherwise. Rows of "
    "SQuAD are windows, which each system cuts by its own tokens."
)


def chosen(names: str) -> tuple[str, ...]:
    """The systems that `--systems` names, in table 1's order.

    Raises:
      UserError: one does not exist, or none is named.
    """
    asked = [name for name in names.split(",") if name]
    for name in asked:
        if name not in SYSTEMS:
            raise UserError(
                f"--systems: no system {name!r}; choose of {', '.join(SYSTEMS)}"
            )
    if not asked:
        raise UserError(f"--systems={names}: name one of {', '.join(SYSTEMS)} at least")
    return tuple(name for name in SYSTEMS if name in asked)


def build(table: str, size: str, systems: Sequence[str]) -> Table:
    """The table of these systems; of BERT alone the table as ever.

    Raises:
      UserError: there is no such table, or it has BERT only, or a system has no such
        size.
    """
    if tuple(systems) == ALONE:
        return tables.build(table, size)
    if table != "table1":
        tables.build(table, size)
        raise UserError(f"--systems: {table} is of BERT alone; table1 compares systems")
    if "elmo" in systems and size not in _ELMO_SIZES:
        raise UserError(
            f"--systems: elmo has no size {size}; choose --size=tiny or base, or "
            "leave elmo out"
        )
    found = tuple(_system(name, size) for name in systems)
    columns = (*tables.TABLE_1, *_TOKENS)
    return Table(
        "-".join((table, *systems)),
        Published("GLUE, SQuAD and NER", _source(), _rows()),
        *(found, columns, _claims(found)),
        note=_NOTE,
        averaged=tuple(column.key for column in tables.TABLE_1),
    )


def _system(name: str, size: str) -> System:
    title, row = SYSTEMS[name]
    if (name, size) == ("bert", "large"):
        row = "BERT-Large"
    # The released ELMo reads text that is cut at spaces; the others cut at punctuation.
    words = ("task.words=punctuation",) if (name, size) == ("elmo", "base") else ()
    first = Pretraining("mlm" if name == "bert" else name, words, model=name)
    return System(title, first, row)


def _source() -> str:
    return f"{published.TABLE_1.source}; SQuAD 1.1: table 2; NER: table 7"


def _rows() -> dict[str, published.Row]:
    """Table 1's rows, with what tables 2 and 7 have of the same systems."""
    elsewhere = {"squad": published.TABLE_2.rows, "ner": published.TABLE_7.rows}
    return {
        name: {
            **row,
            **{key: elsewhere[key][r][key] for key, r in _ELSEWHERE.get(name, ())},
        }
        for name, row in published.TABLE_1.rows.items()
    }


def _claims(systems: Sequence[System]) -> tuple[Claim, ...]:
    """The paper's, of the systems that are there, by their names."""
    names = [system.name for system in systems]
    glue = [column.key for column in tables.TABLE_1]
    tokens = [column.key for column in _TOKENS]
    everywhere = "section 4.1: Base and Large outperform all systems on all tasks"
    ranks = [Pair(a, b, "average") for a, b in itertools.pairwise(names)]
    said = (
        f"{a.name} is above {b.name}{_margin(a, b)}"
        for a, b in itertools.pairwise(systems)
    )
    claims = (
        Claim("BERT is better than GPT on all tasks of GLUE", everywhere,
              _against("BERT", "GPT", glue)),
        Claim("BERT is better than ELMo on all tasks of GLUE", everywhere,
              _against("BERT", "ELMo", glue)),
        Claim(f"On average over GLUE {' and '.join(said)}", "table 1, by its figures",
              tuple(ranks)),
        Claim("Left to right is worse where a token needs both sides: BERT is better "
              "than GPT on SQuAD and NER", "section 1, which has no figures",
              _against("BERT", "GPT", tokens)),
        Claim("BERT is better than ELMo on SQuAD and NER", "tables 2 and 7, by their "
              "figures", _against("BERT", "ELMo", tokens)),
    )  # fmt: skip
    return tuple(
        claim
        for claim in claims
        if claim.pairs and all({p.first, p.second} <= set(names) for p in claim.pairs)
    )


def _margin(first: System, second: System) -> str:
    """By how much, in the paper's table."""
    one, other = (
        published.TABLE_1.rows[system.paper]["average"] for system in (first, second)
    )
    assert one is not None and other is not None
    return f" (the paper's: by {one - other:.1f})"


def _against(first: str, second: str, keys: Sequence[str]) -> tuple[Pair, ...]:
    return tuple(Pair(first, second, key) for key in keys)
