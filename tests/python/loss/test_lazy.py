"""Logits that a graph returns beside its loss and nobody made: what may be done with them, and what makes them."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import numpy
import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet import options, pipeline
from cermet.loss.lazy import Logits
from cermet.loss.logits import Returned
from cermet.records import Settings
from heads import VOCABULARY, close, inputs, loss_of, returned
from test_returned_logits import capped_returned, scaled_returned, widened_apart, widened_returned
from truth import relative


def read_inside(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight)
    return loss_of(logits, labels), logits, (logits.detach().argmax(-1).flatten() == labels).sum()


def differentiated_inside(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight)
    return loss_of(logits, labels) + logits.sort(-1).values[..., 0].mean(), logits


def a_view_of_them(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight)
    return loss_of(logits, labels), logits.view(-1, VOCABULARY)


def of_a_computed_weight(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight * 1.0)
    return loss_of(logits, labels), logits


def compiled(function=returned, **given):
    return graphs.compiled(function, "aot", **given)


def fresh(device="cpu"):
    """Logits that nobody looked at, of operands that require gradients, and eager's."""
    arguments = inputs(device=device)
    logits = compiled()(*arguments)[1]
    assert type(logits) is Logits and not logits._value.known
    return logits, returned(*arguments)[1], arguments


def test_nothing_in_the_graph_makes_them():
    for function in (returned, capped_returned, scaled_returned, widened_apart):
        module = graphs.trace(function, *inputs())
        pipeline.run(module, Settings(returned=Returned.LAZY))
        calls = [str(node.target) for node in module.graph.nodes if node.op.startswith("call")]
        assert any("linear_head_" in call for call in calls), calls
        made = [call for call in calls for word in ("linear", "tanh", "div", "region", "double") if word in call]
        assert len(made) == 1, calls


@pytest.mark.parametrize("function", [returned, capped_returned, scaled_returned, widened_apart])
@pytest.mark.parametrize("use", ["loss", "logits", "both"])
def test_losses_logits_and_gradients_are_eagers(function, use, device):
    arguments = inputs(device=device)
    results = []
    for run in (compiled(function), function):
        loss, logits = run(*arguments)
        total = (loss * 3.0 if use != "logits" else 0.0) + (logits.square().mean() if use != "loss" else 0.0)
        results.append([loss.detach(), *torch.autograd.grad(total, arguments[:2])])
        if run is not function:
            assert type(logits) is Logits and logits._value.known == (use != "loss")
        results[-1].append(logits.detach() * 1.0)
    close(*results)


MADE = [read_inside, differentiated_inside, a_view_of_them, of_a_computed_weight, widened_returned]


@pytest.mark.parametrize("function", MADE)
def test_what_the_graph_reads_itself_it_makes(function):
    arguments = inputs()
    ours, eager = compiled(function)(*arguments), function(*arguments)
    assert type(ours[1]) is torch.Tensor
    close(ours[:2], eager[:2])


def test_kept_where_asked_and_where_graphs_are_recorded():
    arguments = inputs()
    assert type(compiled(logits="keep")(*arguments)[1]) is torch.Tensor
    assert not options.parse("reduce-overhead", {}).lazy_logits and options.parse(None, {}).lazy_logits
    with torch.no_grad():
        assert type(compiled()(*arguments)[1]) is torch.Tensor
    with pytest.raises(cermet.Error, match="option logits is 'never', expected one of 'lazy', 'keep'"):
        options.parse(None, {"logits": "never"})


def test_what_is_known_without_them():
    logits, eager, _ = fresh()
    for what in (lambda t: t.shape, lambda t: t.dtype, lambda t: t.device, lambda t: t.stride(), lambda t: t.numel(),
                 lambda t: t.requires_grad, lambda t: t.is_leaf, lambda t: t.is_contiguous(), len, lambda t: t.nbytes,
                 lambda t: t.ndim, lambda t: t.element_size(), lambda t: t.storage_offset()):
        assert what(logits) == what(eager)
    assert isinstance(logits, torch.Tensor) and not logits._value.known


