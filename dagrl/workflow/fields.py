"""What the sections of a workflow file are made of: the strict base class and the types of numbers and paths."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
PositiveInt = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


def as_list(value: Any) -> Any:
    """One value as a list of it."""
    return value if isinstance(value, (list, tuple)) or value is None else [value]


Paths = Annotated[tuple[str, ...], BeforeValidator(as_list)]
"""One path or a list of them."""


class Spec(BaseModel):
    """What all parts of a workflow file share: unknown keys are refused, nothing changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )
