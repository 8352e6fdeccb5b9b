"""Fresh cache directories, so that a first step is a first step. Imported before torch and cermet, who read them.

With CERMET_BENCH_KEEP_CACHES the directories stay as the process that started this one had them.
"""
import os
import tempfile

if not os.environ.get("CERMET_BENCH_KEEP_CACHES"):
    fresh = tempfile.mkdtemp(prefix="cermet-bench-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{fresh}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{fresh}/triton"
    os.environ["CERMET_CACHE_DIR"] = f"{fresh}/cermet"
