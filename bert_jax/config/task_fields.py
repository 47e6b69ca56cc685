"""The fields of `config.task`. Each task has some of them."""

import re

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config.field import (
    LENGTH,
    SHARE,
    SIZE,
    Field,
    duplicate_error,
    empty_error,
)
from bert_jax.errors import UserError


def _pooling(value: str) -> str | None:
    known = ("mean_all", "mean", "cls", "max")
    fits = {*value.split("+")} <= {*known}
    return None if fits else f"choose of {', '.join(known)}, joined by + if several"


def _vector_layer(value: tuple) -> str | None:
    kind = re.compile("[1-9][0-9]{0,6}:(identity|tanh|relu|gelu)")
    wrong = [layer for layer in value if not kind.fullmatch(str(layer))]
    return f"has {wrong[0]!r}: must be SIZE:ACTIVATION, as 512:tanh" if wrong else None


def _prompts(value: tuple) -> str | None:
    wrong = [prompt for prompt in value if not re.match(r"[\w-]+=", str(prompt))]
    return f"has {wrong[0]!r}: must be NAME=TEXT" if wrong else None


def _class_weights(value: tuple) -> str | None:
    if value == ("balanced",):
        return None
    for item in value:
        name, _, number = str(item).rpartition("=")
        try:
            fits = bool(name) and 0 <= float(number) < float("inf")
        except ValueError:
            fits = False
        if not fits:
            return f"has {item!r}: must be balanced alone, or CLASS=WEIGHT"
    return duplicate_error(tuple(str(item).rpartition("=")[0] for item in value))


_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched", "ax")

