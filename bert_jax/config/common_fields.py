"""The fields that every config has.

The defaults are those of BERT-Base's pre-training (Devlin et al. 2019, section 3.1 and
appendix A.2, and README.md and run_pretraining.py of google-research/bert).
"""

import re

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config.field import (
    COUNT,
    INT32,
    LENGTH,
    SHARE,
    SIZE,
    Field,
    duplicate_error,
    empty_error,
)
from bert_jax.errors import UserError


def _patterns(value: tuple) -> str | None:
    for pattern in value:
        try:
            re.compile(str(pattern))
            re.compile(f"(?:{pattern})")  # as it is searched
        except re.error as error:
            return f"has {pattern!r}: not a regular expression: {error}"
    return None


def _check_rising(value: tuple) -> str | None:
    whole = all(type(step) is int for step in value)
    is_pair = not value or (whole and len(value) == 2 and 0 <= value[0] < value[1])
    return None if is_pair else "must be two numbers of steps, the first one smaller"


def _language(value: str) -> str | None:
    is_code = re.fullmatch("[a-z]{2,3}(-[a-z]{2,10})*", value)
    return None if is_code else "must be a language code, such as en or de (ISO 639)"


FIELDS: dict[str, Field] = {
    "seed": Field(
        0, doc="Seed of initial parameters, dropout, training order and masks"
    ),
    "init_from": Field(
        "",
        path=True,
        doc="Weights to start from: a work directory, a Hugging Face folder, a "
        "checkpoint of Google's, hf:OWNER/NAME, or mini, a small English BERT "
        "of this package (docs/weights.md). The model's sizes and the "
        "tokenizer are then theirs. Empty means random values.",
    ),
    "init_layers": Field(
        (),
        "[0, 10000)",
        items=int,
        doc="Layers of `init_from` to keep, in order, such as (0, 2, 4, 7, 9, 11) "
        "of 12, as in DistilBERT. Empty means all.",
    ),
    "model.vocab_size": Field(
        0,
        fixed_by="weights",
        doc="Rows of the embedding matrix. 0 means the tokenizer's size.",
    ),
    "model.hidden_size": Field(
        768, SIZE, fixed_by="weights", doc="Numbers in each token's vector"
    ),
    "model.num_hidden_layers": Field(
        12, "[1, 10000]", fixed_by="weights", doc="Layers of the Transformer"
    ),
    "model.num_attention_heads": Field(
        12,
        SIZE,
        fixed_by="weights",
        doc="Attention heads per layer. The number must divide hidden_size.",
    ),
    "model.intermediate_size": Field(
        3072,
        SIZE,
        fixed_by="weights",
        doc="Width inside each feed-forward block, usually 4 x hidden_size",
    ),
    "model.max_position_embeddings": Field(
        512, SIZE, fixed_by="weights", doc="Longest sequence, in tokens"
    ),
    "model.type_vocab_size": Field(
        2, SIZE, fixed_by="weights", doc="Segments: a first and a second text"
    ),
    "model.hidden_act": Field(
        "gelu",
        ("gelu", "gelu_tanh", "relu"),
        fixed_by="weights",
        doc="Activation in the feed-forward blocks: gelu (by erf, as released in "
        "2018), gelu_tanh or relu",
    ),
    "model.hidden_dropout_prob": Field(
        0.1, "[0, 1)", doc="Fraction of embeddings and outputs that is dropped"
    ),
    "model.attention_probs_dropout_prob": Field(
        0.1, "[0, 1)", doc="Fraction of attention weights that is dropped"
    ),
    "model.initializer_range": Field(
        0.02, "(0, inf)", doc="Standard deviation of random initial values"
    ),
    "model.position_initializer": Field(
        "normal",
        ("normal", "sinusoidal"),
        doc="Initial values of the learned position embeddings: normal (like the "
        "other parameters), or sinusoidal, from which a small model learns "
        "sooner to look next to a gap.",
    ),
    "model.layer_norm_eps": Field(
        1e-12,
        "(0, inf)",
        fixed_by="weights",
        doc="Number added to the variance in LayerNorm",
    ),
    "model.dtype": Field(
        "float32",
        ("float32", "bfloat16"),
        fixed_by="training",
        doc="Type of the matrix products: float32, or bfloat16 (faster on TPUs "
        "and GPUs, while parameters, softmax and losses stay float32).",
    ),
    "model.attention": Field(
        "einsum",
        registry.ATTENTIONS,
        fixed_by="training",
        doc="Implementation of attention, with the same numbers but for rounding: "
        "einsum, or fused (one kernel, faster and in less memory, on GPUs and "
        "TPUs).",
    ),
    "model.epilogue": Field(
        "xla",
        ("xla", "fused"),
        fixed_by="training",
        doc="Implementation of the bias, activation, dropout, residual and "
        "LayerNorm that follow the encoder's matrix products: xla, or fused "
        "(a kernel each way, on GPUs).",
    ),
    "model.layer": Field(
        "post_norm",
        registry.LAYERS,
        doc="Type of the layers: post_norm, or a custom one (docs/extending.md)",
    ),
    "model.positions": Field(
        "learnt",
        registry.POSITIONS,
        doc="Position encoding: learnt (a vector for each position), or a custom one",
    ),
    "model.remat": Field(
        "none",
        ("none", "full", "dots"),
        fixed_by="none",
        doc="Part that the backward pass recomputes, to save memory: none, full "
        "(all of each layer) or dots (everything between its matrix products, "
        "and attention).",
    ),
    "model.scan_layers": Field(
        False,
        doc="Whether one layer is compiled and looped over: sooner, perhaps slower",
    ),
    "model.lora_rank": Field(
        0,
        doc="LoRA: rank of the matrices that learn next to the encoder's "
        "(docs/fine_tuning.md). Besides them only the heads learn. 0 means no "
        "LoRA.",
    ),
    "model.lora_alpha": Field(
        8.0,
        "(0, inf)",
        doc="LoRA: lora_alpha / lora_rank multiplies the product of two matrices.",
    ),
    "model.lora_targets": Field(
        ("query", "value"),
        empty_error,
        doc="LoRA: the encoder's matrices next to which others learn, by the end "
        "of their name: query, key, value, attention/output, intermediate, "
        "output (of both kinds)",
    ),
    "model.architecture": Field(
        "bert",
        registry.FAMILIES,
        fixed_by="weights",
        doc="Family of the model: bert, or the name of another folder of "
        "bert_jax/families/. configs/NAME.py and configs/finetune/ with "
        "model=NAME set it.",
    ),
    "model.causal": Field(
        False,
        fixed_by="weights",
        doc="Whether a position attends only to itself and those before it. "
        "task.objective=ltr sets it, and a run from such weights takes it "
        "from them. Leave it as it is.",
    ),
    "tokenizer.vocab_file": Field(
        "",
        path=True,
        doc="Vocabulary: a vocab.txt or tokenizer.json. Empty means the one of "
        "init_from, or else one trained on the corpus.",
    ),
    "tokenizer.vocab_size": Field(
        30522,
        COUNT,
        doc="Tokens of a vocabulary that is trained, special tokens included.",
    ),
    "tokenizer.lowercase": Field(
        True, doc="Whether texts are lower-cased, as in the uncased models"
    ),
    "tokenizer.strip_accents": Field(
        True,
        doc="Whether lower-cased texts lose their accents, as in the uncased "
        "models. True decomposes characters: it takes Korean syllables apart, "
        "and drops marks that are letters in other scripts.",
    ),
    "tokenizer.add": Field(
        (),
        duplicate_error,
        items=str,
        doc="Words to add to the vocabulary of `init_from` or `vocab_file`, such "
        'as ("<drug>",): a text has them whole, and each has a row of its '
        "own.",
    ),
    "tokenizer.added_rows": Field(
        "mean",
        ("mean", "random"),
        doc="First rows of the words of tokenizer.add: mean (of the rows of the "
        "word's tokens) or random",
    ),
    "tokenizer.sample_bytes": Field(
        30_000_000,
        "[1, 4611686018427387904]",
        doc="Bytes of text, sampled evenly from the corpus, to train a vocabulary on.",
    ),
    "corpus.sources": Field(
        ("hf:wikimedia/wikipedia:20231101.en", "hf:emozilla/pg19"),
        empty_error,
        fixed_by="training",
        doc="Text to train on, or with --mode=evaluate other texts to score, each "
        "alone: one or more of sentences:GLOB, paragraphs:GLOB, lines:GLOB, text:GLOB, "
        "jsonl:GLOB, parquet:GLOB, hf:NAME, tfds:NAME, pydocs (docs/data.md).",
    ),
    "corpus.weights": Field(
        (),
        "[0, 1000000]",
        items=float,
        doc="How often a row of each source is seen, relative to one of weight 1: "
        "(2.0, 1.0) shows the first source's rows twice as often, and a source of "
        "weight 0 is left out (docs/data.md). Empty means all equally often.",
    ),
    "corpus.language": Field(
        "en", _language, doc="Language of the sentence rules: a code such as en or de"
    ),
    "corpus.data_dir": Field(
        "data",
        empty_error,
        path=True,
        fixed_by="none",
        doc="Folder of the prepared data. Runs may share it.",
    ),
    "corpus.runner": Field(
        "",
        machine=True,
        fixed_by="none",
        doc="Runner that prepares the data, with the same result byte for byte. "
        "Empty means this machine's cores. Runners of Apache Beam ('.[beam]') "
        "are FnApiRunner (embedded), FlinkRunner, SparkRunner and "
        "DataflowRunner (docs/data.md).",
    ),
    "corpus.beam_options": Field(
        (),
        machine=True,
        fixed_by="none",
        doc='Options of Apache Beam, such as ("--direct_num_workers=4",)',
    ),
    "corpus.max_seq_length": Field(
        128, LENGTH, doc="Tokens of a row, special ones included"
    ),
    "corpus.short_seq_prob": Field(
        0.1,
        SHARE,
        doc="Fraction of sentence pairs that get a random shorter length "
        "(create_pretraining_data.py).",
    ),
    "corpus.max_document_bytes": Field(
        30_000,
        doc="Maximum UTF-8 bytes (some 5,000 words, fifty rows of 128): a longer "
        "document is cut at ends of paragraphs. 0 means never. Short rows are "
        "drawn once per document (in Google's code once per copy, of ten), so "
        "an uncut book could have only short rows.",
    ),
    "corpus.seed": Field(
        0,
        doc="Seed of the vocabulary's sample, the sentence pairs, the held-out "
        "documents and dev's masks. Runs with different `seed` share these, "
        "so their losses are comparable.",
    ),
    "corpus.dev_fraction": Field(
        0.005,
        "(0, 1)",
        doc="Fraction of the documents held out as dev, always whole documents: "
        "at least two, or one of fewer than four.",
    ),
    "corpus.nsp": Field(
        True,
        doc="Whether rows are sentence pairs, with the next sentence loss. False "
        "means running text, without either.",
    ),
    "corpus.full_sentences": Field(
        False,
        doc="Whether rows are whole sentences from one or more documents (Liu et "
        "al. 2019). It needs corpus.nsp=False.",
    ),
    "corpus.packing": Field(
        False,
        doc="Whether training rows have several sentence pairs that do not attend "
        "to each other, instead of one pair and padding (Krell et al. 2021). "
        "Batch sizes then count rows.",
    ),
    "corpus.packed_pairs": Field(
        4, "[1, 64]", doc="Maximum number of pairs or texts in a row of corpus.packing"
    ),
    "corpus.shift_positions": Field(
        False,
        doc="Whether the positions of each row of corpus.packing begin at a "
        "random one, drawn again in each epoch, so that short rows train all "
        "position embeddings (Kiyono et al. 2021).",
    ),
    "masking.name": Field(
        "bert",
        registry.MASKINGS,
        doc="Masking: bert (by the other fields), or a custom one",
    ),
    "masking.masked_lm_prob": Field(
        0.15,
        "(0, 1]",
        doc="Fraction of a sequence's tokens to predict, up to max_predictions_per_seq",
    ),
    "masking.max_predictions_per_seq": Field(
        20, SIZE, doc="Maximum number of a sequence's tokens to predict"
    ),
    "masking.whole_word": Field(
        False, doc="Whether all tokens of a word are chosen together"
    ),
    "masking.mask_fraction": Field(
        0.8, SHARE, doc="Fraction of the predicted tokens that become [MASK]"
    ),
    "masking.random_fraction": Field(
        0.1,
        SHARE,
        doc="Fraction of the predicted tokens that become a random token. Those "
        "that become neither this nor [MASK] stay as they are.",
    ),
    "phase2.fraction": Field(
        0.0, "[0, 1)", doc="Fraction of train.num_steps in phase 2. 0 means one phase."
    ),
    "phase2.max_seq_length": Field(512, LENGTH, doc="Tokens of a row in phase 2"),
    "phase2.max_predictions_per_seq": Field(
        77, SIZE, doc="Maximum number of tokens to predict in a row of phase 2"
    ),
    "phase2.micro_batches": Field(
        1, COUNT, doc="Parts of each step's batch in phase 2"
    ),
    "phase2.batch_size": Field(
        0, doc="Sequences in a batch of phase 2. 0 means train.batch_size."
    ),
    "phase2.learning_rate": Field(
        0.0,
        doc="Peak of a schedule for the second phase alone, up from 0 and down "
        "again, as LAMB's authors use for another batch size. 0 means to "
        "continue the first phase's schedule.",
    ),
    "phase2.warmup_steps": Field(0, doc="Steps of warm-up to phase2.learning_rate"),
    "optimizer.name": Field(
        "bert_adam",
        registry.OPTIMIZERS,
        doc="Optimizer: bert_adam (as published: no bias correction), adamw, "
        "lamb, muon (for the encoder's matrices, adamw for the rest: fewer "
        "steps for small models), stable_adamw, openai_adam (GPT's), or a "
        "custom one (docs/extending.md).",
    ),
    "optimizer.schedule": Field(
        "polynomial",
        registry.SCHEDULES,
        doc="Schedule of the learning rate: polynomial (warm-up, decay), "
        "warmup_stable_decay (the peak between them), GPT's openai_linear and "
        "openai_cosine, or a custom one.",
    ),
    "optimizer.learning_rate": Field(1e-4, doc="Peak of the learning rate"),
    "optimizer.warmup_steps": Field(
        10_000,
        doc="Steps of linear warm-up from 0. Set this or "
        "optimizer.warmup_fraction, the other one is 0.",
    ),
    "optimizer.warmup_fraction": Field(
        0.0, SHARE, doc="Fraction of steps that is warm-up, if warmup_steps is 0"
    ),
    "optimizer.decay_fraction": Field(
        0.1,
        SHARE,
        doc="Fraction of steps that decays, in schedule=warmup_stable_decay: by 1 less "
        "the square root of the part that has passed",
    ),
    "optimizer.decay_power": Field(
        1.0, doc="Power of the fraction of steps left in the rate. 1 means linear."
    ),
    "optimizer.weight_decay": Field(
        0.01,
        doc="Weight decay, which is multiplied by the learning rate. Biases and "
        "arrays of one axis do not decay.",
    ),
    "optimizer.beta1": Field(0.9, "[0, 1)", doc="Decay of the gradients' running mean"),
    "optimizer.beta2": Field(
        0.999, "[0, 1)", doc="Decay of the squared gradients' running mean"
    ),
    "optimizer.eps": Field(1e-6, doc="Number added to the root of the squares' mean"),
    "optimizer.clip_norm": Field(
        1.0, doc="Largest norm of the whole gradient. 0 means no clipping."
    ),
    "optimizer.ema": Field(
        0.0,
        "[0, 1)",
        doc="Decay of the parameters' running mean, such as 0.999, which is then "
        "evaluated, saved and exported. 0 means the parameters themselves.",
    ),
    "optimizer.trainable": Field(
        (),
        _patterns,
        doc="Parameters that learn, by patterns (regular expressions) found in "
        'their paths, not inside a number: ("attention", "layer_1", '
        '"sequence_classification"). Empty means all.',
    ),
    "optimizer.frozen": Field(
        (),
        doc="Parameters that do not learn, by the beginning of their path: "
        '("bert/embeddings", "bert/encoder/layer_0"). They have no moments, '
        "and no part in the gradient's norm.",
    ),
    "train.num_steps": Field(
        1_000_000, doc="Updates of the parameters. 0 means that num_epochs decides."
    ),
    "train.num_epochs": Field(
        0.0, "[0, 1000000]", doc="Passes over the training data, for fine-tuning"
    ),
    "train.extend": Field(
        False,
        fixed_by="none",
        doc="Whether train.num_steps or train.num_epochs may be larger than "
        "before when a run resumes. The learning rate then follows the "
        "schedule of the new length from the step where the run resumes.",
    ),
    "train.branch_from": Field(
        "",
        path=True,
        doc="Run whose whole state this one begins with (parameters, moments, "
        "counts): its folder, RUN, or one of its checkpoints, RUN@STEP. Schedule, "
        "data, batches and lengths may differ. Empty means none.",
    ),
    "train.branch_step": Field(
        "continue",
        ("continue", "zero"),
        doc="First step of a branch, for its schedule and its data: continue (the "
        "other run's), or zero",
    ),
    "train.batch_size": Field(
        256, COUNT, doc="Sequences (with corpus.packing, rows) over all devices"
    ),
    "train.micro_batches": Field(
        1,
        COUNT,
        doc="Parts of each step's batch, computed one after the other to save "
        "memory (gradient accumulation). The result is that of the whole "
        "batch, only dropout differs.",
    ),
    "train.phases": Field(
        (),
        doc="Phases of pre-training, one text each, such as 'fraction=0.9' and "
        "'corpus.max_seq_length=512 train.batch_size=64'. Each has steps or a fraction "
        "of train.num_steps (one without either has the rest), and fields that differ: "
        "train.batch_size, train.micro_batches, corpus.max_seq_length, corpus.weights, "
        "masking.*, and with a schedule of its own optimizer.learning_rate, schedule, "
        "warmup_* and decay_*. Empty means one phase, or the two of phase2.",
    ),
    "train.log_every": Field(
        100, COUNT, fixed_by="none", doc="Steps between two logged steps"
    ),
    "train.transforms": Field(
        (),
        registry.TRANSFORMS,
        doc="Changes to the loss or its gradient, in this order (docs/extending.md)",
    ),
    "train.watch": Field(
        0,
        fixed_by="none",
        doc="Steps between two of which the log has the numbers of train.watchers, as "
        "the split watch. 0 means never.",
    ),
    "train.watchers": Field(
        ("norms",),
        registry.WATCHERS,
        fixed_by="none",
        doc="Numbers that train.watch logs: norms (of each parameter, its gradient and "
        "its update), or custom ones (docs/extending.md)",
    ),
    "train.trackers": Field(
        (),
        ("wandb", "mlflow"),
        machine=True,
        fixed_by="none",
        doc="Services that get the metrics too: wandb, mlflow ('.[wandb]', "
        "'.[mlflow]'). Empty means only metrics.jsonl and TensorBoard's files "
        "in the work directory.",
    ),
    "train.profile_steps": Field(
        (),
        _check_rising,
        items=int,
        machine=True,
        fixed_by="none",
        doc="Steps whose profile to write to `profile` in the work directory, "
        "such as (10, 15): after ten steps, until fifteen are done. Empty "
        "means none.",
    ),
    "train.eval_every": Field(
        10_000, doc="Steps between evaluations. 0 means only at the end."
    ),
    "train.eval_every_epoch": Field(
        False, doc="Whether dev is evaluated at the end of each epoch too (fine-tuning)"
    ),
    "train.early_stop": Field(
        0,
        doc="Evaluations without a better score, counted per phase, after which "
        "the run stops. 0 means never. The last checkpoint is the result, "
        "unless evaluate.checkpoint is best.",
    ),
    "train.seeds": Field(
        1, COUNT, doc="Runs trained in one program, with seed, seed + 1, ..."
    ),
    "train.on_anomaly": Field(
        "stop",
        ("stop", "skip"),
        fixed_by="none",
        doc="Reaction to a loss that is not finite: end the run (stop) or drop "
        "the batch (skip)",
    ),
    "train.deterministic": Field(
        True,
        fixed_by="none",
        doc="Whether GPUs sum gradients in one order (docs/devices.md)",
    ),
    "evaluate.batch_size": Field(
        256, COUNT, fixed_by="none", doc="Sequences of a batch, over all devices"
    ),
    "evaluate.splits": Field(
        ("dev",),
        duplicate_error,
        fixed_by="none",
        doc="Splits to evaluate: dev, test and any others in the task's data. In "
        "pre-training dev and other texts, named as in corpus.sources.",
    ),
    "evaluate.checkpoint": Field(
        "last",
        ("last", "best"),
        fixed_by="none",
        doc="Checkpoint for the final predictions, `predict` and `export`: last, "
        "or best (best score on dev, where of two phases only the second "
        "counts, because losses at different lengths are not comparable).",
    ),
    "evaluate.score": Field(
        "",
        fixed_by="training",
        doc="Score on dev that decides which checkpoint is best and when "
        "train.early_stop ends the run: any that the task reports, such as "
        "macro_f1 or f1:spam (of the class spam). Empty means the task's main "
        "score.",
    ),
    "checkpoint.save_every": Field(
        5_000,
        COUNT,
        fixed_by="none",
        doc="Steps between checkpoints. The last step is saved too.",
    ),
    "checkpoint.keep": Field(
        3, COUNT, fixed_by="none", doc="Number of newest checkpoints to keep"
    ),
    "checkpoint.keep_every": Field(
        0,
        fixed_by="none",
        doc="Steps at whose multiples checkpoints are never deleted. 0 means none.",
    ),
    "predict.top_k": Field(5, COUNT, fixed_by="none", doc="Guesses for each [MASK]"),
    "predict.reasons": Field(
        0,
        fixed_by="none",
        doc="Words of each text whose score says how much they speak for its class or "
        "number (gradient x input), the strongest first. 0 means none.",
    ),
    "predict.labels": Field(
        (),
        duplicate_error,
        fixed_by="none",
        doc="Classes that a model of natural language inference was not trained on "
        "(zero-shot). Empty means the model's own.",
    ),
    "predict.hypothesis": Field(
        "This example is {}.",
        fixed_by="none",
        doc="Sentence that a text of a class entails, with {} for a name of "
        "predict.labels",
    ),
    "predict.batch_size": Field(
        32,
        COUNT,
        fixed_by="none",
        machine=True,
        doc="Rows computed together, on a CPU at most 16",
    ),
    "predict.layers": Field(
        (-1, -2, -3, -4),
        empty_error,
        items=int,
        fixed_by="none",
        doc="Layers that --mode=extract writes: 0 is the embeddings' output, 1, "
        "2, ... are the layers, -1 is the last layer and -2 the one before.",
    ),
    "predict.combine": Field(
        "none",
        ("none", "concatenated", "sum", "mean"),
        fixed_by="none",
        doc="Combination of the layers in --mode=extract: none (each layer's "
        "vectors), or into one vector: concatenated, sum or mean.",
    ),
    "predict.vectors": Field(
        "pieces",
        ("pieces", "words", "words_mean", "cls", "mean"),
        fixed_by="none",
        doc="Units that get a vector in --mode=extract: each token (pieces), each "
        "word (words, its first token's; or words_mean, its tokens' mean), "
        "or the whole text (cls, that of [CLS]; or mean, its tokens' mean).",
    ),
    "serve.hosts": Field(
        (),
        fixed_by="none",
        machine=True,
        doc="Names by which clients may call --mode=serve, in addition to --host, "
        "localhost and addresses, such as the name of a proxy or of this "
        "machine.",
    ),
    "serve.grace_seconds": Field(
        10.0,
        "[0, 86400]",
        fixed_by="none",
        machine=True,
        doc="Seconds from SIGTERM to the end, for requests in progress",
    ),
    "mesh.data": Field(
        -1,
        "[-1, inf)",
        fixed_by="none",
        machine=True,
        doc="Devices that split the batch. -1 means all that the other axes leave.",
    ),
    "mesh.fsdp": Field(
        1,
        "[-1, inf)",
        fixed_by="none",
        machine=True,
        doc="Devices that split the batch, parameters and optimizer state",
    ),
    "mesh.tensor": Field(
        1,
        "[-1, inf)",
        fixed_by="none",
        machine=True,
        doc="Devices that split heads, intermediate size and vocabulary",
    ),
    "mesh.optimizer": Field(
        "as_parameters",
        ("as_parameters", "zero1"),
        fixed_by="none",
        machine=True,
        doc="Division of the optimizer's state: as_parameters (like the "
        "parameters), or zero1 (over data too)",
    ),
}


