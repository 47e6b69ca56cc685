"""ELMo's sizes, checked, and the FLOPs that follow from them."""

import dataclasses
from typing import Any

from bert_jax.errors import UserError

ACTIVATIONS = ("relu", "tanh")
# Fields of a run's `config.model` and `config.task`, besides its filters.
MODEL = ("hidden_size", "intermediate_size", "num_hidden_layers")
TASK = (
    *("activation", "highways", "character_size", "max_characters"),
    *("cell_clip", "projection_clip", "skip"),
)
GATES = 4  # input, new value, forget, output: LSTMCell's i, j, f, o


@dataclasses.dataclass(frozen=True)
class ElmoConfig:
    """The sizes, each with its name in options.json next to it.

    Attributes:
      filters: (width, number) of each convolution over characters.
    """

    vocab_size: int  # n_tokens_vocab: words that the softmax knows
    hidden_size: int = 512  # lstm.projection_dim: a direction's output, a word's vector
    intermediate_size: int = 4096  # lstm.dim: the LSTM's cell
    num_hidden_layers: int = 2  # lstm.n_layers: of each direction
    filters: tuple[tuple[int, int], ...] = (
        *((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512)),
        (7, 1024),
    )
    activation: str = "relu"  # char_cnn.activation, of the convolutions
    highways: int = 2  # char_cnn.n_highway
    characters: int = 262  # char_cnn.n_characters: ids, with 0 for no word
    character_size: int = 16  # char_cnn.embedding.dim
    max_characters: int = 50  # char_cnn.max_characters_per_token
    cell_clip: float = 3.0  # lstm.cell_clip: the cell's bound. 0 means none
    projection_clip: float = 3.0  # lstm.proj_clip: the output's bound. 0 means none
    skip: bool = True  # lstm.use_skip_connections: from layer 2 on add a layer's input
    dropout: float = 0.1  # rate on each layer's input and on the last one's output

    def __post_init__(self) -> None:
        """Raises UserError where the sizes do not fit together."""
        if self.intermediate_size <= self.hidden_size:
            raise UserError(
                f"intermediate_size={self.intermediate_size}: the cell must be larger "
                f"than its projection, hidden_size={self.hidden_size}"
            )
        if not self.filters:
            raise UserError("filters: one at least is needed")
        for width, number in self.filters:
            if not 1 <= width <= self.max_characters or number < 1:
                raise UserError(
                    f"filters: {width}:{number} must have a width of 1 to the "
                    f"{self.max_characters} characters of a word, and a number of 1 "
                    "or more"
                )
        if self.activation not in ACTIVATIONS:
            raise UserError(
                f"activation={self.activation}: choose one of {', '.join(ACTIVATIONS)}"
            )

    @classmethod
    def from_config(cls, config: Any) -> "ElmoConfig":
        """Reads the sizes in a run's whole config.

        Raises:
          UserError: They do not fit together.
        """
        task, filters = config.task, []
        for text in task.filters:
            width, _, number = text.partition(":")
            if not (width.isdecimal() and number.isdecimal()):
                raise UserError(
                    f"config.task.filters: {text!r} is not of the form WIDTH:NUMBER"
                )
            filters.append((int(width), int(number)))
        sizes = {name: config.model[name] for name in MODEL}
        sizes |= {name: task[name] for name in TASK}
        sizes["vocab_size"] = config.model.vocab_size or config.tokenizer.vocab_size
        dropout = float(config.model.hidden_dropout_prob)
        try:
            return cls(filters=tuple(filters), dropout=dropout, **sizes)
        except UserError as error:
            raise UserError(f"config.model or config.task: {error}") from error

    @property
    def convolution_size(self) -> int:
        """Numbers of a word's vector before its projection."""
        return sum(number for _, number in self.filters)


def flops(config: ElmoConfig, words: int) -> int:
    """Returns FLOPs of training on words read in both directions, without the softmax:
    matrix products only, 3 x forward."""
    size, inner = config.hidden_size, config.intermediate_size
    convolutions = sum(
        (config.max_characters - width + 1) * width * config.character_size * number
        for width, number in config.filters
    )
    wide = config.convolution_size
    reading = convolutions + config.highways * 2 * wide * wide + wide * size
    layer = 2 * size * GATES * inner + inner * size
    return 3 * 2 * 2 * words * (reading + config.num_hidden_layers * layer)
