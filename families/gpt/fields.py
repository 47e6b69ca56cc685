"""The allowed values of the fields that only a GPT's configs have."""

from bert_jax.config import rules

RULES: dict[str, rules.Rule] = {
    "task.lm_coef": rules.number(),
    "task.both_orders": rules.flag,
}