def check_together(config: ConfigDict) -> None:
    """Raises UserError if values of several fields do not fit each other."""
    masking, train, saved = config.masking, config.train, config.checkpoint
    corpus, last_seed = config.corpus, config.seed + config.train.seeds - 1
    weights = f"config.corpus.weights={tuple(corpus.weights)}"
    if last_seed > INT32:
        raise UserError(
            f"config.seed={config.seed}: config.train.seeds={train.seeds} uses seeds "
            f"up to {last_seed}; the largest seed is {INT32}"
        )
    if masking.mask_fraction + masking.random_fraction > 1:
        raise UserError(
            f"config.masking.mask_fraction={masking.mask_fraction} and "
            f"random_fraction={masking.random_fraction} add up to more than 1"
        )
    if corpus.weights and len(corpus.weights) != len(corpus.sources):
        raise UserError(
            f"{weights}: one for each of the {len(corpus.sources)} "
            "config.corpus.sources"
        )
    if corpus.weights and not any(corpus.weights):
        raise UserError(f"{weights}: one must be above 0")
    if corpus.weights and corpus.packing:
        raise UserError(
            f"{weights}: not with config.corpus.packing, whose rows have pairs of "
            "several sources"
        )
    if corpus.full_sentences and (corpus.nsp or corpus.packing or corpus.weights):
        raise UserError(
            "config.corpus.full_sentences=True: fills rows with text of any document; "
            "set --config.corpus.nsp=False, and leave packing and weights out"
        )
    if corpus.shift_positions and not corpus.packing:
        raise UserError(
            "config.corpus.shift_positions=True: shifts packed rows; set "
            "--config.corpus.packing=True too"
        )
    if config.init_layers and not config.init_from:
        raise UserError(
            f"config.init_layers={tuple(config.init_layers)}: are layers of "
            "config.init_from, which is empty; set that, or model.num_hidden_layers"
        )
    if saved.keep_every % saved.save_every:
        raise UserError(
            f"config.checkpoint.keep_every={saved.keep_every}: must be a multiple of "
            f"config.checkpoint.save_every={saved.save_every}, or 0"
        )
