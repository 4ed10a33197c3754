"""Transcripts: what is handed from agent to agent, as ids, and as text only where tokenizers differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dagrl.backends.base import Tokenizer, encode_foreign, image_tokens_of
from dagrl.errors import DagrlError
from dagrl.images import marks, pieces, shown
from dagrl.types import Task, Turn, is_image_id

_USER, _ASSISTANT, _OBSERVATION = "dagrlUSERdagrl", "dagrlASSISTANTdagrl", "dagrlOBSERVATIONdagrl"
"""Stand-ins that no chat template contains: they show where a template puts what."""

_SPLIT = "\ufdd2"
"""Stands in a text where the placeholder of images is split, so that it is none."""

Heard = tuple[str, int, str]
"""(environment, how many answers it gave before, text): an observation that stands in a transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A conversation so far, as the tokenizer of `group` writes it."""

    group: int
    ids: tuple[int, ...] = ()
    is_prompt: bool = False
    """True for the task's prompt, which each agent writes with its own tokenizer; `ids` and `group` mean nothing."""
    heard: frozenset[Heard] = frozenset()


PROMPT = Transcript(group=0, is_prompt=True)


class Scribe:
    """Writes and extends transcripts with the tokenizer of any agent group."""

    def __init__(self, tokenizer_of: Callable[[int], Tokenizer]) -> None:
        self._tokenizer_of = tokenizer_of
        self._is_same: dict[tuple[int, int], bool] = {}
        self._between: dict[int, tuple[str, str]] = {}

    def translate(self, transcript: Transcript, group: int, task: Task) -> Transcript:
        """The transcript in the tokenizer of `group`; ids stay where both have the same vocabulary."""
        tokenizer = self._tokenizer_of(group)
        if transcript.is_prompt:
            return Transcript(group=group, ids=tuple(_write_prompt(tokenizer, task, None, group)))
        if self._share_vocabulary(transcript.group, group):
            return replace(transcript, group=group)
        return replace(transcript, group=group, ids=tuple(self._retold(transcript, tokenizer)))

    def add_responses(self, transcript: Transcript, turns: Sequence[Turn], group: int, task: Task) -> Transcript:
        """The transcript for `group`, followed by the responses of `turns`."""
        base = self.translate(transcript, group, task)
        tokenizer = self._tokenizer_of(group)
        ids = list(base.ids)
        for turn in turns:
            is_same = self._share_vocabulary(turn.agent_group, group)
            ids += turn.response_ids if is_same else encode_foreign(tokenizer, turn.response_text)
        return replace(base, ids=tuple(ids))

    def add_observation(self, transcript: Transcript, heard: Heard, group: int, task: Task) -> Transcript:
        """The transcript for `group` with an observation as a user message, unless it stands there already."""
        if heard in transcript.heard:
            return self.translate(transcript, group, task)
        tokenizer = self._tokenizer_of(group)
        marks = transcript.heard | {heard}
        if transcript.is_prompt:
            return Transcript(group=group, ids=tuple(_write_prompt(tokenizer, task, heard[2], group)), heard=marks)
        base = self.translate(transcript, group, task)
        if isinstance(task.prompt, str):
            added = encode_foreign(tokenizer, f"\n{heard[2]}\n")
        else:
            added = self._user_turn(group, base.ids, heard[2])
        return replace(base, ids=(*base.ids, *added), heard=marks)

    def rewrite(self, transcript: Transcript, text: str) -> Transcript:
        """The transcript replaced by `text`; what both begin with keeps its ids."""
        tokenizer = self._tokenizer_of(transcript.group)
        before = tokenizer.decode(transcript.ids)
        if text.startswith(before):
            ids = (*transcript.ids, *encode_foreign(tokenizer, text[len(before) :]))
        else:
            ids = tuple(encode_foreign(tokenizer, text))
        return replace(transcript, ids=ids)

    def read(self, transcript: Transcript, task: Task) -> str:
        """The transcript as text, control tokens included."""
        written = self.translate(transcript, transcript.group, task)
        return self._tokenizer_of(written.group).decode(written.ids)

    def _retold(self, transcript: Transcript, tokenizer: Tokenizer) -> list[int]:
        """The ids of another vocabulary, by their text; images stay where they stand."""
        source = self._tokenizer_of(transcript.group)
        ids: list[int] = []
        for are_images, run in groupby(transcript.ids, key=is_image_id):
            if are_images:
                ids += _between_ends(tokenizer, list(run))
            else:
                ids += encode_foreign(tokenizer, source.decode(list(run), skip_special_tokens=True))
        return ids

    def _share_vocabulary(self, one: int, other: int) -> bool:
        if (one, other) not in self._is_same:
            self._is_same[one, other] = is_same_vocabulary(self._tokenizer_of(one), self._tokenizer_of(other))
        return self._is_same[one, other]

    def _user_turn(self, group: int, ids: Sequence[int], text: str) -> list[int]:
        """What is appended to `ids`, which end with an agent's response; `ids` themselves stay as they are."""
        tokenizer = self._tokenizer_of(group)
        if group not in self._between:
            self._between[group] = _between_turns(tokenizer, group)
        before, after = self._between[group]
        if ids and ids[-1] == tokenizer.eos_token_id:
            before = before.removeprefix(tokenizer.decode([ids[-1]]))
        return _join(tokenizer, before, text, after)


