"""The same weights in `transformers`, live: outputs, gradients, exports."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import pretrained, tokenization
from bert_jax.convert import export, layout, weights
from tests import runs
from tests.close import assert_close
from tests.parity import check_same

ARCHITECTURES = sorted(layout.BERT.architectures)


@pytest.fixture
def both(golden, torch, transformers, tmp_path):
    """A random model of `transformers` and the same, read from where it was saved."""

    def make(architecture, size):
        fields = golden.config_fields(architecture, size)
        model = getattr(transformers, architecture)(transformers.BertConfig(**fields))
        shapes = {name: list(p.shape) for name, p in model.named_parameters()}
        state = {
            name: torch.tensor(value)
            for name, value in golden.random_tensors(shapes, seed=3).items()
        }
        model.load_state_dict(state, strict=False)
        model.save_pretrained(tmp_path / "theirs")
        return model.eval(), golden.inputs(fields, seed=4)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_and_gradients(golden, both, tmp_path, architecture):
    """The outputs of other sizes are golden ones, in convert/weights_test.py."""
    # The trunk is the same below every head: it is deeper below one of them.
    size = "three_heads" if architecture == "BertForPreTraining" else "wide"
    model, batch = both(architecture, size)
    bert = pretrained.load(tmp_path / "theirs")
    check_same(bert, model, golden.torch_outputs(model, batch), batch)


@pytest.mark.parametrize(
    "architecture", ["BertLMHeadModel", "BertForQuestionAnswering"]
)
def test_attentions(golden, torch, both, tmp_path, architecture):
    """Left to right and bidirectional, without a pooler."""
    model, batch = both(architecture, "three_heads")
    model.set_attn_implementation("eager")
    tensors = {name: torch.tensor(array) for name, array in batch.items()}
    reference = model(
        input_ids=tensors["input_ids"],
        attention_mask=tensors["input_mask"],
        token_type_ids=tensors["segment_ids"],
        output_attentions=True,
    ).attentions
    bert = pretrained.load(tmp_path / "theirs")
    found = bert.apply(**batch, attentions=True)
    assert len(found["attentions"]) == bert.config.num_hidden_layers
    real = batch["input_mask"].astype(bool)
    for ours, expected in zip(found["attentions"], reference, strict=True):
        rows = np.asarray(ours).swapaxes(1, 2)[real]
        assert_close(rows, expected.detach().numpy().swapaxes(1, 2)[real])
        np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-5)


def test_causal_model_is_transformers_decoder(golden, torch, transformers, tmp_path):
    """Read, run, exported and opened again."""
    kind = transformers.BertForMaskedLM
    fields = golden.config_fields(kind.__name__, "wide") | {"is_decoder": True}
    torch.manual_seed(0)
    model = kind(transformers.BertConfig(**fields))
    model.eval().save_pretrained(tmp_path / "theirs")
    batch = golden.inputs(fields, seed=4)
    bert = pretrained.load(tmp_path / "theirs")
    assert bert.config.causal
    export.export_folder(
        weights.read_weights(tmp_path / "theirs"), None, tmp_path / "ours", {}
    )
    again = kind.from_pretrained(tmp_path / "ours")
    ours = bert.apply(**batch)
    assert "masked_lm_logits" not in ours
    ours["masked_lm_logits"] = ours.pop("lm_logits")
    real = batch["input_mask"].astype(bool)
    for one in (model, again.eval()):
        reference = golden.torch_outputs(one, batch)
        del reference["hidden_states"]
        for name, value in reference.items():
            expected = value.detach().numpy()[real]
            assert_close(np.asarray(ours[name])[real], expected)


OPEN = """
import json, sys
import transformers
assert not any("bert_jax" in name for name in sys.modules)
for folder, cls, text in json.loads(sys.argv[1]):
    auto = getattr(transformers, cls)
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = {"labels": model.config.id2label, "tokens": tokenizer.tokenize(text)}
    out["pair"] = dict(tokenizer("a b", "c"))
    if cls == "AutoModelForPreTraining":
        fill = transformers.pipeline("fill-mask", model=folder, top_k=3)
        guesses = fill("a b [MASK] c")
        out["guesses"] = [(g["token"], g["token_str"], g["score"]) for g in guesses]
    print("answers: " + json.dumps(out))