TASK: dict[str, Field] = {
    "task.name": Field(
        "pretraining",
        empty_error,
        doc="Name of the task: pretraining, or one of configs/finetune/",
    ),
    "task.objective": Field(
        "mlm",
        registry.OBJECTIVES,
        doc="Objective of pre-training: mlm predicts masked tokens. ltr (section "
        '5.1, "LTR & No NSP") predicts each token from those before it, with '
        "nothing masked and no next sentence loss. replaced_tokens trains a "
        "generator and a discriminator, with model=electra or deberta_v3 "
        "(docs/encoders.md).",
    ),
    "task.nsp_loss": Field(
        True,
        doc="Whether the next sentence loss is trained. False means the same "
        "sentence pairs without the loss. For rows without pairs, set "
        "corpus.nsp=False.",
    ),
    "task.max_seq_length": Field(
        128,
        LENGTH,
        doc="Tokens, [CLS] and [SEP] included. Longer texts are cut, or read in "
        "windows.",
    ),
    "task.bilstm": Field(
        False,
        doc="Whether the classifier reads a BiLSTM, hidden_size / 2 each way",
    ),
    "task.teacher": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Weights of a trained model whose outputs are learned too, of any "
        "form that init_from reads (docs/fine_tuning.md). Empty means none.",
    ),
    "task.teacher_share": Field(
        0.5,
        SHARE,
        doc="Weight of the teacher's outputs in the loss. The labels have the rest.",
    ),
    "task.teacher_temperature": Field(
        2.0,
        "(0, inf)",
        doc="Number that divides both models' logits before they are compared "
        "(Hinton et al. 2015). Numbers (kind=regression) are compared as they "
        "are.",
    ),
    "task.teacher_cosine": Field(
        0.0,
        doc="Weight in the loss of 1 - the cosine of the last layer's vectors "
        "with the teacher's (Sanh et al. 2019). 0 means that they are not "
        "compared.",
    ),
    "task.teacher_hidden": Field(
        0.0,
        doc="Weight of the squared error of every layer's vectors (Jiao et al. 2020)",
    ),
    "task.teacher_attention": Field(
        0.0,
        doc="Weight of the squared error of all attention scores (Jiao et al. 2020)",
    ),
    "task.pad_to_max": Field(
        False,
        doc="Whether every batch is padded to max_seq_length, as in Google's "
        "code. False pads it to its longest row.",
    ),
    "task.data_dir": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Folder of the task's files, or a data set of the Hub or of TFDS "
        "(which forms: --help of the config)",
    ),
    "task.train_file": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Training data: a file, hf:NAME:SPLIT or tfds:NAME:SPLIT (which "
        "forms: --help of the config). Empty means none.",
    ),
    "task.dev_file": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Data to score, in a form of task.train_file",
    ),
    "task.test_file": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Data to predict, in a form of task.train_file",
    ),
    "task.dev_fraction": Field(
        0.0,
        "[0, 1)",
        doc="Fraction to hold out as dev, without data named dev: of each class "
        "(where a row has one, else of all rows) of the training data. The texts "
        "themselves decide, so that equal texts stay together, and with them the "
        "questions of a context, the endings of a beginning, texts that pairs connect, "
        "the sentences of a document with task.document_context, and the reviews of "
        "a film in IMDb's archive.",
    ),
    "task.group": Field(
        "",
        fixed_by="training",
        doc="Column whose equal values stay together in task.dev_fraction, such "
        "as that of a question with several answers. Empty means the texts.",
    ),
    "task.format": Field(
        "",
        ("", "csv", "tsv", "jsonl"),
        fixed_by="training",
        doc="Format of the files, whatever their names end in: csv, tsv or jsonl. "
        "Empty means by the ending.",
    ),
    "task.text": Field(
        "text",
        empty_error,
        fixed_by="training",
        doc="Column of the texts: its name in the header or, in CSV and TSV "
        "without a header, its number. All columns are then numbers, from 0 "
        "as in pandas (cut and awk count from 1).",
    ),
    "task.text_b": Field(
        "",
        fixed_by="training",
        doc="Column of the second texts. Empty means single texts.",
    ),
    "task.label": Field(
        "label",
        empty_error,
        fixed_by="training",
        doc="Column of the classes, labels or numbers",
    ),
    "task.kind": Field(
        "classification",
        ("classification", "multilabel", "regression"),
        doc="Kind of the labels: classification (one class), multilabel (any "
        "number of labels) or regression (a number)",
    ),
    "task.class_weights": Field(
        (),
        _class_weights,
        doc="Weights of the classes in the loss: balanced (a class counts by the "
        "inverse of its frequency), or CLASS=WEIGHT of some, such as ('spam=5',), "
        "where the others have 1. Empty means that all have 1.",
    ),
    "task.weight": Field(
        "",
        fixed_by="training",
        doc="Column of the rows' weights in the loss, numbers of at least 0. Empty "
        "means that all count alike.",
    ),
    "task.weighted_scores": Field(
        False,
        fixed_by="training",
        doc="Whether rows have their task.weight in the scores too",
    ),
    "task.label_separator": Field(
        ",",
        empty_error,
        doc="Separator between the labels in a CSV or TSV field, for "
        "kind=multilabel. JSON has lists.",
    ),
    "task.labels": Field(
        (),
        doc="Classes or tags, in the order of the outputs, also to name those "
        "that are numbers in the rows. Empty means those of the training "
        "data, and GLUE's in their usual order. List them if the weights have "
        "another order.",
    ),
    "task.label_names": Field(
        (),
        duplicate_error,
        doc='Names of numbered classes, in their order: ("ham", "spam") for 0 and '
        '1, or ("1=World", "2=Sports"). Empty means as in the data.',
    ),
    "task.truncation": Field(
        "head",
        ("head", "tail", "head_tail"),
        doc="Part of a long text to keep: head, tail, or head_tail (a quarter "
        "from its beginning, the rest from its end: of 510 tokens the first "
        "128 and the last 382, as in Sun et al. 2019, section 5.3.1).",
    ),
    "task.texts_per_row": Field(
        1,
        "[1, 64]",
        doc="Texts that share a row in training, for speed (docs/fine_tuning.md). "
        "batch_size still counts texts.",
    ),
    "task.windows": Field(
        1,
        "[1, 1024]",
        doc="Maximum number of windows that a single text of more than "
        "max_seq_length tokens becomes. Their logits are combined, in "
        "training too. A longer text is cut.",
    ),
    "task.window_overlap": Field(
        32, "[0, 16777216]", doc="Tokens that two windows of a text share"
    ),
    "task.window_logits": Field(
        "mean", ("mean", "max"), doc="Combination of the logits of a text's windows"
    ),
    "task.label_smoothing": Field(
        0.0,
        "[0, 1)",
        doc="Fraction of the target that is even (Szegedy et al. 2016)",
    ),
    "task.calibration": Field(
        "none",
        ("none", "temperature", "thresholds"),
        doc="Values fitted on dev, for probabilities or labels that one can rely "
        "on: temperature (divides the logits) or, for two classes or "
        "kind=multilabel, thresholds (the logit from which on positive_label, or each "
        "label, is given, for its best F1).",
    ),
    "task.positive_label": Field(
        "",
        doc="Class of two that F1, average precision, ROC AUC and a threshold are of. "
        "Empty means the second: integers by value, others alphabetically.",
    ),
    "task.min_precision": Field(
        0.0,
        SHARE,
        doc="Precision on dev that the thresholds are to have, with the most rows. 0 "
        "means that of the best F1.",
    ),
    "task.null_answers": Field(False, doc="Whether a question may have no answer"),
    "task.doc_stride": Field(
        128,
        SIZE,
        doc="Tokens from one window of a context to the next, by default as in "
        "run_squad.py",
    ),
    "task.max_query_length": Field(
        64, "[0, 16777216]", doc="Tokens of a question. Longer ones are cut."
    ),
    "task.n_best_size": Field(
        20, SIZE, doc="Starts and ends to try per window, and answers to keep"
    ),
    "task.max_answer_length": Field(30, SIZE, doc="Tokens of the longest answer"),
    "task.token_column": Field(
        0,
        "[-16777216, 16777216]",
        doc="Column of the words, from 0. -1 is the last. CoNLL-U: 1.",
    ),
    "task.tag_column": Field(
        -1,
        "[-16777216, 16777216]",
        doc="Column of the tags, from 0. -1 is the last. CoNLL-U: with "
        "scheme=none 3 for UPOS and 4 for XPOS.",
    ),
    "task.scheme": Field(
        "entities",
        ("entities", "none"),
        doc="Kind of tags: entities (with IOB1, IOB2, BIOES or BILOU prefixes, "
        "scored per entity) or none (plain tags, such as parts of speech, "
        "scored by accuracy)",
    ),
    "task.crf": Field(
        False,
        doc="Whether a conditional random field is over the tags: transitions "
        "from tag to tag are learned, and guesses keep to the scheme of the "
        "tags.",
    ),
    "task.tag_scheme": Field(
        "",
        ("", "BIO", "IOB1", "BIOES", "none"),
        doc="Scheme of the tags that task.crf keeps to: BIO, IOB1, BIOES or none. "
        "Empty means that of the training data.",
    ),
    "task.document_context": Field(
        False,
        doc="Whether as much of the document as fits is added around each "
        "sentence. Rows then have the maximum length.",
    ),
    "task.words": Field(
        "learned",
        ("learned", "spaces", "punctuation", "characters"),
        fixed_by="none",
        doc="Rule that splits a text into words: learned (as the training data "
        "are), spaces, punctuation (as BERT does: each mark is a word), or "
        "characters",
    ),
    "task.retrieval_file": Field(
        "",
        fixed_by="training",
        path=True,
        doc="Judgments in BEIR's layout: FOLDER/qrels/test.tsv, with "
        "FOLDER/corpus.jsonl and FOLDER/queries.jsonl. Their queries are "
        "scored after training. Empty means none.",
    ),
    "task.negative": Field(
        "negative", fixed_by="training", doc="Column of a text unlike `text`"
    ),
    "task.score": Field(
        "score",
        fixed_by="training",
        doc="Column with the similarity of a pair, from 0 to max_score",
    ),
    "task.max_score": Field(1.0, "(0, inf)", doc="Score of equal texts"),
    "task.loss": Field(
        "",
        ("", "info_nce", "triplet", "cosent", "squared_error"),
        doc="Loss: info_nce (the partners of a batch's other rows are negatives), "
        "triplet, or for pairs with a score cosent or squared_error. Empty "
        "means cosent with scores, else info_nce.",
    ),
    "task.temperature": Field(
        0.05, "(0, inf)", doc="Divisor of the cosines in info_nce and cosent"
    ),
    "task.margin": Field(0.5, doc="Margin between the cosines in triplet"),
    "task.pooling": Field(
        "mean_all",
        _pooling,
        fixed_by="weights_by_default",
        doc="Vector of a text, from the last layer: mean_all (of all its tokens), "
        "mean (without [CLS] and [SEP]), cls or max. Several, joined by +, "
        "are concatenated. If init_from is a folder of sentence-transformers, "
        "its modules decide this, dense, normalized, prompt, prompts and "
        "max_seq_length, unless they have another value than the default.",
    ),
    "task.dense": Field(
        (),
        _vector_layer,
        fixed_by="weights_by_default",
        doc="Linear layers after the pooling, each SIZE:ACTIVATION (identity, "
        'tanh, relu or gelu): ("512:tanh",). Empty means none.',
    ),
    "task.normalized": Field(
        True, fixed_by="weights_by_default", doc="Whether vectors have length 1"
    ),
    "task.prompt": Field(
        "",
        fixed_by="weights_by_default",
        doc='Prompt before each text, such as "query: "',
    ),
    "task.prompts": Field(
        (),
        _prompts,
        fixed_by="weights_by_default",
        doc="Other prompts that `sentences` may put before a text, each "
        'NAME=TEXT: ("query=query: ",)',
    ),
    "task.dimensions": Field(
        (),
        SIZE,
        items=int,
        doc="Sizes to which vectors may be cut later (Matryoshka), such as (64, "
        "128, 768). The loss is the sum over them. Empty means only the whole "
        "vector.",
    ),
}
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")
_TEACHER = (
    "teacher teacher_share teacher_temperature teacher_cosine teacher_hidden "
    "teacher_attention"
)
_ROWS = "max_seq_length bilstm pad_to_max"
_ALL = f"{_ROWS} {_TEACHER}"
_FILES = f"{_ALL} train_file dev_file test_file dev_fraction"
_CLASSES = "labels texts_per_row"
_TEXTS = (
    "kind truncation windows window_overlap window_logits label_smoothing "
    "calibration min_precision positive_label"
)
TASKS = {
    "pretraining": f"objective nsp_loss {_TEACHER}",
    **dict.fromkeys(GLUE, f"{_ALL} data_dir {_CLASSES}"),
    "imdb": f"{_ALL} data_dir dev_fraction {_CLASSES} {_TEXTS}",
    "text": f"{_FILES} {_CLASSES} {_TEXTS} format text text_b label group "
    "class_weights weight weighted_scores label_separator label_names",
    "ner": f"{_FILES} labels token_column tag_column scheme crf tag_scheme "
    "document_context words",
    "squad": f"{_ALL} train_file dev_file dev_fraction null_answers doc_stride "
    "max_query_length n_best_size max_answer_length",
    "swag": _FILES,
    "embeddings": f"{_ROWS} train_file dev_file test_file dev_fraction retrieval_file "
    "format text text_b negative score max_score loss temperature margin pooling dense "
    "normalized prompt prompts dimensions",
}


