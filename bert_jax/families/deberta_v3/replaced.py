"""Replaced-token detection with gradient-disentangled embeddings (He et al. 2021,
section 3.3): the discriminator's word embeddings are the generator's, which learn from
the masked LM alone, plus a table that learns from the discriminator."""

from collections.abc import Mapping
from typing import Any

from bert_jax.families.deberta_v3.model import Deberta, DebertaDiscriminator
from bert_jax.families.electra.replaced import ReplacedTokens, generator_config
from bert_jax.models.heads import BertForPreTraining


class DebertaReplacedTokens(ReplacedTokens):
    """DeBERTa-v3's models."""

    def setup(self) -> None:
        self.generator = BertForPreTraining(
            generator_config(self.config), trunk=Deberta, has_nsp_head=False
        )
        table = self.generator.bert.embeddings.word_embeddings
        self.bert = Deberta(self.config, table)
        self.replaced_tokens = DebertaDiscriminator(self.config)

    @staticmethod
    def complete(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return _with_table(bert, _table(bert) + _table(generator)), generator

    @staticmethod
    def shared(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inverts `complete`. An unknown generator begins with the other's table."""
        table = _table(bert)
        if not generator:
            generator = _with_table({"embeddings": {}}, table)
        return _with_table(bert, table - _table(generator)), generator


def _table(trunk: Mapping[str, Any]) -> Any:
    return trunk["embeddings"]["word_embeddings"]["embedding"]


def _with_table(trunk: Mapping[str, Any], table: Any) -> dict[str, Any]:
    words = {"word_embeddings": {"embedding": table}}
    return {**trunk, "embeddings": {**trunk["embeddings"], **words}}
