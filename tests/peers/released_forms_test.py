"""Folders in the forms of the most used encoders read as in `transformers`.

released_forms.json has each form: which tensors a file has under which names, the
fields of its JSON files, and the files of its tokenizer. Sizes, words and numbers are
small ones from here. A field of `config` that is null is left out.
"""

import functools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, processors, trainers

import bert_jax
from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from bert_jax.tokenization.wordpiece import WORDPIECE
from tests.families import encoders
from tests.micro import error_line
from tests.parity import check_outputs, outputs_of, relevant

FORMS = json.loads(Path(__file__).with_name("released_forms.json").read_text())
HIDDEN, POSITIONS = 32, 40
SIZES = dict(zip(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    (HIDDEN, 1, 2, 48), strict=True,
))  # fmt: skip
DISTIL = {encoders._DISTIL[name]: size for name, size in SIZES.items()}
# A letter in two cases, an accent, Chinese, a word that no vocabulary has.
TEXTS = ["The quick brown fox", "jumps, OVER the lazy Dog.", "café 猫 zzz 7", "", "  a"]
LONG = " ".join(encoders.TEXT.split() * 2)
# Those that the quick tests have: one of each family.
QUICK = (
    *("google-bert/bert-base-uncased", "sentence-transformers/all-mpnet-base-v2"),
    *("cardiffnlp/twitter-roberta-base-sentiment-latest", "BAAI/bge-m3"),
)


def form_of(name):
    """A form with the fields of those that it is like."""
    form = dict(FORMS[name])
    like = form.pop("like", None)
    base = form_of(like) if like else {"config": {}}
    config = {**base["config"], **form.get("config", {})}
    return {**base, **form, "config": config}


@functools.cache
def tokenizer_of(kind):
    texts = [encoders.TEXT, encoders.TEXT.title()] * 4
    if kind in ("uncased", "cased", "klue"):
        made = WORDPIECE.train(texts, 160, lowercase=kind == "uncased")
        pieces = tokenization.tokens_by_id(made)
        if kind == "klue":
            first = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
            pieces = first + [piece for piece in pieces if piece not in first]
        lower = kind == "uncased"
        return tokenization.build_tokenizer(pieces, lower, strip_accents=lower)
    if kind == "gemma":
        return gemma(texts)
    if kind in ("bytes", "modern"):
        own = ANGLED if kind == "bytes" else BRACKETED
        return own.train(texts, 300, lowercase=False)
    kind = {"xlmr": "xlm_roberta", "deberta": "deberta_v3"}.get(kind, kind)
    made = encoders.make_tokenizer(kind)
    if kind == "albert":
        steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        simple = normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()
        made.normalizer = normalizers.Sequence([*steps, *simple])
    return made


