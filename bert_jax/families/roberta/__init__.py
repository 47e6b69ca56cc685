"""RoBERTa (Liu et al. 2019), in BERT's encoder layers. See docs/encoders.md."""

from typing import Any

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family, require_values

PAD = 1  # the id of padding, and the position that padding has


def check(config: Any) -> None:
    """Raises UserError if a `BertConfig` is not a RoBERTa's."""
    require_values(
        config,
        FAMILIES[config.architecture].title,
        ("positions", "learnt", "has positions of its own"),
        ("type_vocab_size", 1, "has one segment, whatever the texts"),
        ("hidden_act", "gelu", "has this activation, also in its masked LM"),
        ("causal", False, "has attention in both directions"),
        group="model.",
    )


def _task(name: str, task: Any) -> Any:
    return _padded(_pretraining(task) if name == "pretraining" else task)


def _padded(task: Any) -> Any:
    """Returns the task, for a vocabulary whose padding has the family's id."""

    def checked(config: Any, tokenizer: Any = None) -> Any:
        tokenizer = tokenizer or tokenization.of_config(config)
        pad = PAD if tokenizer is None else tokenization.special_ids(tokenizer).pad
        if pad != PAD:
            title = FAMILIES[config.model.architecture].title
            raise UserError(
                f"the vocabulary's padding has the id {pad}, and {title}'s positions "
                f"are counted from {PAD}; take a vocabulary whose padding has the id "
                f"{PAD}"
            )
        return task(config, tokenizer)

    return checked


def _pretraining(task: Any) -> Any:
    """Returns pre-training for a config that a RoBERTa can be pre-trained with."""

    def checked(config: Any, tokenizer: Any = None) -> Any:
        require_values(
            config,
            FAMILIES[config.model.architecture].title,
            ("corpus.nsp", False, "is trained without sentence pairs"),
            ("task.objective", "mlm", "predicts masked pieces"),
        )
        return task(config, tokenizer)

    return checked


FAMILY = Family(
    name="roberta",
    title="a RoBERTa",
    model_type="roberta",
    with_heads="bert_jax.families.roberta.model:RobertaWithHeads",
    for_pretraining="bert_jax.families.roberta.model:RobertaForPreTraining",
    has_nsp_head=False,
    has_segments=False,
    check=check,
    layout="bert_jax.families.roberta.layout:LAYOUT",
    vocabulary="bert_jax.tokenization.byte_level:ANGLED",
    task=_task,
)
