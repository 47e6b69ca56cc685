"""Every field of a run, once, with its unit and the source of its value.

The values are those of BERT-Base's pre-training (Devlin et al. 2019, section 3.1 and
appendix A.2; google-research/bert, README.md and run_pretraining.py). The other files
of this folder change only what differs.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0  # of initial parameters, dropout, training order and masks

    # Weights to start from: a work directory, a Hugging Face folder, a checkpoint of
    # Google's, or hf:OWNER/NAME (docs/weights.md). The model's sizes and the tokenizer
    # are then theirs. Empty: random values.
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
    config.serve = _serve()
    config.mesh = _mesh()
    return config


def _model() -> ConfigDict:
    """Up to layer_norm_eps as in bert_config.json, except position_initializer."""
    model = ConfigDict()
    model.vocab_size = 0  # rows of the embedding matrix; 0: the tokenizer's size
    model.hidden_size = 768  # numbers in each token's vector
    model.num_hidden_layers = 12  # layers of the Transformer
    model.num_attention_heads = 12  # of each layer; they must divide hidden_size
    model.intermediate_size = 3072  # inside each feed-forward block; 4 x hidden_size
    model.max_position_embeddings = 512  # the longest sequence, in tokens
    model.type_vocab_size = 2  # segments: a first and a second text
    model.hidden_act = "gelu"  # gelu (by erf, as released in 2018), gelu_tanh or relu
    model.hidden_dropout_prob = 0.1  # share dropped of embeddings and outputs
    model.attention_probs_dropout_prob = 0.1  # share dropped of attention's weights
    model.initializer_range = 0.02  # standard deviation of random initial values
    # Initial values of the learnt position embeddings: normal (as the others), or
    # sinusoidal, from which a small model learns sooner to look beside a gap.
    model.position_initializer = "normal"
    model.layer_norm_eps = 1e-12  # added to the variance in LayerNorm
    # Of the matrix products: float32, or bfloat16 (faster on TPUs and GPUs; parameters,
    # softmax and losses stay float32).
    model.dtype = "float32"
    # Its implementation, with the same numbers but for rounding: einsum; fused (one
    # kernel, faster and in less memory, on GPUs and TPUs); or cudnn (NVIDIA's, in
    # bfloat16, where attention_probs_dropout_prob is 0).
    model.attention = "einsum"
    # How bias, activation, dropout, residual and LayerNorm are computed, which follow
    # the encoder's matrix products: xla, or fused (a kernel each way, on GPUs).
    model.epilogue = "xla"
    model.layer = "post_norm"  # or one of your own (docs/extending.md)
    model.positions = "learnt"  # a vector for each, or a way of your own
    # What the backward pass recomputes, to save memory: none; full (all of each
    # layer); dots (everything between its matrix products, and attention).
    model.remat = "none"
    # Compile one layer and loop over it: compiles faster, may run slower.
    model.scan_layers = False
    # bert, or another folder of families/, by its name; configs/NAME.py and
    # configs/finetune/ with model=NAME set it.
    model.architecture = "bert"
    # Each position sees only those before it. task.objective=ltr sets it, and a run
    # from such weights takes it from them; leave it as it is.
    model.causal = False
    return model


def _tokenizer() -> ConfigDict:
    tokenizer = ConfigDict()
    # A vocab.txt or tokenizer.json. Empty: that of init_from, or else train one on the
    # corpus.
    tokenizer.vocab_file = ""
    # Pieces of a vocabulary that is trained, special tokens included.
    tokenizer.vocab_size = 30522
    tokenizer.lowercase = True  # as the uncased models; False: as the cased ones
    # With lowercase: also strip accents, as the uncased models do. This decomposes
    # characters: it takes Korean syllables apart, and drops marks that are letters in
    # other scripts. False: keep them.
    tokenizer.strip_accents = True
    # Bytes of text, sampled evenly from the corpus, to train a vocabulary on.
    tokenizer.sample_bytes = 30_000_000
    return tokenizer


def _corpus() -> ConfigDict:
    corpus = ConfigDict()
    # The text: one or more of sentences:GLOB, paragraphs:GLOB, lines:GLOB, text:GLOB,
    # jsonl:GLOB, parquet:GLOB, wikiextractor:GLOB, hf:NAME, tfds:NAME, pydocs
    # (docs/data.md).
    corpus.sources = ("hf:wikimedia/wikipedia:20231101.en", "hf:emozilla/pg19")
    # How often a row of each source is seen, beside one of weight 1: (2.0, 1.0) shows
    # those of the first source twice as often (docs/data.md). Empty: all alike.
    corpus.weights = ()
    corpus.language = "en"  # whose rules split sentences: a code such as en, de or ko
    corpus.data_dir = "data"  # the folder for prepared data; runs may share it
    # What prepares the data; the result is the same to the byte. Empty: this machine's
    # cores. A runner of Apache Beam ('.[beam]'): FnApiRunner (embedded), FlinkRunner,
    # SparkRunner, DataflowRunner (docs/data.md).
    corpus.runner = ""
    corpus.beam_options = ()  # Beam's own, such as ("--direct_num_workers=4",)
    corpus.max_seq_length = 128  # tokens, [CLS] and [SEP] included
    # Share of sentence pairs with a random shorter length (create_pretraining_data.py).
    corpus.short_seq_prob = 0.1
    # Maximum UTF-8 bytes (some 5,000 words, fifty rows of 128): a longer document is
    # cut at ends of paragraphs; 0: never. Short rows are drawn once per document (in
    # Google's code once per copy, of ten), so an uncut book could have only short rows.
    corpus.max_document_bytes = 30_000
    # For the vocabulary's sample, the sentence pairs, the held-out documents and dev's
    # masks. Runs with different `seed` share them, so their losses are comparable.
    corpus.seed = 0
    # Share of the documents held out as dev, whole; at least two, or one of fewer than
    # four.
    corpus.dev_fraction = 0.005
    # Sentence pairs and the next sentence loss; False: running text, without either.
    corpus.nsp = True
    # Without pairs: rows of whole sentences of one or more documents (Liu et al. 2019).
    corpus.full_sentences = False
    # Training rows of several sentence pairs that do not see each other, instead of one
    # and padding (Krell et al. 2021); then batch sizes count these rows.
    corpus.packing = False
    # With packing: the most pairs (or, without them, texts) of a row.
    corpus.packed_pairs = 4
    # With packing: each training row's positions begin at a random one, anew in each
    # epoch, so that short rows train all position embeddings (Kiyono et al. 2021).
    corpus.shift_positions = False
    return corpus


def _masking() -> ConfigDict:
    masking = ConfigDict()
    masking.name = "bert"  # by the fields below, or one of your own
    masking.masked_lm_prob = 0.15  # share of a sequence's tokens to predict
    masking.max_predictions_per_seq = 20  # the most tokens of a sequence to predict
    masking.whole_word = False  # True: choose all pieces of a word together
    masking.mask_fraction = 0.8  # share of the predicted tokens that become [MASK]
    masking.random_fraction = 0.1  # share that become a random piece; the rest stay
    return masking


def _phase2() -> ConfigDict:
    """The last steps at another length (appendix A.2: 90% at 128, 10% at 512)."""
    phase2 = ConfigDict()
    phase2.fraction = 0.0  # share of train.num_steps; 0: one phase
    phase2.max_seq_length = 512  # tokens, as corpus.max_seq_length
    phase2.max_predictions_per_seq = 77  # as in masking
    phase2.micro_batches = 1  # as train.micro_batches
    phase2.batch_size = 0  # sequences; 0: train.batch_size
    # Peak of the phase's own schedule, up from 0 and down again, as LAMB's authors use
    # for another batch size; 0: continue the first phase's schedule.
    phase2.learning_rate = 0.0
    phase2.warmup_steps = 0  # warm-up of the phase's own schedule
    return phase2


def _task() -> ConfigDict:
    task = ConfigDict()
    task.name = "pretraining"  # other tasks: configs/finetune/
    # mlm: predict masked pieces. ltr (section 5.1, "LTR & No NSP"): predict each piece
    # from those before it; nothing is masked, and there is no next sentence loss.
    task.objective = "mlm"
    # The next sentence loss. False: the same sentence pairs without it; for no pairs
    # either set corpus.nsp=False.
    task.nsp_loss = True
    # Where the word embeddings of a new model begin: normal (random, as published), or
    # counted (vectors counted on the training text: a small model then needs far fewer
    # steps; docs/pretraining.md).
    task.word_initializer = "normal"
    return task


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    # bert_adam (as published: no bias correction), adamw, lamb, muon (for the encoder's
    # matrices, adamw for the rest: fewer steps for small models), stable_adamw, adagrad
    # (as TensorFlow's, for ELMo), openai_adam (GPT's), or one of your own
    # (docs/extending.md).
    optimizer.name = "bert_adam"
    # Of the learning rate: polynomial (warm-up, decay), warmup_stable_decay (between
    # them the peak), GPT's openai_linear and openai_cosine, or one of your own.
    optimizer.schedule = "polynomial"
    optimizer.learning_rate = 1e-4  # the peak
    # Steps of linear warm-up from 0; set this or warmup_fraction, the other one is 0.
    optimizer.warmup_steps = 10_000
    optimizer.warmup_fraction = 0.0  # warm-up as a share of all steps
    optimizer.decay_fraction = 0.1  # warmup_stable_decay: share of steps that fall
    optimizer.decay_power = 1.0  # rate ~ (share of steps left) ** power; 1: linear
    optimizer.weight_decay = 0.01  # times the rate; not on biases and LayerNorm
    optimizer.beta1 = 0.9  # decay of the gradients' running mean
    optimizer.beta2 = 0.999  # decay of the squared gradients' running mean
    optimizer.eps = 1e-6  # added to the root of the squares' mean
    optimizer.clip_norm = 1.0  # largest norm of the whole gradient; 0: no clipping
    # Parameters that do not learn, by the beginning of their path: ("bert/embeddings",
    # "bert/encoder/layer_0"). They have no moments, and no part in the gradient's norm.
    optimizer.frozen = ()
    return optimizer


def _train() -> ConfigDict:
    train = ConfigDict()
    train.num_steps = 1_000_000  # updates of the parameters; 0: num_epochs decides
    train.num_epochs = 0.0  # passes over the training data; for fine-tuning
    # On resuming, num_steps or num_epochs may be larger than before. The learning rate
    # then follows the schedule of the new length from the step where the run resumes.
    train.extend = False
    train.batch_size = 256  # sequences (corpus.packing: rows), over all devices
    # Parts of each step's batch, computed one after the other to save memory (gradient
    # accumulation). The result is that of the whole batch; only dropout differs.
    train.micro_batches = 1
    train.log_every = 100  # steps between two logged steps
    # Services that get the metrics too: wandb, mlflow ('.[wandb]', '.[mlflow]'). Empty:
    # metrics.jsonl and TensorBoard's files in the work directory only.
    train.trackers = ()
    train.eval_every = 10_000  # steps between evaluations; 0: only at the end
    train.eval_every_epoch = False  # also at the end of each epoch (fine-tuning)
    # Stop after this many evaluations without a better score, counted per phase; 0:
    # never. The last checkpoint is the result, unless evaluate.checkpoint is best.
    train.early_stop = 0
    train.seeds = 1  # runs trained in one program, with seed, seed + 1, ...
    # If a loss is not finite, or a spike: end the run (stop) or drop the batch (skip).
    train.on_anomaly = "stop"
    # A loss or gradient norm above this times its running mean is a spike; 0: never.
    train.spike_factor = 0.0
    train.deterministic = True  # on GPUs: sum gradients in one order (docs/devices.md)
    return train


def _evaluate() -> ConfigDict:
    evaluate = ConfigDict()
    evaluate.batch_size = 256  # sequences, over all devices
    evaluate.splits = ("dev",)  # of dev, test and what else the task's data has
    # The checkpoint for the final predictions, `predict` and `export`: last, or best
    # (best score on dev; with two phases only the second counts, because losses at
    # different lengths are not comparable).
    evaluate.checkpoint = "last"
    # The score on dev that decides which checkpoint is best and when train.early_stop
    # ends the run: any that the task reports, such as macro_f1 or f1:spam (of the class
    # spam). Empty: the task's main score.
    evaluate.score = ""
    return evaluate


def _checkpoint() -> ConfigDict:
    checkpoint = ConfigDict()
    checkpoint.save_every = 5_000  # steps; the last step is saved too
    checkpoint.keep = 3  # number of newest checkpoints to keep
    checkpoint.keep_every = 0  # steps; those at its multiples stay for good; 0: none
    return checkpoint


def _predict() -> ConfigDict:
    predict = ConfigDict()
    predict.top_k = 5  # guesses for each [MASK]
    predict.batch_size = 32  # rows computed together; on a CPU at most 16
    # A name: beside the answers, write who attends to whom to NAME.safetensors. Empty:
    # do not.
    predict.attentions = ""
    # The layers that --mode=extract writes: 0 is the embeddings' output, 1, 2, ... are
    # the layers; -1 is the last layer, -2 the one before.
    predict.layers = (-1, -2, -3, -4)
    # What --mode=extract makes of the layers: none (each layer's vectors), or one
    # vector: concatenated, sum or mean.
    predict.combine = "none"
    # What --mode=extract gives a vector: each piece (pieces), each word (words: its
    # first piece's; words_mean: its pieces' mean), or the whole text (cls: that of
    # [CLS]; mean: its pieces' mean).
    predict.vectors = "pieces"
    return predict


def _serve() -> ConfigDict:
    serve = ConfigDict()
    # Names by which clients may call --mode=serve, besides --host, localhost and
    # addresses: of a proxy, of this machine.
    serve.hosts = ()
    serve.grace_seconds = 10.0  # from SIGTERM to the end, for requests in work
    return serve


def _mesh() -> ConfigDict:
    """Devices along each axis; -1: all that are left."""
    mesh = ConfigDict()
    mesh.data = -1  # devices that split the batch
    mesh.fsdp = 1  # that split the batch, parameters and optimizer state
    mesh.tensor = 1  # that split heads, intermediate size and vocabulary
    # Where the optimizer's state is: as_parameters (split like them), or zero1 (split
    # over data too).
    mesh.optimizer = "as_parameters"
    return mesh
