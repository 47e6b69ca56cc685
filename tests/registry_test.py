"""The objects that config fields name, and those that come with a family."""

import optax
import pytest

from bert_jax import registry
from bert_jax.errors import UserError
from bert_jax.family import Family


@pytest.mark.parametrize("name", [*registry.FAMILIES])
def test_models_of_a_family_agree(name):
    family = registry.FAMILIES[name]
    assert family.with_heads.trunk is family.for_pretraining.trunk
    head = getattr(family.for_pretraining, "has_nsp_head", False)
    assert family.has_nsp_head == head


def test_registry_finds_a_family_s_parts_by_name():
    assert "openai_adam" not in registry.OPTIMIZERS
    assert (
        registry.OPTIMIZERS.lookup("openai_adam").__module__
        == "bert_jax.families.gpt.optimizer"
    )

    entries = {"optimizer.schedule": {"flat": "optax:constant_schedule"}}
    registry.FAMILIES["mine"] = Family("mine", registry_entries=entries)
    assert registry.SCHEDULES.lookup("flat") is optax.constant_schedule
    said = r"^config\.optimizer\.schedule='round': choose one of polynomial, .*, flat; "
    with pytest.raises(UserError, match=said):
        registry.SCHEDULES.lookup("round")
