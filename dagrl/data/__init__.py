"""Data sets: parquet, jsonl, json and Hugging Face names to tasks, and the loader whose position can be saved."""

from dagrl.data.loader import DataLoader
from dagrl.data.tasks import FIELDS, read_tasks, tasks_of

__all__ = ["FIELDS", "DataLoader", "read_tasks", "tasks_of"]