def test_copies_wait_as_well():
    logits, eager, _ = fresh()
    waiting = [logits.detach(), logits.double(), logits.to(torch.bfloat16).detach(), logits.clone(), logits.data]
    assert all(type(each) is Logits for each in waiting) and not logits._value.known
    wanted = [eager, eager.double(), eager.to(torch.bfloat16), eager, eager]
    for ours, true in zip(waiting, wanted):
        assert ours.dtype == true.dtype
        torch.testing.assert_close(ours * 1, true * 1, rtol=1e-2 if ours.dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    assert logits._value.known and type(logits.detach()) is torch.Tensor


def test_accelerates_conversion_makes_nothing():
    operations = pytest.importorskip("accelerate.utils.operations")
    arguments = [each.bfloat16() if each.is_floating_point() else each for each in inputs()]
    arguments = [each.detach().requires_grad_(each.is_floating_point()) for each in arguments]
    wide = operations.convert_outputs_to_fp32(compiled())(*arguments)[1]
    assert type(wide) is Logits and wide.dtype == torch.float32 and not wide._value.known
    assert torch.equal(wide * 1, returned(*arguments)[1].float())


USES = {
    "arithmetic": lambda t: t * 2.0 + t.mean(),
    "argmax": lambda t: t.argmax(-1),
    "index": lambda t: t[:, -1, :],
    "shifted": lambda t: t[..., :-1, :].contiguous().view(-1, VOCABULARY),
    "mask": lambda t: t[t > 0],
    "cat": lambda t: torch.cat([t, t]),
    "gather": lambda t: torch.gather(t.log_softmax(-1), -1, t.argmax(-1, keepdim=True)),
    "f64": lambda t: t.to("cpu", torch.float64),
    "out": lambda t: torch.add(t.detach(), 1.0, out=torch.empty(t.shape, device=t.device)),
    "numpy": lambda t: torch.from_numpy(t.detach().cpu().numpy().copy()),
    "asarray": lambda t: torch.from_numpy(numpy.asarray(t.detach().cpu()).copy()),
    "list": lambda t: torch.tensor(t.tolist()),
    "number": lambda t: torch.tensor(t[0, 1, 2].item()),
    "pickle": lambda t: pickle.loads(pickle.dumps(t.detach())),
    "deepcopy": lambda t: copy.deepcopy(t.detach()),
    "dlpack": lambda t: torch.from_dlpack(t.detach()),
    "collate": lambda t: torch.utils.data.default_collate([t.detach(), t.detach()]),
    "vmap": lambda t: torch.func.vmap(lambda row: row.sum())(t.detach()),
    "shared": lambda t: t.detach().cpu().share_memory_() * 1.0,
    "new": lambda t: t.new_zeros(3),
    "format": lambda t: torch.tensor(float(f"{t[0, 0, 0]:.4f}")).round(decimals=3),
}


@pytest.mark.parametrize("use", USES)
def test_whoever_looks_sees_an_ordinary_tensor(use, device):
    logits, eager, _ = fresh(device)
    ours, true = USES[use](logits), USES[use](eager)
    assert ours.dtype == true.dtype and ours.requires_grad == true.requires_grad
    torch.testing.assert_close(ours.detach() * 1, true.detach() * 1, rtol=1e-5, atol=1e-5)


def test_they_are_saved_as_an_ordinary_tensor():
    logits, eager, _ = fresh()
    file = io.BytesIO()
    torch.save({"logits": logits.detach()}, file)
    file.seek(0)
    close([torch.load(file, weights_only=True)["logits"]], [eager.detach()])


def test_a_pointer_is_theirs_or_an_error():
    logits, eager, _ = fresh()
    assert logits.data_ptr() != 0 and logits.data_ptr() == logits._value.get().data_ptr()
    logits, _, _ = fresh()
    with pytest.raises(RuntimeError, match="data pointer"):
        torch._C._to_dlpack(logits.detach())
    assert logits.untyped_storage().data_ptr() == logits.data_ptr() and "tensor(" in repr(logits)
    logits, _, _ = fresh()
    with pytest.raises(RuntimeError, match="requires grad"):
        logits.numpy()


def test_writes_reach_the_same_memory():
    arguments = inputs()
    results = []
    for run in (compiled(), returned):
        loss, logits = run(*arguments)
        returned_by = logits.div_(2.0)
        assert returned_by is logits
        logits.detach()[0, 0] = 3.0
        results.append([logits.detach() * 1, *torch.autograd.grad(loss + logits.square().mean(), arguments[:2])])
    close(*results)


def test_their_shape_is_not_changed_in_place():
    logits, _, _ = fresh()
    with pytest.raises(cermet.Error, match="expected a call that returns a view"):
        logits.detach().squeeze_(0)


@pytest.mark.parametrize("place", [0, 1])
def test_operands_that_were_written_are_told(place):
    hidden, weight, labels = inputs()

    def plain(hidden, weight, labels):
        logits = F.linear(hidden, weight)
        return loss_of(logits, labels), logits

    run = compiled(plain)
    looked_at, late = run(hidden, weight, labels)[1], run(hidden, weight, labels)[1]
    before = looked_at.detach() * 1
    with torch.no_grad():
        (hidden, weight)[place].mul_(2.0)
    name = ("hidden state", "weight")[place]
    with pytest.raises(cermet.Error, match=f"the {name} .*written since the forward.*keep"):
        late.sum()
    assert late.shape == before.shape and torch.equal(looked_at.detach(), before)


def test_memory_that_was_given_back_is_told():
    hidden, weight, labels = inputs()
    logits = compiled()(hidden, weight, labels)[1]
    weight.untyped_storage().resize_(0)
    with pytest.raises(cermet.Error, match="memory of the weight .* given back"):
        logits.sum()


def test_threads_make_them_once():
    logits, eager, _ = fresh()
    made = []
    threads = [threading.Thread(target=lambda: made.append((logits.argmax(-1), logits._value.get()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and len({id(value) for _, value in made}) == 1
    assert all(torch.equal(found, eager.argmax(-1)) for found, _ in made)


@pytest.mark.parametrize("backend", ["aot_eager", "cermet"])
def test_a_graph_takes_them(backend):
    logits, eager, arguments = fresh()
    run = torch.compile(lambda t: (t.float() * 2.0).sum(-1), backend=backend)
    ours, true = run(logits), (eager * 2.0).sum(-1)
    close([ours.detach()], [true.detach()])
    close(*(torch.autograd.grad(each.square().sum(), arguments[:2]) for each in (ours, true)))


def test_hooks_and_kept_gradients():
    logits, eager, arguments = fresh()
    seen = []
    logits.register_hook(seen.append)
    logits.retain_grad()
    (logits * 2.0).sum().backward()
    assert len(seen) == 1 and torch.equal(logits.grad, torch.full_like(eager, 2.0))


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_a_models_step_makes_none(remainder):
    from tiny_models import tiny, words

    model, text = tiny("Llama").train(), words()
    call = torch.compile(model, backend="cermet", fullgraph=True, options={"remainder": remainder, "strict": True})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = call(input_ids=text, labels=text)
    out.loss.backward()
    optimizer.step()
    assert type(out.logits) is Logits and not out.logits._value.known
    with pytest.raises(cermet.Error, match="keep"):
        out.logits.argmax(-1)
    out = call(input_ids=text, labels=text)
    right = (out.logits[:, :-1].argmax(-1) == text[:, 1:]).float().mean()
    assert 0.0 <= right.item() <= 1.0
    generated = model.eval().generate(text[:, :4], max_new_tokens=3, do_sample=False)
    assert generated.shape == (len(text), 7)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "Cohere"])
@pytest.mark.parametrize("both", [False, True], ids=["lengths", "batches and lengths"])
def test_lengths_that_vary_make_none_either(family, both):
    """The rows of the loss are a product of the batch and a length that is a symbol."""
    from tiny_models import tiny, words

    model = tiny(family).train()
    call = torch.compile(model, backend="cermet", fullgraph=True, options={"strict": True})
    for batch, length in ((3, 10), (4 if both else 3, 14), (5 if both else 3, 17)):
        text = words(batch, length)
        results = []
        for run in (call, model):
            out = run(input_ids=text, labels=text, attention_mask=torch.ones_like(text))
            results.append([out.loss.detach(), *torch.autograd.grad(out.loss, list(model.parameters()))])
            if run is call:
                assert type(out.logits) is Logits and not out.logits._value.known
        for ours, eager in zip(*results):
            assert relative(ours, eager.double()) < 1e-5
