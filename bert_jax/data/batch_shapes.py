"""The shapes of pre-training's batches: known from the config, without any data."""

from ml_collections import ConfigDict

from bert_jax.config.phases import Phase


def shapes(config: ConfigDict, phase: Phase) -> dict[str, tuple[int, ...]]:
    """The shapes of a phase's training batches, by column."""
    rows, length = phase.batch_size, phase.max_seq_length
    tokens: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    predictions = phase.max_predictions_per_seq
    pairs: tuple[int, ...] = ()
    if config.corpus.packing:
        from bert_jax.data.packing import pairs as packing

        tokens += ("sequence_ids", "position_ids")
        share = config.masking.masked_lm_prob
        most = config.corpus.packed_pairs
        predictions = packing.predictions(length, share, predictions, most)
        pairs = (most,)
    names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    masked = dict.fromkeys(names, (rows, predictions)) if has_masks(config) else {}
    return {
        **dict.fromkeys(tokens, (rows, length)),
        **masked,
        **({"cls_positions": (rows, *pairs)} if pairs else {}),
        "next_sentence_labels": (rows, *pairs),
    }


def has_masks(config: ConfigDict) -> bool:
    """Whether pieces are masked, to be predicted; left to right all are predicted."""
    return bool(config.task.get("objective") != "ltr" and not config.model.causal)
