"""Texts of tokens against the tokenizers library itself."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dagrl.report.token_texts import TokenTexts

TEXTS = ["Für 3 Äpfel: 2 + 2 = 4 €", "naïve 漢字 😀 done", "a\n\n  b\tc", "plain"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["2 + 2 = 4 done plain"], trainer)
    return tokenizer


def test_the_alphabet_of_bytes_is_that_of_the_library() -> None:
    from dagrl.report.token_texts import _byte_of_character

    assert sorted(_byte_of_character()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(_byte_of_character().values()) == list(range(256))


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_of_a_text_join_to_the_text(text: str) -> None:
    tokenizer = byte_level()
    texts = TokenTexts(json.loads(tokenizer.to_str()))
    ids = tokenizer.encode(text).ids
    assert "".join(texts.of(ids)) == text == tokenizer.decode(ids)
    assert len(texts.of(ids)) == len(ids)


def test_special_tokens_and_unknown_ids_are_shown() -> None:
    texts = TokenTexts(json.loads(byte_level().to_str()))
    assert texts.of([0, 99_999]) == ["<|end|>", "⟨99999⟩"]


def test_a_character_that_is_cut_off_is_shown_as_such() -> None:
    tokenizer = byte_level()
    texts = TokenTexts(json.loads(tokenizer.to_str()))
    assert "".join(texts.of(tokenizer.encode("😀").ids[:2])) == "�"


def test_sentencepiece_vocabularies_with_bytes() -> None:
    content = {"model": {"vocab": [["<unk>", 0.0], ["▁he", -1.0], ["y", -2.0], ["<0xC3>", -3.0], ["<0xA9>", -3.0]]}}
    assert TokenTexts(content).of([1, 2, 3, 4]) == [" he", "y", "", "é"]


def test_a_file_without_a_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        TokenTexts({"model": {}})
