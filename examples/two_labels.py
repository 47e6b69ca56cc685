"""A task of one's own: two labels of a text, each with its own softmax and loss.

    python -m bert_jax.main --config=examples/two_labels.py --workdir=runs/two \
        --config.init_from=mini --config.task.train_file=train.csv \
        --config.task.dev_file=dev.csv

The files have the columns text, topic and tone. A label's name is COLUMN=CLASS, so the
run records the classes in `task.labels`. `predict` takes rows with `text`. The heads
are columns of one matrix.
"""

import jax.numpy as jnp
import numpy as np

from bert_jax.data.rows import Feature
from bert_jax.data.tables import ColumnSpec, read_table
from bert_jax.errors import UserError
from bert_jax.tasks import TASKS
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.definition import TaskDefinition
from bert_jax.tasks.task import require_text

extends = "finetune/text"
COLUMNS = ("topic", "tone")


class TwoLabels(TaskDefinition):
    """In the rows a label is the index of its class, and -1 where it is unknown."""

    heads = ("sequence_classification",)
    loss_name = "two_labels_loss"
    main_score = "accuracy"
    row_fields = ("text",)

    def read_rows(self, split):
        file, needed = self.split_file(split), ("text", *COLUMNS)
        wanted = ColumnSpec(("text",) if split == "test" else needed)
        rows = []
        for where, fields in read_table(file, wanted) if file else ():
            row = {"text": fields["text"], "where": where}
            for column in COLUMNS:
                label = fields.get(column)
                row[column] = None if label in (None, "") else str(label)
                if split != "test" and row[column] is None:
                    raise UserError(f"{where}: has no {column}; every row needs one")
            rows.append(row)
        return rows if file else None

    def parse_row(self, row):
        return {"text": require_text(row, "text")}

    def infer_fields(self):
        rows = () if self.labels else self.rows("train")
        names = {f"{column}={row[column]}" for row in rows for column in COLUMNS}
        return {"task.labels": tuple(sorted(names))} if names else {}

    def classes(self, column):
        """Returns the classes of a column, and the numbers of their logits."""
        own = [i for i, x in enumerate(self.labels) if x.startswith(f"{column}=")]
        return [self.labels[i].partition("=")[2] for i in own], np.array(own)

    def number_labels(self, rows):
        numbered = [dict(row) for row in rows]
        for column in COLUMNS:
            names, _ = self.classes(column)
            for row in numbered:
                if row[column] is not None and row[column] not in names:
                    raise UserError(
                        f"{row['where']}: {column} is {row[column]!r:.60}; the "
                        f"training data has {', '.join(names):.200}"
                    )
                row[column] = -1 if row[column] is None else names.index(row[column])
        return numbered

    def encode(self, rows, split):
        tokens = self.text.tokenize([row["text"] for row in rows])
        features = []
        for number, (row, encoding) in enumerate(zip(rows, tokens, strict=True)):
            columns = dict(self.text.sequence(encoding.ids, None, split))
            columns |= {name: row.get(name, -1) for name in COLUMNS}
            features.append(Feature(number, columns))
        return features

    def row_losses(self, logits, batch):
        parts = {name: logits["logits"][:, self.classes(name)[1]] for name in COLUMNS}
        labels = {name: jnp.maximum(batch[name], 0) for name in COLUMNS}
        return sum(cross_entropy(parts[name], labels[name]) for name in COLUMNS)

    def format_answer(self, row, answer):
        fields = {}
        for column in COLUMNS:
            names, own = self.classes(column)
            shares = np.exp(answer[own] - np.logaddexp.reduce(answer[own]))
            fields[column] = names[int(np.argmax(shares))]
            fields[f"{column}_scores"] = dict(zip(names, shares.tolist(), strict=True))
        return fields

    def scores(self, rows, answers):
        if not rows or any(row[column] < 0 for row in rows for column in COLUMNS):
            return {}
        right = {
            column: [
                row[column] == np.argmax(answer[self.classes(column)[1]])
                for row, answer in zip(rows, answers, strict=True)
            ]
            for column in COLUMNS
        }
        both = np.all([*right.values()], axis=0)
        each = {f"{column}_accuracy": float(np.mean(x)) for column, x in right.items()}
        return {"accuracy": float(both.mean()), **each}


TASKS["two_labels"] = TwoLabels


def get_config(config):
    config.task.name = "two_labels"
    return config
