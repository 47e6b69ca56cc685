"""RoBERTa (Liu et al. 2019), in BERT's encoder layers. See docs/encoders.md."""

from typing import Any

from bert_jax import tasks, tokenization
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family, require_values

PAD = 1  # the id of padding, and the position that padding has


def _task(name: str, task: Any) -> Any:
    """Returns the task, for a vocabulary whose padding has the family's id."""

    def create_checked(config: Any, tokenizer: Any = None) -> Any:
        title = FAMILIES[config.model.architecture].title
        tokenizer = tokenizer or tokenization.load_config_tokenizer(config)
        pad = PAD if tokenizer is None else tokenization.special_ids(tokenizer).pad
        if pad != PAD:
            raise UserError(
                f"the vocabulary's padding has the id {pad}, and {title}'s positions "
                f"are counted from {PAD}; take a vocabulary whose padding has the id "
                f"{PAD}"
            )
        if name == "pretraining":
            require_values(
                config,
                title,
                ("corpus.nsp", False, "is trained without sentence pairs"),
                ("task.objective", "mlm", "predicts masked pieces"),
            )
        return tasks.make_task(task, config, tokenizer)

    return create_checked


FAMILY = Family(
    name="roberta",
    title="a RoBERTa",
    model_type="roberta",
    with_heads="bert_jax.families.roberta.model:RobertaWithHeads",
    has_nsp_head=False,
    has_segments=False,
    fixed=(
        ("positions", "learnt", "has positions of its own"),
        ("type_vocab_size", 1, "has one segment, whatever the texts"),
        ("hidden_act", "gelu", "has this activation, also in its masked LM"),
        ("causal", False, "has attention in both directions"),
    ),
    layout="bert_jax.families.roberta.layout:LAYOUT",
    vocabulary="bert_jax.tokenization.byte_level:ANGLED",
    task=_task,
)
