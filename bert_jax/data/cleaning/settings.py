"""The stages of clean-up that a config asks for, in the order in which they run."""

from typing import Any, NamedTuple

from ml_collections import ConfigDict

PARAGRAPHS = ("boilerplate", "headings", "lists", "overlap")  # take paragraphs
DOCUMENTS = ("min_length", "language")  # take a document, by its own text
DUPLICATES = ("exact_duplicates", "near_duplicates")  # by all other documents
STAGES = (*PARAGRAPHS, *DOCUMENTS, *DUPLICATES)


class Settings(NamedTuple):
    """What shapes the clean text besides the text; from `config.corpus`."""

    stages: tuple[str, ...]  # of STAGES, in their order
    overlap_words: int
    min_words: int
    language: str
    language_share: float
    similarity: float

    def identity(self) -> dict[str, Any]:
        """The stages and the fields that they read."""
        fields = {
            "overlap": ("overlap_words",),
            "min_length": ("min_words",),
            "language": ("language", "language_share"),
            "near_duplicates": ("similarity",),
        }
        used = (name for stage in self.stages for name in fields.get(stage, ()))
        return {"stages": list(self.stages)} | {n: getattr(self, n) for n in used}


def of(config: ConfigDict) -> Settings:
    """The config's settings; without stages if `corpus.clean` is empty."""
    corpus = config.corpus
    return Settings(
        tuple(stage for stage in STAGES if stage in corpus.clean),
        corpus.clean_overlap_words,
        corpus.clean_min_words,
        corpus.language,
        corpus.clean_language,
        corpus.clean_similarity,
    )
