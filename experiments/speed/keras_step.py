"""The same training step in KerasHub, on Keras's JAX backend.

KerasHub has the masked LM alone; the next sentence head is a Dense layer on its pooled
vectors. Its feed-forward layers have GELU's tanh form, ours erf. Steps are those of
`Model.fit` with jit_compile; AdamW with BERT's weight decay by name and the gradients'
norm clipped, as on our side. Import it before any other Keras: it sets the backend.
"""

import os
from collections.abc import Mapping
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import keras_hub
import numpy as np
from ml_collections import ConfigDict

Rows = Mapping[str, np.ndarray]
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def backbone(model: ConfigDict, dtype: str) -> Any:
    """KerasHub's encoder of `config.model`'s sizes, with random weights."""
    return keras_hub.models.BertBackbone(
        vocabulary_size=model.vocab_size,
        num_layers=model.num_hidden_layers,
        num_heads=model.num_attention_heads,
        hidden_dim=model.hidden_size,
        intermediate_dim=model.intermediate_size,
        dropout=model.hidden_dropout_prob,
        max_sequence_length=model.max_position_embeddings,
        num_segments=model.type_vocab_size,
        dtype=POLICIES[dtype],
    )


def classifier(model: ConfigDict, dtype: str) -> Any:
    """Of two classes, on `backbone`."""
    return keras_hub.models.BertTextClassifier(
        backbone(model, dtype),
        num_classes=2,
        dropout=model.hidden_dropout_prob,
        preprocessor=None,
    )


def adamw(fields: ConfigDict) -> Any:
    """Keras's AdamW with the values of `config.optimizer`."""
    optimizer = keras.optimizers.AdamW(
        learning_rate=fields.learning_rate,
        weight_decay=fields.weight_decay,
        beta_1=fields.beta1,
        beta_2=fields.beta2,
        epsilon=fields.eps,
        global_clipnorm=fields.clip_norm or None,
    )
    # The names of LayerNorm's scale and of all biases.
    optimizer.exclude_from_weight_decay(var_names=["gamma", "beta", "bias"])
    return optimizer


def inputs_of(batch: Rows) -> dict[str, np.ndarray]:
    """A batch of ours with the names that KerasHub's backbone takes."""
    return {
        "token_ids": batch["input_ids"],
        "segment_ids": batch["segment_ids"],
        "padding_mask": batch["input_mask"],
    }


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _classification(model: ConfigDict, batch: Rows, dtype: str) -> tuple[Any, ...]:
    """The model, its inputs and labels, and its losses.

    As a plain model: KerasHub's own `fit` of a classifier takes texts, or all rows.
    """
    found = classifier(model, dtype)
    network = keras.Model(found.input, found.output)
    return network, (inputs_of(batch), batch["label"]), loss()


def _pretraining(model: ConfigDict, batch: Rows, dtype: str) -> tuple[Any, ...]:
    """As `_classification`, with weights."""
    encoder = backbone(model, dtype)
    words = keras_hub.models.BertMaskedLM(encoder, preprocessor=None)
    judge = keras.layers.Dense(2, dtype="float32", name="next_sentence")
    pairs = judge(encoder(encoder.input)["pooled_output"])
    outputs = {"masked_lm": words.output, "next_sentence": pairs}
    inputs = inputs_of(batch) | {"mask_positions": batch["masked_lm_positions"]}
    labels = {
        "masked_lm": batch["masked_lm_ids"],
        "next_sentence": batch["next_sentence_labels"],
    }
    weights = {
        # Keras divides by the number of places, ours by that of the predicted.
        "masked_lm": batch["masked_lm_weights"] / batch["masked_lm_weights"].mean(),
        "next_sentence": np.ones(len(batch["next_sentence_labels"]), np.float32),
    }
    network = keras.Model(words.input, outputs)
    return network, (inputs, labels, weights), dict.fromkeys(outputs, loss())


class KerasStep:
    """One side: a model with its optimizer, and a batch.

    Attributes:
      parameters: their number.
    """

    def __init__(self, config: ConfigDict, batch: Rows, dtype: str):
        make = _classification if "label" in batch else _pretraining
        self._model, self._rows, losses = make(config.model, batch, dtype)
        self._model.compile(adamw(config.optimizer), losses, jit_compile=True)
        self.parameters = self._model.count_params()

    def __call__(self, steps: int) -> float:
        """Takes so many steps and waits; the host's batch goes to the device in each.

        Returns:
          The mean of the steps' losses, as `fit` reports it.
        """
        batches = (self._rows for _ in range(steps))
        history = self._model.fit(batches, steps_per_epoch=steps, verbose=0)
        return float(history.history["loss"][-1])
