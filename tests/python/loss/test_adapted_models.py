"""Models whose head has a low-rank adapter: no more than a piece of their logits exists unless somebody looks."""

from __future__ import annotations

import pytest
import torch

from adapters import RANK, close_to_eager
from cermet.loss.lazy import Logits
from pieces import rows_of
from tiny_models import tiny, words


class Adapted(torch.nn.Module):
    """A linear layer as PEFT wraps it."""

    def __init__(self, base: torch.nn.Linear, rank: int, scaling: float, dropout: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_dropout = torch.nn.ModuleDict({"default": torch.nn.Dropout(dropout)})
        down = torch.nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
        up = torch.nn.Linear(rank, base.out_features, bias=False, dtype=dtype)
        self.lora_A, self.lora_B = torch.nn.ModuleDict({"default": down}), torch.nn.ModuleDict({"default": up})
        self.scaling = {"default": scaling}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.base_layer(x)
        dtype = result.dtype
        for name in self.lora_A:
            x = x.to(self.lora_A[name].weight.dtype)
            result = result + self.lora_B[name](self.lora_A[name](self.lora_dropout[name](x))) * self.scaling[name]
        return result.to(dtype)


def model_of(dtype: torch.dtype, dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(3)
    model = tiny("Llama").to(dtype).requires_grad_(False).train()
    for layer in model.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj, RANK, 2.0, dropout, torch.float32)
    model.lm_head = Adapted(model.lm_head, RANK, 1.5, dropout, torch.float32)
    return model


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("lengths", [(24,), (24, 31, 40)], ids=["one length", "lengths that vary"])
def test_a_model_with_adapters(lengths, dtype, autocast):
    """Nobody looks at its logits before its gradients are there. Under autocast adapters in f32 are rounded."""
    if autocast and dtype == torch.float32:
        pytest.skip("autocast of a head in f32: the linear layer is no product of its own operands")
    model = model_of(dtype)
    vocabulary = model.config.vocab_size
    call = torch.compile(
        model, backend="cermet", options={"strict": True, "logits_bytes": rows_of(20, dtype, vocabulary)}
    )
    for length in lengths:
        text = words(3, length)
        found = []
        for run in (call, model):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = run(input_ids=text, labels=text)
            output.loss.backward()
            if run is call:
                assert type(output.logits) is Logits and not output.logits._value.known
            gradients = [each.grad.clone() for each in model.parameters() if each.requires_grad]
            found.append([output.loss.detach(), *gradients, output.logits.detach() * 1.0])
        close_to_eager(*found, 1e-5 if dtype == torch.float32 else 5e-2)


def test_a_model_with_adapters_and_dropout_trains():
    model = model_of(torch.float32, dropout=0.1)
    text = words(3, 24)
    call = torch.compile(
        model, backend="cermet", options={"strict": True, "logits_bytes": rows_of(20, columns=model.config.vocab_size)}
    )
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    losses = []
    for _ in range(8):
        output = call(input_ids=text, labels=text)
        output.loss.backward()
        assert type(output.logits) is Logits and not output.logits._value.known
        optimizer.step(), optimizer.zero_grad()
        losses.append(output.loss.item())
    assert losses[-1] < losses[0] - 0.05, losses
