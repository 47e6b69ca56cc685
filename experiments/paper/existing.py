"""Tables of weights that exist already: nothing is pre-trained.

Each row starts from weights that `init_from` takes: a folder, a run, or hf:OWNER/NAME.
"""

from collections.abc import Sequence

from bert_jax.convert import weights
from bert_jax.errors import UserError
from experiments.paper import beside, tables
from experiments.paper.systems import Pretraining, System, Table

# Those that compare no kinds of pre-training. The last two take one row's weights.
_OF_ONE = ("table7", "features")
TABLES = ("table1", "table2", "table3", "table4", "imdb", *_OF_ONE)


def build(table: str, size: str, sources: Sequence[str]) -> tuple[Table, str]:
    """Returns the table with a row for each source's weights, and the recipe's size.

    Base and Large get the paper's row next to them. Where both are there, its claim
    that Large is better is judged.

    Args:
      size: Size of the recipe, for weights of none of the named sizes.

    Raises:
      UserError: A source has no weights, or the table has no such form.
    """
    tables.build(table, size)  # there is such a table
    if table not in TABLES:
        raise UserError(
            f"--weights: {table} compares pre-trainings, which it trains itself; "
            f"choose one of {', '.join(TABLES)}"
        )
    if table in _OF_ONE and len(sources) > 1:
        raise UserError(f"--weights={','.join(sources)}: {table} takes one")
    given = [_pretraining(source, size) for source in sources]
    (first, named), *_ = given
    if table in _OF_ONE:
        if first.model != "bert":
            raise UserError(f"--weights={sources[0]}: {table} is of BERT alone")
        of_one = tables.build(table, first.size)
        rows = tuple(  # the paper has none of another shape
            x._replace(pretraining=first, paper=x.paper if named else "")
            for x in of_one.systems
        )
        return of_one._replace(systems=rows), first.size
    sizes = [size for _, size in given]
    # The paper's names are for the only Base and the only Large.
    only = {x for x in ("base", "large") if sizes.count(x) == 1}
    rows = tuple(_row(table, own, own.size if x in only else "") for own, x in given)
    if table == "imdb":
        return beside.imdb(rows), first.size
    both = len(only) == 2
    found = tables.build(table, "large" if both else first.size)
    claims = found.claims if both else ()
    note = found.note.replace("needs --size=large", "needs weights of Base and Large")
    return found._replace(systems=rows, claims=claims, note=note), first.size


def _pretraining(source: str, size: str) -> tuple[Pretraining, str]:
    """Returns a source as a pre-training that has ended, and the name of its size.

    The recipe is that of its size, or `size`. Another shape or model has no name.

    Raises:
      UserError: There are no such weights.
    """
    if "://" in source:
        raise UserError(f"--weights={source}: copy it to this machine first")
    found = weights.find_source(source)
    shape, model = found.shape(), found.family.name
    given = shape["model.num_hidden_layers"], shape["model.hidden_size"]
    known = [name for name, own in tables.SIZES.items() if own[:2] == given]
    named = known[0] if known and model == "bert" else ""
    own = Pretraining(source, size=named or size, model=model, weights=source)
    return own, named


def _row(table: str, own: Pretraining, size: str) -> System:
    """Returns a row, next to the paper's of this size, if it is not empty."""
    if not size:
        return System(own.weights, own)
    name = f"BERT, {size}"
    rows = tables.build(table, size).systems
    paper = next((row.paper for row in rows if row.name == name), rows[0].paper)
    return System(name, own, paper)
