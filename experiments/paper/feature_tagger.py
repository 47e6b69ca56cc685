"""Tags words from the vectors of a frozen BERT (section 5.3, the feature-based
approach)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.models.layers import dropout
from bert_jax.models.lstm import BiLstm
from bert_jax.types import DropoutKey


class Mix(nn.Module):
    """A learned weighted sum of layers, as in ELMo (Peters et al. 2018, equation 1).

    It begins as the layers' mean: the paper does not say how its sum is weighted.
    """

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words layers hidden"]
    ) -> Float[Array, "batch words hidden"]:
        """Returns `scale` times the sum of softmax(`weights`) times each layer."""
        weights = self.param("weights", nn.initializers.zeros_init(), (x.shape[2],))
        scale = self.param("scale", nn.initializers.ones_init(), ())
        return scale * jnp.einsum("l,bwlh->bwh", jax.nn.softmax(weights), x)


class FeatureTagger(nn.Module):
    """A BiLSTM over words' vectors and a linear classifier, in float32."""

    labels: int
    size: int  # hidden units per direction of the BiLSTM
    mixes: bool  # the layers are a learned weighted sum, otherwise joined
    layers: int = 2  # number of BiLSTM layers
    dropout: float = 0.1  # between the BiLSTM's layers, and before the classifier

    @nn.compact
    def __call__(
        self,
        vectors: Float[Array, "batch words layers hidden"],
        mask: Int[Array, "batch words"],
        key: DropoutKey = None,
    ) -> Float[Array, "batch words labels"]:
        """Returns the labels' logits.

        Args:
          vectors: Vectors of each word, from one or more layers of BERT.
          mask: 1 for a word, 0 for padding after the words.
          key: Dropout key. None means evaluation.
        """
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        if self.mixes:
            inputs = Mix(name="mix")(vectors)
        else:
            inputs = vectors.reshape(*vectors.shape[:2], -1)
        lstm = BiLstm(self.size, self.layers, self.dropout, name="bilstm")
        hidden = dropout(lstm(inputs, mask, keys[0]), self.dropout, keys[1])
        return nn.Dense(self.labels, name="classifier")(hidden)
