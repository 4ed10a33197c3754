"""Loads models and tokenizers from folders, Hugging Face names and recipes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)
from transformers.utils import logging

from dagrl.backends import vision
from dagrl.backends.recipes import Progress, ensure_model
from dagrl.errors import DagrlError
from dagrl.workflow.sections import ModelSpec

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # runs show their own progress

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def locate(spec: ModelSpec, base: Path, progress: Progress) -> str:
    """Where `spec`'s model lies: a folder, made by its recipe if need be, or a Hugging Face name.

    A `path` is looked for in `base`, then in the working directory; what is in neither is a name.
    """
    if spec.recipe is not None and spec.path is not None:
        raise DagrlError("both `path` and `recipe` are given", where="model", how="give one, say model.recipe=null")
    if spec.recipe is not None:
        return str(ensure_model(spec.recipe, spec.recipe_kwargs, base, progress))
    if spec.path is None:
        raise DagrlError("no model is given", where="config.model", how="give `path` or `recipe`")
    return _folder_or_name(spec.path, base)


def cached_folder(location: str) -> Path | None:
    """The folder that `locate` found, or that of a Hugging Face name in the cache; None where it has none."""
    if os.path.isdir(location):
        return Path(location)
    config = try_to_load_from_cache(location, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def load_tokenizer(spec: ModelSpec, location: str, base: Path) -> Any:
    """The tokenizer of `spec`, or that of the model at `location`; where images can be read, with their processor as
    `image_tokens`.

    The parts of a processor are loaded one by one: AutoProcessor asks for torchvision too, for videos.
    """
    place = tokenizer_place(spec, location, base)
    tokenizer = _load(AutoTokenizer, place, "tokenizer", trust_remote_code=spec.trust_remote_code)
    if reads_images(spec, place):
        processor = _load(AutoImageProcessor, place, "image processor", trust_remote_code=spec.trust_remote_code)
        tokenizer.image_tokens = vision.ImageProcessor(processor, _config(spec, place), tokenizer)
    return tokenizer


def open_tokenizer(spec: ModelSpec, base: Path, progress: Progress) -> Any:
    """The tokenizer of `spec`; its model is not looked for where the tokenizer has a place of its own."""
    return load_tokenizer(spec, "" if spec.tokenizer is not None else locate(spec, base, progress), base)


def tokenizer_place(spec: ModelSpec, location: str, base: Path) -> str:
    """Where the tokenizer of `spec` lies, its model being at `location`: a folder, or a Hugging Face name."""
    return location if spec.tokenizer is None else _folder_or_name(spec.tokenizer, base)


def load_causal_lm(spec: ModelSpec, location: str) -> Any:
    """A causal language model, with what it sees by if it reads images, in evaluation mode with every dropout at 0, on
    its device."""
    loader = AutoModelForImageTextToText if reads_images(spec, location) else AutoModelForCausalLM
    return _prepare(_load(loader, location, "model", **_arguments(spec)), spec)


def load_backbone(spec: ModelSpec, location: str) -> Any:
    """The same without the language model's head."""
    return _prepare(_load(AutoModel, location, "model", **_arguments(spec)), spec)


def reads_images(spec: ModelSpec, place: str) -> bool:
    """Whether the model at `place` is one whose images can be read; a folder without a model has none."""
    config = _config(spec, place)
    return config is not None and config.model_type in vision.MODEL_TYPES


def restore_weights(model: Any, folder: Path) -> None:
    """Copies the weights saved in `folder` into `model`, in place, so that an optimizer keeps hold of them."""
    saved = type(model).from_pretrained(folder, dtype=next(model.parameters()).dtype)
    model.load_state_dict(saved.state_dict())


def device_of(spec: ModelSpec) -> torch.device:
    """`spec.device`; if not given the first GPU, or the CPU where there is none."""
    if spec.device is not None:
        return torch.device(spec.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def max_positions(config: Any) -> float:
    """Longest sequence the model was made for, in tokens; infinity where its config does not say."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return math.inf if limit is None else int(limit)


def end_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a response: of the generation config, the model's config and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found |= set(ids) if isinstance(ids, (list, tuple)) else set() if ids is None else {int(ids)}
    return frozenset(found)


def _arguments(spec: ModelSpec) -> dict[str, Any]:
    return {
        "dtype": DTYPES[spec.dtype],
        "attn_implementation": spec.attn_implementation,
        "trust_remote_code": spec.trust_remote_code,
    }


def _config(spec: ModelSpec, place: str) -> Any:
    """None where there is none, as for a tokenizer by itself."""
    try:
        return AutoConfig.from_pretrained(place, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError):
        return None


def _prepare(model: Any, spec: ModelSpec) -> Any:
    without_dropout(model)
    try:
        return model.to(device_of(spec)).eval()
    except (RuntimeError, AssertionError) as error:  # what torch raises for devices that it does not know or have
        raise DagrlError(
            f"the model cannot be put on '{spec.device}': {str(error).splitlines()[0]}",
            where="model.device",
            how="leave it out, or give cpu, cuda or cuda:1",
        ) from error


def without_dropout(model: torch.nn.Module) -> None:
    """Sets every dropout to 0: log-probs must be the same function when they are taken and when they are trained."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def _folder_or_name(path: str, base: Path) -> str:
    for candidate in (base / path, Path(path)):
        if os.path.isdir(candidate):
            return str(candidate.resolve())
    return path


def _load(loader: Any, place: str, what: str, **arguments: Any) -> Any:
    try:
        return loader.from_pretrained(place, **arguments)
    except (OSError, ValueError, ImportError) as error:
        is_folder = os.path.isdir(place)
        raise DagrlError(
            f"the {what} cannot be loaded: {error}",
            where=place,
            how=f"the folder must hold a Hugging Face {what}"
            if is_folder
            else "give a folder that exists, or a Hugging Face name that is in the cache or can be reached",
        ) from error
