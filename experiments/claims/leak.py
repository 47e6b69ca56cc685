"""A bidirectional language model without masks sees the answer (section 3.1).

    python -m experiments.claims.leak [--text=text:BOOK.txt] [--steps=600]

trains small models on the same text, some seconds each, and prints their loss on text
held out, as they learn. "Bidirectional conditioning would allow each word to indirectly
see itself, and the model could trivially predict the target word in a multi-layered
context." So the table also says by how much the guess for a token changes where that
very token is changed in the text. "Joined" are two LSTMs, one from each side (ELMo,
figure 3): at the end, and after each of two layers, whose second reads both.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from bert_jax import tokenization
from bert_jax.commands import command_line
from bert_jax.commands.runner import ROOT
from bert_jax.config import configuration
from bert_jax.data import corpus
from bert_jax.errors import UserError, escape_controls
from bert_jax.family import bert_config
from bert_jax.models.config import BertConfig
from bert_jax.models.heads import BertForPreTraining
from bert_jax.models.lstm import BiLstm
from bert_jax.runtime import terminal
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tokenization.wordpiece import WORDPIECE

PIECES, LENGTH, ROWS, HIDDEN = 1000, 32, 16, 128
MASKED = 5  # number of masked tokens in a row: 15%
SHOWN = 6  # number of losses printed for each model
_BYTES = 2_000_000  # bytes of the text that are enough
_HELD_OUT = 10  # every tenth row, so that beginning and end of a book are in both
_RATE = 2e-3

Rows = Int[np.ndarray, "rows length"]


class Guess(NamedTuple):
    """A model's guesses and the targets that they should match."""

    logits: Float[Array, "rows guesses pieces"]
    targets: Int[Array, "rows guesses"]


class Transformer(nn.Module):
    """BERT's encoder and its output layer, at every position or at masked ones."""

    config: BertConfig
    mask: int = -1  # the id of [MASK]. -1 means to guess the next token everywhere

    @nn.compact
    def __call__(
        self, ids: Int[Array, "rows length"], places: Int[Array, "rows masked"]
    ) -> Guess:
        ones = jnp.ones_like(ids)
        model = BertForPreTraining(self.config, name="model")
        if self.mask < 0:
            found = model(ids, ones, 0 * ids, None)
            return Guess(found["lm_logits"], ids[:, 1:])
        hidden = jax.vmap(lambda row, at: row.at[at].set(self.mask))(ids, places)
        found = model(hidden, ones, 0 * ids, places)
        targets = jnp.take_along_axis(ids, places, axis=1)
        return Guess(found["masked_lm_logits"], targets)


class Lstms(nn.Module):
    """Guesses of a token from the LSTM that ends before it and the one that ends behind
    it. From the second layer on both read the outputs of both."""

    layers: int

    @nn.compact
    def __call__(
        self, ids: Int[Array, "rows length"], places: Int[Array, "rows masked"]
    ) -> Guess:
        del places
        x = nn.Embed(PIECES, HIDDEN, name="embeddings")(ids)
        size = HIDDEN // 2
        both = BiLstm(size, self.layers, name="lstms")(x, jnp.ones_like(ids))
        before, behind = both[:, :-2, :size], both[:, 2:, size:]
        joined = jnp.concatenate([before, behind], axis=-1)
        return Guess(nn.Dense(PIECES, name="output")(joined), ids[:, 1:-1])


def models(mask: int) -> dict[str, nn.Module]:
    """Returns the five models, by name.

    Args:
      mask: Id of [MASK].
    """
    spec = f"{ROOT / 'configs' / 'tiny.py'}:recipe=plain"
    fields = configuration.load_config(spec, []).model
    one = bert_config(fields, PIECES)
    causal = bert_config({**fields.to_dict(), "causal": True}, PIECES)
    return {
        "left to right": Transformer(causal),
        "both sides, no masks": Transformer(one),
        "masked LM": Transformer(one, mask),
        "joined at the end": Lstms(1),
        "joined after each layer": Lstms(2),
    }


def read(source: str) -> tuple[Rows, Rows, int]:
    """Rows of a text to train on and rows held out, and the id of [MASK].

    Raises:
      UserError: The text cannot be read, or is too short.
    """
    texts, size = [], 0
    for document in corpus.read_documents((source,), Path("data")):
        texts.append(document.text)
        size += len(document.text)
        if size > _BYTES:
            break
    tokenizer = WORDPIECE.train(texts, PIECES, lowercase=True)
    encoded = [tokenizer.encode(t[:_BYTES], add_special_tokens=False) for t in texts]
    ids = [i for one in encoded for i in one.ids]
    rows = np.array(ids[: len(ids) // LENGTH * LENGTH], np.int32).reshape(-1, LENGTH)
    if len(rows) < 2 * ROWS:
        raise UserError(
            f"--text={source}: {len(ids):,} pieces; at least {2 * ROWS * LENGTH:,} are "
            "needed, some ten pages"
        )
    held = np.arange(len(rows)) % _HELD_OUT == 0
    return rows[~held], rows[held], tokenization.special_ids(tokenizer).mask


def train(
    model: nn.Module, learnt: Rows, held_out: Rows, steps: int
) -> tuple[dict[int, float], float]:
    """Trains a model.

    Returns:
      Its losses by step, on held-out text, in nats, and `change` of the trained model.
    """
    rng, every = np.random.default_rng(0), max(1, steps // (SHOWN - 1))
    asked = (held_out, _places(np.random.default_rng(1), len(held_out)))
    params = initial(model)
    rate = optax.linear_schedule(0.0, _RATE, max(1, steps // 10))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    state = jax.jit(optimizer.init)(params)

    def loss(params: Any, ids: Any, places: Any) -> Float[Array, ""]:
        return jnp.mean(cross_entropy(*_asked(model, params, ids, places)))

    @jax.jit
    def step(params: Any, state: Any, ids: Any, places: Any) -> tuple[Any, Any]:
        gradient = jax.grad(loss)(params, ids, places)
        change, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, change), state

    judge, losses = jax.jit(loss), {}
    for number, (ids, places) in zip(
        range(steps + 1), _batches(learnt, rng), strict=False
    ):
        if number % every == 0 or number == steps:
            losses[number] = float(judge(params, *asked))
        if number < steps:
            params, state = step(params, state, ids, places)
    return losses, change(model, params, held_out[:ROWS])


def initial(model: nn.Module) -> Any:
    """Draws random parameters."""
    ids, places = (jnp.zeros((1, n), jnp.int32) for n in (LENGTH, MASKED))
    return jax.jit(model.init)(jax.random.key(0), ids, places)


def change(model: nn.Module, params: Any, rows: Rows) -> float:
    """Returns the largest change of the logits for a token where it is another one."""
    middle = LENGTH // 2
    others = rows.copy()
    others[:, middle] = (rows[:, middle] + 1) % PIECES
    places = np.full((len(rows), 1), middle, np.int32)
    asked = jax.jit(partial(_asked, model))
    one, other = (asked(params, ids, places) for ids in (rows, others))
    # Masked models have one guess. The others begin with the second token.
    at = 0 if one.logits.shape[1] == 1 else middle - 1
    return float(jnp.abs(one.logits[:, at] - other.logits[:, at]).max())


def _asked(model: nn.Module, params: Any, ids: Any, places: Any) -> Guess:
    found = model.apply(params, jnp.asarray(ids), jnp.asarray(places))
    assert isinstance(found, Guess)
    return found


def _batches(rows: Rows, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows]]:
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(rows) - ROWS + 1, ROWS):
            yield rows[order[start : start + ROWS]], _places(rng, ROWS)


def _places(rng: np.random.Generator, rows: int) -> Rows:
    """Draws the positions to mask in each row."""
    drawn = rng.permuted(np.tile(np.arange(LENGTH, dtype=np.int32), (rows, 1)), axis=1)
    return drawn[:, :MASKED]


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = command_line.Parser("experiments.claims.leak", __doc__)
    parser.add_argument(
        "--text", default="pydocs", help="a source, as in corpus.sources"
    )
    parser.add_argument("--steps", type=int, default=600, help="of each model")
    options = parser.parse_args(argv)
    source, steps = options.text, options.steps
    if steps < SHOWN:
        raise UserError(f"--steps={steps}: at least {SHOWN} are needed")
    command_line.compute()
    learnt, held_out, mask = read(source)
    counts = np.bincount(learnt.ravel(), minlength=PIECES) + 1.0
    unigram = -np.log(counts / counts.sum())[held_out].mean()
    rows, shown, asked = [], [], models(mask)
    for number, (name, model) in enumerate(asked.items(), 1):
        terminal.print_line(f"{name}: training, {number} of {len(asked)}")
        losses, most = train(model, learnt, held_out, steps)
        shown = list(losses)
        found = (f"{loss:.2f}" for loss in losses.values())
        rows.append((name, *found, f"{most:.2g}"))
    header = ("loss after steps", *map(str, shown), "change")
    print(
        f"{learnt.size:,} pieces of {escape_controls(source)} to learn from, "
        f"{held_out.size:,} held out; nats a piece on these, {unigram:.2f} by counts "
        f"alone\n{terminal.format_table(rows, header)}\n"
        "change: of the guess for a token, where that token is another one"
    )
    return 0


if __name__ == "__main__":
    command_line.start(main)