"""
TEXT = "Ab [MASK] é " + "a" * 150


@pytest.fixture(scope="module")
def opened(write_folder, transformers, tmp_path_factory):
    """Returns the output of `transformers` for an export of each architecture, in a
    process that knows nothing else, and the location of that export."""
    folder, asked = tmp_path_factory.mktemp("exports"), []
    for architecture in ARCHITECTURES:
        out = folder / architecture
        source = write_folder(folder / f"{out.name}-source", f"{out.name}-three_heads")
        tokenizer = tokenization.load(source / "vocab.txt")
        export.export_folder(weights.read_weights(source), tokenizer, out, {"step": 7})
        auto = "AutoModel" + architecture.removeprefix("BertModel").removeprefix("Bert")
        auto = auto.replace("LMHeadModel", "ForCausalLM")
        asked.append((str(out), auto, TEXT))
    result = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(asked)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=runs.LIMIT,
    )
    assert result.returncode == 0, result.stderr
    lines = [x for x in result.stdout.splitlines() if x.startswith("answers: ")]
    answers = [json.loads(line.removeprefix("answers: ")) for line in lines]
    return dict(zip(ARCHITECTURES, answers, strict=True)), folder


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_exports_open_in_a_fresh_process(opened, architecture):
    answers, folder = opened[0][architecture], opened[1]
    tokenizer = tokenization.load(folder / f"{architecture}-source" / "vocab.txt")
    encoding = tokenizer.encode(TEXT, add_special_tokens=False)
    assert answers["tokens"] == encoding.tokens
    pair = tokenizer.encode("a b", "c")
    assert answers["pair"]["input_ids"] == pair.ids
    assert answers["pair"]["token_type_ids"] == pair.type_ids
    assert ("guesses" in answers) == (architecture == "BertForPreTraining")
    if "guesses" in answers:
        bert = pretrained.load(folder / architecture)
        row = tokenizer.encode("a b [MASK] c")
        logits = bert.apply([row.ids], [row.attention_mask], [row.type_ids])
        at = row.tokens.index("[MASK]")
        probabilities = jax.nn.softmax(logits["masked_lm_logits"][0, at])
        for token, _, score in answers["guesses"]:
            assert score == pytest.approx(float(probabilities[token]), rel=1e-5)
        assert answers["guesses"][0][0] == int(jnp.argmax(probabilities))


def test_released_weights_give_the_same_in_both(
    shared_data, torch, transformers, tmp_path
):
    """Google's checkpoint -> here, without a run -> a folder that `transformers`
    opens."""
    pytest.importorskip("tensorflow", reason="needs the google extra")
    source = shared_data("weights/tf1-keras-bert-tiny/bert_config.json").parent
    place = (f"--output={tmp_path / 'out'}", f"--workdir={tmp_path / 'none'}")
    runs.here("--mode=export", f"--config.init_from={source}", *place)
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    bert = pretrained.load(source)
    tokenizer = bert.tokenizer
    row = tokenizer.encode("all work and no [MASK]", "makes jack a dull [MASK]")
    batch = [[row.ids], [row.attention_mask], [row.type_ids]]
    with torch.no_grad():
        reference = model(*(torch.tensor(x) for x in batch), output_hidden_states=True)
    ours = bert.apply(*batch)
    pairs = [
        (ours["masked_lm_logits"], reference.prediction_logits),
        (ours["next_sentence_logits"], reference.seq_relationship_logits),
        *zip(ours["hidden_states"], reference.hidden_states, strict=True),
    ]
    for one, other in pairs:
        other = other.numpy()
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * abs(other).max())
