"""Released classifiers, taggers, readers and choosers answer as in `transformers`."""

import numpy as np
import pytest

import bert_jax
from bert_jax import registry, tokenization
from bert_jax.families.gpt.vocabulary import BYTE_PAIRS
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from bert_jax.tokenization.wordpiece import WORDPIECE

TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
PIECES = 320
# The prefix of `transformers`' classes, then our kind of vocabulary.
FAMILIES = {
    "bert": ("Bert", WORDPIECE),
    "roberta": ("Roberta", ANGLED),
    "modernbert": ("ModernBert", BRACKETED),
    "gpt": ("OpenAIGPT", BYTE_PAIRS),
}
# With segments, and without.
ENCODERS = ("bert", "roberta")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 66}
OWN = {"roberta": {"type_vocab_size": 1, "max_position_embeddings": 68}}
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
GPT_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 66}


@pytest.fixture
def released(torch, transformers, tmp_path):
    """Makes a folder of `transformers`. Returns it, its model and its tokenizer."""

    def make(family, head, labels=(), **fields):
        names = {"id2label": dict(enumerate(labels))} if labels else {}
        model = written(tmp_path, family, head, names | fields)
        ours = tokenization.load_folder_tokenizer(tmp_path)
        theirs = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(tmp_path / "tokenizer.json"),
            pad_token=ours.id_to_token(tokenization.special_ids(ours).pad),
            model_input_names=INPUTS[: 2 + registry.FAMILIES[family].has_segments],
        )
        return tmp_path, model, theirs

    return make


