"""Truncation of texts that are too long for a row."""


def pair_lengths(
    first: int, second: int, limit: int, odd_to_longer: bool = False
) -> tuple[int, int]:
    """Returns the number of tokens of two texts that remain after truncation.

    The longer one loses its last token until both fit. If they are equally long, the
    second does (run_classifier.py, _truncate_seq_pair).

    Args:
      odd_to_longer: See `Kind`.
    """
    if first + second <= limit:
        return first, second
    half = limit // 2 if odd_to_longer and first <= second else limit - limit // 2
    first = min(first, max(limit - second, half))
    return first, limit - first


def truncate_tokens(pieces: list[int], limit: int, mode: str) -> list[int]:
    """Returns the tokens of a too long text that remain, by `task.truncation`.

    `head_tail` is from Sun et al. 2019, section 5.3.1: of 510 tokens, the first 128 and
    the last 382. Other lengths use the same ratio.
    """
    head = {"head": limit, "tail": 0, "head_tail": (limit + 2) // 4}[mode]
    return pieces[:head] + pieces[len(pieces) - (limit - head) :]