def gemma(texts):
    """Byte pairs of characters, in which a token includes the space before it."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    special += [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    sizes = {"vocab_size": 320, "special_tokens": special, "show_progress": False}
    made.train_from_iterator(texts, trainers.BpeTrainer(**sizes))
    form = json.loads(made.to_str())
    form["added_tokens"] = form["added_tokens"][:5]
    form["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    made = Tokenizer.from_str(json.dumps(form))
    ids = [(token, made.token_to_id(token)) for token in ("<bos>", "<eos>")]
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B:1 <eos>:1", special_tokens=ids
    )
    return made


def write_tokenizer(folder, form):
    made = tokenizer_of(form["vocabulary"])
    whole = made.to_str()
    model = json.loads(whole)["model"]
    contents = {
        "tokenizer.json": whole,
        "vocab.txt": "".join(f"{x}\n" for x in tokenization.tokens_by_id(made)),
        "vocab.json": json.dumps(model["vocab"]),
        "added_tokens.json": "{}",
        "special_tokens_map.json": "{}",
    }
    if form["family"] == "DebertaV2":
        mask = {"[MASK]": made.token_to_id("[MASK]")}
        contents["added_tokens.json"] = json.dumps(mask)
    if "merges.txt" in form["files"]:
        lines = (" ".join(pair) for pair in model["merges"])
        contents["merges.txt"] = "#version: 0.2\n" + "\n".join(lines) + "\n"
    contents |= form.get("contents", {})
    for name in form["files"]:
        (folder / name).write_text(contents.get(name, "a program's own"), "utf-8")
    if form["tokenizer"] is not None:
        fields = json.dumps(form["tokenizer"])
        (folder / "tokenizer_config.json").write_text(fields)
    return made.get_vocab_size()


def write_weights(folder, form, pieces):
    import torch
    import transformers
    from safetensors.torch import save_file

    kept = {name: x for name, x in form["config"].items() if x is not None}
    fields = {"vocab_size": pieces + form.get("spare", 0), **form.get("sizes", {})}
    fields |= DISTIL if form["family"] == "DistilBert" else SIZES
    if form["family"] in ("Electra", "Albert"):
        fields.setdefault(
            "embedding_size", HIDDEN if form["family"] == "Electra" else 16
        )
    offset = kept.get("pad_token_id") == 1
    fields["max_position_embeddings"] = POSITIONS + 2 * offset
    fields |= kept
    (folder / "config.json").write_text(json.dumps(fields))
    given = {k: x for k, x in fields.items() if k not in ("model_type", "auto_map")}
    # Forms of code of their own are refused before their tensors are read.
    if "refused" in form:
        given = {k: x for k, x in given.items() if k not in form["config"]}
    config = getattr(transformers, f"{form['family']}Config")(**given)
    made = getattr(transformers, f"{form['family']}{form['saved']}")
    torch.manual_seed(0)
    model = made(config).eval()
    tensors = {name: x.detach().clone() for name, x in model.state_dict().items()}
    tied = r"(cls\.)?predictions\.decoder\..*|lm_head\.decoder\..*"
    tied += r"|vocab_projector\.weight|generator_lm_head\.weight|decoder\.weight"
    for name in [x for x in tensors if re.fullmatch(tied, x)]:
        if name not in form.get("keep", ()):
            del tensors[name]
    if form.get("pooler") and not any(".pooler." in name for name in tensors):
        trunk = getattr(transformers, f"{form['family']}Model")(config).state_dict()
        prefix = f"{model.base_model_prefix}." * (form["saved"] != "Model")
        tensors |= {prefix + k: x for k, x in trunk.items() if k.startswith("pooler.")}
    letters = {"h": HIDDEN, "v": fields["vocab_size"]}
    for name, shape in form.get("extra", {}).items():
        tensors[name] = torch.zeros([letters.get(x, x) for x in shape])
    for name, x in tensors.items():
        loud = x.uniform_(0.5, 2.0) if re.search(r"[Nn]orm.*weight", name) else None
        if loud is None:
            wide = "embed" in name and "project" not in name
            x.normal_(0, 0.1 if x.ndim < 2 else 1.0 if wide else x.shape[1] ** -0.5)
    state = model.state_dict()  # again as tied
    for name in form.get("keep", ()):
        same = next(
            k
            for k, x in state.items()
            if x is not None
            and k in tensors
            and k != name
            and x.data_ptr() == state[name].data_ptr()
        )
        tensors[name] = tensors[same].clone()
    for pattern, replacement in form.get("names", ()):
        tensors = {re.sub(pattern, replacement, k): x for k, x in tensors.items()}
    if half := form.get("half"):
        dtype = torch.bfloat16 if half == "bfloat16" else torch.float16
        tensors = {name: x.to(dtype) for name, x in tensors.items()}
    for name in form.get("buffers", ()):
        tensors[name] = torch.arange(fields["max_position_embeddings"])[None]
    if form.get("bin"):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors


def write_modules(folder, form):
    import torch
    from safetensors.torch import save_file

    modules = [["Transformer", None], *form["modules"]]
    named = []
    for index, (kind, content) in enumerate(modules):
        path = f"{index}_{kind}" if index else form.get("inner", "")
        type_ = form.get("types", {}).get(kind, f"sentence_transformers.models.{kind}")
        named.append({"idx": index, "name": str(index), "path": path, "type": type_})
        (folder / path).mkdir(exist_ok=True)
        if content is None:  # Git keeps no empty folder
            continue
        size = {"word_embedding_dimension": HIDDEN} if "Pooling" in kind else {}
        (folder / path / "config.json").write_text(json.dumps({**size, **content}))
        if kind == "Dense":
            shape = content["out_features"], content["in_features"]
            weight = {"linear.weight": torch.randn(shape)}
            weight["linear.bias"] = torch.randn(shape[0])
            if form.get("bin"):
                torch.save(weight, folder / path / "pytorch_model.bin")
            else:
                save_file(weight, folder / path / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(named))
    limits = form.get("limits") or {"max_seq_length": 16}
    name = form.get("limits_file", "sentence_bert_config.json")
    (folder / form.get("inner", "") / name).write_text(json.dumps(limits))
    about = {"__version__": {"sentence_transformers": "2.2.2"}, **form.get("own", {})}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))


@pytest.fixture(scope="module")
def written(torch, transformers, tmp_path_factory):
    """Writes a folder of a form, once. Returns it, the encoder's, and its tensors."""

    @functools.cache
    def write(name):
        form, folder = form_of(name), tmp_path_factory.mktemp("form")
        encoder = folder / form.get("inner", "")
        encoder.mkdir(exist_ok=True)
        tensors = write_weights(encoder, form, write_tokenizer(encoder, form))
        if form.get("modules"):
            write_modules(folder, form)
        return folder, encoder, tensors

    # Most forms have the programs of others.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    yield write
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)


def name_type(folder):
    """Adds the model_type that old files lack, and `transformers` needs."""
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **fields}))


