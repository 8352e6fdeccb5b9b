"""Text tests: one .mlir for each pattern, pass and printed form. Run by ctest; by hand:

    lit -sv --param tools=BUILD/bin --param llvm_tools=/usr/lib/llvm-22/bin --param output=BUILD/tests/lit tests/lit
"""

import os

import lit.formats

config.name = "cermet"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["output"]
config.environment["PATH"] = os.pathsep.join(
    [lit_config.params["tools"], lit_config.params["llvm_tools"], os.environ.get("PATH", "")]
)
# A failing check prints the text around it.
config.environment["FILECHECK_OPTS"] = "--dump-input-filter=error"
