"""The allowed values of the fields that only a ModernBERT's configs have."""

from typing import Any

from bert_jax.config import rules


def _window(value: Any) -> str | None:
    return rules.whole(2)(value) or ("must be even" if value % 2 else None)


RULES: dict[str, rules.Rule] = {
    "model.local_attention": _window,
    "model.global_attn_every_n_layers": rules.whole(1),
    "model.global_rope_theta": rules.number("[1, 1e12]"),
    "model.local_rope_theta": rules.number("[1, 1e12]"),
    "model.classifier_pooling": rules.one_of("cls", "mean"),
}
