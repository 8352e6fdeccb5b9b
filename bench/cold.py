"""Fresh cache directories, so that a first step is a first step. Imported before torch and cermet, who read them.

They go with the process that made them. With CERMET_BENCH_KEEP_CACHES they are those of the process before it.
"""
import atexit
import os
import shutil
import tempfile

if not os.environ.get("CERMET_BENCH_KEEP_CACHES"):
    fresh = tempfile.mkdtemp(prefix="cermet-bench-")
    atexit.register(shutil.rmtree, fresh, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{fresh}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{fresh}/triton"
    os.environ["CERMET_CACHE_DIR"] = f"{fresh}/cermet"
    os.environ["CUDA_CACHE_PATH"] = f"{fresh}/cuda"  # of what the driver compiles, for libraries too
