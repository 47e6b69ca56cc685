"""The encoders whose folders are read, in `transformers`: small, with loud weights."""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from bert_jax import tokenization
from bert_jax.registry import FAMILIES
from bert_jax.tokenization.wordpiece import WORDPIECE

TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
PIECES = 120
POSITIONS = 96
# The prefix of each family's classes, and its fields of config.json.
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "xlm_roberta": ("XLMRoberta", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "camembert": ("Camembert", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "distilbert": ("DistilBert", {}),
    "electra": ("Electra", {"embedding_size": 24}),
    "mpnet": ("MPNet", {"layer_norm_eps": 1e-5}),
    "albert": ("Albert", {"embedding_size": 24}),
    "deberta_v3": (
        "DebertaV2",
        {
            "relative_attention": True,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "position_biased_input": False,
        },
    ),
}
# Fields at the size "wide", where they are the published ones.
PUBLISHED: dict[str, dict[str, Any]] = {
    "deberta_v3": {"position_buckets": 256, "max_position_embeddings": 512}
}
ARCHITECTURES = [
    (family, name)
    for family in ENCODERS
    for name in FAMILIES[family].layout.architectures
]
# Layers, hidden size, heads, inner size.
# "wide" has a layer with four of the published heads.
SIZES = {"tiny": (2, 32, 2, 48), "wide": (1, 256, 4, 1024)}
_DISTIL = {
    "num_hidden_layers": "n_layers",
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}


def make_model(
    family: str, architecture: str, size: str = "tiny", **fields: Any
) -> Any:
    """Makes a model of `transformers` with random weights."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    prefix, own = ENCODERS[family]
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
    )
    sizes: dict[str, Any] = dict(zip(names, SIZES[size], strict=True))
    if family == "distilbert":
        sizes = {_DISTIL[name]: value for name, value in sizes.items()}
    labelled = "Classification" in architecture
    offset = FAMILIES[family].layout.first_position
    given = {
        "vocab_size": PIECES,
        "max_position_embeddings": POSITIONS + offset,
        **sizes,
        **own,
        **(PUBLISHED.get(family, {}) if size == "wide" else {}),
        **({} if "id2label" in fields else {"num_labels": 3 if labelled else 2}),
        **fields,
    }
    config = getattr(transformers, f"{prefix}Config")(**given)
    model = getattr(transformers, architecture)(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn_like(parameter)
            if "norm" in name.lower() and name.endswith("weight"):
                values = values.uniform_(0.5, 2.0)
            elif "embed" in name and values.ndim > 1 and size != "wide":
                pass
            elif values.ndim > 1:  # outputs about as large as inputs
                values *= (0.5 if size == "wide" else 1.0) * values.shape[1] ** -0.5
            else:
                values *= 0.1
            parameter.copy_(values)
    return model


def make_batch(family: str, architecture: str, length: int = 30) -> dict[str, Any]:
    """Makes columns of rows of three lengths, padded as `transformers` pads."""
    choices = architecture.endswith("MultipleChoice")
    shape = (4, 3, length) if choices else (4, length)
    ids = np.random.default_rng(0).integers(5, PIECES, shape)
    mask, segments = np.ones(shape, int), np.zeros(shape, int)
    pad = FAMILIES[family].layout.fixed.get("pad_token_id", 0)
    for row, real in ((1, 20), (2, 7)):
        ids[row, ..., real:], mask[row, ..., real:] = pad, 0
    if FAMILIES[family].has_segments:
        segments[0, ..., length // 2 :] = 1
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def make_tokenizer(family: str) -> Tokenizer:
    """Makes a tokenizer as the family's released ones are."""
    if family in ("distilbert", "electra"):
        return WORDPIECE.train([TEXT] * 4, PIECES, lowercase=True)
    first, last, middle = "<s>", "</s>", "</s> </s>"
    if family == "mpnet":
        special = [first, "<pad>", last, "<unk>", "<mask>"]
        known = WORDPIECE.train([TEXT] * 4, PIECES - len(special), lowercase=True)
        pieces = special[:4] + tokenization.tokens_by_id(known) + special[4:]
        made = tokenization.build_tokenizer(pieces, lowercase=True)
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if family == "camembert":
            special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", *special[::2]]
        if family in ("albert", "deberta_v3"):
            special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
            first, last, middle = "[CLS]", "[SEP]", "[SEP]"
        if family == "deberta_v3":
            special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
        words = {f"\u2581{word}": -4.0 for word in TEXT.split()}
        letters = {letter: -8.0 for letter in sorted({*TEXT, "\u2581"} - {*" \n"})}
        pieces = dict.fromkeys(special, 0.0) | words | letters
        unknown = special.index("[UNK]" if family == "deberta_v3" else "<unk>")
        made = Tokenizer(models.Unigram([*pieces.items()], unknown, False))
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        )
        made.decoder = decoders.Metaspace()
    made.add_special_tokens(special)
    ids = [(token, made.token_to_id(token)) for token in (first, last)]
    made.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {middle} $B:1 {last}:1",
        special_tokens=ids,
    )
    return made


def write_folder(
    folder: Path, family: str, architecture: str, size: str = "tiny", **fields: Any
) -> Any:
    """Saves `make_model` with a tokenizer of as many tokens. Returns the model."""
    tokenizer = make_tokenizer(family)
    pieces = tokenizer.get_vocab_size()
    model = make_model(family, architecture, size, vocab_size=pieces, **fields)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model
