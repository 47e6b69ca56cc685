"""Every field of a run, once, with its unit and where its value comes from.

The values are those of BERT-Base's pre-training (Devlin et al. 2019, section 3.1 and
appendix A.2; google-research/bert, README.md and run_pretraining.py). The other files
of this folder change only what differs.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0  # of parameters, dropout, training order and training masks

    # A work directory, a Hugging Face folder or one of Google's checkpoints to begin
    # with; empty: random values.
    config.init_from = ""

    config.model = _model()
    config.tokenizer = _tokenizer()
    config.corpus = _corpus()
    config.masking = _masking()
    config.phase2 = _phase2()
    config.task = _task()
    config.optimizer = _optimizer()
    config.train = _train()
    config.evaluate = _evaluate()
    config.checkpoint = _checkpoint()
    config.predict = _predict()
    config.mesh = _mesh()
    return config


def _model() -> ConfigDict:
    """Named as in bert_config.json."""
    model = ConfigDict()
    model.vocab_size = 0  # rows of the embedding matrix; 0: the tokenizer's size
    model.hidden_size = 768
    model.num_hidden_layers = 12
    model.num_attention_heads = 12
    model.intermediate_size = 3072
    model.max_position_embeddings = 512
    model.type_vocab_size = 2
    model.hidden_act = "gelu"  # gelu (by erf, as released in 2018), gelu_tanh or relu
    model.hidden_dropout_prob = 0.1
    model.attention_probs_dropout_prob = 0.1
    model.initializer_range = 0.02  # stddev of the truncated normal
    model.layer_norm_eps = 1e-12
    # What bert_config.json does not say.
    model.dtype = "float32"  # of the matmuls: float32 or bfloat16
    model.attention = "einsum"  # the implementation, by name
    # What is computed again in the backward pass, to save memory: none; full (all of
    # each layer), dots (what is between its matrix products, and attention).
    model.remat = "none"
    model.scan_layers = False  # one compiled layer, parameters stacked
    return model


def _tokenizer() -> ConfigDict:
    tokenizer = ConfigDict()
    tokenizer.vocab_file = ""  # a vocab.txt or tokenizer.json; empty: train one
    tokenizer.vocab_size = 30522  # pieces to train, special tokens included
    tokenizer.lowercase = True  # and strip accents, as the uncased models do
    tokenizer.sample_bytes = 30_000_000  # of text, drawn evenly, to train it on
    return tokenizer


def _corpus() -> ConfigDict:
    corpus = ConfigDict()
    # sentences:GLOB, text:GLOB, jsonl:GLOB, tfds:NAME, pydocs
    corpus.sources = ("tfds:wikipedia/20230601.en", "tfds:pg19")
    corpus.language = "en"  # whose rules split sentences
    corpus.data_dir = "data"  # prepared data goes here
    corpus.max_seq_length = 128  # tokens, [CLS] and [SEP] included
    corpus.short_seq_prob = 0.1  # create_pretraining_data.py
    # UTF-8 bytes (some 5,000 words, fifty rows of 128) above which a document is cut at
    # ends of paragraphs; 0: never. Whether rows are short is drawn once for a document,
    # in Google's code for each of ten copies; a book would be short rows throughout.
    corpus.max_document_bytes = 30_000
    # Of the vocabulary's sample, the sentence pairs, the documents held back and dev's
    # masks: runs of another `seed` share them, so that their losses compare.
    corpus.seed = 0
    corpus.dev_fraction = 0.005  # of the documents, held back whole
    corpus.nsp = True  # sentence pairs and the next sentence loss
    return corpus


def _masking() -> ConfigDict:
    masking = ConfigDict()
    masking.masked_lm_prob = 0.15  # of the tokens are predicted
    masking.max_predictions_per_seq = 20  # 20 at length 128, 77 at 512
    masking.whole_word = False  # a word's pieces are chosen together
    masking.mask_fraction = 0.8  # of the predicted become [MASK]
    masking.random_fraction = 0.1  # become a random piece; the rest stay
    return masking


def _phase2() -> ConfigDict:
    """The last steps at another length (appendix A.2: 90% at 128, 10% at 512)."""
    phase2 = ConfigDict()
    phase2.fraction = 0.0  # of train.num_steps; 0: one phase
    phase2.max_seq_length = 512
    phase2.max_predictions_per_seq = 77
    phase2.micro_batches = 1
    phase2.batch_size = 0  # sequences; 0: train.batch_size
    # A schedule of the phase's own, from 0 up and down again, as LAMB's authors have it
    # for another batch size; 0: the first phase's goes on.
    phase2.learning_rate = 0.0
    phase2.warmup_steps = 0  # of its own schedule
    return phase2


def _task() -> ConfigDict:
    task = ConfigDict()
    task.name = "pretraining"
    return task


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    optimizer.name = "bert_adam"  # bert_adam (no bias correction), adamw or lamb
    optimizer.learning_rate = 1e-4
    optimizer.warmup_steps = 10_000  # either this ...
    optimizer.warmup_fraction = 0.0  # ... or this share of num_steps; the other 0
    optimizer.decay_power = 1.0  # of the share of the steps left; 1: linear
    optimizer.weight_decay = 0.01  # not on biases and LayerNorm
    optimizer.beta1 = 0.9
    optimizer.beta2 = 0.999
    optimizer.eps = 1e-6
    optimizer.clip_norm = 1.0  # global norm; 0: no clipping
    return optimizer


def _train() -> ConfigDict:
    train = ConfigDict()
    train.num_steps = 1_000_000  # 0: by num_epochs
    train.num_epochs = 0.0  # passes over the training data, of a fine-tuning task
    train.batch_size = 256  # sequences, over all devices
    train.micro_batches = 1  # a step's batch in so many parts, one after the other
    train.log_every = 100  # steps
    train.eval_every = 10_000  # steps; 0: only at the end
    train.eval_every_epoch = False  # and where an epoch ends (fine-tuning)
    # Evaluations without a better score end a run, counted in each phase; 0: none do.
    # Its result is the last checkpoint's, unless evaluate.checkpoint says best.
    train.early_stop = 0
    train.restarts = 0  # times a run that collapsed begins anew, with the next seed
    train.seeds = 1  # runs in one program, with the seeds seed, seed + 1, ...
    # What happens where a loss is not finite or a spike: the run ends (stop), the batch
    # is left out (skip), or all batches since the last checkpoint are (roll_back).
    train.on_anomaly = "stop"
    # A loss or gradient norm so many times its running mean is a spike; 0: none is.
    train.spike_factor = 0.0
    train.stall_seconds = 300.0  # without progress bring a warning; 0: never
    return train


def _evaluate() -> ConfigDict:
    evaluate = ConfigDict()
    evaluate.batch_size = 256  # sequences, over all devices
    evaluate.splits = ("dev",)
    # Which checkpoint the final predictions, `predict` and `export` take: last, or
    # best, the one with the best score on dev (of two phases, among the last one's:
    # losses at two lengths do not compare).
    evaluate.checkpoint = "last"
    return evaluate


def _checkpoint() -> ConfigDict:
    checkpoint = ConfigDict()
    checkpoint.save_every = 5_000  # steps
    checkpoint.keep = 3  # newest checkpoints
    checkpoint.keep_every = 0  # steps: those at its multiples stay for good; 0: none
    return checkpoint


def _predict() -> ConfigDict:
    predict = ConfigDict()
    predict.top_k = 5  # guesses for each [MASK]
    predict.batch_size = 32
    return predict


def _mesh() -> ConfigDict:
    """Devices along each axis; -1: what is left."""
    mesh = ConfigDict()
    mesh.data = -1  # the batch is split
    mesh.fsdp = 1  # the batch, parameters and optimizer state are split
    mesh.tensor = 1  # heads, intermediate size and vocabulary are split
    mesh.optimizer = "as_parameters"  # or zero1: its state is split over data too
    return mesh
