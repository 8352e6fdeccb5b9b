"""The named regions: their graph text, and the same arithmetic in torch as a model writes it."""
from __future__ import annotations

PATTERNS = ("rms_norm", "add_rms_norm", "glu")
HAS_WEIGHT = {"rms_norm": True, "add_rms_norm": True, "glu": False}
TILES = {"rms_norm": 1, "add_rms_norm": 2, "glu": 2}  # inputs with rows
EPS = 1e-5


def text(pattern: str, dtype: str, columns: int, rows: int = 1) -> str:
    """A function of one region over `rows` symbolic row dimensions."""
    symbols = ", ".join(f'"r{i}"' for i in range(rows))
    tile = f"tensor<{'?x' * rows}{columns}x{dtype}, #cermet.symbols<[{symbols}]>>"
    weight = f"tensor<{columns}x{dtype}>"
    names = ["x", "residual"][:TILES[pattern]] if pattern != "glu" else ["gate", "up"]
    arguments = [(name, tile) for name in names] + ([("weight", weight)] if HAS_WEIGHT[pattern] else [])
    signature = ", ".join(f"%{name}: {kind}" for name, kind in arguments)
    operands = ", ".join(f"%{name}" for name, _ in arguments)
    types = ", ".join(kind for _, kind in arguments)
    norm = f"{{eps = {EPS:.6e} : f64, round_before_weight}}"
    body, results = {
        "rms_norm": (f"%y = cermet.rms_norm {operands} {norm} : {types} to {tile}", ["%y"]),
        "add_rms_norm": (f"%y, %sum = cermet.add_rms_norm {operands} {norm} : {types} to {tile}, {tile}", ["%y", "%sum"]),
        "glu": (f"%y = cermet.glu {operands} : {tile}", ["%y"]),
    }[pattern]
    returns = ", ".join(tile for _ in results)
    returned = f"({returns})" if len(results) > 1 else returns
    return (f"module attributes {{cermet.version = 1 : i64}} {{\n  func.func @{pattern}({signature}) -> {returned} {{\n"
            f"    {body}\n    return {', '.join(results)} : {returns}\n  }}\n}}\n")


def eager(pattern: str, *inputs):
    """What transformers computes, in the inputs' dtype."""
    import torch

    if pattern == "glu":
        return (torch.nn.functional.silu(inputs[0]) * inputs[1],)
    total = inputs[0] if pattern == "rms_norm" else inputs[0] + inputs[1]
    hidden = total.to(torch.float32)
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + EPS)
    normed = inputs[-1] * hidden.to(total.dtype)
    return (normed,) if pattern == "rms_norm" else (normed, total)


def exact(pattern: str, *inputs):
    """The same in float64. A residual sum is rounded as eager rounds it: it is an output that others read."""
    import torch

    wide = [tensor.double() for tensor in inputs]
    if pattern == "glu":
        return (torch.nn.functional.silu(wide[0]) * wide[1],)
    total = wide[0]
    if pattern == "add_rms_norm":
        total = wide[0] + wide[1]
        total = total + (total.detach().to(inputs[0].dtype).double() - total.detach())
    normed = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS) * wide[-1]
    return (normed,) if pattern == "rms_norm" else (normed, total)
