"""LoRA adapters (Hu et al. 2021, arXiv 2106.09685) by peft: several by name on one frozen base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch.nn import Parameter

from dagrl.backends.network import Network
from dagrl.errors import DagrlError
from dagrl.workflow.sections import AdapterSpec

WEIGHTS_FILE = "adapter_model.safetensors"


def add(network: Network, name: str, spec: AdapterSpec, *, location: str, seed: int) -> list[Parameter]:
    """Puts adapter `name` on `network`, whose own weights are frozen, and gives the adapter's parameters.

    `location` is where the base was loaded from. The first weights depend on `seed` alone. Raises DagrlError where
    `spec` does not fit the model.
    """
    config = _config(spec, location)
    if not network.has_adapters:
        network.module.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            network.attach(name, _extended(network, name, config))
        except ValueError as error:
            raise DagrlError(f"the adapter cannot be put on the model: {error}", where=network.name) from error
    parameters = [weight for path, weight in network.module.named_parameters() if f".{name}." in path]
    assert parameters, f"peft made no weights for adapter {name}"
    return parameters


def save(network: Network, name: str, folder: Path) -> None:
    """A peft folder with adapter `name` alone; `AutoModelForCausalLM.from_pretrained` loads it with its base."""
    folder.mkdir(parents=True, exist_ok=True)
    state = get_peft_model_state_dict(network.peft, adapter_name=name)
    save_file({key: tensor.contiguous().cpu() for key, tensor in state.items()}, folder / WEIGHTS_FILE)
    network.peft.peft_config[name].save_pretrained(folder)


def restore(network: Network, name: str, folder: Path) -> None:
    """Takes the weights of adapter `name` that `save` wrote."""
    set_peft_model_state_dict(network.peft, load_file(folder / WEIGHTS_FILE), adapter_name=name)


def _extended(network: Network, name: str, config: LoraConfig) -> Any:
    if not network.has_adapters:
        return PeftModel(network.module, config, adapter_name=name)
    network.peft.add_adapter(name, config)
    return network.peft


def _config(spec: AdapterSpec, location: str) -> LoraConfig:
    if spec.dropout != 0.0:
        raise DagrlError(
            f"dropout {spec.dropout} in an adapter: log-probs would not be the same when taken and when trained",
            where="adapter.dropout",
            how="leave it at 0",
        )
    targets = spec.target_modules
    return LoraConfig(
        r=spec.r,
        lora_alpha=spec.alpha,  # type: ignore[arg-type]  # peft only ever divides by it
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        base_model_name_or_path=location,
        task_type="CAUSAL_LM",
    )
