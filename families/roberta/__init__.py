"""RoBERTa (Liu et al. 2019), in BERT's encoder layers; docs/families.md."""

from typing import Any

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.family import Family, Part


class Roberta(Family):
    """What a RoBERTa does otherwise than BERT."""

    name, title = "roberta", "a RoBERTa"
    trunk = Part("families.roberta.model:Roberta")
    for_pretraining = Part("families.roberta.model:RobertaForPreTraining")
    with_heads = Part("families.roberta.model:RobertaWithHeads")
    vocabulary = Part("bert_jax.tokenization.byte_level:ANGLED")
    layout = Part("families.roberta.layout:LAYOUT")
    model_type = "roberta"
    has_segments = False

    def check(self, config: Any) -> None:
        for field, value, why in (
            ("type_vocab_size", 1, "one segment, whatever the texts"),
            ("hidden_act", "gelu", "this activation, also in its masked LM"),
            ("causal", False, "attention in both directions"),
        ):
            if getattr(config, field) != value:
                raise UserError(
                    f"config.model.{field}={getattr(config, field)}: a RoBERTa has "
                    f"{why}; set --config.model.{field}={value}"
                )

    def head_flops(self, config: Any, predictions: int, pairs: int) -> int:
        return super().head_flops(config, predictions, pairs=0)

    def task(self, name: str, task: Any) -> Any:
        return _padded(_pretraining(task) if name == "pretraining" else task)

    def complete(self, config: Any) -> None:
        config.corpus.nsp = False


def check_padding(tokenizer: Any) -> None:
    """Raises UserError if a vocabulary's padding has another id than a RoBERTa's."""
    from families.roberta.model import PAD

    if (pad := tokenization.special_ids(tokenizer).pad) != PAD:
        raise UserError(
            f"the vocabulary's padding has the id {pad}, and a RoBERTa's positions "
            f"are counted from {PAD}; take a vocabulary whose padding has the id {PAD}"
        )


def _padded(task: Any) -> Any:
    """The task, with a vocabulary that fits."""

    def checked(config: Any, tokenizer: Any = None) -> Any:
        tokenizer = tokenizer or tokenization.of_config(config)
        if tokenizer is not None:
            check_padding(tokenizer)
        return task(config, tokenizer)

    return checked


def _pretraining(task: Any) -> Any:
    """Pre-training, of a config that a RoBERTa can be pre-trained with."""

    def checked(config: Any, tokenizer: Any = None) -> Any:
        for group, field, value, why in (
            ("corpus", "nsp", False, "is trained without sentence pairs"),
            ("task", "objective", "mlm", "predicts masked pieces"),
        ):
            if (set_to := config[group][field]) != value:
                raise UserError(
                    f"config.{group}.{field}={set_to}: a RoBERTa {why}; set "
                    f"--config.{group}.{field}={value}, as configs/roberta.py does"
                )
        return task(config, tokenizer)

    return checked


FAMILY = Roberta()
