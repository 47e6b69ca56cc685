"""The objects that config fields name, and those that come with a family."""

import re

import optax

from bert_jax import registry
from bert_jax.convert import weights
from bert_jax.family import BERT, Family
from tests.micro import error_line


def test_registry_finds_a_family_s_parts_by_name():
    assert "openai_adam" not in registry.OPTIMIZERS
    found = registry.OPTIMIZERS.lookup("openai_adam")
    assert found.__module__ == "bert_jax.families.gpt.optimizer"
    entries = {"optimizer.schedule": {"flat": "optax:constant_schedule"}}
    registry.FAMILIES["mine"] = Family("mine", registry_entries=entries)
    assert registry.SCHEDULES.lookup("flat") is optax.constant_schedule
    said = r"config\.optimizer\.schedule='round': choose one of polynomial, .*, flat; "
    assert re.match(said, error_line(registry.SCHEDULES.lookup, "round"))


def test_a_family_of_one_s_own_leaves_bert_its_weights(monkeypatch):
    mine = BERT.replace(name="mine", title="Mine: a BERT")
    monkeypatch.setitem(registry.FAMILIES, "mine", mine)
    assert weights.find_source("mini").family is BERT
    assert mine.title == "Mine: a BERT" and "values of a family" in (mine.__doc__ or "")
