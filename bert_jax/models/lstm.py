"""A bidirectional LSTM (Hochreiter and Schmidhuber 1997), as on top of the encoder in
sections 5.1 and 5.3."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.models.layers import dropout
from bert_jax.types import DropoutKey

_GATES = 4  # input, forget, cell, output: torch.nn.LSTM's order


class BiLstm(nn.Module):
    """Layers of an LSTM in each direction, in float32.

    The paper says "randomly initialized" and no more. Here every value is uniform in
    +-1/sqrt(size), as in torch.nn.LSTM, whose two biases are one here.
    """

    size: int  # hidden units per direction
    layers: int = 1  # number of them, one on another
    dropout: float = 0.0  # between layers

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "batch length inputs"],
        mask: Int[Array, "batch length"],
        key: DropoutKey = None,
    ) -> Float[Array, "batch length outputs"]:
        """Returns both directions' outputs, concatenated. They are 0 where `mask` is 0.

        Args:
          mask: 1 for a token, 0 for a position that is never read, such as padding.
          key: Dropout key. None means evaluation.
        """
        x = x.astype(jnp.float32)
        for layer in range(self.layers):
            if layer and key is not None:
                x = dropout(x, self.dropout, jax.random.fold_in(key, layer))
            suffix = f"_{layer}" if self.layers > 1 else ""
            inputs, size = x.shape[-1], self.size
            x = _run(
                x,
                mask,
                self._values(f"kernel{suffix}", inputs, _GATES, size),
                self._values(f"recurrent_kernel{suffix}", size, _GATES, size),
                self._values(f"bias{suffix}", _GATES, size),
            )
        return x

    def _values(self, name: str, *shape: int) -> Float[Array, "..."]:
        """Returns a parameter of both directions, stacked on the first axis."""
        limit = self.size**-0.5

        def init(key: Key[Array, ""], shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, shape, jnp.float32, -limit, limit)

        boxed = nn.with_logical_partitioning(init, (None,) * (1 + len(shape)))
        return jnp.asarray(self.param(name, boxed, (2, *shape)))


def _run(
    x: Float[Array, "batch length inputs"],
    mask: Int[Array, "batch length"],
    kernel: Float[Array, "2 inputs gates size"],
    recurrent: Float[Array, "2 size gates size"],
    bias: Float[Array, "2 gates size"],
) -> Float[Array, "batch length outputs"]:
    # The second direction reads the row from its end. Both take one step at a time.
    both = jnp.stack([x, x[:, ::-1]])
    from_inputs = jnp.einsum("dbli,digh->ldbgh", both, kernel) + bias[:, None]
    real = jnp.stack([mask, mask[:, ::-1]]).transpose(2, 0, 1)[..., None] > 0

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple:
        gates, is_token = inputs
        hidden, cell = state
        gates = gates + jnp.einsum("dbh,dhgk->dbgk", hidden, recurrent)
        enter, keep, leave = (jax.nn.sigmoid(gates[:, :, gate]) for gate in (0, 1, 3))
        new_cell = keep * cell + enter * jnp.tanh(gates[:, :, 2])
        # Padding changes nothing: the second direction begins at the last token.
        hidden = jnp.where(is_token, leave * jnp.tanh(new_cell), hidden)
        return (hidden, jnp.where(is_token, new_cell, cell)), hidden

    zeros = jnp.zeros((2, x.shape[0], bias.shape[-1]), jnp.float32)
    outputs: Array
    _, outputs = jax.lax.scan(step, (zeros, zeros), (from_inputs, real))
    joined = jnp.concatenate([outputs[:, 0], outputs[::-1, 1]], axis=-1)
    return joined.swapaxes(0, 1) * mask[..., None]
