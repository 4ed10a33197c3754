"""The Hugging Face hub: where its cache keeps a model, and sending a folder, only ever by an explicit name."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is of the hub's own HTTP library
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
)

from dagrl.errors import DagrlError


def cached_model(name: str) -> Path | None:
    """The folder of the hub's cache that holds the model `name`; None where it is not there. Asks no server."""
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def push(folder: Path, name: str) -> str:
    """Uploads `folder` to the model repository `name`, made private where it is new; gives its address.

    Raises DagrlError where the hub cannot be reached, or refuses.
    """
    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True, repo_type="model")
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Exported by dagrl")
    except (OSError, HTTPError, ValueError) as error:  # offline, no token, refused, not a name
        raise DagrlError(
            f"cannot be sent to the Hugging Face hub: {error}",
            where=name,
            how=f"the folder {folder} is whole: mend it (`hf auth login`, HF_HUB_OFFLINE) and send it by `hf upload`",
        ) from error
    return str(address)
