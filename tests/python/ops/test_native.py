"""What Python asks of libcermet rather than know: no table of element types, targets or settings beside cermet_facts."""

import torch
from cermet import environment, native
from cermet.ops import signatures
from cermet.targets import devices
from cermet.text import ELEMENT_TYPES, STORED


def test_element_types_are_libcermets():
    known = {getattr(torch, item["array_name"]): item for item in native.facts()["element_types"]}
    assert known.keys() == ELEMENT_TYPES.keys() and set(STORED) == {torch.float8_e4m3fn, torch.float8_e5m2}
    for dtype, item in known.items():
        assert dtype.itemsize == item["bytes"] and signatures.dtypes()[item["name"]] == dtype


def test_targets_are_libcermets():
    for target in native.facts()["cuda_targets"]:
        assert devices.cuda_target(*divmod(target["capability"], 10)) == target["name"]
    assert devices.cuda_target(8, 7) == "sm_86"


def test_settings_are_those_of_the_environment_now(monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    monkeypatch.setenv("CERMET_COMPILE_THREADS", "3")
    assert environment.check() is True and environment.compile_threads() == 3
