"""The paper's tables as values: which systems, which columns, to test which claims."""

import itertools
from collections.abc import Mapping, Sequence

from bert_jax.errors import UserError
from bert_jax.tasks.glue.data import TASKS as GLUE
from configs.base import SIZES as BASE_SIZES
from experiments.lib import published
from experiments.lib.published import Published
from experiments.lib.verdicts import Claim, Pair
from experiments.paper.feature_choices import CHOICES
from experiments.paper.systems import Column, Pretraining, System, Table

# Layers, hidden size and heads. tiny is configs/tiny.py:recipe=plain.
SIZES = {
    "tiny": (2, 128, 4),
    **{name: (*shape, shape[1] // 64) for name, shape in BASE_SIZES.items()},
}
# Figure 5 is fine-tuned from checkpoints after these percentages of the steps.
SHARES = (20, 40, 60, 80, 100)
# Points by which two masking mixes may differ on a task and count as alike: table 8's
# own spread over the six is 0.8 on MNLI and 0.5 on NER, fine-tuned.
ALIKE = 1.0
FEATURES = "concat_last_four"

MLM = Pretraining("mlm", kept=True)
LTR = Pretraining("ltr", ("task.objective=ltr",), kept=True)
NO_NSP = Pretraining("no-nsp-loss", ("task.nsp_loss=False",))
NO_PAIRS = Pretraining("no-pairs", ("corpus.nsp=False",))
CASED = Pretraining("mlm-cased", ("tokenizer.lowercase=False",))


def column(task: str, score: str = "", key: str = "") -> Column:
    """Returns the column of a task's main score on dev, unless another is named."""
    main = {"swag": "accuracy", "imdb": "accuracy"}
    given = score or main.get(task) or (GLUE[task].main_score if task in GLUE else "f1")
    return Column(key or task, task, given)


def against(
    first: str, second: str, columns: Sequence[Column] | Sequence[str]
) -> tuple[Pair, ...]:
    """Pairs two systems on each column."""
    keys = [own.key if isinstance(own, Column) else own for own in columns]
    return tuple(Pair(first, second, key) for key in keys)


# WNLI is not one of table 1's columns.
TABLE_1 = (
    column("mnli"),
    Column("mnli_mismatched", "mnli", "accuracy", "dev_mismatched"),
    *map(column, ("qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")),
)
SQUAD = (column("squad", "exact_match", "squad/exact_match"), column("squad"))
SQUAD2 = (column("squad2", "exact_match", "squad2/exact_match"), column("squad2"))


def build(name: str, size: str) -> Table:
    """Returns the table at a size.

    Raises:
      UserError: There is no such table.
    """
    if name not in TABLES:
        raise UserError(f"{name}: no such table; choose one of {', '.join(TABLES)}")
    return TABLES[name](name, size)


def _of_bert(
    name: str,
    size: str,
    title: Published,
    columns: Sequence[Column],
    source: str,
    usual: tuple[str, ...],
) -> Table:
    """Returns a table of BERT itself at its size.

    At Large it also has Base, and a claim that Large is better if both are known.

    Args:
      source: Source of the claim.
    """
    paper = {"base": "BERT-Base", "large": "BERT-Large"}
    row = next((r for r in title.rows if r.startswith(paper.get(size, "-"))), "")
    base = next((r for r in title.rows if r.startswith("BERT-Base")), "")
    systems = [System(f"BERT, {size}", MLM, row)]
    claims, notes = [], []
    if size == "large":
        systems.insert(0, System("BERT, base", MLM._replace(size="base"), base))
        if base:
            both = [c for c in columns if title.rows[base].get(c.key) is not None]
            pairs = against("BERT, large", "BERT, base", both)
            claims.append(Claim("Large is better than Base", source, pairs))
    if base and not claims:
        notes.append("Its claim needs --size=large.")
    if title is published.TABLE_1:
        notes.append("The paper's figures are on test, ours on dev.")
    rows = (tuple(systems), tuple(columns), tuple(claims))
    return Table(name, title, *rows, usual=usual, note=" ".join(notes))


def _table5(name: str, size: str) -> Table:
    bert, no_nsp, no_pairs = "MLM & NSP", "No NSP", "No NSP, no pairs"
    ltr, bilstm = "LTR & No NSP", "LTR & No NSP + BiLSTM"
    columns = (
        *(column("mnli"), column("qnli"), column("mrpc", "accuracy")),
        *(column("sst2"), column("squad")),
    )
    hurt = ("qnli", "mnli", "squad")
    claims = (
        Claim("No NSP hurts QNLI, MNLI and SQuAD", "section 5.1",
              against(bert, no_nsp, hurt)),
        Claim("No NSP hurts QNLI, MNLI and SQuAD (second reading: no pairs either)",
              "section 5.1", against(bert, no_pairs, hurt)),
        Claim("LTR is worse than MLM on all tasks", "section 5.1",
              against(no_nsp, ltr, columns)),
        Claim("A BiLSTM on top helps LTR on SQuAD", "section 5.1",
              against(bilstm, ltr, ("squad",))),
        Claim("LTR with the BiLSTM stays behind MLM on SQuAD", "section 5.1",
              against(no_nsp, bilstm, ("squad",))),
        Claim("The BiLSTM hurts LTR on the GLUE tasks", "section 5.1",
              against(ltr, bilstm, columns[:4])),
    )  # fmt: skip
    systems = (
        System(bert, MLM, "BERT-Base"),
        System(no_nsp, NO_NSP, "No NSP"),
        System(no_pairs, NO_PAIRS),
        System(ltr, LTR, "LTR & No NSP"),
        System(bilstm, LTR, "LTR & No NSP + BiLSTM", ("task.bilstm=True",)),
    )
    note = (
        '"No NSP" is the same pairs without their loss; "no pairs" is running text. '
        "The paper says only that both train on the same data."
    )
    return Table(name, published.TABLE_5, systems, columns, claims, note=note)


def shapes(size: str) -> tuple[tuple[int, int, int], ...]:
    """Returns table 6's six models in a size's proportions: Base gives the paper's.

    Each has the heads' width of its size. Where a quarter of the layers and half of
    them are the same number, the first model has half of the width.
    """
    layers, hidden, heads = SIZES["base" if size == "large" else size]
    quarter, half = max(1, layers // 4), max(1, layers // 2)
    first = (quarter, hidden, heads)
    if quarter == half:
        first = (quarter, hidden // 2, heads // 2)
    more = heads * 4 // 3
    wide = (hidden // heads * more, more)
    return (
        *(first, (half, hidden, heads // 4), (half, hidden, heads)),
        *((layers, hidden, heads), (layers, *wide), (2 * layers, *wide)),
    )


def _table6(name: str, size: str) -> Table:
    columns = (column("mnli"), column("mrpc", "accuracy"), column("sst2"))
    systems = []
    own = SIZES["base" if size == "large" else size]
    fits = "base" if size == "large" else ""
    for (layers, hidden, heads), row in zip(
        shapes(size), published.TABLE_6.rows, strict=True
    ):
        shape = (layers, hidden, heads)
        run = MLM._replace(size=fits)
        if shape != own:
            run = Pretraining(f"mlm-{layers}-{hidden}-{heads}", (), shape, fits)
        systems.append(System(f"L={layers} H={hidden} A={heads}", run, row))
    names = [system.name for system in systems]
    strict = [
        pair
        for small, large in itertools.pairwise(names)
        for pair in against(large, small, columns)
    ]
    claims = (
        Claim("Each larger model is better on all tasks", "section 5.2", tuple(strict)),
        Claim("The largest is better than the smallest on all tasks",
              "section 5.2, which says more", against(names[-1], names[0], columns)),
    )  # fmt: skip
    note = "The six models have the paper's proportions at this size, not its sizes."
    note = "" if size in ("base", "large") else note
    return Table(name, published.TABLE_6, tuple(systems), columns, claims, note=note)


_TOO_SHALLOW = (
    "This size has fewer layers than the paper's best features; in their place: {}."
)


def _table7(name: str, size: str) -> Table:
    tuned = "Fine-tuned"
    rows = {"base": "BERT-Base, fine-tuned", "large": "BERT-Large, fine-tuned"}
    systems = [System(tuned, CASED, rows.get(size, ""))]
    for key, choice in CHOICES.items():  # the paper's are Base's
        paper = "" if size == "large" else choice.title
        systems.append(System(choice.title, CASED, paper, choice=key))
    best = CHOICES[best_features(size)].title
    others = [choice.title for choice in CHOICES.values() if choice.title != best]
    text, source, note = f"The best features: {best}", "section 5.3", ""
    if best_features(size) != FEATURES:  # the paper claims less for these
        text, others = "Features of layers are better than embeddings", ["Embeddings"]
        source, note = "table 7, by its figures", _TOO_SHALLOW.format(best)
    same = f"Features are about as good as fine-tuning (within {ALIKE:g})"
    claims = (
        Claim(same, "section 5.3", (Pair(tuned, best, "ner"),), ALIKE),
        Claim(text, source, tuple(Pair(best, other, "ner") for other in others)),
    )
    columns = (column("ner"),)
    return Table(name, published.TABLE_7, tuple(systems), columns, claims, note=note)


def best_features(size: str) -> str:
    """Returns the choice of layers that the paper found best.

    It used them for table 8 (appendix C.2): the last four, concatenated. For smaller
    models it is the sum of all.
    """
    return FEATURES if SIZES[size][0] >= 4 else "sum_all"


def _table8(name: str, size: str) -> Table:
    choice = best_features(size)
    columns = (column("mnli"), column("ner"), Column("features", "features", choice))
    systems = []
    for row in published.TABLE_8.rows:
        mask, same, random = map(int, row.split("/"))
        fields = (
            f"masking.mask_fraction={mask / 100}",
            f"masking.random_fraction={random / 100}",
        )
        run = Pretraining(f"mlm-mask{mask}-same{same}-random{random}", fields)
        systems.append(System(row, MLM if row == "80/10/10" else run, row))
    ours, *others = (system.name for system in systems)
    tuned = ("mnli", "ner")
    alike = [pair for other in others for pair in against(ours, other, tuned)]
    claims = (
        Claim(f"The mix matters little for fine-tuning (within {ALIKE:g})",
              "appendix C.2", tuple(alike), ALIKE),
        Claim("Only [MASK] is worse for features", "appendix C.2",
              against(ours, "100/0/0", ("features",))),
        Claim("Only random pieces are worse, fine-tuned", "appendix C.2",
              against(ours, "0/0/100", tuned)),
    )  # fmt: skip
    note = "The models are uncased, NER included; the paper does not say which it used."
    if choice != FEATURES:
        note += f" {_TOO_SHALLOW.format(CHOICES[choice].title)}"
    return Table(name, published.TABLE_8, tuple(systems), columns, claims, note=note)


def _figure5(name: str, size: str) -> Table:
    del size
    columns = tuple(column(task) for task in ("mnli", "qnli", "sst2"))
    systems = [
        System(f"{label}, {share}%", run, share=share, line=label, at=share)
        for label, run in (("MLM", MLM), ("LTR", LTR))
        for share in SHARES
    ]
    ahead = [
        pair
        for share in SHARES
        for pair in against(f"MLM, {share}%", f"LTR, {share}%", columns)
    ]
    claims = (
        Claim("MLM passes LTR almost at once (is ahead at each fifth of the steps)",
              "appendix C.1", tuple(ahead)),
        Claim("MLM still gains after 60% of the steps (the paper: after half of them)",
              "appendix C.1", against("MLM, 100%", "MLM, 60%", columns)),
    )  # fmt: skip
    given = (name, published.FIGURE_5, tuple(systems), columns, claims, ("mnli",))
    return Table(*given, axis="% of the pre-training steps")


def _imdb(name: str, size: str) -> Table:
    paper = "BERT-Base" if size == "base" else ""
    systems = (System("MLM & NSP", MLM, paper), System("LTR & No NSP", LTR))
    claim = Claim(
        "LTR is worse than MLM (the paper's claim, on a task that it has not)",
        "section 5.1",
        (Pair("MLM & NSP", "LTR & No NSP", "imdb"),),
    )
    note = (
        "Scores are on IMDb's test set. The figure in brackets is of Sun et al. 2019."
    )
    columns = (column("imdb"),)
    return Table(name, published.IMDB, systems, columns, (claim,), note=note)


_BY_FIGURES = "table {}, by its figures"
_USUAL = tuple(dict.fromkeys(own.task for own in TABLE_1))
# Title, columns, source of the claim, and the tasks that run unless others are named.
_OF_BERT: Mapping[str, tuple[Published, tuple[Column, ...], str, tuple[str, ...]]] = {
    "table1": (published.TABLE_1, (*TABLE_1, column("imdb")), "section 4.1", _USUAL),
    "table2": (published.TABLE_2, SQUAD, _BY_FIGURES.format(2), ()),
    "table3": (published.TABLE_3, SQUAD2, "", ()),
    "table4": (published.TABLE_4, (column("swag"),), _BY_FIGURES.format(4), ()),
}
TABLES = {
    **dict.fromkeys(_OF_BERT, lambda name, size: _of_bert(name, size, *_OF_BERT[name])),
    **{"table5": _table5, "table6": _table6, "table7": _table7, "table8": _table8},
    **{"figure5": _figure5, "features": _table7, "imdb": _imdb},
}
