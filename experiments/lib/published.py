"""The paper's figures of the systems that are trained here, table by table.

Devlin et al. 2019, arXiv 1810.04805v2. Scores are percentages, perplexities are not.
Columns are named `task` or `task/score`, rows as the paper names its systems. None
means that the paper has no figure there.
"""

from collections.abc import Mapping
from typing import NamedTuple

Row = Mapping[str, float | None]


class Published(NamedTuple):
    """A table or figure of the paper.

    Attributes:
      title: Title of the table.
      source: Number of the table, the section, and the sets that the scores are
        measured on.
      rows: Rows by system, then by column.
    """

    title: str
    source: str
    rows: Mapping[str, Row]


def _rows(table: str) -> dict[str, Row]:
    """Parses a table as the paper prints it.

    It has the columns, then each system with its figures, or a dash for none.
    """
    header, *lines = table.strip().splitlines()
    rows: dict[str, Row] = {}
    for line in lines:
        name, _, figures = line.strip().partition(": ")
        values = (None if each == "-" else float(each) for each in figures.split())
        rows[name] = dict(zip(header.split(), values, strict=True))
    return rows


TABLE_1 = Published(
    "GLUE",
    "table 1, section 4.1: test scores by the evaluation server; F1 for QQP and MRPC, "
    "Spearman for STS-B, Matthews for CoLA, accuracy for the others",
    _rows("""
        mnli mnli_mismatched qqp qnli sst2 cola stsb mrpc rte average
        BiLSTM+ELMo+Attn: 76.4 76.1 64.8 79.8 90.4 36.0 73.3 84.9 56.8 71.0
        OpenAI GPT:       82.1 81.4 70.3 87.4 91.3 45.4 80.0 82.3 56.0 75.1
        BERT-Base:        84.6 83.4 71.2 90.5 93.5 52.1 85.8 88.9 66.4 79.6
        BERT-Large:       86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1 82.1
    """),
)
TABLE_2 = Published(
    "SQuAD 1.1",
    "table 2, section 4.2: exact match and F1 on dev",
    _rows("""
        squad/exact_match squad
        BiDAF+ELMo (Single):     - 85.6
        BERT-Base (single):   80.8 88.5
        BERT-Large (single):  84.1 90.9
    """),
)
TABLE_3 = Published(
    "SQuAD 2.0",
    "table 3, section 4.3: exact match and F1 on dev",
    _rows("""
        squad2/exact_match squad2
        BERT-Large (single): 78.7 81.9
    """),
)
TABLE_4 = Published(
    "SWAG",
    "table 4, section 4.4: accuracy on dev",
    _rows("""
        swag
        ESIM+ELMo:  59.1
        OpenAI GPT: -
        BERT-Base:  81.6
        BERT-Large: 86.6
    """),
)
TABLE_5 = Published(
    "Pre-training tasks",
    "table 5, section 5.1: Base on dev; accuracy, F1 for SQuAD 1.1",
    _rows("""
        mnli qnli mrpc sst2 squad
        BERT-Base:             84.4 88.4 86.7 92.7 88.5
        No NSP:                83.9 84.9 86.5 92.6 87.9
        LTR & No NSP:          82.1 84.3 77.5 92.1 77.8
        LTR & No NSP + BiLSTM: 82.1 84.1 75.7 91.6 84.9
    """),
)
TABLE_6 = Published(
    "Model size",
    "table 6, section 5.2: perplexity of the masked LM on held-out text; accuracy on "
    "dev, mean of 5 restarts",
    _rows("""
        perplexity mnli mrpc sst2
        L=3 H=768 A=12:   5.84 77.9 79.8 88.4
        L=6 H=768 A=3:    5.24 80.6 82.2 90.7
        L=6 H=768 A=12:   4.68 81.9 84.8 91.3
        L=12 H=768 A=12:  3.99 84.4 86.7 92.9
        L=12 H=1024 A=16: 3.54 85.7 86.9 93.3
        L=24 H=1024 A=16: 3.23 86.6 87.8 93.7
    """),
)
TABLE_7 = Published(
    "Features and fine-tuning",
    "table 7, section 5.3: CoNLL-2003, F1 of entities on dev; mean of 5 restarts; the "
    "features are Base's",
    _rows("""
        ner
        ELMo:                     95.7
        BERT-Large, fine-tuned:   96.6
        BERT-Base, fine-tuned:    96.4
        Embeddings:               91.0
        Second-to-last hidden:    95.6
        Last hidden:              94.9
        Weighted sum, last four:  95.9
        Concatenated, last four:  96.1
        Weighted sum, all layers: 95.5
    """),
)
TABLE_8 = Published(
    "Masking",
    "table 8, appendix C.2: MASK/SAME/RANDOM in percent; accuracy on MNLI's dev, F1 on "
    "CoNLL-2003's dev, fine-tuned and by features",
    _rows("""
        mnli ner features
        80/10/10: 84.2 95.4 94.9
        100/0/0:  84.3 94.9 94.0
        80/0/20:  84.1 95.2 94.6
        80/20/0:  84.4 95.2 94.7
        0/20/80:  83.7 94.8 94.6
        0/0/100:  83.6 94.9 94.6
    """),
)
FIGURE_5 = Published(
    "Training steps",
    "figure 5, appendix C.1: accuracy on MNLI's dev, fine-tuned from checkpoints along "
    "the run; a drawing, whose only figure in the text is that MLM gains almost 1.0 "
    "from 500,000 steps to 1,000,000",
    {},
)
IMDB = Published(
    "IMDb",
    "not of the paper: Sun et al. 2019 (How to Fine-Tune BERT for Text "
    "Classification?), Base, uncased, head and tail; accuracy on test, 100 less the "
    "error of 5.42",
    _rows("""
        imdb
        BERT-Base: 94.58
    """),
)
