"""Tables of weights that exist already: nothing is pre-trained.

Each row starts from weights that `init_from` takes: a folder, a run, or hf:OWNER/NAME.
"""

import argparse
from collections.abc import Mapping, Sequence

from bert_jax.config.configuration import field_of
from bert_jax.convert import weights
from bert_jax.errors import UserError
from experiments.paper import tables
from experiments.paper.systems import Pretraining, System, Table

# Those that compare no kinds of pre-training; the last two take one row's weights.
TABLES = ("table1", "table2", "table3", "squad", "table4", "table7", "features")
_OF_ONE = TABLES[-2:]


def build(table: str, size: str, sources: Sequence[str]) -> tuple[Table, str]:
    """The table with a row for each source's weights, and the size of the recipe.

    Base and Large get the paper's row beside them; where both are there, its claim
    that Large is better is judged.

    Args:
      size: of the recipe, for weights of none of the named sizes.

    Raises:
      UserError: a source has no weights or is named twice; the table has no such form.
    """
    tables.build(table, size)  # there is such a table
    if not sources:
        raise UserError("--weights=: name one at least")
    if table not in TABLES:
        raise UserError(
            f"--weights: {table} compares pre-trainings, which it trains itself; "
            f"choose one of {', '.join(TABLES)}"
        )
    for source in sources:
        if "://" in source:
            raise UserError(f"--weights={source}: copy it to this machine first")
    if len(set(sources)) < len(sources):
        raise UserError(f"--weights={','.join(sources)}: names weights twice")
    if table in _OF_ONE and len(sources) > 1:
        raise UserError(f"--weights={','.join(sources)}: {table} takes one")
    sizes = {source: _size(source) for source in sources}
    found = [
        Pretraining(x, size=sizes[x] or size, model=_model(x), weights=x)
        for x in sources
    ]
    if table in _OF_ONE:
        if found[0].model != "bert":
            raise UserError(f"--weights={sources[0]}: {table} is of BERT alone")
        whole = tables.build(table, found[0].size)
        rows = tuple(x._replace(pretraining=found[0]) for x in whole.systems)
        if not sizes[sources[0]]:  # the paper has none of this shape
            rows = tuple(row._replace(paper="") for row in rows)
        return whole._replace(systems=rows), found[0].size
    names = [_name(x, sizes) for x in sources]
    both = {"BERT, base", "BERT, large"} <= set(names)
    whole = tables.build(table, "large" if both else found[0].size)
    rows = tuple(
        System(name, own, _paper(table, name))
        for name, own in zip(names, found, strict=True)
    )
    claims = whole.claims if both else ()
    note = whole.note.replace("needs --size=large", "needs weights of Base and Large")
    own = whole._replace(systems=rows, claims=claims, note=note)
    return own, found[0].size


def require_no_pretraining(
    given: argparse.Namespace, rest: Sequence[str], of_all: tuple[str, ...]
) -> None:
    """Raises UserError for an option of pre-training beside --weights.

    Args:
      of_all: what the fields begin with that reach fine-tuning, too.
    """
    asked = [name for name in ("corpus", "config", "words") if getattr(given, name)]
    asked += ["systems"] if given.systems != "bert" else []
    fields = [text for text in rest if text.startswith("--config.")]
    asked += [text[2:] for text in fields if not field_of(text).startswith(of_all)]
    if asked:
        raise UserError(
            f"--{asked[0]}: is of pre-training, and --weights={given.weights} are "
            "there; of fine-tuning: --finetuning.FIELD=VALUE"
        )


def _size(source: str) -> str:
    """The name of a BERT's size; empty for another shape or model.

    Raises:
      UserError: there are no such weights.
    """
    weights.check(source)
    shape = weights.read_shape(source)
    given = shape.get("num_hidden_layers"), shape.get("hidden_size")
    known = [name for name, own in tables.SIZES.items() if own[:2] == given]
    return known[0] if known and _model(source) == "bert" else ""


def _model(source: str) -> str:
    return str(weights.read_shape(source).get("architecture", "bert"))


def _name(source: str, sizes: Mapping[str, str]) -> str:
    """The paper's name for the only Base or Large; else what the weights are called."""
    size = sizes[source]
    is_only = list(sizes.values()).count(size) == 1
    return f"BERT, {size}" if size in ("base", "large") and is_only else source


def _paper(table: str, name: str) -> str:
    """The row of the paper's table."""
    for size in ("base", "large"):
        if name == f"BERT, {size}":
            return tables.build(table, size).systems[-1].paper
    return ""
