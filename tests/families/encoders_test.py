"""XLM-R, CamemBERT, DistilBERT, ELECTRA, MPNet and ALBERT against `transformers`."""

import numpy as np
import pytest
from encoders import ARCHITECTURES, ENCODERS, make_batch, make_model, write_folder
from safetensors.numpy import load_file

import bert_jax
from bert_jax.convert import weights
from tests.parity import check_same, outputs_of

pytestmark = pytest.mark.usefixtures("torch", "transformers")

HEAD = {family: f"{prefix}ForMaskedLM" for family, (prefix, _) in ENCODERS.items()}


def slow_unless(quick, cases):
    """Marks all cases as slow but these."""
    slow = pytest.mark.slow
    return [pytest.param(*x, marks=() if x in quick else slow) for x in cases]


@pytest.mark.parametrize(
    ("family", "architecture", "size"),
    slow_unless(
        [(family, name, "tiny") for family, name in HEAD.items()],
        [
            *((*case, size) for case in ARCHITECTURES for size in ("tiny", "small")),
            *((family, name, "base") for family, name in HEAD.items()),
        ],
    ),
)
def test_outputs_and_gradients(family, architecture, size, tmp_path):
    model = make_model(family, architecture, size)
    model.save_pretrained(tmp_path)
    batch = make_batch(family, architecture, 30 if size != "base" else 60)
    check_same(bert_jax.load(tmp_path), model, outputs_of(model, batch), batch)


@pytest.mark.parametrize(
    ("family", "architecture"), slow_unless([*HEAD.items()], ARCHITECTURES)
)
def test_export_is_the_folder_that_was_read(family, architecture, tmp_path):
    import transformers

    write_folder(tmp_path / "saved", family, architecture)
    weights.find_source(tmp_path / "saved").export(tmp_path / "out")
    before = load_file(tmp_path / "saved" / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    again = getattr(transformers, architecture).from_pretrained(tmp_path / "out")
    assert type(again.config).__name__ == f"{ENCODERS[family][0]}Config"
