"""Bad input through Python: what was given, what was expected, what to do."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import cermet
import graphs
from cermet import options
from cermet.ops import library


def run(**options):
    x, weight = torch.randn(4, 32), torch.randn(32)
    return torch.compile(graphs.rms_norm, backend="cermet", options=options)(x, weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remainder": "magic"}, "option remainder is 'magic', expected one of 'auto', 'aot', 'inductor', 'eager'"),
        ({"no_such_option": 1}, "unknown option 'no_such_option'"),
        ({"mode": "fastest"}, "mode is 'fastest', expected one of"),
        ({"remainder": "aot", "max_autotune": True}, "option 'max_autotune' is Inductor's, but the remainder is 'aot'"),
        ({"remainder": "aot", "mode": "max-autotune"}, "mode 'max-autotune' is Inductor's, but the remainder is 'aot'"),
        ({"remainder": "eager", "mode": "reduce-overhead"}, "mode 'reduce-overhead' is Inductor's"),
        ({"mode": ["max-autotune"]}, r"mode is \['max-autotune'\], expected one of"),
        ({"triton.cudagraphs": "False"}, "option triton.cudagraphs is 'False', expected True or False"),
        ({"epilogue-fusion": 0}, "option epilogue-fusion is 0, expected True or False"),
        ({"max_fusion_size": "64"}, "option max_fusion_size is '64', expected a value of type int"),
    ],
)
def test_options(options, message):
    with pytest.raises(Exception, match=message):
        run(**options)


@pytest.mark.parametrize("value", ["no", "False", "0", "True", "", 0, 1, None, 1.0, [True]], ids=repr)
@pytest.mark.parametrize("option", ["strict", "autotune"])
def test_true_and_false_are_no_other_value(option, value):
    with pytest.raises(cermet.Error, match=re.escape(f"option {option} is {value!r}, expected True or False")):
        options.parse(None, {option: value})
    for truth in (True, False):
        assert getattr(options.parse(None, {option: truth}), option) is truth


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CERMET_STRICT", "False", "0 or 1"),
        ("CERMET_CHECK", "no", "0 or 1"),
        ("CERMET_LOG", "loud", "off, warn or info"),
        ("CERMET_EXPLAIN", "yes", "0, 1 or a path that ends in .html"),
        ("CERMET_COMPILE_THREADS", "many", "a number from 1 to 1024"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_variable_that_cannot_be_understood_is_never_ignored(monkeypatch, variable, value, expected, strict):
    monkeypatch.setenv(variable, value)
    with pytest.raises(Exception, match=f"{variable} is '{value}', expected {expected}"):
        run(remainder="eager", strict=strict)


def test_environment_variables_are_documented_and_checked(monkeypatch):
    root = pathlib.Path(__file__).resolve().parents[2]
    package = root / "frontends" / "torch" / "cermet"
    read = set(re.findall(r"\"(CERMET_\w+)\"", (package / "environment.py").read_text()))
    documented = root / "docs" / "environment.md"
    if not documented.exists():
        pytest.skip("the source tree is not here, only the tests")
    assert "CERMET_STRICT" in read
    readers = [str(file.relative_to(package)) for file in package.rglob("*.py") if re.search(r"environ\b|getenv", file.read_text())]
    assert readers == ["environment.py"], readers
    missing = {name for name in read if f"`{name}`" not in documented.read_text()}
    assert not missing, f"docs/environment.md does not name {missing}"
    monkeypatch.setenv("CERMET_STRICT", "yes")
    with pytest.raises(Exception, match="CERMET_STRICT is 'yes', expected 0 or 1"):
        run(remainder="eager")


def test_mode_as_an_argument_is_checked_too():
    with pytest.raises(Exception, match="mode is 'fastest', expected one of"):
        torch.compile(graphs.rms_norm, backend="cermet", mode="fastest")(torch.randn(4, 32), torch.randn(32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty|graph"),
        ("nonsense", "graph:1:1"),
        ("module attributes {cermet.version = 1 : i64} {\n  func.func @f() {\n    cermet.sing\n  }\n}", "graph:3:"),
    ],
)
def test_texts_that_are_no_graph(text, message):
    with pytest.raises(cermet.Error, match=message) as caught:
        library.context().match(text)
    assert caught.value.status == "CERMET_INVALID_GRAPH" or "INVALID" in caught.value.status.upper()
    with pytest.raises(cermet.Error):
        library.context().compile(text, "host")


def test_an_unknown_target():
    text = """module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
    %y = cermet.silu %x : tensor<4x32xf32>
    return %y : tensor<4x32xf32>
  }
}"""
    with pytest.raises(cermet.Error, match="sm_42"):
        library.context().compile(text, "sm_42")


def test_the_gradient_of_an_opaque_operation():
    text = """module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
    %y = cermet.opaque "thing"(%x) : (tensor<4x32xf32>) -> tensor<4x32xf32>
    return %y : tensor<4x32xf32>
  }
}"""
    with pytest.raises(cermet.Error, match="thing"):
        library.context().differentiate(text, (True,))


def in_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, timeout=300
    )


def test_a_missing_library_is_named():
    ran = in_process(
        "import cermet.ops.library as l\n"
        "l.importlib.resources.files = lambda package: __import__('pathlib').Path('/nowhere')\n"
        "import cermet\n"
        "try:\n    cermet.counters()\nexcept cermet.Error as error:\n    print(error)"
    )
    assert "libcermet.so.0 is missing from the installed cermet package" in ran.stdout, ran.stdout + ran.stderr
    assert "pip install ." in ran.stdout


def test_importing_the_package_is_light():
    ran = in_process("import sys, cermet; print('torch' in sys.modules, sorted(cermet.__all__))")
    names = "Error Explanation Memory Recording counters disable enable explain memory record".split()
    assert ran.stdout.strip() == f"False {names}", ran.stderr


def test_an_unwritable_cache_directory_does_not_fail_a_launch(tmp_path):
    (tmp_path / "file").write_text("in the way")
    ran = in_process(
        "import torch, cermet, sys\n"
        f"sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
        "import graphs\n"
        "x, w = torch.randn(4, 32), torch.randn(32)\n"
        "torch.testing.assert_close(graphs.compiled(graphs.rms_norm)(x, w), graphs.rms_norm(x, w))\n"
        "print('cache_failures', cermet.counters()['cache_failures'])",
        CERMET_CACHE_DIR=str(tmp_path / "file" / "cache"),
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 0, ran.stdout