def batch_of(model, form):
    """Rows of random ids, with and without padding."""
    ids = np.random.default_rng(0).integers(5, 50, (3, 12))
    mask, segments = np.ones_like(ids), np.zeros_like(ids)
    ids[1, 7:], mask[1, 7:] = form["config"].get("pad_token_id") or 0, 0
    if model.config.type_vocab_size > 1:
        segments[0, 6:] = 1
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def check_scores(answer, reference, form):
    logits = reference.double().numpy()
    labels = form["config"].get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}
    names = [*labels.values()]
    if len(names) == 1:
        assert answer["score"] == pytest.approx(logits[0], abs=1e-5)
        return
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    if form["config"].get("problem_type") == "multi_label_classification":
        shares = 1 / (1 + np.exp(-logits))
    expected = dict(zip(names, shares.tolist(), strict=True))
    assert answer["scores"] == pytest.approx(expected, abs=1e-5)


def parametrized(names=FORMS):
    return pytest.mark.parametrize("name", [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in names
    ])  # fmt: skip


def readable(*having):
    """The names of forms that can be read, with all these fields."""
    forms = ((name, form_of(name)) for name in FORMS)
    return [n for n, f in forms if "refused" not in f and all(map(f.get, having))]


@parametrized([name for name in FORMS if "refused" in form_of(name)])
def test_refusal(written, name):
    folder, *_ = written(name)
    assert re.search(form_of(name)["refused"], error_line(bert_jax.load, folder))


@parametrized(readable())
def test_numbers(written, transformers, torch, name):
    form, (folder, encoder, tensors) = form_of(name), written(name)
    model = bert_jax.load(folder)
    batch = batch_of(model, form)
    with jax.disable_jit():  # compiling takes longer
        ours, mask = model.apply(**batch), batch["input_mask"]
    poolers = [x for x in tensors if re.search(r"(^|\.)pooler\.(dense\.)?weight", x)]
    has_pooler = bool(poolers) and form["family"] != "DebertaV2"
    assert ("pooled" in ours) == has_pooler
    name_type(encoder)
    for head in (*form["heads"], *[None] * (has_pooler or not form["heads"])):
        auto = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
        there = auto.from_pretrained(encoder, dtype=torch.float32).eval()
        with torch.no_grad():
            outputs = outputs_of(there, batch)
        reference = {k: relevant(k, x.numpy(), mask) for k, x in outputs.items()}
        if not has_pooler:
            reference.pop("pooled", None)
        check_outputs(ours, reference, mask)


@parametrized(readable())
def test_texts(written, transformers, name):
    form, (folder, encoder, _) = form_of(name), written(name)
    model = bert_jax.load(folder)
    if form.get("refused_text"):
        line = error_line(lambda: model.tokenizer.encode(""))
        assert re.search(form["refused_text"], line)
        return
    name_type(encoder)
    # Without tokenizer_config.json `transformers` lowers the case of cased words.
    given = {"do_lower_case": False} if form.get("cased") else {}
    reference = transformers.AutoTokenizer.from_pretrained(encoder, **given)
    for text in (*TEXTS, LONG):
        for other in (None, LONG):
            found = model.tokenizer.encode(text, other)
            assert found.ids == reference(text, other)["input_ids"]
    if "TokenClassification" in form["heads"]:
        assert [*model.labels] == [*form["config"]["id2label"].values()]
        assert model.predict([{"words": ["The", "quick", "fox"]}])[0]["tags"]


@parametrized([
    name for name in readable("heads")
    if "SequenceClassification" in form_of(name)["heads"]
    and not form_of(name).get("refused_text")
])  # fmt: skip
def test_scores(written, transformers, torch, name):
    form, (folder, encoder, _) = form_of(name), written(name)
    model = bert_jax.load(folder)
    there = transformers.AutoModelForSequenceClassification.from_pretrained(
        encoder, dtype=torch.float32
    )
    rows = [{"text": TEXTS[0]}, {"text": TEXTS[1], "text_b": TEXTS[0]}]
    for row, answer in zip(rows, model.predict(rows), strict=True):
        encoding = model.tokenizer.encode(row["text"], row.get("text_b"))
        given = {"input_ids": torch.tensor([encoding.ids])}
        if there.config.model_type in ("bert", "electra", "albert"):
            given["token_type_ids"] = torch.tensor([encoding.type_ids])
        with torch.no_grad():
            check_scores(answer, there(**given).logits[0], form)


@parametrized(readable("modules"))
def test_vectors(written, name):
    reference = pytest.importorskip("sentence_transformers")
    form, (folder, *_) = form_of(name), written(name)
    model = bert_jax.load(folder)
    texts = [*TEXTS, LONG]
    if "refused_sentences" in form:
        with pytest.raises(UserError, match=form["refused_sentences"]) as error:
            model.sentences(texts)
        assert "\n" not in str(error.value)
        return
    there = reference.SentenceTransformer(
        str(folder), device="cpu", model_kwargs={"dtype": "float32"}
    )
    expected = there.encode(texts)
    found = model.sentences(texts)
    assert found.shape == expected.shape
    atol = 1e-5 * abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
