"""`pyspark.daemon` with the imports of its children, which then start by a fork alone.

A fork has one thread: nothing imported here may have started another.
"""

import importlib
import os
import sys
from pathlib import Path

sys.path[0] = str(Path.cwd())  # as `python -m` has it
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

import pyspark.daemon  # noqa: E402

USED = (
    "pyarrow.compute",
    "duebridge_connectors.spark.source.store_reader",
    "duebridge_connectors.spark.source.writer",
)
THREADS = Path("/proc/self/task")

if __name__ == "__main__":
    for module in (*USED, *sys.argv[1:]):  # the last one is the children's program
        importlib.import_module(module)
    assert not THREADS.exists() or len(list(THREADS.iterdir())) == 1, "a thread would be lost"
    pyspark.daemon.manager()
