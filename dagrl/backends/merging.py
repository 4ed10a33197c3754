"""A LoRA adapter folded into its base model: a folder that loads without peft."""

from __future__ import annotations

import shutil
from pathlib import Path

from peft import PeftModel

from dagrl.backends.loading import DTYPES, load_causal_lm, load_tokenizer, locate
from dagrl.backends.recipes import Progress
from dagrl.backends.vision import IMAGE_PROCESSOR_FILE
from dagrl.workflow.sections import ModelSpec


def save_merged(spec: ModelSpec, adapter: Path, folder: Path, *, base: Path, progress: Progress) -> None:
    """Writes model `spec` with the peft folder `adapter` added to its weights, and the adapter's tokenizer.

    W + (alpha / r) B A is summed in float32 and then rounded to the model's dtype once. `base` is the workflow's
    folder. Raises DagrlError where the base model is not to be had.
    """
    exact = spec.model_copy(update={"dtype": "float32", "device": "cpu", "attn_implementation": "sdpa"})
    network = load_causal_lm(exact, locate(spec, base, progress))
    merged = PeftModel.from_pretrained(network, adapter).merge_and_unload(safe_merge=True)
    merged.to(DTYPES[spec.dtype]).save_pretrained(folder)
    load_tokenizer(spec.model_copy(update={"tokenizer": None}), str(adapter), base).save_pretrained(folder)
    if (adapter / IMAGE_PROCESSOR_FILE).is_file():
        shutil.copy(adapter / IMAGE_PROCESSOR_FILE, folder)
