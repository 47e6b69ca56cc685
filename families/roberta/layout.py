"""Maps our parameters' names and axes to those of Hugging Face's RoBERTa."""

from collections.abc import Collection, Iterator

from bert_jax.convert import layout
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from families.roberta.model import FIRST

# As in convert.layout.
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "RobertaModel": ("pooler",),
    "RobertaForMaskedLM": ("masked_lm",),
    "RobertaForSequenceClassification": ("sequence_classification",),
    "RobertaForTokenClassification": ("token_classification",),
    "RobertaForQuestionAnswering": ("question_answering",),
    "RobertaForMultipleChoice": ("pooler", "multiple_choice"),
}
OURS: dict[str, tuple[str, ...]] = {}
CAUSAL: tuple[str, ...] = ()
PREFIX = "roberta."
_NAMES = {
    "bert.": PREFIX,
    "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
    "cls.predictions.transform.": "lm_head.",
    "cls.predictions.": "lm_head.",
}


def name_of(heads: Collection[str], causal: bool) -> str:
    """The architecture with these heads."""
    del causal  # no RoBERTa is
    for name, parts in ARCHITECTURES.items():
        if set(parts) - {"pooler"} == set(heads):
            return name
    raise UserError(f"a model with the heads {', '.join(sorted(heads))} has no name")


def parameters(
    part: str, config: BertConfig, labels: int = 0
) -> Iterator[layout.Parameter]:
    """The parameters of a part, as `layout.parameters` gives those of BERT's."""
    hidden = config.hidden_size
    for parameter in layout.parameters(part, config, labels):
        name, shape = parameter.huggingface, parameter.shape
        if "position_embeddings" in parameter.path:
            shape = (config.max_position_embeddings + FIRST, hidden)
        if part == "sequence_classification":
            name = name.replace("classifier.", "classifier.out_proj.")
        for ours, theirs in _NAMES.items():
            if name.startswith(ours):
                name = theirs + name.removeprefix(ours)
                break
        flat = parameter.flat if shape == parameter.shape else shape
        yield layout.Parameter(parameter.path, shape, flat, name)
    if part == "sequence_classification":
        for last, size in (("weight", (hidden, hidden)), ("bias", (hidden,))):
            path = (part, "dense", "kernel" if last == "weight" else last)
            yield layout.Parameter(path, size, size, f"classifier.dense.{last}")
