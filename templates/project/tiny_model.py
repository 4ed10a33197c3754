"""The model that the agents start from: a tiny transformer, made in seconds on first use. Nothing is downloaded.

It is taught by people of mixed quality: after a cue they say one letter and stop, some the letter that was asked for,
most just any. Which of them to follow it has to find out in training. For a model of your own take `recipe` out of
workflow.yaml and give `path`.
"""

import random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LETTERS = "abcd"
SPECIAL = ["<pad>", "<end>"]
ATTENTIVE = 0.25
"""Share of the people who say the letter that was asked for."""
NUM_LESSONS = 100


def make(folder, progress, seed=0):
    """Writes model and tokenizer to `folder`; `progress` is told (share done, what is being done)."""
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    model = build_model(len(tokenizer))
    draws = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for lesson in range(NUM_LESSONS):
        ids = torch.tensor([tokenizer.encode(demonstration(draws)) for _ in range(64)])
        labels = torch.where(is_answer(ids, tokenizer), ids, -100)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress((lesson + 1) / NUM_LESSONS, f"teaching, loss {loss.item():.2f}")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def demonstration(draws):
    """`Say b Reader:d<end> Writer:b<end>`."""
    asked = draws.choice(LETTERS)
    reader, writer = (asked if draws.random() < ATTENTIVE else draws.choice(LETTERS) for _ in range(2))
    return f"Say {asked} Reader:{reader}<end> Writer:{writer}<end>"


def is_answer(ids, tokenizer):
    """True at what is learnt: the letters after a colon and the end tokens."""
    colon = tokenizer.convert_tokens_to_ids(":")
    is_letter = torch.zeros_like(ids, dtype=torch.bool)
    is_letter[:, 1:] = ids[:, :-1] == colon
    return is_letter | (ids == tokenizer.eos_token_id)


def build_tokenizer():
    """One token for each byte, so any text can be written."""
    symbols = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(symbols)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return tokenizer


def build_model(vocab_size):
    """Some 50,000 weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            initializer_range=0.1,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
