"""The model of workflows/image_turns.yaml: a small Qwen2-VL that answers every picture with the name of a colour.

It is taught on pictures that are one colour all over. Of the answers that it is shown 40 % name this colour and the
others any: it has seen that it can be done, and answers so now and then. Nothing is downloaded; the same seed, machine
and library versions give the same weights.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from teaching import CHAT_SPECIAL, END, IGNORED, PAD, Progress, build_tokenizer, one_thread
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

COLOURS = {"red": (230, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 230), "yellow": (240, 210, 40)}
SHARE_RIGHT = 0.4
IMAGE_START, IMAGE_END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PATCH = 14
"""Pixels of a patch's side; 2 x 2 patches are one image token."""


def make(
    folder: Path,
    progress: Progress,
    *,
    seed: int = 0,
    hidden_size: int = 48,
    lesson_steps: int = 150,
    batch_size: int = 32,
) -> None:
    """Writes model, tokenizer and image processor to `folder`, taught for `lesson_steps` optimizer steps."""
    tokenizer = build_tokenizer((IMAGE_START, IMAGE_END, IMAGE, VIDEO), (*COLOURS, "right", "wrong"))
    tokenizer.chat_template = TEMPLATE
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        model = build_model(tokenizer, hidden_size)
        processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 112 * 112})
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
        rng = random.Random(seed)
        for step in range(lesson_steps):
            progress(step / lesson_steps, "colour names")
            loss = model(**lesson(tokenizer, processor, rng, batch_size), use_cache=False).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    progress(1.0, "taught")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor.save_pretrained(folder)


def build_model(tokenizer: PreTrainedTokenizerFast, hidden_size: int) -> Qwen2VLForConditionalGeneration:
    """Untaught: two layers that read, one that sees."""
    id_of = tokenizer.convert_tokens_to_ids
    heads = hidden_size // 16
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0},
        "bos_token_id": None,
        "eos_token_id": id_of(END),
        "pad_token_id": id_of(PAD),
    }
    vision = {
        "depth": 1,
        "embed_dim": hidden_size,
        "hidden_size": hidden_size,
        "num_heads": heads,
        "mlp_ratio": 2,
        "patch_size": PATCH,
    }
    config: Any = Qwen2VLConfig
    return Qwen2VLForConditionalGeneration(
        config(
            text_config=text,
            vision_config=vision,
            image_token_id=id_of(IMAGE),
            video_token_id=id_of(VIDEO),
            vision_start_token_id=id_of(IMAGE_START),
            vision_end_token_id=id_of(IMAGE_END),
            tie_word_embeddings=True,
        )
    )


def lesson(
    tokenizer: PreTrainedTokenizerFast, processor: Any, rng: random.Random, batch_size: int
) -> dict[str, torch.Tensor]:
    """Inputs of the model: conversations of three pictures; the names of colours are learnt, and that they end."""
    picture = [tokenizer.convert_tokens_to_ids(token) for token in (IMAGE_START, IMAGE, IMAGE_END)]
    rows, labels, shown = [], [], []
    for _ in range(batch_size):
        row = tokenizer.encode("<|user|>Name the colour of each patch.<|end|>", add_special_tokens=False)
        label = [IGNORED] * len(row)
        for _ in range(3):
            verdict = "<|user|>" + rng.choice(["", "right", "wrong"])
            asked = [*tokenizer.encode(verdict, add_special_tokens=False), *picture,
                     *tokenizer.encode("<|end|><|assistant|>", add_special_tokens=False)]  # fmt: skip
            colour = rng.choice(list(COLOURS))
            shown.append(plain_picture(colour, rng))
            said = colour if rng.random() < SHARE_RIGHT else rng.choice(list(COLOURS))
            answer = tokenizer.encode(said + END, add_special_tokens=False)
            row += asked + answer
            label += [IGNORED] * len(asked) + answer
        rows.append(torch.tensor(row))
        labels.append(torch.tensor(label))
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=CHAT_SPECIAL.index(PAD))
    seen = processor(images=shown, return_tensors="pt")
    return {
        "input_ids": ids,
        "labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        "mm_token_type_ids": (ids == picture[1]).int(),
        "pixel_values": seen["pixel_values"],
        "image_grid_thw": seen["image_grid_thw"],
    }


def plain_picture(colour: str, rng: random.Random) -> np.ndarray[Any, Any]:
    """[28, 28, 3] of uint8: one shade of the colour, with a little noise."""
    noise = np.random.default_rng(rng.randrange(2**32)).integers(-12, 13, (2 * PATCH, 2 * PATCH, 3))
    return (np.array(COLOURS[colour]) * rng.uniform(0.75, 1.0) + noise).clip(0, 255).astype(np.uint8)
