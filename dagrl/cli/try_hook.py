"""`dagrl try-hook`: text and ids before and after a hook."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagrl.cli.arguments import COLUMN_HELP, ROW_HELP, key_values, task_of
from dagrl.errors import DagrlError

if TYPE_CHECKING:
    from dagrl.runtime.hook_trial import Setting


def try_hook(
    file: Annotated[str, typer.Argument(help="The file with pre_process and/or post_process.")],
    row: Annotated[str | None, typer.Option(help=ROW_HELP)] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt instead of a row.")] = None,
    workflow: Annotated[
        Path | None, typer.Option("--workflow", "-w", help="Takes tokenizer and kwargs from it.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Its node; the first that names FILE, if not given.")] = None,
    model: Annotated[str | None, typer.Option(help="A model's folder or name, for its tokenizer.")] = None,
    obs: Annotated[str | None, typer.Option(help="What the environment said.")] = None,
    response: Annotated[str, typer.Option(help="What the agent said.")] = "an answer",
    inputs: Annotated[list[str] | None, typer.Option("--input", help="node=text, for hooks with `inputs`.")] = None,
    pre_kwarg: Annotated[list[str] | None, typer.Option(help="key=value for pre_process.")] = None,
    post_kwarg: Annotated[list[str] | None, typer.Option(help="key=value for post_process.")] = None,
    column: Annotated[list[str] | None, typer.Option(help=COLUMN_HELP)] = None,
) -> None:
    """Show text and ids before and after a hook. Without --workflow or --model each byte is a token."""
    if row is None and prompt is None:
        raise DagrlError("nothing to try it on", how=f"--row FILE:N ({ROW_HELP}) or --prompt TEXT")
    from dagrl.runtime.hook_trial import Words, try_hooks

    said = {name: [str(text)] for name, text in key_values(inputs).items()}
    setting = _setting(file, workflow, node, model, pre_kwarg, post_kwarg)
    for line in try_hooks(setting, task_of(row, prompt, None, column), Words(obs=obs, response=response, inputs=said)):
        print(line)


def _setting(
    file: str,
    workflow: Path | None,
    node: str | None,
    model: str | None,
    pre_kwarg: list[str] | None,
    post_kwarg: list[str] | None,
) -> Setting:
    from dagrl.runtime.console import Console
    from dagrl.runtime.hook_trial import setting_alone, setting_of_node
    from dagrl.workflow.graph import load_workflow

    if workflow is None:
        if node is not None:
            raise DagrlError("--node needs --workflow")
        return setting_alone(file, model, pre=key_values(pre_kwarg), post=key_values(post_kwarg))
    if model is not None or pre_kwarg or post_kwarg:
        raise DagrlError("--workflow gives tokenizer and kwargs", how="leave out --model, --pre-kwarg and --post-kwarg")
    with Console(sys.stderr).making_model() as progress:
        return setting_of_node(load_workflow(workflow), file, node, progress)
