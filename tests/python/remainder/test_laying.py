"""Values that lie turned in memory lie in rows where that moves fewer bytes, give what they gave, and keep the strides
that others were promised."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.graph.traffic import hint
from cermet.remainder.aten.laying import lay

ROWS, LENGTH, WIDTH = 2, 12, 16


class Checked(torch.fx.Interpreter):
    """Fake values say how values lie."""

    def run_node(self, node):
        value = super().run_node(node)
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            assert list(value.stride()) == [hint(stride) for stride in node.meta["val"].stride()], node
        return value


def laid(function, *inputs, mode="fake"):
    """How many values are copied into rows, and the graph, which gives what the function does, laid out alike."""
    graph = make_fx(function, tracing_mode=mode)(*inputs)
    results = graph.graph.output_node().args[0]
    times = lay(graph.graph, results if isinstance(results, (tuple, list)) else [results])
    graph.graph.lint()
    graph.recompile()
    given, expected = (tuple(each) if isinstance(each, (tuple, list)) else (each,)
                       for each in (Checked(graph).run(*inputs), function(*inputs)))
    for mine, theirs in zip(given, expected, strict=True):
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs)
    return times, graph


def patches():
    """What a convolution gives, as rows of columns."""
    return torch.randn(ROWS, WIDTH, LENGTH).transpose(1, 2)


def encoder(x, *weights):
    x = x + weights[0]
    for weight in weights[1:]:
        y = F.layer_norm(x, (WIDTH,))
        x = x + F.linear(y.reshape(-1, WIDTH), weight).view_as(x)
    return F.layer_norm(x, (WIDTH,))


WEIGHTS = [torch.randn(LENGTH, WIDTH), *(torch.randn(WIDTH, WIDTH) for _ in range(3))]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_residuals_behind_patches_lie_in_rows(mode):
    times, graph = laid(encoder, patches(), *WEIGHTS, mode=mode)
    assert times == 1
    sums = [node.meta["val"] for node in graph.graph.nodes if node.target is torch.ops.aten.add.Tensor]
    assert len(sums) == 4 and all(value.stride()[-1] == 1 for value in sums)


def test_gradients_lie_as_they_did():
    def step(x, *weights):
        leaves = [each.detach().requires_grad_() for each in (x, *weights)]
        return torch.autograd.grad(encoder(*leaves).square().sum(), leaves)

    assert laid(step, patches(), *WEIGHTS)[0] == 1


def normed(x, weight):
    return F.layer_norm(x, (WIDTH,), weight)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_what_a_norm_and_its_gradient_read_is_copied_once(mode):
    def step(x, weight):
        leaf = weight.detach().requires_grad_()
        return torch.autograd.grad(normed(x, leaf).square().sum(), leaf)

    times, graph = laid(step, patches(), torch.randn(WIDTH), mode=mode)
    read = [node.args[0] for node in graph.graph.nodes if node.target is torch.ops.aten.native_layer_norm.default]
    behind = [node.args[1] for node in graph.graph.nodes if "layer_norm_backward" in str(node.target)]
    assert times == 1 and read == behind and read[0].meta["val"].is_contiguous()


def test_what_a_norm_alone_reads_stays():
    assert laid(normed, patches(), torch.randn(WIDTH))[0] == 0


def test_what_is_promised_is_turned_back():
    def function(x, *weights):
        x = x + weights[0]
        y = F.layer_norm(x, (WIDTH,))
        z = F.layer_norm(x * 2, (WIDTH,))
        return x, y, F.layer_norm(x + y + z, (WIDTH,))

    times, graph = laid(function, patches(), *WEIGHTS)
    turned = [node for node in graph.graph.nodes if node.target is torch.ops.aten.permute.default]
    assert times == 1 and len(turned) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,  # nothing wants rows
        lambda x: (x * 2).transpose(1, 2).reshape(ROWS, -1),  # it is wanted as it lies
        lambda x: F.layer_norm(x, (WIDTH,)),  # the norm's result lies in rows
        lambda x: F.layer_norm(x + 1, (WIDTH,)),  # one copy for another
    ],
    ids=["alone", "turned", "norm", "once"],
)
def test_others_stay(function):
    before = make_fx(function, tracing_mode="fake")(patches())
    times, after = laid(function, patches())
    assert times == 0 and before.code == after.code


def test_a_view_of_what_lay_otherwise_is_copied_first():
    def function(x, *weights):
        y = encoder(x, *weights) + encoder(x + 1, *weights)
        return y, (x + weights[0]).transpose(1, 2).view(ROWS, WIDTH, 3, 4)

    assert laid(function, patches(), *WEIGHTS)[0] == 1


def test_a_call_that_is_unknown_leaves_all():
    def function(x, *weights):
        kept = torch.nonzero(x + weights[0] > 0)
        return encoder(x, *weights), kept

    graph = make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(patches(), *WEIGHTS)
    before = graph.code
    assert lay(graph.graph, graph.graph.output_node().args[0]) == 0
    graph.recompile()
    assert graph.code == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_encoder_behind_a_convolution(dtype, device):
    convolution = torch.nn.Conv1d(3, WIDTH, 4, 4)
    layers = [torch.nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
    model = torch.nn.ModuleList([convolution, *layers]).to(device, dtype)
    place = torch.randn(LENGTH, WIDTH, device=device, dtype=dtype)

    def call(x):
        x = model[0](x).transpose(1, 2) + place
        for layer in model[1:]:
            x = layer(x)
        return x

    x = torch.randn(ROWS, 3, 4 * LENGTH, device=device, dtype=dtype)
    found = []
    for run in (torch.compile(call, backend="cermet"), call):
        model.zero_grad()
        y = run(x)
        y.float().square().mean().backward()
        found.append([y, *(each.grad for each in model.parameters())])
        assert y.stride() == found[0][0].stride()
    for mine, theirs in zip(*found):
        tolerance = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def test_batches_of_other_sizes_are_one_graph():
    """What a symbolic size is asked for while a graph is laid otherwise would be a guard."""
    convolution = torch.nn.Conv1d(3, WIDTH, 4, 4)

    def call(x):
        return encoder(convolution(x).transpose(1, 2), *WEIGHTS).square().mean()

    run, counted = torch.compile(call, backend="cermet"), torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    for rows in (3, 4, 7, 16):
        x = torch.randn(rows, 3, 4 * LENGTH)
        torch._dynamo.mark_dynamic(x, 0)
        convolution.zero_grad()
        run(x).backward()
        mine = convolution.weight.grad.clone()
        convolution.zero_grad()
        call(x).backward()
        torch.testing.assert_close(mine, convolution.weight.grad, rtol=1e-4, atol=1e-5)
    assert counted["unique_graphs"] == before + 1


HEADS = 2


def attention(x, *weights, copied=True):
    """As a program has it that copies each head into rows of its own; on the CPU torch attends in one call."""
    heads = [F.linear(x, weight).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for weight in weights[:3]]
    heads = [head.contiguous() for head in heads] if copied else heads
    made = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads)[0]
    return F.linear(made.transpose(1, 2).reshape(x.shape), weights[3])


PROJECTIONS = [torch.randn(WIDTH, WIDTH) for _ in range(4)]


def copied(graph):
    """The operands of copies that move something."""
    copies = [node.args[0].meta["val"] for node in graph.graph.nodes if node.target is torch.ops.aten.clone.default]
    return [each for each in copies if not each.is_contiguous()]


def test_heads_lie_where_products_left_them():
    times, graph = laid(attention, torch.randn(ROWS, LENGTH, WIDTH), *PROJECTIONS)
    assert times == 3 and not copied(graph)


def test_gradients_of_heads_lie_so_too():
    def step(x, *weights):
        leaves = [each.detach().requires_grad_() for each in (x, *weights)]
        return torch.autograd.grad(attention(*leaves).square().sum(), leaves)

    times, graph = laid(step, torch.randn(ROWS, LENGTH, WIDTH), *PROJECTIONS)
    assert times == 3 and not copied(graph)


def test_heads_that_are_not_copied():
    def function(x, *weights):
        return attention(x, *weights, copied=False)

    assert laid(function, torch.randn(ROWS, LENGTH, WIDTH), *PROJECTIONS)[0] == 0


def test_a_mask_that_is_copied_stays():
    def function(x, mask):
        head = x.view(ROWS, LENGTH, HEADS, -1).transpose(1, 2)
        mask = mask.transpose(-1, -2).contiguous()
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(head, head, head, attn_mask=mask)[0]

    assert laid(function, torch.randn(ROWS, LENGTH, WIDTH), torch.randn(ROWS, HEADS, LENGTH, LENGTH))[0] == 0


def test_heads_that_are_repeated_stay():
    def function(x):
        heads = x.view(ROWS, LENGTH, 1, WIDTH).transpose(1, 2).expand(-1, HEADS, -1, -1).contiguous()
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads)[0]

    assert laid(function, torch.randn(ROWS, LENGTH, WIDTH))[0] == 0


def test_heads_that_others_read_in_rows():
    def function(x, *weights):
        head = F.linear(x, weights[0]).view(ROWS, LENGTH, HEADS, -1).transpose(1, 2).contiguous()
        made = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(head, head, head)[0]
        return made, head.view(-1)

    assert laid(function, torch.randn(ROWS, LENGTH, WIDTH), *PROJECTIONS)[0] == 0
