"""G18: how many small faults put into a module its tests find.

python benchmarks/mutation.py [MODULE ...] [--every N]

Every mutant is the module with one comparison, sign, number, truth value or return value changed; it is found if the
tests named beside the module fail, or take far more CPU time than they did. Prints the share found and every mutant
that was not; `--every 5` tries each fifth mutant only. No figure depends on the machine.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.util
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS: dict[str, tuple[str, ...]] = {
    "dagrl/algorithms/gae.py": ("tests/algorithms/test_gae.py",),
    "dagrl/algorithms/scan.py": ("tests/algorithms/test_scan.py",),
    "dagrl/nodes/row_advantages.py": ("tests/nodes/test_row_advantages.py",),
    "dagrl/nodes/stream_advantages.py": ("tests/nodes/test_advantages.py",),
    "dagrl/runtime/checkpoint.py": ("tests/runtime/test_checkpoint.py", "tests/runtime/test_retention.py"),
    "dagrl/runtime/executor.py": ("tests/runtime/test_executor.py",),
}
"""Module -> the tests that are to find its mutants."""
PRELOADED = (
    "torch",
    "numpy",
    "hypothesis",
    "pyarrow.parquet",
    "safetensors.torch",
    "networkx",
    "pydantic",
    "_pytest.main",
)
"""Imported once, before the forks; nothing of dagrl."""
CPU_FACTOR, CPU_S, WALL_S = 10, 60, 1800
"""A mutant is stopped after so many times the CPU seconds of the sound module and some more, or when it only waits."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    tree: ast.Module
    told: str
    """Line, what stood there and what stands there now."""


def mutants(source: str) -> Iterator[Mutant]:
    """In the order of the source."""
    tree = ast.parse(source)
    for place, node in enumerate(_mutable(tree)):
        for number in range(len(_changes(node))):
            changed = copy.deepcopy(tree)
            target = list(_mutable(changed))[place]
            new = _changes(target)[number]
            told = f"{target.lineno}: {ast.unparse(target)}  ->  {ast.unparse(new)}"
            yield Mutant(tree=ast.fix_missing_locations(_Swap(target, new).visit(changed)), told=told)


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = old
        self._new = ast.copy_location(new, old)

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def _mutable(node: ast.AST) -> Iterator[Any]:
    """What may be changed: neither annotations, decorators and assertions, nor texts."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.Assert):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Assert) or not isinstance(child, ast.AST):
                continue
            if _changes(child):
                yield child
            yield from _mutable(child)


def _changes(node: ast.AST) -> list[Any]:
    match node:
        case ast.Compare(ops=[operator]):
            return [ast.Compare(node.left, [_COMPARED[type(operator)]()], node.comparators)]
        case ast.BinOp() if type(node.op) in _COMPUTED:
            return [ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)]
        case ast.BoolOp():
            return [ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return [node.operand]
        case ast.Constant(value=bool()):
            return [ast.Constant(not node.value)]
        case ast.Constant(value=int() | float()):
            return [ast.Constant(node.value + 1)]
        case ast.Return(value=ast.AST()) if ast.unparse(node.value) != "None":
            return [ast.Return(ast.Constant(None))]
    return []


class _Finder:
    """Gives the mutant when the module is imported."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self._path = path
        self._code: CodeType = compile(tree, str(path), "exec")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        code = self._code

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return code

        return importlib.util.spec_from_file_location(name, self._path, loader=Loader(name, str(self._path)))


def passes(path: Path, tree: ast.Module, tests: tuple[str, ...], cpu_s: float) -> tuple[bool, float]:
    """Whether the tests pass with `tree` as the module, in a process of its own; and their CPU seconds."""
    child = os.fork()
    if child == 0:
        _test(path, tree, tests, int(cpu_s))
    deadline = time.monotonic() + WALL_S
    while (ended := os.wait4(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return ended[1] == 0, ended[2].ru_utime + ended[2].ru_stime


def _test(path: Path, tree: ast.Module, tests: tuple[str, ...], cpu_s: int) -> None:
    import pytest

    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        silence = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(silence, number)
        sys.meta_path.insert(0, _Finder(path, tree))  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
            options = ["-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={folder}/tests"]
            code = int(pytest.main([*options, "-m", "not gpu and not resilience", *tests]))
    finally:
        os._exit(code)


def judge(module: str, every: int) -> None:
    path, tests = ROOT / module, SUBJECTS[module]
    source = path.read_text(encoding="utf-8")
    is_sound, seconds = passes(path, ast.parse(source), tests, 3600)
    if not is_sound:
        raise SystemExit(f"{module}: {' '.join(tests)} fail as it is")
    tried = list(mutants(source))[::every]
    survivors = [one for one in tried if passes(path, one.tree, tests, CPU_FACTOR * seconds + CPU_S)[0]]
    found = len(tried) - len(survivors)
    print(f"{module}: {found} of {len(tried)} mutants found ({found / len(tried):.0%})", flush=True)
    for one in survivors:
        print(f"    {module}:{one.told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation score of modules")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all, if none is named")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th mutant")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in PRELOADED:
        importlib.import_module(name)
    for module in options.modules or SUBJECTS:
        judge(module, options.every)


if __name__ == "__main__":
    main()