def written(folder, family, head, fields):
    """Saves a model of `transformers`, with a tokenizer. Returns the model."""
    import torch
    import transformers

    prefix, kind = FAMILIES[family]
    ours = kind.train([TEXT] * 4, PIECES, lowercase=True)
    special = tokenization.special_ids(ours)._asdict()
    ids = {f"{k}_token_id": i for k, i in special.items() if k != "mask"}
    sizes = GPT_SIZES if family == "gpt" else SIZES
    own = {"vocab_size": ours.get_vocab_size(), **sizes, **ids}
    own |= OWN.get(family, {}) | fields
    config = getattr(transformers, f"{prefix}Config")(**own)
    model = getattr(transformers, f"{prefix}{head}")(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn_like(parameter)
            if name.endswith("bias"):
                values *= 0.1
            elif "embed" not in name:
                values *= parameter.shape[-1] ** -0.5
            loud = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(values.uniform_(0.5, 2.0) if loud else values)
    model.save_pretrained(folder)
    tokenization.save_tokenizer(ours, folder)
    return model


def logits_of(model, encoding):
    """The logits of one row, which `transformers` has encoded."""
    import torch

    with torch.no_grad():
        return model(**encoding)


def softmax(logits):
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


PAIRS = [{"text": "the quick dog"}, {"text": "seven cats", "text_b": "the lazy fox"}]
LONG = {"text": "the dog and the cats watch the fox " * 4}  # fewer than 66 tokens


THREE = ("neg", "neutral", "pos")


@pytest.mark.parametrize(
    ("family", "labels", "problem"),
    [
        *((family, THREE, None) for family in FAMILIES),
        ("modernbert", ("toxic", "rude", "kind"), "multi_label_classification"),
        ("roberta", ("score",), None),
    ],
)
def test_classifier(released, family, labels, problem):
    folder, model, tokenizer = released(
        family, "ForSequenceClassification", labels, problem_type=problem
    )
    answers = bert_jax.load(folder).predict([*PAIRS, LONG])
    for row, answer in zip([*PAIRS, LONG], answers, strict=True):
        encoding = tokenizer(row["text"], row.get("text_b"), return_tensors="pt")
        assert 3 < encoding["input_ids"].shape[1] <= 66
        theirs = logits_of(model, encoding).logits[0].numpy().astype(np.float64)
        if len(labels) == 1:
            assert answer["score"] == pytest.approx(theirs[0], abs=1e-5)
            continue
        shares = softmax(theirs)
        if problem == "multi_label_classification":
            shares = 1 / (1 + np.exp(-theirs))
            assert answer["labels"] == [
                name for name, x in zip(labels, theirs, strict=True) if x >= 0
            ]
        else:
            assert answer["label"] == labels[np.argmax(theirs)]
        expected = dict(zip(labels, shares.tolist(), strict=True))
        assert answer["scores"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_classes_of_a_model_of_inference(transformers, released, family):
    """Zero-shot, beside the pipeline."""
    named = ("contradiction", "Entailment", "neutral")
    folder, model, tokenizer = released(family, "ForSequenceClassification", named)
    model.config.id2label = dict(enumerate(named))
    model.config.label2id = {name: i for i, name in enumerate(named)}
    pipeline = transformers.pipeline(
        "zero-shot-classification", model=model, tokenizer=tokenizer
    )
    labels, hypothesis = ["dog", "lazy cats", "fox"], "it is {} while it go"
    texts = [PAIRS[0]["text"], "seven cats", LONG["text"][:60]]
    answers = bert_jax.load(folder).predict(texts, labels=labels, hypothesis=hypothesis)
    expected_rows = pipeline(texts, labels, hypothesis_template=hypothesis)
    for answer, expected in zip(answers, expected_rows, strict=True):
        assert [*answer["scores"]] == labels
        assert answer["label"] == expected["labels"][0]
        pairs = zip(expected["labels"], expected["scores"], strict=True)
        assert answer["scores"] == pytest.approx(dict(pairs), abs=1e-5)


WORDS = ["the", "lazy", "cats", "watched", "seven", "foxes"]


ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@pytest.mark.parametrize(
    ("family", "labels"),
    [
        *((family, ENTITIES) for family in ENCODERS),
        ("bert", ("NOUN", "VERB", "DET")),
    ],
)
def test_tagger(released, family, labels):
    folder, model, tokenizer = released(family, "ForTokenClassification", labels)
    (answer,) = bert_jax.load(folder).predict([{"words": WORDS}])
    space = tokenization.kind_of(tokenization.load_folder_tokenizer(folder)).before_word
    pieces = [
        tokenizer(space + word, add_special_tokens=False)["input_ids"] for word in WORDS
    ]
    around = tokenizer("")["input_ids"]
    ids = [around[0], *(i for some in pieces for i in some), around[1]]
    import torch

    given = {"input_ids": torch.tensor([ids])}
    best = logits_of(model, given).logits[0].argmax(-1).tolist()
    firsts = 1 + np.cumsum([0, *map(len, pieces[:-1])])
    tags = [labels[best[index]] for index in firsts]
    assert answer["tags"] == tags
    if "O" not in labels:
        assert "entities" not in answer
        return
    for entity in answer["entities"]:
        inside = tags[entity["start"] : entity["end"]]
        assert {tag.partition("-")[2] for tag in inside} == {entity["label"]}
    covered = {i for e in answer["entities"] for i in range(e["start"], e["end"])}
    assert covered == {index for index, tag in enumerate(tags) if tag != "O"}


@pytest.mark.parametrize("family", ENCODERS)
def test_reader(released, family):
    folder, model, tokenizer = released(family, "ForQuestionAnswering")
    question, context = "who was lazy", "the quick dog was lazy so the cats went home"
    row = {"question": question, "context": context}
    (answer,) = bert_jax.load(folder).predict([row])
    encoding = tokenizer(question, context, return_tensors="pt")
    outputs = logits_of(model, encoding)
    starts, ends = (
        x[0].numpy().astype(np.float64)
        for x in (outputs.start_logits, outputs.end_logits)
    )
    assert answer["null_score"] == pytest.approx(starts[0] + ends[0], abs=1e-5)
    places = [i for i, s in enumerate(encoding.sequence_ids()) if s == 1]
    offsets = tokenizer(question, context, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    _, first, last = max(
        (starts[i] + ends[j], i, j) for i in places for j in places if i <= j < i + 30
    )
    expected = context[offsets[first][0] : offsets[last][1]].strip()
    assert answer["answer"] == expected
    assert context[answer["start"] : answer["end"]] == expected


@pytest.mark.parametrize("family", ENCODERS)
def test_chooser(released, family):
    import torch

    folder, model, tokenizer = released(family, "ForMultipleChoice")
    context, endings = "the lazy dog", ["watched them", "jumps over it", "going home"]
    (answer,) = bert_jax.load(folder).predict(
        [{"context": context, "endings": endings}]
    )
    encoding = tokenizer(
        [context] * 3, endings, padding=True, return_tensors="pt", padding_side="right"
    )
    given = {name: torch.unsqueeze(x, 0) for name, x in encoding.items()}
    theirs = softmax(logits_of(model, given).logits[0].numpy().astype(np.float64))
    assert answer["scores"] == pytest.approx(theirs.tolist(), abs=1e-5)
    assert answer["label"] == np.argmax(theirs)


def test_short_reader_still_has_room_for_its_context(released):
    folder, _, _ = released("bert", "ForQuestionAnswering", max_position_embeddings=32)
    row = {"question": "who was lazy " * 9, "context": TEXT}
    (answer,) = bert_jax.load(folder).predict([row])
    assert answer["answer"] and answer["answer"] in TEXT
