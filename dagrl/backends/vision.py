"""Vision-language models: from images to image tokens, pixels and positions.

A prompt comes with one id for each image, its handle; `expand` is the only place where that becomes the model's own
placeholder tokens. Which positions show an image is known from there on and not read off the ids: a placeholder that an
agent says, or that a hook writes, means nothing and is read as padding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dagrl.errors import DagrlError, UserCodeError
from dagrl.experience import Sequences
from dagrl.images import open_image
from dagrl.types import Image

MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl")
"""Of configs: models with `get_rope_index`, whose images are `pixel_values` and `image_grid_thw`."""
IMAGE_PROCESSOR_FILE = "preprocessor_config.json"
"""What transformers calls it."""
_KEPT_PATCHES = 2**15
"""Prepared images are kept up to so many patches (150 MB), so that the passes of a step do not prepare them anew."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one prompt of L tokens shows."""

    pixel_values: Tensor
    """[patches, values of a patch] of all its images."""
    grid: Tensor
    """[images, 3] int64: patches in time, height and width."""
    is_image: Tensor
    """[L] bool."""
    positions: Tensor
    """[3, L] int64: places in time, height and width of the rotary embedding."""

    @property
    def shift(self) -> int:
        """What is added to the positions of what follows: an image counts by its sides, not by its tokens."""
        return int(self.positions.max()) + 1 - self.positions.shape[1]


class ImageProcessor:
    """The processor of one model with the ids that its images take."""

    def __init__(self, processor: Any, config: Any, tokenizer: Any) -> None:
        self._processor = processor
        self._image_id = int(config.image_token_id)
        self._ends = (int(config.vision_start_token_id), int(config.vision_end_token_id))
        self._void = frozenset((self._image_id, int(config.video_token_id)))
        others = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        self._neutral = next(one for one in others if one is not None and one not in self._void)
        self._merge = int(config.vision_config.spatial_merge_size) ** 2
        self.placeholder: str = tokenizer.convert_ids_to_tokens(self._image_id)
        self._kept: OrderedDict[str, tuple[Tensor, Tensor]] = OrderedDict()
        self._num_kept = 0

    def around(self, handle: int) -> list[int]:
        """The handle between the tokens that the model knows images by."""
        return [self._ends[0], handle, self._ends[1]]

    def expand(self, ids: Sequence[int], album: Mapping[int, Image]) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """The prompt with as many placeholder tokens for each handle as the image has, and the images in order."""
        expanded: list[int] = []
        images: list[Image] = []
        for at, one in enumerate(ids):
            image = album.get(one)
            if image is None:
                expanded.append(self._neutral if one in self._void else one)
                continue
            if at and ids[at - 1] in album:
                raise UserCodeError(
                    f"two images stand side by side in the prompt, at position {at}",
                    how="keep the ids before and behind an image with it",
                    kind="bad_return",
                )
            images.append(image)
            expanded += [self._image_id] * (int(self._patches(image)[1].prod()) // self._merge)
        return tuple(expanded), tuple(images)

    def sight(self, base: Any, prompt_ids: Sequence[int], images: Sequence[Image]) -> Sight | None:
        """What `expand` gave, for model `base`; None where no image is shown."""
        if not images:
            return None
        pixels, grids = zip(*(self._patches(image) for image in images))
        grid, ids = torch.stack(grids), torch.tensor(prompt_ids)
        is_image = ids == self._image_id
        wanted, found = int(grid.prod(-1).sum()) // self._merge, int(is_image.sum())
        if wanted != found:
            raise DagrlError(
                f"{len(images)} images need {wanted} image tokens, the prompt has {found}",
                how="likely cause: a hook or COMPUTE function changed ids or images after they were put together",
            )
        positions, _ = base.get_rope_index(
            ids[None], mm_token_type_ids=is_image[None].int(), image_grid_thw=grid, attention_mask=None
        )
        return Sight(torch.cat(pixels), grid, is_image, positions[:, 0])

    def sights(self, base: Any, sequences: Sequences, turns: Tensor) -> list[Sight | None] | None:
        """What each of `turns` shows; None where none of them shows anything."""
        if sequences.images is None:
            return None
        shown = [sequences.images[turn] for turn in turns.tolist()]
        if not any(shown):
            return None
        starts, lengths = sequences.offsets[turns].tolist(), sequences.prompt_lens[turns].tolist()
        prompts = [sequences.input_ids[start : start + length] for start, length in zip(starts, lengths)]
        return [self.sight(base, prompt.tolist(), images) for prompt, images in zip(prompts, shown)]

    def inputs(
        self, input_ids: Tensor, sights: Sequence[Sight | None] | None, position_ids: Tensor | None
    ) -> dict[str, Tensor]:
        """Arguments of the model for rows `input_ids` [B, L], of which `sights` tells what each row shows.

        `position_ids` [B, L] are those of a text; None: rows begin at 0. A row that does not begin at 0 goes on behind
        its prompt, whose images were put in before.
        """
        count, width = input_ids.shape
        if position_ids is None:
            position_ids = torch.arange(width, device=input_ids.device).expand(count, width)
        positions = position_ids[None].repeat(3, 1, 1)
        is_image = torch.zeros_like(input_ids, dtype=torch.bool)
        shown: list[Sight] = []
        for row, (sight, start) in enumerate(zip(sights or (), position_ids[:, 0].tolist())):
            if sight is None:
                continue
            length = 0
            if start == 0:
                length = len(sight.is_image)
                shown.append(sight)
                is_image[row, :length] = sight.is_image.to(is_image.device)
                positions[:, row, :length] = sight.positions.to(positions.device)
            positions[:, row, length:] += sight.shift
        is_void = torch.isin(input_ids, torch.tensor(sorted(self._void), device=input_ids.device)) & ~is_image
        arguments = {"input_ids": input_ids.masked_fill(is_void, self._neutral), "position_ids": positions}
        if shown:
            arguments["pixel_values"] = torch.cat([sight.pixel_values for sight in shown]).to(input_ids.device)
            arguments["image_grid_thw"] = torch.cat([sight.grid for sight in shown]).to(input_ids.device)
        return arguments

    def save(self, folder: Path) -> None:
        self._processor.save_pretrained(folder)

    def _patches(self, image: Image) -> tuple[Tensor, Tensor]:
        """([patches, values] float32, [3] int64 grid) of one image."""
        if image.digest in self._kept:
            self._kept.move_to_end(image.digest)
            return self._kept[image.digest]
        made = self._processor(images=[open_image(image)], return_tensors="pt")
        self._kept[image.digest] = made["pixel_values"], made["image_grid_thw"][0]
        self._num_kept += len(made["pixel_values"])
        while self._num_kept > _KEPT_PATCHES and len(self._kept) > 1:
            self._num_kept -= len(self._kept.popitem(last=False)[1][0])
        return self._kept[image.digest]


def hidden_states(
    base: Any, processor: ImageProcessor | None, input_ids: Tensor, sights: Any = None, **arguments: Any
) -> Tensor:
    """[B, L, d] last hidden states of `base`, a model without its head."""
    if processor is None:
        plain: Tensor = base(input_ids=input_ids, **arguments).last_hidden_state
        return plain
    seen = processor.inputs(input_ids, sights, arguments.pop("position_ids", None))
    states: Tensor = base(**seen, **arguments).last_hidden_state
    return states
