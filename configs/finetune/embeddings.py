"""Vectors of texts: alike texts have a cosine near 1 (Reimers & Gurevych 2019).

    ./launch.sh --config=configs/finetune/embeddings.py --config.init_from=FOLDER \
        --config.task.train_file=pairs.csv --config.task.dev_file=dev.csv

Rows are pairs (`text`, `text_b`), triplets (`text`, `positive`, `negative`), pairs with
a `score`, or texts alone. `--mode=export` writes a folder of sentence-transformers;
`bert_jax.load(RUN).sentences(texts)` gives the same vectors.

BERT's paper has no figure for it. The values are those of the SBERT and SimCSE papers
for Base: batch 64, 2e-5 to 5e-5, one epoch, temperature 0.05.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config(size: str = "base", model: str = "bert") -> ConfigDict:
    """Args:
    size: tiny (configs/tiny.py), or one of configs/base.py.
    model: bert, or another family that reads both sides (docs/families.md).
    """
    config = common.get_config(size, model)
    task = config.task
    task.name = "embeddings"
    # CSV, TSV, JSON lines, parquet, hf:OWNER/NAME:SPLIT or tfds:NAME:SPLIT, as in
    # text.py. Empty: no file.
    task.train_file = ""
    task.dev_file = ""  # the same, to score
    task.test_file = ""  # the same
    # Judgements in BEIR's layout: FOLDER/qrels/test.tsv, with FOLDER/corpus.jsonl and
    # FOLDER/queries.jsonl. Their queries are scored after training. Empty: none.
    task.retrieval_file = ""
    # csv, tsv or jsonl, whatever the files' names end in; empty: by the ending.
    task.format = ""
    # The columns. All but the first may be missing.
    task.text = "text"
    task.text_b = "text_b"  # the partner; or a column `positive`
    task.negative = "negative"  # a text that is unlike the first
    task.score = "score"  # how alike a pair is
    task.max_score = 1.0  # the largest score, of equal texts; the smallest is 0
    # info_nce (the partners of a batch's other rows are negatives), triplet, cosent or
    # squared_error (of pairs with a score). Empty: cosent with scores, else info_nce.
    task.loss = ""
    task.temperature = 0.05  # of info_nce and cosent
    task.margin = 0.5  # of triplet, between cosines
    # The vector of a text, from the last layer: mean_all (of all its tokens), mean
    # (without [CLS] and [SEP]) or cls.
    task.pooling = "mean_all"
    task.normalized = True  # vectors have length 1
    # Sizes to which vectors may be cut later (Matryoshka), such as (64, 128, 768): the
    # loss is the mean over them. Empty: the whole vector alone.
    task.dimensions = ()
    task.max_seq_length = 128 if size != "tiny" else 64
    config.evaluate.splits = ("dev", "test", "retrieval")
    config.train.batch_size = 64
    config.train.num_epochs = 1.0
    if size != "tiny":
        config.optimizer.learning_rate = 2e-5
    return common.of_model(config, size, model)
