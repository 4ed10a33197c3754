"""dagrl: a DAG workflow engine that trains teams of LLM agents with reinforcement learning."""

from dagrl.errors import DagrlError, WorkflowError
from dagrl.types import (
    Completion,
    FinishReason,
    Observation,
    SamplingParams,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    Turn,
    is_image_id,
)

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "DagrlError",
    "FinishReason",
    "Observation",
    "SamplingParams",
    "StopReason",
    "Task",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "WorkflowError",
    "is_image_id",
]
