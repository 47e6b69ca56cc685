"""ELMo's bidirectional language model (Peters et al. 2018, and allenai/bilm-tf).

Words are read by their characters. In each direction layers of an LSTM with projection
read the words' vectors. Both directions of a layer are computed at once, and share the
layers that read the characters. Everything is float32.
"""

from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_jax.families.elmo.config import GATES, ElmoConfig
from bert_jax.models.layers import dropout
from bert_jax.types import DropoutKey

Carry = Mapping[str, Float[Array, "batch 2 _"]]  # each layer's cell and output

_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
FORGET_BIAS = 1.0  # that of TensorFlow's LSTMCell, added to the learned bias


class Characters(nn.Module):
    """A word's vector: convolutions over its characters, the largest of each filter,
    highway layers (Srivastava et al. 2015), a projection."""

    config: ElmoConfig

    @nn.compact
    def __call__(
        self, ids: Int[Array, "batch words characters"]
    ) -> Float[Array, "batch words hidden"]:
        config = self.config
        table = self._value("char_embed", _characters, config.characters, -1)
        x = table[ids.reshape(-1, ids.shape[-1])]
        features = []
        for i, (width, number) in enumerate(config.filters):
            fan = width * config.character_size
            init = nn.initializers.normal(fan**-0.5)
            if config.activation == "relu":
                init = _uniform(0.05)
            kernel = self._value(f"W_cnn_{i}", init, width, -1, number)
            bias = self._value(f"b_cnn_{i}", nn.initializers.zeros_init(), number)
            dimensions = ("NWC", "WIO", "NWC")
            convolved = jax.lax.conv_general_dilated(
                x, kernel, (1,), "VALID", dimension_numbers=dimensions
            )
            features.append(_ACTIVATIONS[config.activation](convolved.max(1) + bias))
        y = jnp.concatenate(features, axis=-1)
        for i in range(config.highways):
            carry = jax.nn.sigmoid(
                self._linear(f"high_{i}_carry", y, y.shape[-1], -2.0)
            )
            new = jax.nn.relu(self._linear(f"high_{i}_transform", y, y.shape[-1]))
            y = carry * new + (1.0 - carry) * y
        if y.shape[-1] != config.hidden_size:
            y = self._linear("proj", y, config.hidden_size)
        return y.reshape(*ids.shape[:-1], config.hidden_size)

    def _value(
        self, name: str, init: nn.initializers.Initializer, *shape: int
    ) -> Float[Array, "..."]:
        """Returns a parameter. -1 in `shape` means the size of a character's vector."""
        size = self.config.character_size
        shape = tuple(size if n == -1 else n for n in shape)
        boxed = nn.with_logical_partitioning(init, (None,) * len(shape))
        return jnp.asarray(self.param(name, boxed, shape))

    def _linear(
        self, name: str, x: Float[Array, "words inputs"], size: int, bias: float = 0.0
    ) -> Float[Array, "words outputs"]:
        init = nn.initializers.normal(x.shape[-1] ** -0.5)
        kernel = self._value(f"W_{name}", init, x.shape[-1], size)
        return x @ kernel + self._value(
            f"b_{name}", nn.initializers.constant(bias), size
        )


class Lstm(nn.Module):
    """A layer of TensorFlow's LSTMCell with `num_proj`, in both directions."""

    config: ElmoConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "2 batch words inputs"],
        cell: Float[Array, "batch 2 inner"],
        hidden: Float[Array, "batch 2 outputs"],
        real: Bool[Array, "2 batch words"] | None = None,
    ) -> tuple[Float[Array, "2 batch words outputs"], tuple[Array, Array]]:
        """Returns every word's output, and the last word's cell and output.

        Args:
          x: Inputs of each direction, in the order in which it reads.
          cell: Cell after the word before, or 0 at the beginning.
          hidden: Output after the word before.
          real: False for padding, which changes neither. None means no padding.
        """
        config, inputs = self.config, x.shape[-1]
        kernel, bias, down = self._parameters(inputs)
        # What depends on the inputs alone is one product for all words.
        gate_inputs = jnp.einsum("dbti,digk->tdbgk", x, kernel[:, :inputs])
        gate_inputs = gate_inputs + bias[:, None]
        recurrent = kernel[:, inputs:]
        is_word = None if real is None else real.transpose(2, 0, 1)[..., None]

        def step(
            state: tuple[Array, Array], gate_inputs: tuple[Array, Array | None]
        ) -> tuple:
            gates, is_word = gate_inputs
            cell, hidden = state
            gates = gates + jnp.einsum("dbo,dogk->dbgk", hidden, recurrent)
            enter, new, keep, leave = (gates[:, :, gate] for gate in range(GATES))
            cell = jax.nn.sigmoid(keep + FORGET_BIAS) * cell
            cell = cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            cell = _clipped(cell, config.cell_clip)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            hidden = _clipped(
                jnp.einsum("dbk,dko->dbo", hidden, down), config.projection_clip
            )
            if is_word is not None:
                cell = jnp.where(is_word, cell, state[0])
                hidden = jnp.where(is_word, hidden, state[1])
            return (cell, hidden), hidden

        outputs: Array
        first = (cell.swapaxes(0, 1), hidden.swapaxes(0, 1))
        (cell, hidden), outputs = jax.lax.scan(step, first, (gate_inputs, is_word))
        last = (cell.swapaxes(0, 1), hidden.swapaxes(0, 1))
        return outputs.transpose(1, 2, 0, 3), last

    def _parameters(self, inputs: int) -> tuple[Array, Array, Array]:
        """Returns the kernel, its bias, and the projection."""
        size, inner = self.config.hidden_size, self.config.intermediate_size
        # As TensorFlow's, on [inputs and outputs, gates x inner] of one direction.
        limit = (6.0 / (inputs + size + GATES * inner)) ** 0.5
        shape = (2, inputs + size, GATES, inner)
        names = (None, "embed", None, "mlp")
        kernel = self._value("kernel", _uniform(limit), shape, names)
        zeros = nn.initializers.zeros_init()
        bias = self._value("bias", zeros, (2, GATES, inner), (None, None, "mlp"))
        limit = (6.0 / (inner + size)) ** 0.5
        down = self._value(
            "projection", _uniform(limit), (2, inner, size), (None, "mlp", "embed")
        )
        return kernel, bias, down

    def _value(
        self,
        name: str,
        init: nn.initializers.Initializer,
        shape: tuple[int, ...],
        names: tuple[str | None, ...],
    ) -> Float[Array, "..."]:
        boxed = nn.with_logical_partitioning(init, names)
        return jnp.asarray(self.param(name, boxed, shape))


