"""What a run imports, imported once in the process that runs are forked from; no thread may exist there."""

from __future__ import annotations

import gc
import importlib
import os
from pathlib import Path

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(_ONE_THREAD, "1"), TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
for name in ("transformers.models.qwen2.modeling_qwen2", "dagrl.cli.run", "dagrl.runtime.resume",
             "dagrl.runtime.session"):  # fmt: skip
    importlib.import_module(name)
gc.collect()
gc.freeze()
threads = {Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in os.listdir("/proc/self/task")}
threads -= {Path("/proc/self/comm").read_text().strip(), "jemalloc_bg_thd"}  # jemalloc starts its own anew after a fork
assert not threads, f"a fork copies one thread, and there are {threads} too"
