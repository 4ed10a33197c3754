"""Stop strings, looked for token by token without decoding the whole response each time."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.backends.base import Tokenizer

_BYTES_PER_CHARACTER = 4
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""How a tokenizer shows a token that holds part of a character."""


class Pieces:
    """The text of each token by itself, decoded once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self.decode([token])
        return text

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)


class StopTexts:
    """The stop strings of one request."""

    def __init__(self, texts: Sequence[str], pieces: Pieces) -> None:
        self._texts = tuple(texts)
        self._pieces = pieces
        self._ends = {text[-1] for text in texts}
        self._ends_in_space = any(end.isspace() for end in self._ends)
        self._window = _BYTES_PER_CHARACTER * max(len(text) for text in texts) + 1
        """Tokens that the longest stop string can be spread over, and the one before it."""

    def are_found(self, tokens: Sequence[int]) -> bool:
        """Whether the last of `tokens` completed a stop string; to be asked after every token."""
        piece = self._pieces[tokens[-1]]
        if not (self._ends_in_space or _UNFINISHED in piece or not self._ends.isdisjoint(piece)):
            return False
        tail = self._pieces.decode(tokens[-self._window :])
        return any(text in tail for text in self._texts)
