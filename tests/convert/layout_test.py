"""A family's layout is a table: the reader and the writer need no custom code."""

import json
import re

import pytest
from safetensors.numpy import load_file

from bert_jax.convert import weights
from bert_jax.convert.layout import BERT, Layout, common_architectures
from bert_jax.errors import UserError
from bert_jax.family import Family
from bert_jax.registry import FAMILIES
from tests.close import equal

CASE = "BertForMaskedLM-three_heads"


class Renamed(Layout):
    family = "renamed"
    architectures = common_architectures("Renamed", "Model")
    prefix = "own."
    renames = (
        (r"^bert\.", "own."),
        (r"attention\.self\.(query|key|value)", r"attention.\1_lin"),
        (r"^cls\.predictions\.", "head."),
    )
    tied = {  # noqa: RUF012
        "head.decoder.weight": "own.embeddings.word_embeddings.weight"
    }
    fields = {**BERT.fields, "hidden_size": ("dim", 768)}  # noqa: RUF012
    fixed = {"sinusoidal": False}  # noqa: RUF012


OWN = Family("renamed", "a Renamed", "renamed", layout=Renamed())


@pytest.fixture
def make(make_folder, monkeypatch):
    """Writes a folder of the family, with the numbers of CASE."""
    monkeypatch.setitem(FAMILIES, "renamed", OWN)

    def rename(tensors):
        for pattern, replacement in Renamed.renames:
            tensors = {re.sub(pattern, replacement, k): v for k, v in tensors.items()}
        return tensors

    def folder(change=lambda tensors: tensors, **more):
        fields = {
            "model_type": "renamed",
            "architectures": ["RenamedForMaskedLM"],
            "dim": 12,
            "hidden_size": "not ours",
        }
        return make_folder(CASE, fields | more, lambda x: change(rename(x)))

    return folder


def bare(tensors):
    return {name.removeprefix("own."): array for name, array in tensors.items()}


def copy_alone(tensors):
    original = tensors.pop("own.embeddings.word_embeddings.weight")
    return tensors | {"head.decoder.weight": original}


@pytest.mark.parametrize("change", [dict, bare, copy_alone])
def test_table_alone_reads_and_writes(make, make_folder, tmp_path, change):
    source = weights.find_source(make(change))
    assert (source.family.name, source.heads()) == ("renamed", ("masked_lm",))
    found = source.read()
    assert equal(found.params, weights.read_weights(make_folder(CASE)).params)
    assert (found.left_over, found.config.hidden_size) == ((), 12)
    source.export(tmp_path / "out")
    expected = load_file(make() / "model.safetensors")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert equal(written, expected)
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (fields["model_type"], fields["dim"]) == ("renamed", 12)
    assert fields["sinusoidal"] is False and "hidden_size" not in fields


def test_layout_checks_what_its_table_fixes(make):
    message = r"config\.json: sinusoidal=True; only a Renamed with False"
    with pytest.raises(UserError, match=message):
        weights.find_source(make(sinusoidal=True)).read()
