"""A table by the number of fine-tuning epochs: a line of each system, in a plot."""

from collections.abc import Sequence

from bert_jax.errors import UserError
from experiments.lib.verdicts import Claim, Pair
from experiments.paper.systems import Table

TABLES = ("imdb",)
# Published figures of IMDb are after four (Sun et al. 2019).
_PUBLISHED = 4


def along(table: Table, name: str, counts: Sequence[int]) -> Table:
    """Each system fine-tuned for each number of epochs: runs of their own, because the
    learning rate falls to 0 at the end of each.

    Args:
      name: of the table, as it was asked for.

    Raises:
      UserError: a number is below 1, or the table takes no epochs.
    """
    if name not in TABLES:
        raise UserError(f"--epochs: of {', '.join(TABLES)} only; {name} has its own")
    if min(counts) < 1:
        raise UserError(f"--epochs: {min(counts)} is below 1")
    systems = tuple(
        system._replace(
            name=_name(system.name, count),
            paper=system.paper if count == _PUBLISHED else "",
            fields=(*system.fields, f"train.num_epochs={count}"),
            line=system.name,
            at=count,
        )
        for system in table.systems
        for count in counts
    )
    return table._replace(
        name=f"{table.name}-by-epochs",
        systems=systems,
        claims=tuple(_each(claim, counts) for claim in table.claims),
        axis="epochs of fine-tuning",
    )


def _each(claim: Claim, counts: Sequence[int]) -> Claim:
    pairs = tuple(
        Pair(_name(pair.first, count), _name(pair.second, count), pair.column)
        for pair in claim.pairs
        for count in counts
    )
    return claim._replace(pairs=pairs)


def _name(system: str, count: int) -> str:
    return f"{system}, {count} epoch{'s' * (count > 1)}"
