"""Packs from a model without numbers: a process that may compile nothing trains and infers from one all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cermet import Error
from cermet.capturing import command, models, shapes
from captured import MODELS, ONLY, capture, entries, steps
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_a_captured_pack_trains_evaluates_and_infers_where_nothing_may_be_compiled(model, tmp_path):
    ran = capture(tmp_path, model, "--shapes", "input_ids=2x16", "--target", "host", "-o", "m.cpack")
    assert ran.returncode == 0, ran.stderr[-4000:]
    pack = tmp_path / "m.cpack"
    assert f"{pack.stat().st_size} bytes" in ran.stdout, ran.stdout
    packed = steps(tmp_path, model, [(2, 16)], CERMET_PACKS=str(pack), **ONLY)
    made = steps(tmp_path, model, [(2, 16)])
    assert made["opened"] == ["libcermet_compiler"] and packed["opened"] == []  # the detector works
    counters = packed["counters"]
    assert counters["cache_misses"] == counters["fallbacks"] == counters["late_gradients"] == 0, counters
    assert counters["launches"] == made["counters"]["launches"] > 0
    entries = counters["plans_from_packs"] + counters["kernels_from_packs"]
    assert f" {entries} entries" in ran.stdout, (ran.stdout, counters)  # and nothing that nobody asks for
    assert packed["numbers"] == made["numbers"]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory) -> Path:
    """A pack of a model for every length."""
    folder = tmp_path_factory.mktemp("lengths")
    ran = capture(folder, "llama", "--shapes", "input_ids=2x1..7", "--target", "host", "-o", "m.cpack")
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder / "m.cpack"


@pytest.mark.parametrize("calls", [[(2, 5), (2, 3), (2, 7)], [(2, 2), (2, 6)]], ids=str)
def test_lengths_that_are_marked_find_all_in_the_pack_whichever_comes_first(lengths, calls, tmp_path):
    packed = steps(tmp_path, "llama", calls, (1,), CERMET_PACKS=str(lengths), **ONLY)
    assert packed["counters"]["cache_misses"] == packed["counters"]["fallbacks"] == 0, packed["counters"]
    assert packed["numbers"] == steps(tmp_path, "llama", calls, (1,))["numbers"]


def test_a_length_of_one_is_in_the_pack_too(lengths, tmp_path):
    packed = steps(tmp_path, "llama", [(2, 1)], CERMET_PACKS=str(lengths), **ONLY)
    assert packed["counters"]["cache_misses"] == packed["counters"]["fallbacks"] == 0, packed["counters"]


def test_a_loss_in_pieces_finds_all_of_them_in_the_pack(tmp_path):
    options = '{"logits_bytes": 4096}'
    arguments = "--shapes", "input_ids=2x64", "--target", "host", "--options", options, "-o", "m.cpack"
    assert capture(tmp_path, "llama", *arguments).returncode == 0
    packed = steps(tmp_path, "llama", [(2, 64)], CERMET_PACKS=str(tmp_path / "m.cpack"), OPTIONS=options, **ONLY)
    assert packed["counters"]["cache_misses"] == packed["counters"]["fallbacks"] == 0, packed["counters"]


def test_gpus_that_are_not_here_are_captured_with_the_same_bytes_from_anywhere(tmp_path):
    arguments = "qwen3", "--shapes", "input_ids=2x16", "-o", "m.cpack", "--target"
    packs = []
    both = "sm_90,sm_100"
    made = {"CERMET_CACHE_DIR": str(tmp_path / "here" / "cache")}  # what has the same keys is not made again
    hashed = {"PYTHONHASHSEED": "1"}  # what a set has comes in another order
    places = ("here", both, {}), ("elsewhere", both, hashed), ("one", "sm_90", made), ("other", "sm_100", made)
    for place, targets, cache in places:
        ran = capture(tmp_path / place, *arguments, targets, **cache)
        assert ran.returncode == 0, ran.stderr[-4000:]
        packs.append(tmp_path / place / "m.cpack")
    both, again, one, other = packs
    assert both.read_bytes() == again.read_bytes()
    found = entries(both)
    for kind in ("plan", "kernel"):
        line = 0 if kind == "plan" else 1
        targets = [key.split("\n")[line].removeprefix("target ") for each, key in found if each == kind]
        assert set(targets) == {"sm_90", "sm_100"} and targets.count("sm_90") == targets.count("sm_100") > 9, targets
    assert set(found) == {*entries(one), *entries(other)}
    matches = "".join(key for kind, key in found if kind == "match")
    assert "_scaled_dot_product_cudnn_attention_backward" in matches  # which torch takes on both
    assert "for_cpu" not in matches


@pytest.mark.parametrize("model, shapes", [("checkpointed", "input_ids=2x2..64"), ("draws", "x=2x64x64:float32")])
def test_what_a_checkpoint_encloses_is_made_again_by_a_gpu_that_is_not_here(tmp_path, model, shapes):
    """What may draw there, as attention may, torch gives generators of the device."""
    arguments = "--shapes", shapes, "--target", "sm_90", "--for", "train", "-o", "m.cpack"
    ran = capture(tmp_path, model, *arguments, CERMET_STRICT="1")
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "left as it was" not in ran.stderr and entries(tmp_path / "m.cpack")


@pytest.mark.parametrize("model", ["apart", "chooses"])
def test_what_a_gpu_would_read_of_the_cpu_needs_none_here(tmp_path, model):
    arguments = "--shapes", "x=2x64x64:float32", "--target", "sm_90", "--for", "infer", "-o", "m.cpack"
    ran = capture(tmp_path, model, *arguments, CERMET_STRICT="1")
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "left as it was" not in ran.stderr and entries(tmp_path / "m.cpack")


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("llama", "--shapes input_ids=2x16 --target sm_91", "unknown target 'sm_91', expected one of: sm_80 sm_86"),
        ("llama", "--shapes input_ids=2x16 --target host --for play", "--for is 'play', expected some of train,evaluate,infer"),
        ("llama", "--shapes input_ids=2x16 --target sm_90 --attention best", "unknown kernel for attention 'best', expected"),
        ("llama", "--shapes input_ids --target host", "'input_ids' is no input; expected NAME=SIZExSIZE..."),
        ("llama", "--shapes input_ids=2x0 --target host", "has the size '0', expected a number from 1 on, or a range"),
        ("llama", "--shapes input_ids=2x9..4 --target host", "has the size '9..4', expected a number from 1 on, or a range"),
        ("llama", "--shapes input_ids=2x4:whole --target host", "has the type 'whole', expected one of torch's"),
        ("llama", "--shapes input_ids=2,input_ids=3 --target host", "which name input_ids twice, expected each input once"),
        ("llama", "--shapes labels=input_ids --target host", "where labels is input_ids, expected the name of an input before"),
        ("breaks", "--shapes x=2x4,pixels=3 --target host", "shapes name 'pixels', which the model does not take"),
        ("nobody", "--shapes input_ids=2x16 --target host", "has no 'nobody', expected a function that returns the model"),
        ("number", "--shapes input_ids=2x16 --target host", "number is int, expected a function that returns the model"),
        ("no_module", "--shapes input_ids=2x16 --target host", "the function returned int, expected a torch.nn.Module"),
        ("reads_elements", "--shapes input_ids=2x16 --target host", "the model cannot be made: RuntimeError: "),
        ("breaks", "--shapes x=2x4 --target host", "host, train, x=2x4: the model cannot be called without numbers: "),
        ("llama", "--shapes input_ids=2x16 --target host --options 1", "--options is '1', expected an object like"),
        ("llama", "--shapes input_ids=2x16 --target host --options {", "--options is '{', which is no JSON"),
        ("llama", '--shapes input_ids=2x16 --target host --options {"autotune":true}', "option autotune is True, expected False"),
        ("llama", "--shapes input_ids=2x16 --target host --autocast half8", "--autocast is 'half8', expected bfloat16"),
    ],
)
def test_what_cannot_be_captured_is_said(model, arguments, message, tmp_path, capsys):
    given = ["capture", f"{MODELS}:{model}", *arguments.split(), "-o", str(tmp_path / "m.cpack")]
    assert command.main(given) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("captured_models", "the model is 'captured_models', expected MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("no_such_module:f", "there is no module 'no_such_module', expected one that Python finds here"),
        ("none.py:f", "'none.py' is no file, expected a Python script"),
    ],
)
def test_a_model_that_is_not_there_is_said(name, message, tmp_path, capsys):
    given = ["capture", name, "--shapes", "x=2", "--target", "host", "-o", str(tmp_path / "m.cpack")]
    assert command.main(given) == 1
    assert message in capsys.readouterr().err


def test_what_puts_a_model_on_a_gpu_is_no_obstacle():
    with FakeTensorMode() as mode:
        pass
    model = models.made(models.maker(f"{MODELS}:on_a_gpu"), mode, torch.device("cpu"))
    assert all(isinstance(each, torch.nn.Parameter) for each in model.parameters()) and model.dtype == torch.bfloat16
    assert all(each.device.type == "cpu" for each in (*model.parameters(), *model.buffers()))
    assert model.lm_head.weight.shape == (128, 64)


def test_a_range_is_a_call_for_each_power_of_two_and_one_for_a_length_of_one():
    made = [str(call) for call in shapes.calls(shapes.parse("input_ids=2x1..9, mask=2x1..9:bool"))]
    assert made == [f"input_ids=2x{size}, mask=2x{size}" for size in ("1", "2..", "4..", "8..")]
    assert [str(call) for call in shapes.calls(shapes.parse("x=3..3x5..6"))] == ["x=3x5.."]
    both = [str(call) for call in shapes.calls(shapes.parse("x=2..3x4..9"))]
    assert both == ["x=2..x4..", "x=2..x8.."]


CALLS = {
    "a.json": '{"calls": [{"input_ids": "2x1..4096", "labels": "input_ids"}, {"image": "1x3:float16"}]}',
    "a.toml": '[[calls]]\ninput_ids = "2x1..4096"\nlabels = "input_ids"\n[[calls]]\nimage = "1x3:float16"\n',
}


@pytest.mark.parametrize("name", CALLS)
def test_a_file_holds_the_kinds_of_call(name, tmp_path):
    if name.endswith(".toml"):
        pytest.importorskip("tomllib", reason="Python reads TOML from 3.11 on")
    (tmp_path / name).write_text(CALLS[name])
    given = [shapes.parse("input_ids=2x1..4096,labels=input_ids"), shapes.parse("image=1x3:float16")]
    assert shapes.kinds(str(tmp_path / name)) == given


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ("{", "cannot be understood"),
        ('{"calls": []}', "holds no calls"),
        ('{"calls": [{"x": "2"}], "more": 1}', "holds no calls"),
        ('{"calls": [{"x": 2}]}', "shapes as texts"),
        ('{"calls": [{"x": "0"}]}', "expected a number from 1 on"),
        (None, "cannot be read"),
    ],
)
def test_a_file_of_no_calls_is_said(held, message, tmp_path):
    if held is not None:
        (tmp_path / "a.json").write_text(held)
    with pytest.raises(Error, match=message):
        shapes.kinds(str(tmp_path / "a.json"))