def prompt_text(task: Task) -> str:
    """The task's prompt as an environment gets it: the text, or that of the last user message."""
    if isinstance(task.prompt, str):
        return shown(task.prompt)
    users = [message for message in task.prompt if message.get("role") == "user"]
    content = (users or list(task.prompt))[-1].get("content", "")
    if isinstance(content, str):
        return shown(content)
    return "\n".join(part["text"] for part in content if part.get("type") == "text")


def is_same_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    """True if an id means the same text in both."""
    if one is other:
        return True
    if len(one) != len(other) or type(one) is not type(other):
        return False
    get_one, get_other = getattr(one, "get_vocab", None), getattr(other, "get_vocab", None)
    return get_one is not None and get_other is not None and get_one() == get_other()


def _write_prompt(tokenizer: Tokenizer, task: Task, observation: str | None, group: int) -> list[int]:
    if isinstance(task.prompt, str):
        ids = _between_ends(tokenizer, _encode_marked(tokenizer, task.prompt, add_special_tokens=True))
        return ids if observation is None else [*ids, *encode_foreign(tokenizer, f"\n{observation}\n")]
    messages = list(task.prompt)
    if observation is None:
        return _encode_marked(tokenizer, _template(tokenizer, messages, group))
    text = _template(tokenizer, [*messages, {"role": "user", "content": _OBSERVATION}], group)
    before, _, after = text.partition(_OBSERVATION)
    return _join(tokenizer, before, observation, after)


def _between_ends(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """`ids` with each image between the tokens that the model knows images by, where it reads any."""
    tokens = image_tokens_of(tokenizer)
    if tokens is None:
        return ids
    return [one for id_ in ids for one in (tokens.around(id_) if is_image_id(id_) else [id_])]


def _template(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], group: int) -> str:
    if getattr(tokenizer, "chat_template", None) is None:
        raise DagrlError(
            f"the prompts are chat messages, and the tokenizer of agent group {group} has no chat template",
            how="use a model with a chat template, or give prompts as text",
        )
    tokens = image_tokens_of(tokenizer)
    images = [one for message in messages if isinstance(message["content"], str) for one in marks(message["content"])]
    if tokens is None:
        return _rendered(tokenizer, messages)
    parted = [dict(message) | {"content": _in_parts(message["content"], tokens.placeholder)} for message in messages]
    first, *others = _rendered(tokenizer, parted).split(tokens.placeholder)
    if len(others) != len(images):
        raise DagrlError(
            f"the chat template of agent group {group} writes {len(others)} image tokens for {len(images)} images",
            how="use the chat template that the model came with",
        )
    return first + "".join(image + text for image, text in zip(images, others))


def _rendered(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))


def _in_parts(content: Any, placeholder: str) -> Any:
    """A message's content as chat templates want it where it shows images; the placeholder of images, where a text has
    it, is split in two."""
    if not isinstance(content, str):
        return content
    parts = [piece.replace(placeholder, placeholder[0] + _SPLIT + placeholder[1:]) if isinstance(piece, str) else None
             for piece in pieces(content)]  # fmt: skip
    if None not in parts:
        return "".join(part for part in parts if part is not None)
    return [{"type": "image"} if part is None else {"type": "text", "text": part} for part in parts]


def _encode_marked(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = False) -> list[int]:
    """The ids of a text of the template's or the data's: its control tokens count, and marks become handles."""
    if _SPLIT not in text and not marks(text):
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    ids = tokenizer.encode("", add_special_tokens=add_special_tokens)
    for piece in pieces(text):
        if isinstance(piece, int):
            ids.append(piece)
            continue
        for part in piece.split(_SPLIT):
            ids += tokenizer.encode(part, add_special_tokens=False)
    return ids


def _between_turns(tokenizer: Tokenizer, group: int) -> tuple[str, str]:
    """What the chat template writes from the end of an assistant's words to a user's, and on to the assistant's."""
    messages = [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": _ASSISTANT},
        {"role": "user", "content": _OBSERVATION},
    ]
    text = _template(tokenizer, messages, group)
    before, _, after = text[text.rindex(_ASSISTANT) + len(_ASSISTANT) :].partition(_OBSERVATION)
    return before, after


def _join(tokenizer: Tokenizer, before: str, foreign: str, after: str) -> list[int]:
    return [
        *_encode_marked(tokenizer, before),
        *encode_foreign(tokenizer, foreign),
        *tokenizer.encode(after, add_special_tokens=False),
    ]
