"""Every config field, defined once: its default, allowed values, when it may change.

The comment above or beside a field describes its purpose, with its unit and source.
`--help` and docs/config.md show these comments. The defaults are those of BERT-Base's
pre-training (Devlin et al. 2019, section 3.1 and appendix A.2, and README.md and
run_pretraining.py of google-research/bert).
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config.field import (
    COUNT,
    LENGTH,
    PLAIN,
    SHARE,
    SIZE,
    Field,
    duplicate_error,
    empty_error,
)
from bert_jax.registry import FAMILIES

# Options of a request, independent of the run's values.
_free = functools.partial(Field, resume=True, ask="free")
# The same of the machine.
_local = functools.partial(_free, machine=True)
# Neither a run's numbers nor a model's depend on it.
_noted = functools.partial(Field, resume=True, ask="noted")
# Decides when a run is logged, saved or stopped, but changes none of its numbers.
_logged = functools.partial(Field, resume=True)
_sized = functools.partial(Field, weights="fixed")
_data = functools.partial(Field, "", ask="noted", path=True)


def _patterns(value: tuple) -> str | None:
    for pattern in value:
        try:
            re.compile(str(pattern))
            re.compile(f"(?:{pattern})")  # as it is searched
        except re.error as error:
            return f"has {pattern!r}: not a regular expression: {error}"
    return None


def _rising(value: tuple) -> str | None:
    whole = all(type(step) is int for step in value)
    is_pair = not value or (whole and len(value) == 2 and 0 <= value[0] < value[1])
    return None if is_pair else "must be two numbers of steps, the first one smaller"


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


def _language(value: str) -> str | None:
    is_code = re.fullmatch("[a-z]{2,3}(-[a-z]{2,10})*", value)
    return None if is_code else "must be a language code, such as en or de (ISO 639)"


FIELDS: dict[str, Field] = {
    # Seed of initial parameters, dropout, training order and masks
    "seed": Field(0),
    # Weights to start from: a work directory, a Hugging Face folder, a checkpoint of
    # Google's, hf:OWNER/NAME, or mini, a small English BERT of this package
    # (docs/weights.md). The model's sizes and the tokenizer are then theirs. Empty
    # means random values.
    "init_from": Field("", path=True),
    # Layers of `init_from` to keep, in order, such as (0, 2, 4, 7, 9, 11) of 12, as in
    # DistilBERT. Empty means all.
    "init_layers": Field((), "[0, 10000)", items=int),
    # Rows of the embedding matrix. 0 means the tokenizer's size.
    "model.vocab_size": _sized(0),
    "model.hidden_size": _sized(768, SIZE),  # numbers in each token's vector
    "model.num_hidden_layers": _sized(12, "[1, 10000]"),  # layers of the Transformer
    # Attention heads per layer. The number must divide hidden_size.
    "model.num_attention_heads": _sized(12, SIZE),
    # Width inside each feed-forward block, usually 4 x hidden_size
    "model.intermediate_size": _sized(3072, SIZE),
    # The longest sequence, in tokens
    "model.max_position_embeddings": _sized(512, SIZE),
    "model.type_vocab_size": _sized(2, SIZE),  # segments: a first and a second text
    # gelu (by erf, as released in 2018), gelu_tanh or relu
    "model.hidden_act": _sized("gelu", ("gelu", "gelu_tanh", "relu")),
    # Fraction of embeddings and outputs that is dropped
    "model.hidden_dropout_prob": Field(0.1, "[0, 1)"),
    # Fraction of attention weights that is dropped
    "model.attention_probs_dropout_prob": Field(0.1, "[0, 1)"),
    # Standard deviation of random initial values
    "model.initializer_range": Field(0.02, "(0, inf)"),
    # Initial values of the learned position embeddings: normal (as the others), or
    # sinusoidal, from which a small model learns sooner to look next to a gap.
    "model.position_initializer": Field("normal", ("normal", "sinusoidal")),
    # Added to the variance in LayerNorm
    "model.layer_norm_eps": _sized(1e-12, "(0, inf)"),
    # Type of the matrix products: float32, or bfloat16 (faster on TPUs and GPUs, while
    # parameters, softmax and losses stay float32).
    "model.dtype": Field("float32", ("float32", "bfloat16"), ask="noted"),
    # Implementation of attention, with the same numbers but for rounding: einsum, fused
    # (one kernel, faster and in less memory, on GPUs and TPUs), or cudnn (NVIDIA's, in
    # bfloat16, where attention_probs_dropout_prob is 0).
    "model.attention": Field("einsum", registry.ATTENTIONS, ask="noted"),
    # Implementation of the bias, activation, dropout, residual and LayerNorm that
    # follow the encoder's matrix products: xla, or fused (a kernel each way, on GPUs).
    "model.epilogue": Field("xla", ("xla", "fused"), ask="noted"),
    # Type of the layers: post_norm, or a custom one (docs/extending.md)
    "model.layer": Field("post_norm", registry.LAYERS),
    # Position encoding: learnt (a vector for each position), or a custom one
    "model.positions": Field("learnt", registry.POSITIONS),
    # The part that the backward pass recomputes, to save memory: none, full (all of
    # each layer) or dots (everything between its matrix products, and attention).
    "model.remat": _noted("none", ("none", "full", "dots")),
    # Compile one layer and loop over it: compiles faster, may run slower.
    "model.scan_layers": Field(False),
    # LoRA: rank of the matrices that learn beside the encoder's (docs/fine_tuning.md).
    # Else only heads do: the rest stays as in init_from. 0 means no LoRA.
    "model.lora_rank": Field(0),
    # The product of two such matrices is multiplied by lora_alpha / lora_rank.
    "model.lora_alpha": Field(8.0, "(0, inf)"),
    # The encoder's matrices that get them, by the end of their name: query, key, value,
    # attention/output, intermediate, output (of both kinds)
    "model.lora_targets": Field(("query", "value"), empty_error),
    # bert, or another folder of bert_jax/families/, by its name. configs/NAME.py and
    # configs/finetune/ with model=NAME set it.
    "model.architecture": _sized("bert", registry.FAMILIES),
    # Each position sees only those before it. task.objective=ltr sets it, and a run
    # from such weights takes it from them. Leave it as it is.
    "model.causal": _sized(False),
    # A vocab.txt or tokenizer.json. Empty means the one of init_from, or else one
    # trained on the corpus.
    "tokenizer.vocab_file": Field("", path=True),
    # Tokens of a vocabulary that is trained, special tokens included.
    "tokenizer.vocab_size": Field(30522, COUNT),
    # True as in the uncased models, False as in the cased ones
    "tokenizer.lowercase": Field(True),
    # With lowercase: also strip accents, as the uncased models do. This decomposes
    # characters: it takes Korean syllables apart, and drops marks that are letters in
    # other scripts. False keeps them.
    "tokenizer.strip_accents": Field(True),
    # Words to add to the vocabulary of `init_from` or `vocab_file`, such as
    # ("<drug>",): a text has them whole, and each has a row of its own.
    "tokenizer.add": Field((), duplicate_error, items=str),
    # Their first rows: mean (of the rows of the word's tokens) or random.
    "tokenizer.added_rows": Field("mean", ("mean", "random")),
    # Bytes of text, sampled evenly from the corpus, to train a vocabulary on.
    "tokenizer.sample_bytes": Field(30_000_000, "[1, 4611686018427387904]"),
    # The text: one or more of sentences:GLOB, paragraphs:GLOB, lines:GLOB, text:GLOB,
    # jsonl:GLOB, parquet:GLOB, hf:NAME, tfds:NAME, pydocs (docs/data.md).
    "corpus.sources": Field(
        ("hf:wikimedia/wikipedia:20231101.en", "hf:emozilla/pg19"), empty_error
    ),
    # How often a row of each source is seen, relative to one of weight 1: (2.0, 1.0)
    # shows the first source's rows twice as often (docs/data.md). Empty means all
    # equally often.
    "corpus.weights": Field((), "(0, 1000000]", items=float),
    # Whose rules split sentences: a code such as en, de or ko
    "corpus.language": Field("en", _language),
    # The folder for prepared data. Runs may share it.
    "corpus.data_dir": _noted("data", empty_error, path=True),
    # The runner that prepares the data, with the same result byte for byte. Empty means
    # this machine's cores. Runners of Apache Beam ('.[beam]') are FnApiRunner
    # (embedded), FlinkRunner, SparkRunner and DataflowRunner (docs/data.md).
    "corpus.runner": _noted("", machine=True),
    # Beam's options, such as ("--direct_num_workers=4",)
    "corpus.beam_options": _noted((), machine=True),
    "corpus.max_seq_length": Field(128, LENGTH),  # tokens, [CLS] and [SEP] included
    # Fraction of sentence pairs that get a random shorter length
    # (create_pretraining_data.py).
    "corpus.short_seq_prob": Field(0.1, SHARE),
    # Maximum UTF-8 bytes (some 5,000 words, fifty rows of 128): a longer document is
    # cut at ends of paragraphs. 0 means never. Short rows are drawn once per document
    # (in Google's code once per copy, of ten), so an uncut book could have only short
    # rows.
    "corpus.max_document_bytes": Field(30_000),
    # Seed of the vocabulary's sample, the sentence pairs, the held-out documents and
    # dev's masks. Runs with different `seed` share these, so their losses are
    # comparable.
    "corpus.seed": Field(0),
    # Fraction of the documents held out as dev, always whole documents: at least two,
    # or one of fewer than four.
    "corpus.dev_fraction": Field(0.005, "(0, 1)"),
    # Sentence pairs and the next sentence loss. False means running text, without
    # either.
    "corpus.nsp": Field(True),
    # Without pairs: rows of whole sentences from one or more documents (Liu et al.
    # 2019).
    "corpus.full_sentences": Field(False),
    # Training rows of several sentence pairs that do not attend to each other, instead
    # of one pair and padding (Krell et al. 2021). Batch sizes then count these rows.
    "corpus.packing": Field(False),
    # With packing: maximum number of pairs (or, without pairs, texts) in a row.
    "corpus.packed_pairs": Field(4, "[1, 64]"),
    # With packing: each training row's positions begin at a random one, drawn again in
    # each epoch, so that short rows train all position embeddings (Kiyono et al. 2021).
    "corpus.shift_positions": Field(False),
    # bert (masking by the fields below), or a custom one
    "masking.name": Field("bert", registry.MASKINGS),
    # Fraction of a sequence's tokens to predict, up to max_predictions_per_seq
    "masking.masked_lm_prob": Field(0.15, "(0, 1]"),
    # Maximum number of a sequence's tokens to predict
    "masking.max_predictions_per_seq": Field(20, SIZE),
    "masking.whole_word": Field(False),  # True chooses all tokens of a word together
    # Fraction of the predicted tokens that become [MASK]
    "masking.mask_fraction": Field(0.8, SHARE),
    # Fraction that become a random token. The rest stay as they are.
    "masking.random_fraction": Field(0.1, SHARE),
    # Fraction of train.num_steps. 0 means one phase.
    "phase2.fraction": Field(0.0, "[0, 1)"),
    "phase2.max_seq_length": Field(512, LENGTH),  # tokens, as corpus.max_seq_length
    "phase2.max_predictions_per_seq": Field(77, SIZE),  # as in masking
    "phase2.micro_batches": Field(1, COUNT),  # as train.micro_batches
    # Sequences in a batch. 0 means train.batch_size.
    "phase2.batch_size": Field(0),
    # Peak of the phase's own schedule, up from 0 and down again, as LAMB's authors use
    # for another batch size. 0 means to continue the first phase's schedule.
    "phase2.learning_rate": Field(0.0),
    "phase2.warmup_steps": Field(0),  # warm-up of the phase's own schedule
    # bert_adam (as published: no bias correction), adamw, lamb, muon (for the encoder's
    # matrices, adamw for the rest: fewer steps for small models), stable_adamw, adagrad
    # (as TensorFlow's, for ELMo), openai_adam (GPT's), or a custom one
    # (docs/extending.md).
    "optimizer.name": Field("bert_adam", registry.OPTIMIZERS),
    # Schedule of the learning rate: polynomial (warm-up, decay), warmup_stable_decay
    # (the peak between them), GPT's openai_linear and openai_cosine, or a custom one.
    "optimizer.schedule": Field("polynomial", registry.SCHEDULES),
    "optimizer.learning_rate": Field(1e-4),  # the peak
    # Steps of linear warm-up from 0. Set this or warmup_fraction, the other one is 0.
    "optimizer.warmup_steps": Field(10_000),
    "optimizer.warmup_fraction": Field(0.0, SHARE),  # warm-up's fraction of all steps
    # warmup_stable_decay: fraction of steps with a falling rate
    "optimizer.decay_fraction": Field(0.1, SHARE),
    # rate ~ (fraction of steps left) ** power. 1 means linear.
    "optimizer.decay_power": Field(1.0),
    # Multiplied by the learning rate. Biases and arrays of one axis do not decay.
    "optimizer.weight_decay": Field(0.01),
    "optimizer.beta1": Field(0.9, "[0, 1)"),  # decay of the gradients' running mean
    # Decay of the squared gradients' running mean
    "optimizer.beta2": Field(0.999, "[0, 1)"),
    "optimizer.eps": Field(1e-6),  # added to the root of the squares' mean
    # Largest norm of the whole gradient. 0 means no clipping.
    "optimizer.clip_norm": Field(1.0),
    # Parameters that learn, by patterns (regular expressions) found in their paths, not
    # inside a number: ("attention", "layer_1", "sequence_classification"). Empty means
    # all.
    "optimizer.trainable": Field((), _patterns),
    # Parameters that do not learn, by the beginning of their path: ("bert/embeddings",
    # "bert/encoder/layer_0"). They have no moments, and no part in the gradient's norm.
    "optimizer.frozen": Field(()),
    # Updates of the parameters; 0: num_epochs decides
    "train.num_steps": Field(1_000_000),
    # Passes over the training data, for fine-tuning
    "train.num_epochs": Field(0.0, "[0, 1000000]"),
    # On resuming, num_steps or num_epochs may be larger than before. The learning rate
    # then follows the schedule of the new length from the step where the run resumes.
    "train.extend": _logged(False),
    # Sequences (with corpus.packing, rows) over all devices
    "train.batch_size": Field(256, COUNT),
    # Parts of each step's batch, computed one after the other to save memory (gradient
    # accumulation). The result is that of the whole batch, only dropout differs.
    "train.micro_batches": Field(1, COUNT),
    "train.log_every": _logged(100, COUNT),  # steps between two logged steps
    # Changes to the loss or its gradient, in this order (docs/extending.md)
    "train.transforms": Field((), registry.TRANSFORMS),
    # Services that get the metrics too: wandb, mlflow ('.[wandb]', '.[mlflow]'). Empty
    # means only metrics.jsonl and TensorBoard's files in the work directory.
    "train.trackers": Field((), ("wandb", "mlflow"), resume=True, machine=True),
    # Steps whose profile to write to `profile` in the work directory, such as (10, 15):
    # after ten steps, until fifteen are done. Empty means none.
    "train.profile_steps": Field((), _rising, items=int, resume=True, machine=True),
    # Steps between evaluations. 0 means only at the end.
    "train.eval_every": Field(10_000),
    # Also evaluate at the end of each epoch (fine-tuning)
    "train.eval_every_epoch": Field(False),
    # Stop after this many evaluations without a better score, counted per phase. 0
    # means never. The last checkpoint is the result, unless evaluate.checkpoint is
    # best.
    "train.early_stop": Field(0),
    # Runs trained in one program, with seed, seed + 1, ...
    "train.seeds": Field(1, COUNT),
    # If a loss is not finite: end the run (stop) or drop the batch (skip).
    "train.on_anomaly": _logged("stop", ("stop", "skip")),
    # On GPUs: sum gradients in one order (docs/devices.md)
    "train.deterministic": _logged(True),
    "evaluate.batch_size": _noted(256, COUNT),  # sequences, over all devices
    # Splits to evaluate: dev, test and any others in the task's data
    "evaluate.splits": _noted(("dev",), duplicate_error),
    # The checkpoint for the final predictions, `predict` and `export`: last, or best
    # (best score on dev, where of two phases only the second counts, because losses at
    # different lengths are not comparable).
    "evaluate.checkpoint": _noted("last", ("last", "best")),
    # The score on dev that decides which checkpoint is best and when train.early_stop
    # ends the run: any that the task reports, such as macro_f1 or f1:spam (of the class
    # spam). Empty means the task's main score.
    "evaluate.score": Field("", ask="noted"),
    # Steps between checkpoints. The last step is saved too.
    "checkpoint.save_every": _logged(5_000, COUNT),
    "checkpoint.keep": _logged(3, COUNT),  # number of newest checkpoints to keep
    # Checkpoints at multiples of this many steps are never deleted. 0 means none.
    "checkpoint.keep_every": _logged(0),
    "predict.top_k": _free(5, COUNT),  # guesses for each [MASK]
    # Rows computed together, on a CPU at most 16
    "predict.batch_size": _local(32, COUNT),
    # The layers that --mode=extract writes: 0 is the embeddings' output, 1, 2, ... are
    # the layers, -1 is the last layer and -2 the one before.
    "predict.layers": _free((-1, -2, -3, -4), empty_error, items=int),
    # How --mode=extract combines the layers: none (each layer's vectors), or into one
    # vector: concatenated, sum or mean.
    "predict.combine": _free("none", ("none", "concatenated", "sum", "mean")),
    # The units that get a vector in --mode=extract: each token (pieces), each word
    # (words, its first token's; or words_mean, its tokens' mean), or the whole text
    # (cls, that of [CLS]; or mean, its tokens' mean).
    "predict.vectors": _free(
        "pieces", ("pieces", "words", "words_mean", "cls", "mean")
    ),
    # Names by which clients may call --mode=serve, in addition to --host, localhost and
    # addresses, such as the name of a proxy or of this machine.
    "serve.hosts": _local(()),
    # Seconds from SIGTERM to the end, for requests in progress
    "serve.grace_seconds": _local(10.0, "[0, 86400]"),
    "mesh.data": _local(-1, "[-1, inf)"),  # devices that split the batch
    # Devices that split the batch, parameters and optimizer state
    "mesh.fsdp": _local(1, "[-1, inf)"),
    # Devices that split heads, intermediate size and vocabulary
    "mesh.tensor": _local(1, "[-1, inf)"),
    # How the optimizer's state is split: as_parameters (like the parameters), or zero1
    # (over data too).
    "mesh.optimizer": _local("as_parameters", ("as_parameters", "zero1")),
}

# Fields of the tasks. A task has those that TASKS names.
TASK: dict[str, Field] = {
    "task.name": Field("pretraining", empty_error),  # other tasks: configs/finetune/
    # mlm predicts masked tokens. ltr (section 5.1, "LTR & No NSP") predicts each token
    # from those before it, with nothing masked and no next sentence loss.
    "task.objective": Field("mlm", registry.OBJECTIVES),
    # The next sentence loss. False means the same sentence pairs without the loss. For
    # rows without pairs, set corpus.nsp=False.
    "task.nsp_loss": Field(True),
    # Initial word embeddings of a new model: normal (random, as published), or counted
    # (vectors counted on the training text, with which a small model needs far fewer
    # steps, see docs/pretraining.md).
    "task.word_initializer": Field("normal", ("normal", "counted")),
    # Tokens, [CLS] and [SEP] included. Longer texts are cut, or read in windows.
    "task.max_seq_length": Field(128, LENGTH),
    # A BiLSTM between BERT and the classifier, hidden_size / 2 each way (section 5.1).
    "task.bilstm": Field(False),
    # Weights of a trained model whose outputs are learned too, of any form that
    # init_from reads (docs/fine_tuning.md). Empty means none.
    "task.teacher": _data(),
    # The weight of the teacher's outputs in the loss. The labels have the rest.
    "task.teacher_share": Field(0.5, SHARE),
    # Divides both models' logits before they are compared (Hinton et al. 2015). Numbers
    # (kind=regression) are compared as they are.
    "task.teacher_temperature": Field(2.0, "(0, inf)"),
    # Weight of 1 - the cosine of the last layers' vectors (Sanh et al. 2019). 0 means
    # that they are not compared.
    "task.teacher_cosine": Field(0.0),
    # The same for the squared error of every layer's vectors (Jiao et al. 2020).
    "task.teacher_hidden": Field(0.0),
    # The same for the squared error of every layer's attention scores.
    "task.teacher_attention": Field(0.0),
    # True pads every batch to max_seq_length, as in Google's code. False pads it to its
    # longest row.
    "task.pad_to_max": Field(False),
    # The folder of the task's files, or a data set of the Hub or of TFDS. For this and
    # the next three fields, the config file says which forms are read (also
    # --config=FILE --help).
    "task.data_dir": _data(),
    # A file, hf:NAME:SPLIT or tfds:NAME:SPLIT. Empty means none.
    "task.train_file": _data(),
    "task.dev_file": _data(),  # the same, to score
    "task.test_file": _data(),  # the same, perhaps unlabeled
    # Without data named dev: the fraction of each class (with kind=classification, else
    # of all texts) to hold out of the training data. The texts themselves decide, so
    # that equal texts stay together. From IMDb's archive, whole films are held out.
    "task.dev_fraction": Field(0.0, "[0, 1)"),
    # With dev_fraction: a column whose equal values stay together, such as that of a
    # question with several answers. Empty means the texts.
    "task.group": Field("", ask="noted"),
    # csv, tsv or jsonl, whatever the files' names end in. Empty means by the ending.
    "task.format": Field("", ("", "csv", "tsv", "jsonl"), ask="noted"),
    # The texts' column: its name in the header or, in CSV and TSV without a header, its
    # number. All columns are then numbers, from 0 as in pandas (cut and awk count from
    # 1).
    "task.text": Field("text", empty_error, ask="noted"),
    # The second text's column. Empty means single texts.
    "task.text_b": Field("", ask="noted"),
    # The column of the classes, labels or numbers.
    "task.label": Field("label", empty_error, ask="noted"),
    # classification (one class), multilabel (any number of labels) or regression (a
    # number).
    "task.kind": Field(
        "classification", ("classification", "multilabel", "regression")
    ),
    # Weights of the classes in the loss: none, or balanced (a class counts by the
    # inverse of its frequency).
    "task.class_weights": Field("none", ("none", "balanced")),
    # multilabel: separator between the labels in a CSV or TSV field. JSON has lists.
    "task.label_separator": Field(",", empty_error),
    # The classes or tags, in the order of the outputs, also to name those that are
    # numbers in the rows. Empty means those of the training data, and GLUE's in their
    # usual order. List them if the weights have another order.
    "task.labels": Field(()),
    # Names of numbered classes, in their order: ("ham", "spam") for 0 and 1, or
    # ("1=World", "2=Sports"). Empty means as in the data.
    "task.label_names": Field((), duplicate_error),
    # The part of a long text to keep: head, tail, or head_tail (a quarter from its
    # beginning, the rest from its end: of 510 tokens the first 128 and the last 382, as
    # in Sun et al. 2019, section 5.3.1).
    "task.truncation": Field("head", ("head", "tail", "head_tail")),
    # Texts that share a row in training, for speed (docs/fine_tuning.md). batch_size
    # still counts texts.
    "task.texts_per_row": Field(1, "[1, 64]"),
    # A single text of more than max_seq_length tokens becomes up to so many windows,
    # whose logits are combined, in training too. Texts that are longer are cut.
    "task.windows": Field(1, "[1, 1024]"),
    "task.window_overlap": Field(32, "[0, 16777216]"),  # tokens that two windows share
    "task.window_logits": Field("mean", ("mean", "max")),  # over a text's windows
    # The share of the loss that is of the uniform distribution over the classes
    # (Szegedy et al. 2016).
    "task.label_smoothing": Field(0.0, "[0, 1)"),
    # What is fitted on dev, for probabilities or labels that one can rely on:
    # temperature (divides the logits) or, with kind=multilabel, thresholds (the logit
    # from which on each label is given, for its best F1).
    "task.calibration": Field("none", ("none", "temperature", "thresholds")),
    "task.null_answers": Field(False),  # a question may have no answer
    # Tokens from one window of a context to the next. This and the next three have the
    # defaults of run_squad.py.
    "task.doc_stride": Field(128, SIZE),
    "task.max_query_length": Field(64, "[0, 16777216]"),  # tokens (longer ones are cut)
    # Starts and ends to try per window, and answers to keep.
    "task.n_best_size": Field(20, SIZE),
    "task.max_answer_length": Field(30, SIZE),  # tokens of the longest answer
    # The column of the words, from 0. -1 is the last. CoNLL-U: 1.
    "task.token_column": Field(0, "[-16777216, 16777216]"),
    # The column of the tags. CoNLL-U: with scheme=none 3 for UPOS and 4 for XPOS.
    "task.tag_column": Field(-1, "[-16777216, 16777216]"),
    # entities: tags with IOB1, IOB2, BIOES or BILOU prefixes, scored per entity.
    # none: plain tags, such as parts of speech, scored by accuracy.
    "task.scheme": Field("entities", ("entities", "none")),
    # Add a conditional random field over the tags: transitions from tag to tag are
    # learned, and guesses keep to the scheme of the tags.
    "task.crf": Field(False),
    # That scheme. Empty means that of the training data.
    "task.tag_scheme": Field("", ("", "BIO", "IOB1", "BIOES", "none")),
    # Add as much of the document as fits around each sentence. Rows then have the
    # maximum length.
    "task.document_context": Field(False),
    # How a text is split into words: learned (as the training data are), spaces,
    # punctuation (as BERT does: each mark is a word), or characters.
    "task.words": _noted("learned", ("learned", "spaces", "punctuation", "characters")),
    # Judgments in BEIR's layout: FOLDER/qrels/test.tsv, with FOLDER/corpus.jsonl and
    # FOLDER/queries.jsonl. Their queries are scored after training. Empty means none.
    "task.retrieval_file": _data(),
    "task.negative": Field("negative", ask="noted"),  # column of a text unlike `text`
    # The column with the similarity of a pair, from 0 to max_score.
    "task.score": Field("score", ask="noted"),
    "task.max_score": Field(1.0, "(0, inf)"),  # the score of equal texts
    # info_nce (the partners of a batch's other rows are negatives), triplet, or for
    # pairs with a score cosent or squared_error. Empty means cosent with scores, else
    # info_nce.
    "task.loss": Field("", ("", "info_nce", "triplet", "cosent", "squared_error")),
    "task.temperature": Field(0.05, "(0, inf)"),  # for info_nce and cosent
    "task.margin": Field(0.5),  # for triplet, between cosines
    # The vector of a text, from the last layer: mean_all (of all its tokens), mean
    # (without [CLS] and [SEP]), cls or max. Several, joined by +, are concatenated. If
    # init_from is a folder of sentence-transformers, its modules decide this, the next
    # four fields and max_seq_length, unless they have another value than the default.
    "task.pooling": Field("mean_all", _pooling, weights="default"),
    # Linear layers after the pooling, each SIZE:ACTIVATION (identity, tanh, relu or
    # gelu): ("512:tanh",). Empty means none.
    "task.dense": Field((), _vector_layer, weights="default"),
    "task.normalized": Field(True, weights="default"),  # vectors have length 1
    # Put before each text, such as "query: "
    "task.prompt": Field("", weights="default"),
    # Other prompts that `sentences` may put there, each NAME=TEXT: ("query=query: ",)
    "task.prompts": Field((), _prompts, weights="default"),
    # Sizes to which vectors may be cut later (Matryoshka), such as (64, 128, 768). The
    # loss is the sum over them. Empty means only the whole vector.
    "task.dimensions": Field((), SIZE, items=int),
}
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")
_TEACHER = (
    "teacher teacher_share teacher_temperature teacher_cosine teacher_hidden "
    "teacher_attention"
)
_ROWS = "max_seq_length bilstm pad_to_max"
_ALL = f"{_ROWS} {_TEACHER}"
_FILES = f"{_ALL} train_file dev_file test_file"
_CLASSES = "labels texts_per_row"
_TEXTS = (
    "dev_fraction kind truncation windows window_overlap window_logits label_smoothing "
    "calibration"
)
TASKS = {
    "pretraining": f"objective nsp_loss word_initializer {_TEACHER}",
    **dict.fromkeys(GLUE, f"{_ALL} data_dir {_CLASSES}"),
    "imdb": f"{_ALL} data_dir {_CLASSES} {_TEXTS}",
    "text": f"{_FILES} {_CLASSES} {_TEXTS} format text text_b label group "
    "class_weights label_separator label_names",
    "ner": f"{_FILES} labels token_column tag_column scheme crf tag_scheme "
    "document_context words",
    "squad": f"{_ALL} train_file dev_file null_answers doc_stride max_query_length "
    "n_best_size max_answer_length",
    "swag": _FILES,
    "embeddings": f"{_ROWS} train_file dev_file test_file retrieval_file format text "
    "text_b negative score max_score loss temperature margin pooling dense normalized "
    "prompt prompts dimensions",
}
# Fields that the user's own config files have added to `task`.
OWN: dict[str, Field] = {}


def fields_of(config: Any) -> dict[str, Field]:
    """Returns every field that a config may have, by `GROUP.NAME`."""
    return FIELDS | TASK | OWN | family_fields(config)


def family_fields(config: Any) -> dict[str, Field]:
    """Returns the fields that only a config of this family has, or has otherwise."""
    task, model = (config.get(group, {}) for group in ("task", "model"))
    name, architecture = task.get("name"), model.get("architecture")
    found = FAMILIES.get(name if name in FAMILIES else architecture)
    return dict(found.fields) if found else {}


def of_model(family: Any) -> dict[str, Any]:
    """Returns the fields only in a family's `config.model`, with their defaults."""
    own = {n: f.default for n, f in family.fields.items() if n not in FIELDS}
    return {n.removeprefix("model."): own[n] for n in own if n.startswith("model.")}