class Elmo(nn.Module):
    """Both directions: characters, then layers of LSTMs, without the softmax."""

    config: ElmoConfig

    def setup(self) -> None:
        self.cnn = Characters(self.config)
        layers = range(self.config.num_hidden_layers)
        self.lstms = [Lstm(self.config, name=f"lstm_{i}") for i in layers]

    def __call__(
        self,
        forward: Int[Array, "batch words characters"],
        backward: Int[Array, "batch words characters"],
        carry: Carry | None = None,
        key: DropoutKey = None,
    ) -> tuple[list[Float[Array, "2 batch words hidden"]], Carry]:
        """Returns the words' vectors and each layer's output, by direction, and the
        carry.

        Dropout is where bilm/training.py has it: on each layer's input (which the
        residual connection then adds) and on the last layer's output.

        Args:
          forward: Characters in the order of the text.
          backward: Characters from the end of the text to its beginning.
          carry: State after the words that each direction read before. None means no
            words.
          key: Dropout key. None means evaluation.
        """
        x = jnp.stack([self.cnn(forward), self.cnn(backward)])
        carry = carry or zero_carry(self.config, forward.shape[0])
        return self._read(x, carry, key)

    def layers(
        self,
        characters: Int[Array, "batch words characters"],
        carry: Carry | None = None,
    ) -> tuple[Float[Array, "batch layers words both"], Carry]:
        """Returns the layers that ELMo mixes, with their directions joined.

        They are the words' vectors (twice) and the layers' outputs.

        Args:
          characters: Characters of whole sentences, with their marks. 0 pads their
            ends.
        """
        real = (characters > 0).any(-1)
        places = reversing(real.sum(-1), characters.shape[1])
        words = self.cnn(characters)
        x = jnp.stack([words, jnp.take_along_axis(words, places[..., None], axis=1)])
        carry = carry or zero_carry(self.config, len(characters))
        outputs, carry = self._read(x, carry, None, jnp.stack([real, real]))
        both = jnp.stack(outputs)  # [layers, 2, batch, words, hidden]
        back = jnp.take_along_axis(both[:, 1], places[None, ..., None], axis=2)
        joined = jnp.concatenate([both[:, 0], back], axis=-1)
        return joined.swapaxes(0, 1), carry

    def _read(
        self,
        x: Float[Array, "2 batch words hidden"],
        carry: Carry,
        key: DropoutKey,
        real: Bool[Array, "2 batch words"] | None = None,
    ) -> tuple[list[Float[Array, "2 batch words hidden"]], Carry]:
        rate, count = self.config.dropout, len(self.lstms)
        keys = [None] * (count + 1) if key is None else jax.random.split(key, count + 1)
        outputs, carried = [x], dict(carry)
        for i, lstm in enumerate(self.lstms):
            x = dropout(x, rate, keys[i])
            before = (carry[f"cell_{i}"], carry[f"hidden_{i}"])
            y, (cell, hidden) = lstm(x, *before, real)
            carried |= {f"cell_{i}": cell, f"hidden_{i}": hidden}
            x = x + y if i and self.config.skip else y
            outputs.append(x)
        outputs[-1] = dropout(outputs[-1], rate, keys[-1])
        return outputs, carried


def zero_carry(config: ElmoConfig, rows: int) -> dict[str, Float[Array, "batch 2 _"]]:
    """Returns the state before the first word."""
    sizes = {"cell": config.intermediate_size, "hidden": config.hidden_size}
    return {
        f"{name}_{i}": jnp.zeros((rows, 2, size), jnp.float32)
        for i in range(config.num_hidden_layers)
        for name, size in sizes.items()
    }


def reversing(lengths: Int[Array, "batch"], words: int) -> Int[Array, "batch words"]:
    """Returns for each position its mirror image in its row. Padding stays."""
    place = jnp.arange(words)
    mirrored = lengths[:, None] - 1 - place
    return jnp.where(mirrored >= 0, mirrored, place)


def _clipped(x: Array, bound: float) -> Array:
    return jnp.clip(x, -bound, bound) if bound else x


def _uniform(limit: float) -> nn.initializers.Initializer:
    def init(key: Array, shape: tuple[int, ...], dtype: type = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def _characters(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws uniformly in +-1.

    "No word" is zeros, as where bilm reads a trained model.
    """
    return _uniform(1.0)(key, shape).at[0].set(0.0)
