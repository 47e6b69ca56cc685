"""A task of one's own: texts of two tables, classified by one encoder with two heads.

    python -m bert_jax.main --config=examples/multi_task.py --workdir=runs/both \
        --config.task.train_file={}_train.csv --config.task.dev_file={}_dev.csv

reads topic_train.csv, tone_train.csv, ... `predict` takes rows with `text` and `table`.
The heads are columns of one matrix: a text has the logits of its own table alone.
"""

import jax.numpy as jnp
import numpy as np

from bert_jax.data.rows import Feature
from bert_jax.data.texts import read_texts
from bert_jax.errors import UserError
from bert_jax.tasks import TASKS
from bert_jax.tasks.text import Text

extends = "finetune/text"
TABLES = {"topic": 1.0, "tone": 0.5}  # the weight of a row in the loss, by its table


class MultiTask(Text):
    """A label is TABLE/LABEL. In the rows `table` is the table's number."""

    def __init__(self, config, tokenizer=None):
        super().__init__(config, tokenizer)
        plain = {"kind": "classification", "label_smoothing": 0.0, "texts_per_row": 1}
        for name, only in plain.items():
            if self.options[name] != only:
                raise UserError(f"config.task.{name}: two tables require {only}")

    def load(self, split):
        rows, file = [], self.options[f"{split}_file"]
        for number, table in enumerate(TABLES if file else ()):
            for row in read_texts(file.format(table), labelled=split != "test"):
                label = row["label"] and f"{table}/{row['label']}"
                rows.append({**row, "label": label, "table": number})
        return rows or None

    def parse_row(self, row):
        if row.get("table") not in TABLES:
            raise ValueError(f'"table" is required, one of {", ".join(TABLES)}')
        return {**super().parse_row(row), "table": [*TABLES].index(row["table"])}

    def encode(self, examples, split):
        pairs = zip(super().encode(examples, split), examples, strict=True)
        columns = ({**each.columns, "table": row["table"]} for each, row in pairs)
        return [Feature(*each) for each in enumerate(columns)]

    def logits_of(self, outputs, batch):
        logits = super().logits_of(outputs, batch)["logits"]
        owners = np.array([[*TABLES].index(x.partition("/")[0]) for x in self.labels])
        own = owners == batch["table"][:, None]
        return {"logits": jnp.where(own, logits, jnp.finfo(logits.dtype).min)}

    def row_weights(self, batch):
        return (
            super().row_weights(batch) * jnp.array([*TABLES.values()])[batch["table"]]
        )

    def baseline_scores(self, split, examples):
        return {}  # one majority label of both tables would mean little


TASKS["multi_task"] = MultiTask


def get_config(config):
    config.task.name = "multi_task"
    return config
