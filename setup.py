"""Installs the package `dagrl`, the command of the same name, and what ships beside the package."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = ("workflows", "envs", "templates", "data_preprocess")
"""Folders at the top of the repository; a wheel holds them as dagrl/shipped/<folder>, where scaffold/files.py looks."""

CORE = [
    # 2.11 is what CUDA machines have, 2.13 what installs as a CPU build; a newer one would bring several GB of CUDA.
    "torch>=2.11,<2.14",
    "transformers>=5.16,<5.24",
    "peft>=0.18",
    "safetensors>=0.5",
    "numpy>=1.26",
    "pillow>=10.0",
    "networkx>=3.2",
    "pyyaml>=6.0",
    "pyarrow>=16.0",
    "datasets>=3.0",
    "tensorboard>=2.16",
    "pydantic>=2.7,<3",
    "typer>=0.12",
    "rich>=13.7",
    "math-verify>=0.8",
    "httpx2>=2.0",
]

# pygame: the classic games of PettingZoo import it.
ENVS = ["TextArena>=0.7", "gymnasium>=1.0", "pettingzoo>=1.24", "pygame>=2.5"]

EXTRAS = {
    "vllm": ["vllm"],
    "ray": ["ray>=2.47"],
    "envs": [*ENVS, "reasoning-gym>=0.1.20"],
    "dev": [
        *ENVS,
        "pytest>=8.0",
        "pytest-xdist>=3.5",
        "hypothesis>=6.100",
        "ruff>=0.9",
        "mypy>=1.13",
        "types-PyYAML",
        "types-networkx",
        "jsonschema>=4.0",
        "markdown>=3.5",
    ],
}


class BuildWithShipped(build_py):
    """Builds the package, with the shipped folders in it; an editable install finds them where they are."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in SHIPPED:
            goal = Path(self.build_lib) / "dagrl" / "shipped" / name
            shutil.copytree(name, goal, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "runs"))


setup(
    name="dagrl",
    version="0.1.0",
    description="A DAG workflow engine that trains teams of LLM agents with reinforcement learning",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["dagrl", "dagrl.*"]),
    package_data={
        "dagrl": ["py.typed"],
        "dagrl.workflow": ["workflow.schema.json"],
        "dagrl.report": ["page/*"],
    },
    cmdclass={"build_py": BuildWithShipped},
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["dagrl = dagrl.cli:main"]},
)
