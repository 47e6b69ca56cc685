"""The fields that only a GPT's configs have."""

from bert_jax.config.field import Field

FIELDS = {
    "task.lm_coef": Field(
        0.5,
        doc="Factor of the language model's loss on the same rows, which is added "
        "to the task's. 0 means no such loss.",
    ),
    "task.both_orders": Field(
        False, doc="Whether pairs are read in both orders and added (for similarity)"
    ),
}