def check_together(config: ConfigDict, options: ConfigDict) -> None:
    """Raises UserError if values of a task do not fit each other, or other fields.

    Args:
      options: Result of `fields.task_values`.
    """
    task, train = config.task, config.train
    if task.name != "pretraining":  # whose splits are texts too
        splits = tuple(config.evaluate.splits)
        named = [name.removesuffix("_file") for name in task if name.endswith("_file")]
        known = dict.fromkeys((*_SPLITS, *named))
        if unknown := [split for split in splits if split not in known]:
            raise UserError(
                f"config.evaluate.splits={splits}: {unknown[0]!r} is not one of "
                f"{', '.join(known)}"
            )
    if "max_seq_length" not in task:
        return
    if not (train.num_steps or train.num_epochs):
        raise UserError(
            "config.train.num_epochs=0.0: set it, or config.train.num_steps, now 0 too"
        )
    if config.corpus.packing:
        raise UserError(
            "config.corpus.packing=True: packs the rows of pre-training; the rows of "
            f"config.task.name={task.name} are not packed, leave it False"
        )
    if options.bilstm and config.model.hidden_size % 2:
        raise UserError(
            f"config.model.hidden_size={config.model.hidden_size}: must be even for "
            "config.task.bilstm=True, which gives each direction a half"
        )
    if options.group and not options.dev_fraction:
        raise UserError(
            f"config.task.group={options.group}: says which rows stay together in "
            "config.task.dev_fraction=0.0; set that, or leave it out"
        )
    if options.min_precision and options.calibration != "thresholds":
        raise UserError(
            f"config.task.min_precision={options.min_precision}: is of thresholds; set "
            "--config.task.calibration=thresholds"
        )
    if options.weighted_scores and not options.weight:
        raise UserError(
            "config.task.weighted_scores=True: name the weights' column in "
            "config.task.weight"
        )
    _check_long_texts(options)


def _check_long_texts(task: ConfigDict) -> None:
    """Raises UserError if windows or cuts do not fit the other fields of a task.

    Args:
      task: Result of `fields.task_values`.
    """
    room = task.max_seq_length - 2  # tokens, without special ones
    pairs = task.text_b
    if task.windows > 1 and room <= task.window_overlap:
        raise UserError(
            f"config.task.window_overlap={task.window_overlap}: must be less than the "
            f"{room} tokens of a window; lower it, or raise config.task.max_seq_length"
        )
    if task.windows > 1 and (pairs or task.texts_per_row > 1):
        raise UserError(
            f"config.task.windows={task.windows}: only single texts in rows of their "
            "own have windows; leave config.task.text_b and texts_per_row unset"
        )
    if task.truncation != "head" and pairs:
        raise UserError(
            f"config.task.truncation={task.truncation}: is for single texts, and "
            f"config.task.text_b={pairs} makes pairs; leave it head"
        )
