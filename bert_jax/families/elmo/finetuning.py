"""A task with ELMo's vectors: rows of words, and the model (systems.py).

ELMo is frozen and its mix is learned (`task.elmo_system=attention`), or all of it is
fine-tuned (`finetuned`). A text is `<S> a </S>`, a pair `<S> a </S> <S> b </S>`, each
read by itself. `tasks.of` joins a task with this.
"""

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

from jaxtyping import Array, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Feature, Rows
from bert_jax.errors import UserError
from bert_jax.families.elmo import rows
from bert_jax.families.elmo.config import ElmoConfig, flops
from bert_jax.families.elmo.systems import (
    FINETUNED,
    SYSTEMS,
    ElmoSystem,
    Head,
    System,
    init_system,
    system_flops,
)
from bert_jax.family import require_values
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.task import Shapes
from bert_jax.types import Arrays, DropoutKey

FROZEN = "elmo"  # the part that does not learn


class ElmoFinetuning(Finetuning):
    """A mixin that replaces a task's tokens by words, and BERT by ELMo.

    Args:
      config: Config of the run. `config.task` also has ELMo's sizes (configs/elmo.py),
        `words`, `elmo_system` and the fields of `systems.System`.
    """

    # What reads the words' vectors: HEAD(system, labels), see `systems.Head`.
    head_module: ClassVar[Head]
    reading_module: ClassVar[Head | None] = None  # as `ElmoSystem.reading`
    systems: ClassVar[Sequence[str]] = SYSTEMS
    model_config: ElmoConfig  # type: ignore[assignment] # no BERT

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        _refuse(config, self.systems)
        rule = tokenizer or rows.rule(config)
        self.words = rows.Words(rule, config.task.max_characters)
        super().__init__(config, rule)

    @property
    def pairs(self) -> bool:
        """Whether rows have two texts, which read each other."""
        return getattr(super(), "pairs", False)  # as the task, named after this class

    @functools.cached_property
    def system(self) -> System:
        """The sizes above ELMo."""
        task = self.config.task
        return System(
            name=task.elmo_system,
            pairs=self.pairs,
            lstm_size=task.lstm_size,
            lstm_layers=task.lstm_layers,
            elmo_dropout=float(task.elmo_dropout),
            dropout=float(task.dropout),
            classifier_size=task.classifier_size,
        )

    @functools.cached_property
    def model(self) -> ElmoSystem:  # type: ignore[override] # no BERT
        return ElmoSystem(
            self.model_config,
            self.system,
            head=type(self).head_module,
            head_name=self.head,
            labels=max(1, len(self.labels)),
            reading=type(self).reading_module,
        )

    def sizes(self) -> ElmoConfig:  # type: ignore[override] # no BERT
        return ElmoConfig.of_run(self.config)

    def resolve(self) -> None:
        """Resolves as the task does. Also freezes ELMo, unless all is fine-tuned."""
        super().resolve()
        if self.config.task.elmo_system != FINETUNED:
            frozen = (*self.config.optimizer.frozen, FROZEN)
            self.fill_in({"optimizer.frozen": tuple(dict.fromkeys(frozen))})
            if not self.config.init_from:
                self.notices["config.init_from is empty: ELMo is frozen at random"] = 1

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        """Returns no names, because there is no pooler."""
        del predicts
        return ()

    def init_params(self, key: Key[Array, ""]) -> dict:
        """Draws `elmo`, `mix`, `reader` and the head, or, fine-tuned, `elmo` and the
        head."""
        return init_system(self.model, key)

    def apply(
        self,
        params: Any,
        batch: Arrays,
        key: DropoutKey = None,
        terms: Collection[str] = (),
    ) -> dict[str, Array]:
        """Returns the head's outputs."""
        del terms  # of a Transformer's layers
        columns = ("characters", "input_ids", "input_mask", "segment_ids")
        inputs = (batch[name] for name in columns)
        outputs = self.model.apply({"params": params}, *inputs, key)
        assert isinstance(outputs, dict)
        return outputs

    def tokenize_texts(
        self, texts: Sequence[str], *, offsets: bool = True
    ) -> Iterator[Any]:
        """Yields each text's words with their offsets, as `tokenizers.Encoding` has
        them."""
        del offsets  # words have them at no cost
        encodings = [self.words.encode(text) for text in texts]
        self._count_cut()
        yield from encodings

    @functools.cached_property
    def between(self) -> tuple[int, ...]:
        """The first text's end, and the second one's begin."""
        return self.special_tokens.sep, self.special_tokens.cls

    def word_ids(self, words: Sequence[str]) -> list[int]:
        """Returns the numbers of words that are cut already."""
        numbers = self.words.ids(words)
        self._count_cut()
        return numbers

    def encode(self, examples: Sequence[Any], split: str) -> list[Feature]:
        """Encodes as the task does."""
        if split == "predict" and self.words.is_full:  # a server, after months
            self.words.forget()
        return super().encode(examples, split)  # type: ignore[safe-super] # a mixin

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        """Rows whose batches have the words' characters."""
        return rows.WordRows(features, self.padding, self.words)

    def flops(self, shapes: Shapes) -> int:
        """Returns ELMo's FLOPs, forward only where it is frozen, and the BiLSTMs'."""
        words = math.prod(shapes["input_ids"])
        reading = flops(self.model_config, words)
        if self.system.name != FINETUNED:
            reading //= 3
        return reading + system_flops(self.model_config, self.system, words)

    def _count_cut(self) -> None:
        if self.words.cut:
            most = self.model_config.max_characters - 2
            self.notices[f"distinct words of more than {most} bytes, cut"] = (
                self.words.cut
            )


def _refuse(config: ConfigDict, systems: Sequence[str]) -> None:
    """Raises UserError for settings that an ELMo does not use."""
    task = config.task
    if task.get("elmo_system") not in systems:
        raise UserError(
            f"config.task.elmo_system={task.get('elmo_system')!r}: choose one of "
            f"{', '.join(systems)}"
        )
    if task.get("bilstm"):
        raise UserError("config.task.bilstm=True: reads BERT's vectors; leave it False")
    require_values(
        config,
        "an ELMo",
        ("model.dtype", "float32", "is float32"),
        ("tokenizer.vocab_file", "", "reads words by their characters"),
    )
