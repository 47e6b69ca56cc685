"""ELMo (Peters et al. 2018): language models of both directions; docs/elmo.md."""

from typing import Any

from bert_jax.family import Family, Part


class Elmo(Family):
    """What an ELMo does otherwise than BERT."""

    name, title = "elmo", "an ELMo"
    model_type = ""  # Hugging Face has no such models
    attends = has_segments = False
    trunk_name = "elmo"
    extractor = Part("families.elmo.extractor:ElmoExtractor")

    def task(self, name: str, task: Any) -> Any:
        from bert_jax.tasks import elmo_tasks

        return elmo_tasks.of(name, task)


ELMO = Elmo()