def required_fields(
    task: str = "pretraining", architecture: Any = "bert"
) -> dict[str, Field]:
    """Returns the fields that each config of a task has. For a custom task only its
    name is known."""
    names = ("name", *TASKS.get(task, "").split())
    fields = FIELDS | {f"task.{name}": TASK[f"task.{name}"] for name in names}
    fields["task.name"] = Field(task, empty_error)
    if architecture in FAMILIES:
        own = FAMILIES[architecture].fields.items()
        fields |= {name: field for name, field in own if name.startswith("model.")}
    return fields


def default_config(fields: Mapping[str, Field]) -> ConfigDict:
    """Returns the config in which all of these fields have their default."""
    config = ConfigDict()
    for name, field in fields.items():
        group, _, last = name.rpartition(".")
        if group and group not in config:
            config[group] = ConfigDict()
        (config[group] if group else config)[last] = field.default
    return config


def iter_fields(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """Yields the full name and the value of each field."""
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            yield from ((f"{name}.{inner}", its) for inner, its in iter_fields(value))
        else:
            yield name, value


def decided_values(config: ConfigDict) -> dict[str, Any]:
    """Returns the values that a run's weights decide, by `GROUP.NAME`."""
    known = fields_of(config)
    return {n: value for n, value in iter_fields(config) if known.get(n, PLAIN).weights}
