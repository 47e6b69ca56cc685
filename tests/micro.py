"""Models small enough for a test, files of rows, and the line of an error."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import pytest
from flax.traverse_util import unflatten_dict

from bert_jax import family
from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.models.heads import BertForPreTraining, init_model
from bert_jax.models.initial import InitialParams
from bert_jax.tasks.task import Predictor
from bert_jax.training import sharding
from bert_jax.training.inference import Answerer


def bert_config(**fields) -> BertConfig:
    """Returns BERT-Base's config, except for these fields."""
    defaults = configuration.with_defaults().model
    return family.bert_config({**defaults, **fields}, vocab_size=0)


def small_config(**fields) -> BertConfig:
    """Returns a config of two layers of two heads, except for these fields."""
    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 2, "intermediate_size": 64}
    return bert_config(**{**small, "max_position_embeddings": 64, **fields})


def init_pretraining(config: BertConfig, key: jax.Array) -> Any:
    """Draws the parameters of BERT with both heads, in their boxes."""
    return init_model(BertForPreTraining(config), key, inputs=4)


def initial_params(init: Callable[..., Any], seed: int = 0) -> Any:
    """Returns the output of `init(key)` of a task or a module, out of its boxes."""
    return unflatten_dict(InitialParams(init).draw(jax.random.key(seed)))


def answerer(
    predictor: Predictor, params: Any = (), rows: int = 8, width: int = 64
) -> Answerer:
    """Answers rows on one device."""
    mesh = sharding.make_mesh(configuration.with_defaults(), (), jax.devices()[:1])
    config = bert_config(vocab_size=9, hidden_size=width, num_attention_heads=1)
    return Answerer(predictor, params, mesh, rows, config)


def error_line(call: Callable[..., Any], *arguments, error=UserError, **named) -> str:
    """Returns the message of the error that a call raises, which is one line."""
    with pytest.raises(error) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write_rows(path: Path, rows: Iterable[Any]) -> str:
    """Writes rows as lines of JSON, and returns the file's path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read_rows(path: Path) -> list[Any]:
    """Returns the rows of a file of lines of JSON."""
    return [json.loads(line) for line in path.open(encoding="utf-8")]
