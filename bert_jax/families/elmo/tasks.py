"""Tasks as ELMo's systems do them: classes of texts and pairs, and endings."""

import math
import types
from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.families.elmo import esim
from bert_jax.families.elmo.config import flops
from bert_jax.families.elmo.esim import Inference, Scorer
from bert_jax.families.elmo.finetuning import ElmoFinetuning
from bert_jax.families.elmo.systems import ATTENTION, Classifier
from bert_jax.families.elmo.word_tasks import ElmoNer, ElmoSquad
from bert_jax.tasks.ner.task import Ner
from bert_jax.tasks.squad.task import Squad
from bert_jax.tasks.swag import Swag
from bert_jax.tasks.task import Shapes, Task
from bert_jax.tasks.text import Text
from bert_jax.types import Arrays, DropoutKey


class ElmoClassification(ElmoFinetuning, Text):
    """A text, or a pair whose texts read each other.

    A task of pairs has another model than one of single texts: GLUE's ten specify
    which they are, and for others `config.task.text_b` names the second text.
    """

    head_module = Classifier

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        if self.kind == "regression":
            # As in src/models.py, build_classifier, for STS-B.
            self.fill_in({"task.classifier_size": 0})

    def parse_row(self, row: Row) -> Row:
        """Parses a row as the task does. A model of single texts reads no `text_b`."""
        example = super().parse_row(row)
        if example["text_b"] and not self.pairs:
            raise ValueError('"text_b": this model was trained on single texts')
        return example

    def sequence(self, a: list[int], b: list[int] | None, split: str) -> dict[str, Any]:
        """Makes a sequence as the other tasks do. A model of single texts has no b."""
        if b and not self.pairs:
            raise UserError(
                f"{split}: a record has a second text, and config.task.text_b is "
                "empty: name its column, so that the model is one of pairs"
            )
        return super().sequence(a, b, split)


class ElmoSwag(ElmoFinetuning, Swag):
    """Each ending is a row, `<S> context </S> <S> ending </S>`."""

    head_module, reading_module = Scorer, Inference
    systems = (ATTENTION,)

    @property
    def pairs(self) -> bool:
        """A context and an ending."""
        return True

    def apply(
        self,
        params: Any,
        batch: Arrays,
        key: DropoutKey = None,
        terms: Collection[str] = (),
    ) -> dict[str, Array]:
        """Returns `logits`: the score of each ending."""
        shape = batch["input_ids"].shape  # [batch, endings, words]
        columns = ("characters", "input_ids", "input_mask", "segment_ids")
        rows = {n: jnp.reshape(batch[n], (-1, *batch[n].shape[2:])) for n in columns}
        outputs = super().apply(params, rows, key, terms)
        return {"logits": outputs["logits"].reshape(shape[:2])}

    def flops(self, shapes: Shapes) -> int:
        """Returns ELMo's FLOPs, forward only, and ESIM's."""
        words = math.prod(shapes["input_ids"])
        reading = flops(self.model_config, words) // 3
        return reading + esim.flops(self.model_config, self.system, words)


# The kinds of tasks that exist for ELMo, and the class that joins each with it.
KINDS: tuple[tuple[type, type[ElmoFinetuning]], ...] = (
    (Text, ElmoClassification),
    (Ner, ElmoNer),
    (Squad, ElmoSquad),
    (Swag, ElmoSwag),
)


def of(name: str, task: Any) -> type[Task]:
    """Returns a task as ELMo does it.

    Args:
      name: Name of the task, for the error.
      task: Class from `tasks.TASKS`.

    Raises:
      UserError: It is not one of those that exist for ELMo.
    """
    bases = [
        ours
        for kind, ours in KINDS
        if isinstance(task, type) and issubclass(task, kind)
    ]
    if not bases:
        raise UserError(
            f"config.task.name={name}: config.model.architecture=elmo classifies texts "
            "and pairs, tags words, finds answers and chooses among endings (glue.py, "
            "text.py, imdb.py, ner.py, squad.py, swag.py); take a BERT for this task"
        )
    return types.new_class(f"Elmo{task.__name__}", (bases[0], task))
