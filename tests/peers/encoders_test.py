"""The encoders of the Hub against `transformers`."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.serialization import to_bytes
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file

import bert_jax
from bert_jax import tokenization
from bert_jax.convert import weights
from bert_jax.models.encoder import Packed
from bert_jax.registry import FAMILIES
from tests.close import GRADIENT_TERMS, assert_close
from tests.families.encoders import (
    ARCHITECTURES,
    ENCODERS,
    PIECES,
    PUBLISHED,
    make_batch,
    make_model,
    make_tokenizer,
    write_folder,
)
from tests.micro import error_line
from tests.parity import check_export, check_same, outputs_of

pytestmark = pytest.mark.usefixtures("torch", "transformers")

# The same modules and layout as RoBERTa's, whose heads have their own test.
ROBERTAS = ("xlm_roberta", "camembert")
# A linear layer over each token in every family, and the pooled head over choices.
SAME_HEADS = ("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
# Without a pooler, such a trunk is that of the masked LM.
SAME_TRUNKS = ("DistilBertModel", "ElectraModel", "DebertaV2Model")
HEAD = {family: f"{prefix}ForMaskedLM" for family, (prefix, _) in ENCODERS.items()}


def slow_unless(quick, cases):
    """Marks all cases as slow but these."""
    several = (x if isinstance(x, tuple) else (x,) for x in cases)
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*x, marks=marks[x in quick or x[0] in quick]) for x in several]


@pytest.mark.parametrize(
    ("family", "architecture", "size"),
    slow_unless(
        [
            (family, HEAD[family], "tiny")
            for family in ENCODERS
            if family != "camembert"
        ],
        [
            *(
                (*case, "tiny")
                for case in ARCHITECTURES
                if case[0] not in ROBERTAS
                and not case[1].endswith((*SAME_HEADS, *SAME_TRUNKS))
            ),
            ("xlm_roberta", HEAD["xlm_roberta"], "tiny"),
            # Its attention depends on the size and the distance.
            ("deberta_v3", HEAD["deberta_v3"], "wide"),
        ],
    ),
)
def test_outputs_and_gradients(family, architecture, size, tmp_path):
    model = make_model(family, architecture, size)
    model.save_pretrained(tmp_path)
    length = {"wide": 300, "tiny": 60 if family == "mpnet" else 30}[size]
    batch = make_batch(family, architecture, length)
    check_same(bert_jax.load(tmp_path), model, outputs_of(model, batch), batch)


@pytest.mark.parametrize(
    ("family", "architecture"),
    slow_unless(
        [*HEAD.items()],
        [case for case in ARCHITECTURES if not case[1].endswith(SAME_HEADS)],
    ),
)
def test_export_is_the_folder_that_was_read(family, architecture, tmp_path):
    import transformers

    write_folder(tmp_path / "saved", family, architecture)
    check_export(tmp_path / "saved", tmp_path / "out")
    again = getattr(transformers, architecture).from_pretrained(tmp_path / "out")
    assert type(again.config).__name__ == f"{ENCODERS[family][0]}Config"


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(ENCODERS.keys() - {"camembert", "electra"}))
def test_pipelines_open_exports_and_answer_alike(family, tmp_path):
    import transformers

    prefix, text = ENCODERS[family][0], "the quick lazy dog"
    for head in ("MaskedLM", "TokenClassification"):
        saved, out = tmp_path / head, tmp_path / f"{head}-out"
        write_folder(saved, family, f"{prefix}For{head}")
        weights.find_source(saved).export(out)
        ours = bert_jax.load(out)
        if head == "MaskedLM":
            reference = transformers.pipeline("fill-mask", str(out))
            row = f"the quick {reference.tokenizer.mask_token} dog"
            found = [each["token"] for each in reference(row)]
            assert found == [each["id"] for each in ours.fill_mask(row)[0]]
        else:
            reference = transformers.pipeline("token-classification", str(out))
            firsts = {each["start"]: each["entity"] for each in reference(text)}
            (answer,) = ours.predict([{"words": text.split()}])
            starts = [0, 4, 10, 15]
            assert answer["tags"] == [firsts[start] for start in starts]


@pytest.mark.parametrize("family", ["distilbert", "albert", "mpnet"])
def test_file_of_flax_is_read(family, tmp_path):
    make_model(family, HEAD[family]).save_pretrained(tmp_path)
    expected = flatten_dict(weights.read_weights(tmp_path).params)
    path = tmp_path / "model.safetensors"
    saved = load_file(path)
    path.unlink()
    tree = dict(flax_leaf(name, array) for name, array in saved.items())
    (tmp_path / "flax_model.msgpack").write_bytes(to_bytes(unflatten_dict(tree)))
    found = flatten_dict(weights.read_weights(tmp_path).params)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def flax_leaf(name, array):
    """A tensor as Flax names and keeps it."""
    *inner, last = name.split(".")
    if last == "bias" or not inner:
        return (*inner, last), array
    if "norm" in inner[-1].lower():
        return (*inner, "scale"), array
    if inner[-1].endswith(("embeddings", "attention_bias")):
        return (*inner, "embedding"), array
    return (*inner, "kernel"), array.T


@pytest.mark.parametrize("family", ENCODERS)
def test_tokens_are_those_of_transformers(family, tmp_path):
    import transformers

    tokenizer = make_tokenizer(family)
    path = str(tmp_path / "tokenizer.json")
    tokenizer.save(path)
    ours = tokenization.load_folder_tokenizer(tmp_path)
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
    first, second = "The lazy dog, caf\u00e9 \u6f22", "  seven  cats "
    found = ours.encode_batch([first, (first, second)])
    assert found[0].ids == reference(first)["input_ids"]
    assert found[1].ids == reference(first, second)["input_ids"]
    special = tokenization.special_ids(ours)
    names = [tokenizer.id_to_token(index) for index in special[:5]]
    assert names == SPECIAL.get(family, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"])
    around = found[1].ids
    assert (around[0], around[-1]) == (special.cls, special.sep)
    assert set(special.between) == {special.sep}
    assert len(special.between) == (1 if "[CLS]" in names else 2)


SPECIAL = {
    "distilbert": [*tokenization.SPECIAL_TOKENS],
    "electra": [*tokenization.SPECIAL_TOKENS],
    "mpnet": ["<pad>", "[UNK]", "<s>", "</s>", "<mask>"],
    "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "deberta_v3": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
}


def test_sentencepiece_model_alone_is_refused_in_a_line(tmp_path):
    make_model("xlm_roberta", "XLMRobertaForMaskedLM").save_pretrained(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"")
    line = error_line(weights.find_source(tmp_path).tokenizer)
    assert "write a tokenizer.json from it" in line


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("xlm_roberta", {"pad_token_id": 0}, "pad_token_id=0; only an XLM-R with 1"),
        ("electra", {"is_decoder": True}, "an ELECTRA has attention in both"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "only an MPNet with 32"),
        ("albert", {"num_hidden_groups": 2}, "only an ALBERT with 1 can be read"),
        ("deberta_v3", {"conv_kernel_size": 3}, "only a DeBERTa-v3 with 0 can be"),
        ("deberta_v3", {"position_buckets": -1}, "position_buckets=-1: must be in"),
    ],
)
def test_another_model_is_refused_in_a_line(family, fields, message, tmp_path):
    make_model(family, HEAD[family]).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    line = error_line(lambda: weights.find_source(tmp_path).config())
    assert "config.json" in line and message in line


@pytest.mark.parametrize(
    "family", slow_unless(["mpnet"], ["mpnet", "albert", "deberta_v3"])
)
def test_packed_texts_have_the_vectors_of_single_ones(family, tmp_path):
    make_model(family, HEAD[family]).save_pretrained(tmp_path)
    model = weights.read_weights(tmp_path)
    trunk = FAMILIES[family].with_heads.trunk(model.config)
    pad = FAMILIES[family].layout.fixed.get("pad_token_id", 0)
    ids = np.random.default_rng(1).integers(5, 50, (1, 24))
    row = np.concatenate([ids, np.full((1, 6), pad)], axis=1)
    sequences = np.repeat([[1, 2, 0]], [10, 14, 6], axis=1)
    positions = np.concatenate([np.arange(n) for n in (10, 14, 6)])[None]
    packed = Packed(sequences, positions, np.array([[0, 10]]))

    @jax.jit
    def encode(ids, packed=None):
        mask, none = (ids != pad).astype(int), ids * 0
        outputs = trunk.apply({"params": params}, ids, mask, none, None, packed)
        return outputs.sequence[0]

    params = jax.tree.map(jnp.asarray, model.params["bert"])
    if "pooler" not in params and trunk.has_pooler:
        size = model.config.hidden_size
        pooler = {"kernel": jnp.zeros((size, size)), "bias": jnp.zeros(size)}
        params |= {"pooler": pooler}
    together = encode(row, packed)
    for start, end in ((0, 10), (10, 24)):
        inside = np.arange(30) < end - start
        alone = encode(np.where(inside, np.roll(row, -start, 1), pad))
        limits = {"rtol": 0, "atol": 1e-5 * abs(alone).max()}
        pair = (together[start:end], alone[: end - start])
        np.testing.assert_allclose(*pair, **limits)


@pytest.mark.parametrize(
    "family", slow_unless(["albert"], ["albert", "mpnet", "deberta_v3"])
)
def test_attentions_of_every_layer(family, tmp_path):
    import torch

    model = make_model(family, HEAD[family])
    model.set_attn_implementation("eager")
    model.save_pretrained(tmp_path)
    ids = np.random.default_rng(3).integers(5, PIECES, (2, 9))
    found = bert_jax.load(tmp_path).apply(ids, ids * 0 + 1, ids * 0, attentions=True)
    reference = model(torch.tensor(ids), output_attentions=True).attentions
    assert len(found["attentions"]) == len(reference) == 2
    for ours, expected in zip(found["attentions"], reference, strict=True):
        assert_close(ours, expected.detach().numpy(), terms=GRADIENT_TERMS)


def test_bert_with_another_kind_of_vocabulary_and_spare_rows(tmp_path):
    """As the multilingual MiniLMs: BERT's layers, XLM-R's vocabulary."""
    import torch
    import transformers

    tokenizer = make_tokenizer("xlm_roberta")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": tokenizer.get_vocab_size() + 35, "intermediate_size": 48}
    config = transformers.BertConfig(**sizes)
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save(str(tmp_path / "saved" / "tokenizer.json"))
    weights.find_source(tmp_path / "saved").export(tmp_path / "out")
    for folder in (tmp_path / "saved", tmp_path / "out"):
        (answer,) = bert_jax.load(folder).predict(["the quick dog"])
        ids = torch.tensor([tokenizer.encode("the quick dog").ids])
        shares = model(ids).logits.softmax(-1)[0].tolist()
        assert [*answer["scores"].values()] == pytest.approx(shares, abs=1e-5)


BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
RELEASED = [
    ("xlm_roberta", {"vocab_size": 250002, "max_position_embeddings": 514}, 278043648),
    ("camembert", {"vocab_size": 32005, "max_position_embeddings": 514}, 110621952),
    ("distilbert", {}, 66362880),
    ("electra", {}, 13483008),
    ("electra", {"embedding_size": 768, **BASE}, 108891648),
    ("mpnet", {"max_position_embeddings": 514}, 109486464),
    ("albert", BASE, 11683584),
    ("deberta_v3", {**BASE, "num_hidden_layers": 12}, 183831552),
]


@pytest.mark.parametrize(("family", "fields", "count"), RELEASED)
def test_released_sizes_have_as_many_parameters(family, fields, count):
    import torch
    import transformers

    prefix, own = ENCODERS[family]
    if family in ("xlm_roberta", "camembert"):
        fields = {"type_vocab_size": 1, **fields}
    if family == "deberta_v3":
        fields = {**own, **PUBLISHED[family], **fields}
    with torch.device("meta"):
        config = getattr(transformers, f"{prefix}Config")(**fields)
        reference = getattr(transformers, f"{prefix}Model")(config)
    assert sum(x.numel() for x in reference.parameters()) == count
    layout = FAMILIES[family].layout
    model = layout.config(config.to_dict(), Path("config.json"))
    parts = ["bert", *(["pooler"] if hasattr(reference, "pooler") else [])]
    shapes = [x.shape for part in parts for x in layout.parameters(part, model)]
    assert sum(map(math.prod, shapes)) == count
