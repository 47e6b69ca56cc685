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

    def __post_init__(self):
        super().__post_init__()
        plain = {"kind": "classification", "label_smoothing": 0.0, "texts_per_row": 1}
        for name, only in (plain | {"teacher": ""}).items():
            if self.options[name] != only:
                raise UserError(f"config.task.{name}: two tables require {only!r}")

    def read_rows(self, split):
        rows, file = [], self.split_file(split)
        for number, table in enumerate(TABLES if file else ()):
            for row in read_texts(file.format(table), labelled=split != "test"):
                label = row["label"] and f"{table}/{row['label']}"
                rows.append({**row, "label": label, "table": number})
        return rows or None

    def parse_row(self, row):
        if row.get("table") not in TABLES:
            raise ValueError(f'"table" is required, one of {", ".join(TABLES)}')
        return {**super().parse_row(row), "table": [*TABLES].index(row["table"])}

    def encode(self, rows, split):
        pairs = zip(super().encode(rows, split), rows, strict=True)
        columns = ({**each.columns, "table": row["table"]} for each, row in pairs)
        return [Feature(*each) for each in enumerate(columns)]

    def of_table(self, logits, tables):
        owners = np.array([[*TABLES].index(x.partition("/")[0]) for x in self.labels])
        least = jnp.finfo(logits.dtype).min
        return jnp.where(owners == tables[:, None], logits, least)

    def row_losses(self, logits, batch):
        own = self.of_table(logits["logits"], batch["table"])
        return super().row_losses({"logits": own}, batch)

    def decode_answers(self, rows, features, outputs):
        logits = np.stack(super().decode_answers(rows, features, outputs))
        return [*np.array(self.of_table(logits, np.array([r["table"] for r in rows])))]

    def row_weights(self, batch):
        weights = jnp.array([*TABLES.values()])[batch["table"]]
        return super().row_weights(batch) * weights

    def baseline_scores(self, rows):
        return {}  # one majority label of both tables would mean little


TASKS["multi_task"] = MultiTask


def get_config(config):
    config.task.name = "multi_task"
    return config
