"""Every field of a run, once, with its unit and the source of its value.

The values are those of BERT-Base's pre-training (Devlin et al. 2019, section 3.1 and
appendix A.2; google-research/bert, README.md and run_pretraining.py). The other files
of this folder change only what differs.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0  # of parameters, dropout, training order and training masks

    # A work directory, a Hugging Face folder or a Google checkpoint to start from;
    # empty: random values.
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
    # Not in bert_config.json.
    model.dtype = "float32"  # of the matmuls: float32 or bfloat16
    # The implementation: einsum; or fused (one kernel, for GPUs: faster and smaller;
    # equal but for rounding).
    model.attention = "einsum"
    # What the backward pass recomputes, to save memory: none; full (all of each
    # layer); dots (everything between its matrix products, and attention).
    model.remat = "none"
    model.scan_layers = False  # one compiled layer, parameters stacked
    # Each position sees those before it only; pre-training sets it (task.objective).
    model.causal = False
    return model


def _tokenizer() -> ConfigDict:
    tokenizer = ConfigDict()
    tokenizer.vocab_file = ""  # a vocab.txt or tokenizer.json; empty: train one
    tokenizer.vocab_size = 30522  # pieces to train, special tokens included
    tokenizer.lowercase = True  # and strip accents, as the uncased models do
    # False: keep accents in lower-cased text. Stripping them decomposes characters: it
    # takes Korean syllables apart, and drops marks that are letters in other scripts.
    tokenizer.strip_accents = True
    tokenizer.sample_bytes = 30_000_000  # of text, sampled evenly, to train it on
    return tokenizer


def _corpus() -> ConfigDict:
    corpus = ConfigDict()
    # sentences:, paragraphs:, lines:, text:, jsonl:, parquet: or wikiextractor:GLOB,
    # hf:NAME, tfds:NAME, pydocs (docs/pretraining.md)
    corpus.sources = ("tfds:wikipedia/20230601.en", "tfds:pg19")
    corpus.language = "en"  # splits sentences by its rules
    corpus.data_dir = "data"  # prepared data goes here
    corpus.max_seq_length = 128  # tokens, [CLS] and [SEP] included
    corpus.short_seq_prob = 0.1  # create_pretraining_data.py
    # Maximum UTF-8 bytes (some 5,000 words, fifty rows of 128): a longer document is
    # cut at ends of paragraphs; 0: never. Short rows are drawn once per document (in
    # Google's code once per copy, of ten), so an uncut book could have only short rows.
    corpus.max_document_bytes = 30_000
    # For the vocabulary's sample, the sentence pairs, the held-out documents and dev's
    # masks. Runs with different `seed` share them, so their losses are comparable.
    corpus.seed = 0
    corpus.dev_fraction = 0.005  # of the documents, held back whole
    corpus.nsp = True  # sentence pairs and the next sentence loss
    # Training rows of up to four sentence pairs that do not see each other, instead of
    # one and padding (Krell et al. 2021); then batch sizes count these rows.
    corpus.packing = False
    return corpus


def _masking() -> ConfigDict:
    masking = ConfigDict()
    masking.masked_lm_prob = 0.15  # share of tokens to predict
    masking.max_predictions_per_seq = 20  # 20 at length 128, 77 at 512
    masking.whole_word = False  # True: choose all pieces of a word together
    masking.mask_fraction = 0.8  # share of the predicted tokens that become [MASK]
    masking.random_fraction = 0.1  # share that become a random piece; the rest stay
    return masking


def _phase2() -> ConfigDict:
    """The last steps at another length (appendix A.2: 90% at 128, 10% at 512)."""
    phase2 = ConfigDict()
    phase2.fraction = 0.0  # of train.num_steps; 0: one phase
    phase2.max_seq_length = 512
    phase2.max_predictions_per_seq = 77
    phase2.micro_batches = 1
    phase2.batch_size = 0  # sequences; 0: train.batch_size
    # Peak of the phase's own schedule, up from 0 and down again, as LAMB's authors use
    # for another batch size; 0: continue the first phase's schedule.
    phase2.learning_rate = 0.0
    phase2.warmup_steps = 0  # of the phase's own schedule
    return phase2


def _task() -> ConfigDict:
    task = ConfigDict()
    task.name = "pretraining"
    # mlm: predict masked pieces. ltr (section 5.1, "LTR & No NSP"): predict each piece
    # from those before it; nothing is masked, and there is no next sentence loss.
    task.objective = "mlm"
    # False: sentence pairs as ever, without their loss; corpus.nsp=False: no pairs.
    task.nsp_loss = True
    return task


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    optimizer.name = "bert_adam"  # bert_adam (no bias correction), adamw or lamb
    optimizer.schedule = "polynomial"  # of the rate; warm-up, then decay
    optimizer.learning_rate = 1e-4
    optimizer.warmup_steps = 10_000  # set this, or ...
    optimizer.warmup_fraction = 0.0  # ... this share of num_steps; the other one is 0
    optimizer.decay_power = 1.0  # rate ~ (share of steps left) ** power; 1: linear
    optimizer.weight_decay = 0.01  # not on biases and LayerNorm
    optimizer.beta1 = 0.9
    optimizer.beta2 = 0.999
    optimizer.eps = 1e-6
    optimizer.clip_norm = 1.0  # global norm; 0: no clipping
    return optimizer


def _train() -> ConfigDict:
    train = ConfigDict()
    train.num_steps = 1_000_000  # 0: num_epochs decides
    train.num_epochs = 0.0  # passes over the training data; for fine-tuning
    # On resuming, num_steps or num_epochs may be larger than before. The learning rate
    # then follows the schedule of the new length from the step where the run resumes.
    train.extend = False
    train.batch_size = 256  # sequences (corpus.packing: rows), over all devices
    train.micro_batches = 1  # sequential parts of each step's batch
    train.log_every = 100  # steps
    train.eval_every = 10_000  # steps; 0: only at the end
    train.eval_every_epoch = False  # also at the end of each epoch (fine-tuning)
    # Stop after this many evaluations without a better score, counted per phase; 0:
    # never. The last checkpoint is the result, unless evaluate.checkpoint is best.
    train.early_stop = 0
    train.restarts = 0  # maximum restarts of a collapsed run, each with the next seed
    train.seeds = 1  # runs in one program, with the seeds seed, seed + 1, ...
    # When a loss is not finite, or a spike: end the run (stop), drop the batch (skip),
    # or drop all batches since the last checkpoint (roll_back).
    train.on_anomaly = "stop"
    # A loss or gradient norm above this times its running mean is a spike; 0: never.
    train.spike_factor = 0.0
    train.stall_seconds = 300.0  # warn after this long without progress; 0: never
    return train


def _evaluate() -> ConfigDict:
    evaluate = ConfigDict()
    evaluate.batch_size = 256  # sequences, over all devices
    evaluate.splits = ("dev",)
    # The checkpoint for the final predictions, `predict` and `export`: last, or best
    # (best score on dev; with two phases only the second counts, because losses at
    # different lengths are not comparable).
    evaluate.checkpoint = "last"
    return evaluate


def _checkpoint() -> ConfigDict:
    checkpoint = ConfigDict()
    checkpoint.save_every = 5_000  # steps
    checkpoint.keep = 3  # number of newest checkpoints to keep
    checkpoint.keep_every = 0  # steps: also keep checkpoints at its multiples; 0: none
    return checkpoint


def _predict() -> ConfigDict:
    predict = ConfigDict()
    predict.top_k = 5  # guesses for each [MASK]
    predict.batch_size = 32
    # Beside the answers, write who attends to whom to NAME.safetensors and NAME.html.
    predict.attentions = ""
    # The layers that --mode=extract writes: 0 is the embeddings' output, 1, 2, ... are
    # the layers; -1 is the last layer, -2 the one before.
    predict.layers = (-1, -2, -3, -4)
    # What it makes of them: each layer's vectors (none), or vectors that are
    # concatenated, their sum or their mean.
    predict.combine = "none"
    # What it gives a vector: the pieces; the words (that of their first piece, or
    # words_mean, the mean of theirs); or the whole text (cls, or its pieces' mean).
    predict.vectors = "pieces"
    return predict


def _mesh() -> ConfigDict:
    """Devices along each axis; -1: all that are left."""
    mesh = ConfigDict()
    mesh.data = -1  # splits the batch
    mesh.fsdp = 1  # splits the batch, parameters and optimizer state
    mesh.tensor = 1  # splits heads, intermediate size and vocabulary
    mesh.optimizer = "as_parameters"  # or zero1: split its state over data too
    return mesh
