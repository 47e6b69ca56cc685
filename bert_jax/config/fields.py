"""Every config field, defined once: its default, what it may be, when it may change.

The comment above or beside a field says what it is for, with its unit and source;
`--help` and docs/config.md show it. The defaults are those of BERT-Base's pre-training
(Devlin et al. 2019, section 3.1 and appendix A.2; google-research/bert, README.md and
run_pretraining.py).
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config import languages
from bert_jax.config.field import (
    COUNT,
    LENGTH,
    PLAIN,
    SHARE,
    SIZE,
    Field,
    distinct,
    filled,
)
from bert_jax.registry import FAMILIES

# What is asked of a model and where it runs, whatever the run had.
_free = functools.partial(Field, resume=True, ask="free")
# Neither a run's numbers nor a model's depend on it.
_noted = functools.partial(Field, resume=True, ask="noted")
# It decides when a run is logged, saved or stopped, and none of its numbers.
_logged = functools.partial(Field, resume=True)
_sized = functools.partial(Field, weights="fixed")
_data = functools.partial(Field, "", ask="noted", path=True)


def _spike(value: int | float) -> str | None:
    return "must be more than 1, or 0 for no spikes" if 0 < value <= 1 else None


FIELDS: dict[str, Field] = {
    "seed": Field(0),  # of initial parameters, dropout, training order and masks
    # Weights to start from: a work directory, a Hugging Face folder, a checkpoint of
    # Google's, or hf:OWNER/NAME (docs/weights.md). The model's sizes and the tokenizer
    # are then theirs. Empty: random values.
    "init_from": Field("", path=True),
    # Rows of the embedding matrix; 0: the tokenizer's size
    "model.vocab_size": _sized(0),
    "model.hidden_size": _sized(768, SIZE),  # numbers in each token's vector
    "model.num_hidden_layers": _sized(12, "[1, 10000]"),  # layers of the Transformer
    # Of each layer; they must divide hidden_size
    "model.num_attention_heads": _sized(12, SIZE),
    # Inside each feed-forward block; 4 x hidden_size
    "model.intermediate_size": _sized(3072, SIZE),
    # The longest sequence, in tokens
    "model.max_position_embeddings": _sized(512, SIZE),
    "model.type_vocab_size": _sized(2, SIZE),  # segments: a first and a second text
    # gelu (by erf, as released in 2018), gelu_tanh or relu
    "model.hidden_act": _sized("gelu", ("gelu", "gelu_tanh", "relu")),
    # Share dropped of embeddings and outputs
    "model.hidden_dropout_prob": Field(0.1, "[0, 1)", ask="unused"),
    # Share dropped of attention's weights
    "model.attention_probs_dropout_prob": Field(0.1, "[0, 1)", ask="unused"),
    # Standard deviation of random initial values
    "model.initializer_range": Field(0.02, "(0, inf)"),
    # Initial values of the learnt position embeddings: normal (as the others), or
    # sinusoidal, from which a small model learns sooner to look beside a gap.
    "model.position_initializer": Field("normal", ("normal", "sinusoidal")),
    # Added to the variance in LayerNorm
    "model.layer_norm_eps": _sized(1e-12, "(0, inf)"),
    # Of the matrix products: float32, or bfloat16 (faster on TPUs and GPUs; parameters,
    # softmax and losses stay float32).
    "model.dtype": Field("float32", ("float32", "bfloat16"), ask="noted"),
    # Its implementation, with the same numbers but for rounding: einsum; fused (one
    # kernel, faster and in less memory, on GPUs and TPUs); or cudnn (NVIDIA's, in
    # bfloat16, where attention_probs_dropout_prob is 0).
    "model.attention": Field("einsum", registry.ATTENTIONS, ask="noted"),
    # How bias, activation, dropout, residual and LayerNorm are computed, which follow
    # the encoder's matrix products: xla, or fused (a kernel each way, on GPUs).
    "model.epilogue": Field("xla", ("xla", "fused"), ask="noted"),
    # Or one of your own (docs/extending.md)
    "model.layer": Field("post_norm", registry.LAYERS),
    # A vector for each, or a way of your own
    "model.positions": Field("learnt", registry.POSITIONS),
    # What the backward pass recomputes, to save memory: none; full (all of each
    # layer); dots (everything between its matrix products, and attention).
    "model.remat": _noted("none", ("none", "full", "dots")),
    # Compile one layer and loop over it: compiles faster, may run slower.
    "model.scan_layers": Field(False),
    # bert, or another folder of families/, by its name; configs/NAME.py and
    # configs/finetune/ with model=NAME set it.
    "model.architecture": _sized("bert", registry.FAMILIES),
    # Each position sees only those before it. task.objective=ltr sets it, and a run
    # from such weights takes it from them; leave it as it is.
    "model.causal": _sized(False),
    # A vocab.txt or tokenizer.json. Empty: that of init_from, or else train one on the
    # corpus.
    "tokenizer.vocab_file": Field("", path=True),
    # Pieces of a vocabulary that is trained, special tokens included.
    "tokenizer.vocab_size": Field(30522, COUNT),
    # As the uncased models; False: as the cased ones
    "tokenizer.lowercase": Field(True),
    # With lowercase: also strip accents, as the uncased models do. This decomposes
    # characters: it takes Korean syllables apart, and drops marks that are letters in
    # other scripts. False: keep them.
    "tokenizer.strip_accents": Field(True),
    # Bytes of text, sampled evenly from the corpus, to train a vocabulary on.
    "tokenizer.sample_bytes": Field(30_000_000, "[1, 4611686018427387904]"),
    # The text: one or more of sentences:GLOB, paragraphs:GLOB, lines:GLOB, text:GLOB,
    # jsonl:GLOB, parquet:GLOB, wikiextractor:GLOB, hf:NAME, tfds:NAME, pydocs
    # (docs/data.md).
    "corpus.sources": Field(
        ("hf:wikimedia/wikipedia:20231101.en", "hf:emozilla/pg19"), filled
    ),
    # How often a row of each source is seen, beside one of weight 1: (2.0, 1.0) shows
    # those of the first source twice as often (docs/data.md). Empty: all alike.
    "corpus.weights": Field((), "(0, 1000000]", items=float),
    # Whose rules split sentences: a code such as en, de or ko
    "corpus.language": Field("en", languages.fault),
    # The folder for prepared data; runs may share it
    "corpus.data_dir": _noted("data", filled, path=True),
    # What prepares the data; the result is the same to the byte. Empty: this machine's
    # cores. A runner of Apache Beam ('.[beam]'): FnApiRunner (embedded), FlinkRunner,
    # SparkRunner, DataflowRunner (docs/data.md).
    "corpus.runner": _noted(""),
    # Beam's own, such as ("--direct_num_workers=4",)
    "corpus.beam_options": _noted(()),
    "corpus.max_seq_length": Field(128, LENGTH),  # tokens, [CLS] and [SEP] included
    # Share of sentence pairs with a random shorter length (create_pretraining_data.py).
    "corpus.short_seq_prob": Field(0.1, SHARE),
    # Maximum UTF-8 bytes (some 5,000 words, fifty rows of 128): a longer document is
    # cut at ends of paragraphs; 0: never. Short rows are drawn once per document (in
    # Google's code once per copy, of ten), so an uncut book could have only short rows.
    "corpus.max_document_bytes": Field(30_000),
    # For the vocabulary's sample, the sentence pairs, the held-out documents and dev's
    # masks. Runs with different `seed` share them, so their losses are comparable.
    "corpus.seed": Field(0),
    # Share of the documents held out as dev, whole; at least two, or one of fewer than
    # four.
    "corpus.dev_fraction": Field(0.005, "(0, 1)"),
    # Sentence pairs and the next sentence loss; False: running text, without either.
    "corpus.nsp": Field(True),
    # Without pairs: rows of whole sentences of one or more documents (Liu et al. 2019).
    "corpus.full_sentences": Field(False),
    # Training rows of several sentence pairs that do not see each other, instead of one
    # and padding (Krell et al. 2021); then batch sizes count these rows.
    "corpus.packing": Field(False),
    # With packing: the most pairs (or, without them, texts) of a row.
    "corpus.packed_pairs": Field(4, "[1, 64]"),
    # With packing: each training row's positions begin at a random one, anew in each
    # epoch, so that short rows train all position embeddings (Kiyono et al. 2021).
    "corpus.shift_positions": Field(False),
    # By the fields below, or one of your own
    "masking.name": Field("bert", registry.MASKINGS),
    # Share of a sequence's tokens to predict
    "masking.masked_lm_prob": Field(0.15, "(0, 1]"),
    # The most tokens of a sequence to predict
    "masking.max_predictions_per_seq": Field(20, SIZE),
    "masking.whole_word": Field(False),  # True: choose all pieces of a word together
    # Share of the predicted tokens that become [MASK]
    "masking.mask_fraction": Field(0.8, SHARE),
    # Share that become a random piece; the rest stay
    "masking.random_fraction": Field(0.1, SHARE),
    "phase2.fraction": Field(0.0, "[0, 1)"),  # share of train.num_steps; 0: one phase
    "phase2.max_seq_length": Field(512, LENGTH),  # tokens, as corpus.max_seq_length
    "phase2.max_predictions_per_seq": Field(77, SIZE),  # as in masking
    "phase2.micro_batches": Field(1, COUNT),  # as train.micro_batches
    "phase2.batch_size": Field(0),  # sequences; 0: train.batch_size
    # Peak of the phase's own schedule, up from 0 and down again, as LAMB's authors use
    # for another batch size; 0: continue the first phase's schedule.
    "phase2.learning_rate": Field(0.0),
    "phase2.warmup_steps": Field(0),  # warm-up of the phase's own schedule
    # bert_adam (as published: no bias correction), adamw, lamb, muon (for the encoder's
    # matrices, adamw for the rest: fewer steps for small models), stable_adamw, adagrad
    # (as TensorFlow's, for ELMo), openai_adam (GPT's), or one of your own
    # (docs/extending.md).
    "optimizer.name": Field("bert_adam", registry.OPTIMIZERS),
    # Of the learning rate: polynomial (warm-up, decay), warmup_stable_decay (between
    # them the peak), GPT's openai_linear and openai_cosine, or one of your own.
    "optimizer.schedule": Field("polynomial", registry.SCHEDULES),
    "optimizer.learning_rate": Field(1e-4),  # the peak
    # Steps of linear warm-up from 0; set this or warmup_fraction, the other one is 0.
    "optimizer.warmup_steps": Field(10_000),
    "optimizer.warmup_fraction": Field(0.0, SHARE),  # warm-up as a share of all steps
    # warmup_stable_decay: share of steps that fall
    "optimizer.decay_fraction": Field(0.1, SHARE),
    # rate ~ (share of steps left) ** power; 1: linear
    "optimizer.decay_power": Field(1.0),
    # Times the rate; not on biases and LayerNorm
    "optimizer.weight_decay": Field(0.01),
    "optimizer.beta1": Field(0.9, "[0, 1)"),  # decay of the gradients' running mean
    # Decay of the squared gradients' running mean
    "optimizer.beta2": Field(0.999, "[0, 1)"),
    "optimizer.eps": Field(1e-6),  # added to the root of the squares' mean
    # Largest norm of the whole gradient; 0: no clipping
    "optimizer.clip_norm": Field(1.0),
    # Parameters that do not learn, by the beginning of their path: ("bert/embeddings",
    # "bert/encoder/layer_0"). They have no moments, and no part in the gradient's norm.
    "optimizer.frozen": Field(()),
    # Updates of the parameters; 0: num_epochs decides
    "train.num_steps": Field(1_000_000),
    # Passes over the training data; for fine-tuning
    "train.num_epochs": Field(0.0, "[0, 1000000]"),
    # On resuming, num_steps or num_epochs may be larger than before. The learning rate
    # then follows the schedule of the new length from the step where the run resumes.
    "train.extend": _logged(False),
    # Sequences (corpus.packing: rows), over all devices
    "train.batch_size": Field(256, COUNT),
    # Parts of each step's batch, computed one after the other to save memory (gradient
    # accumulation). The result is that of the whole batch; only dropout differs.
    "train.micro_batches": Field(1, COUNT),
    "train.log_every": _logged(100, COUNT),  # steps between two logged steps
    # Services that get the metrics too: wandb, mlflow ('.[wandb]', '.[mlflow]'). Empty:
    # metrics.jsonl and TensorBoard's files in the work directory only.
    "train.trackers": Field((), ("wandb", "mlflow"), resume=True),
    "train.eval_every": Field(10_000),  # steps between evaluations; 0: only at the end
    # Also at the end of each epoch (fine-tuning)
    "train.eval_every_epoch": Field(False),
    # Stop after this many evaluations without a better score, counted per phase; 0:
    # never. The last checkpoint is the result, unless evaluate.checkpoint is best.
    "train.early_stop": Field(0),
    # Runs trained in one program, with seed, seed + 1, ...
    "train.seeds": Field(1, COUNT),
    # If a loss is not finite, or a spike: end the run (stop) or drop the batch (skip).
    "train.on_anomaly": _logged("stop", ("stop", "skip")),
    # A loss or gradient norm above this times its running mean is a spike; 0: never.
    "train.spike_factor": _logged(0.0, _spike),
    # On GPUs: sum gradients in one order (docs/devices.md)
    "train.deterministic": _logged(True),
    "evaluate.batch_size": _noted(256, COUNT),  # sequences, over all devices
    # Of dev, test and what else the task's data has
    "evaluate.splits": _noted(("dev",), distinct),
    # The checkpoint for the final predictions, `predict` and `export`: last, or best
    # (best score on dev; with two phases only the second counts, because losses at
    # different lengths are not comparable).
    "evaluate.checkpoint": _noted("last", ("last", "best")),
    # The score on dev that decides which checkpoint is best and when train.early_stop
    # ends the run: any that the task reports, such as macro_f1 or f1:spam (of the class
    # spam). Empty: the task's main score.
    "evaluate.score": Field("", ask="noted"),
    "checkpoint.save_every": _logged(5_000, COUNT),  # steps; the last step is saved too
    "checkpoint.keep": _logged(3, COUNT),  # number of newest checkpoints to keep
    # Steps; those at its multiples stay for good; 0: none
    "checkpoint.keep_every": _logged(0),
    "predict.top_k": _free(5, COUNT),  # guesses for each [MASK]
    # Rows computed together; on a CPU at most 16
    "predict.batch_size": _free(32, COUNT),
    # A name: beside the answers, write who attends to whom to NAME.safetensors. Empty:
    # do not.
    "predict.attentions": _free("", path=True),
    # The layers that --mode=extract writes: 0 is the embeddings' output, 1, 2, ... are
    # the layers; -1 is the last layer, -2 the one before.
    "predict.layers": _free((-1, -2, -3, -4), filled, items=int),
    # What --mode=extract makes of the layers: none (each layer's vectors), or one
    # vector: concatenated, sum or mean.
    "predict.combine": _free("none", ("none", "concatenated", "sum", "mean")),
    # What --mode=extract gives a vector: each piece (pieces), each word (words: its
    # first piece's; words_mean: its pieces' mean), or the whole text (cls: that of
    # [CLS]; mean: its pieces' mean).
    "predict.vectors": _free(
        "pieces", ("pieces", "words", "words_mean", "cls", "mean")
    ),
    # Names by which clients may call --mode=serve, besides --host, localhost and
    # addresses: of a proxy, of this machine.
    "serve.hosts": _free(()),
    # From SIGTERM to the end, for requests in work
    "serve.grace_seconds": _free(10.0, "[0, 86400]"),
    "mesh.data": _free(-1, "[-1, inf)"),  # devices that split the batch
    # That split the batch, parameters and optimizer state
    "mesh.fsdp": _free(1, "[-1, inf)"),
    # That split heads, intermediate size and vocabulary
    "mesh.tensor": _free(1, "[-1, inf)"),
    # Where the optimizer's state is: as_parameters (split like them), or zero1 (split
    # over data too).
    "mesh.optimizer": _free("as_parameters", ("as_parameters", "zero1")),
}

# Fields of the tasks; a task has those that TASKS names.
TASK: dict[str, Field] = {
    "task.name": Field("pretraining", filled),  # other tasks: configs/finetune/
    # mlm: predict masked pieces. ltr (section 5.1, "LTR & No NSP"): predict each piece
    # from those before it; nothing is masked, and there is no next sentence loss.
    "task.objective": Field("mlm", registry.OBJECTIVES),
    # The next sentence loss. False: the same sentence pairs without it; for no pairs
    # either set corpus.nsp=False.
    "task.nsp_loss": Field(True),
    # Where the word embeddings of a new model begin: normal (random, as published), or
    # counted (vectors counted on the training text: a small model then needs far fewer
    # steps; docs/pretraining.md).
    "task.word_initializer": Field("normal", ("normal", "counted")),
    # Tokens, [CLS] and [SEP] included; what is longer is cut, or read in windows.
    "task.max_seq_length": Field(128, LENGTH),
    # A BiLSTM between BERT and the classifier, hidden_size / 2 each way (section 5.1).
    "task.bilstm": Field(False),
    # True: pad every batch to max_seq_length, as in Google's code; False: to its
    # longest row.
    "task.pad_to_max": Field(False),
    # The folder of the task's files, or a data set of the Hub or of TFDS. This and the
    # next three: the config file says which forms are read (also --config=FILE --help).
    "task.data_dir": _data(),
    "task.train_file": _data(),  # a file, hf:NAME:SPLIT or tfds:NAME:SPLIT; empty: none
    "task.dev_file": _data(),  # the same, to score
    "task.test_file": _data(),  # the same; may be unlabelled
    # Without data named dev: the share of each class (kind=classification; else of all
    # texts) to hold out of the training data. Drawn by the texts themselves, so that
    # equal texts stay together; of IMDb's archive whole films.
    "task.dev_fraction": Field(0.0, "[0, 1)"),
    # csv, tsv or jsonl, whatever the files' names end in; empty: by the ending.
    "task.format": Field("", ("", "csv", "tsv", "jsonl"), ask="noted"),
    # The texts' column: its name in the header; or, in CSV and TSV without a header,
    # the numbers of all columns, from 0 as in pandas (cut and awk count from 1).
    "task.text": Field("text", filled, ask="noted"),
    "task.text_b": Field("", ask="noted"),  # the second text's; empty: single texts
    # The column of the classes, labels or numbers.
    "task.label": Field("label", filled, ask="noted"),
    # classification (one class), multilabel (any number of labels) or regression (a
    # number).
    "task.kind": Field(
        "classification", ("classification", "multilabel", "regression")
    ),
    # Of the losses: none, or balanced (a class counts by the inverse of its frequency).
    "task.class_weights": Field("none", ("none", "balanced")),
    # multilabel: between the labels in a CSV or TSV field; JSON has lists.
    "task.label_separator": Field(",", filled),
    # The classes or tags, in the order of the outputs, also to name those that are
    # numbers in the rows. Empty: those of the training data; GLUE's in their usual
    # order. Name them if the weights have another.
    "task.labels": Field(()),
    # Names of numbered classes, in their order: ("ham", "spam") for 0 and 1; or
    # ("1=World", "2=Sports"). Empty: as in the data.
    "task.label_names": Field((), distinct),
    # The part of a long text to keep: head, tail, or head_tail (a quarter from its
    # beginning, the rest from its end: of 510 pieces the first 128 and the last 382;
    # Sun et al. 2019, section 5.3.1).
    "task.truncation": Field("head", ("head", "tail", "head_tail")),
    # Texts that share a row in training, for speed (docs/fine_tuning.md); batch_size
    # counts texts.
    "task.texts_per_row": Field(1, "[1, 64]"),
    "task.null_answers": Field(False),  # a question may have no answer
    # Tokens from one window of a context to the next. This and the next three have the
    # defaults of run_squad.py.
    "task.doc_stride": Field(128, SIZE),
    "task.max_query_length": Field(64, "[0, 16777216]"),  # tokens; longer ones are cut
    # Starts and ends to try per window, and answers to keep.
    "task.n_best_size": Field(20, SIZE),
    "task.max_answer_length": Field(30, SIZE),  # tokens of the longest answer
    # The column of the words, from 0; -1 is the last. CoNLL-U: 1.
    "task.token_column": Field(0, "[-16777216, 16777216]"),
    # The column of the tags. CoNLL-U: -1 for tags in MISC (NER=B-PER); with scheme=none
    # 3 for UPOS, 4 for XPOS.
    "task.tag_column": Field(-1, "[-16777216, 16777216]"),
    # entities: tags with IOB1, IOB2, BIOES or BILOU prefixes, scored per entity;
    # none: plain tags, such as parts of speech, scored by accuracy.
    "task.scheme": Field("entities", ("entities", "none")),
    # Add as much of the document as fits around each sentence; rows then have the
    # maximum length.
    "task.document_context": Field(False),
    # How a text is split into words: learned (as the training data are), spaces,
    # punctuation (as BERT does: each mark is a word), or characters.
    "task.words": _noted("learned", ("learned", "spaces", "punctuation", "characters")),
    # Judgements in BEIR's layout: FOLDER/qrels/test.tsv, with FOLDER/corpus.jsonl and
    # FOLDER/queries.jsonl. Their queries are scored after training. Empty: none.
    "task.retrieval_file": _data(),
    "task.negative": Field("negative", ask="noted"),  # column of a text unlike `text`
    # The column that says how alike a pair is, from 0 to max_score.
    "task.score": Field("score", ask="noted"),
    "task.max_score": Field(1.0, "(0, inf)"),  # of equal texts
    # info_nce (the partners of a batch's other rows are negatives), triplet, or of
    # pairs with a score cosent or squared_error. Empty: cosent with scores, else
    # info_nce.
    "task.loss": Field("", ("", "info_nce", "triplet", "cosent", "squared_error")),
    "task.temperature": Field(0.05, "(0, inf)"),  # of info_nce and cosent
    "task.margin": Field(0.5),  # of triplet, between cosines
    # The vector of a text, from the last layer: mean_all (of all its tokens), mean
    # (without [CLS] and [SEP]) or cls.
    "task.pooling": Field("mean_all", ("mean_all", "mean", "cls")),
    "task.normalized": Field(True),  # vectors have length 1
    # Sizes to which vectors may be cut later (Matryoshka), such as (64, 128, 768): the
    # loss is the mean over them. Empty: the whole vector alone.
    "task.dimensions": Field((), SIZE, items=int),
}
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")
_ALL = "max_seq_length bilstm pad_to_max"
_FILES = f"{_ALL} train_file dev_file test_file"
_CLASSES = "labels texts_per_row"
_TEXTS = "dev_fraction kind truncation"
TASKS = {
    "pretraining": "objective nsp_loss word_initializer",
    **dict.fromkeys(GLUE, f"{_ALL} data_dir {_CLASSES}"),
    "imdb": f"{_ALL} data_dir {_CLASSES} {_TEXTS}",
    "text": f"{_FILES} {_CLASSES} {_TEXTS} format text text_b label class_weights "
    "label_separator label_names",
    "ner": f"{_FILES} labels token_column tag_column scheme document_context words",
    "squad": f"{_ALL} train_file dev_file null_answers doc_stride max_query_length "
    "n_best_size max_answer_length",
    "swag": _FILES,
    "embeddings": f"{_FILES} retrieval_file format text text_b negative score "
    "max_score loss temperature margin pooling normalized dimensions",
}
# Fields of earlier versions, which a config.json may still have, and their substitutes.
WITHDRAWN = {
    "train.stall_seconds": "metrics.jsonl has the time of each line",
    "train.budget": "a short run gives the pace (docs/runs.md, In a given time)",
    "train.restarts": "train several seeds (train.seeds), or another config.seed",
    **dict.fromkeys(
        (
            *("corpus.clean", "corpus.clean_against", "corpus.clean_overlap_words"),
            *("corpus.clean_min_words", "corpus.clean_language"),
            "corpus.clean_similarity",
        ),
        "clean the text first, as examples/clean_text.py does (docs/data.md)",
    ),
}
# Their defaults, if a run would be another one without them.
UNUSED = {"train.stall_seconds": 300.0, "train.budget": "", "train.restarts": 0}
# Fields that the user's own config files have added to `task`.
OWN: dict[str, Field] = {}


def of(config: Any) -> dict[str, Field]:
    """Returns every field that a config may have, by `GROUP.NAME`."""
    return FIELDS | TASK | OWN | family(config)


def family(config: Any) -> dict[str, Field]:
    """Returns the fields that only a config of this family has, or has otherwise."""
    task, model = (config.get(group, {}) for group in ("task", "model"))
    name, architecture = task.get("name"), model.get("architecture")
    found = FAMILIES.get(name if name in FAMILIES else architecture)
    return dict(found.fields) if found else {}


def of_model(family: Any) -> dict[str, Any]:
    """Returns what only the `config.model` of a family has, with the defaults."""
    own = {n: f.default for n, f in family.fields.items() if n not in FIELDS}
    return {n.removeprefix("model."): own[n] for n in own if n.startswith("model.")}


def required(task: str = "pretraining", architecture: Any = "bert") -> dict[str, Field]:
    """Returns the fields that each config of a task has; of a user's own task only its
    name is known."""
    names = ("name", *TASKS.get(task, "").split())
    fields = FIELDS | {f"task.{name}": TASK[f"task.{name}"] for name in names}
    fields["task.name"] = Field(task, filled)
    if architecture in FAMILIES:
        own = FAMILIES[architecture].fields.items()
        fields |= {name: field for name, field in own if name.startswith("model.")}
    return fields


def defaults(fields: Mapping[str, Field]) -> ConfigDict:
    """Returns the config in which all of these fields have their default."""
    return nested({name: field.default for name, field in fields.items()})


def nested(values: Mapping[str, Any]) -> ConfigDict:
    """Returns the config with these values, by `GROUP.NAME`."""
    config = ConfigDict()
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        if group and group not in config:
            config[group] = ConfigDict()
        (config[group] if group else config)[last] = value
    return config


def each(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """Yields the full name and the value of each field."""
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            yield from ((f"{name}.{inner}", its) for inner, its in each(value))
        else:
            yield name, value


def decided(config: ConfigDict) -> dict[str, Any]:
    """Returns what the weights of a run with this config decide, by `GROUP.NAME`."""
    known = of(config)
    return {n: value for n, value in each(config) if known.get(n, PLAIN).weights}
