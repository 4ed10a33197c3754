"""Settings over settings: config, agent group, node; what a level does not give comes from the one below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dagrl.types import SamplingParams
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.fields import Spec
from dagrl.workflow.sections import ActorSpec, CriticSpec, ModelSpec, RolloutSpec, SamplingOverride, SamplingSpec

S = TypeVar("S", bound=Spec)

_IDENTITY = ("path", "recipe", "recipe_kwargs", "tokenizer")
"""What says which model it is; given anew, nothing of it is inherited."""
_OF_THE_AGENT = ("max_tokens", "stop", "stop_token_ids")
"""Sampling settings that held-out play takes over from training play unless `val_kwargs` says otherwise."""


class NodeConfigSpec(Spec):
    """A node's `config`: its own values of these sections."""

    model: ModelSpec | None = None
    rollout: RolloutSpec | None = None
    algorithm: AlgorithmSpec | None = None
    actor: ActorSpec | None = None
    critic: CriticSpec | None = None


def given(spec: Spec | None) -> dict[str, Any]:
    """What the file says, without defaults."""
    return {} if spec is None else spec.model_dump(exclude_unset=True)


def over(base: S, *tops: Mapping[str, Any]) -> S:
    """`base` with what each of `tops` gives over it, later ones last."""
    values: Mapping[str, Any] = given(base)
    for top in tops:
        values = _merged(values, top)
    return type(base).model_validate(values)


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def over_model(base: ModelSpec, *tops: ModelSpec | None) -> ModelSpec:
    """A model's settings; a level that names a model inherits neither path, recipe nor tokenizer from below."""
    values = given(base)
    for top in tops:
        own = given(top)
        if "path" in own or "recipe" in own:
            values = {key: value for key, value in values.items() if key not in _IDENTITY}
        values = _merged(values, own)
    return ModelSpec.model_validate(values)


def sampling_of(rollout: RolloutSpec, *tops: SamplingOverride | SamplingSpec | None) -> SamplingSpec:
    """How an agent samples in training: the run's way, then its group's, then the node's."""
    return over(rollout.sampling, *(_without_none(given(top)) for top in tops))


def val_sampling_of(
    rollout: RolloutSpec, training: SamplingSpec, *tops: SamplingOverride | SamplingSpec | None
) -> SamplingSpec:
    """How an agent samples on held-out problems: `val_kwargs`, with the agent's own limits and stops."""
    told = rollout.val_kwargs.model_fields_set
    overridden = {key for top in tops for key in _without_none(given(top))}
    taken = {key: getattr(training, key) for key in _OF_THE_AGENT if key in overridden or key not in told}
    return over(rollout.val_kwargs, taken)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def params_of(sampling: SamplingSpec) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=max(sampling.top_k, 0),
        min_p=sampling.min_p,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
    )
