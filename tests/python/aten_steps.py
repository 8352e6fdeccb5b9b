"""The steps of which random ATen programs are made, by kind, and the forms of the values that they take and make."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """A step: statements over `{0}`, `{1}`, ... whose last line is an expression."""

    code: str
    operands: str  # a letter for each, of FORMS
    result: str


FORMS = {
    "t": "a tile",
    "g": "a tile in float32 at least",
    "w": "two tiles beside each other",
    "f": "its rows as one dimension",
    "x": "[BATCH, columns, rows]",
    "h": "[BATCH, HEADS, rows, columns / HEADS]",
    "q": "[BATCH, rows, rows]",
    "i": "[BATCH, columns, rows, 4]",
    "o": "[BATCH, rows, 1]",
    "k": "[columns]",
    "s": "a number",
    "m": "a tile of truths",
    "n": "[BATCH, rows] of numbers from 0 to WORDS - 1",
}


def _kinds(operands: str, result: str, *codes: str) -> list[Kind]:
    return [Kind(code, operands, result) for code in codes]


FUNCTIONS = (
    "torch.tanh torch.sigmoid F.gelu F.silu F.relu F.softplus torch.abs torch.neg torch.square torch.cos torch.erf "
    "F.leaky_relu F.elu F.mish F.hardswish F.logsigmoid F.hardtanh F.relu6 torch.sin torch.atan"
).split()
KINDS = {
    "elementwise": [
        *(Kind(f"{function}({{0}})", form, form) for function in FUNCTIONS for form in "txh"),
        *_kinds(
            "t", "t", "F.gelu({0}, approximate='tanh')", "torch.exp({0}.clamp(-4, 2))", "torch.log({0}.abs() + 1)",
            "torch.rsqrt({0}.square() + 1)", "torch.sqrt({0}.square() + 0.5)", "1 / ({0}.abs() + 2)", "{0} ** 3 / 8",
            "torch.expm1({0}.clamp(-2, 1))", "torch.log1p({0}.abs())", "{0} * 0.7 - 0.2", "torch.clamp({0}, min=-0.5)",
        ),
        *_kinds(
            "tt", "t", "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 1)", "torch.maximum({0}, {1})",
            "torch.minimum({0}, {1})", "torch.add({0}, {1}, alpha=0.5)", "torch.lerp({0}, {1}, 0.25)",
            "F.silu({0}) * {1}", "F.gelu({0}) * {1}",
        ),
        *_kinds("ttt", "t", "torch.addcmul({0}, {1}, {2}, value=0.5)", "{0} * {1} + {2}"),
        *_kinds("tk", "t", "{0} * {1}", "{0} + {1}"),
        *_kinds("to", "t", "{0} * {1}", "{0} - {1}", "{0} / ({1}.abs() + 1)"),
        *_kinds("ts", "t", "{0} * torch.tanh({1})"),
        *_kinds("ff", "f", "{0} + {1}", "{0} * {1}"),
        *_kinds("xx", "x", "{0} + {1}", "{0} * {1}"),
        *_kinds("hh", "h", "{0} + {1}", "{0} * {1}"),
        *_kinds("ww", "w", "{0} + {1}"),
        *_kinds("w", "w", "F.gelu({0})", "torch.tanh({0})"),
        *_kinds("oo", "o", "{0} + {1}", "{0} * {1}"),
        *_kinds("o", "o", "torch.sigmoid({0})"),
    ],
    "norms": [
        *_kinds("tkk", "t", "F.layer_norm({0} + x, (columns,), {1}, {2})"),
        *_kinds(
            "t", "t", "F.layer_norm(x - {0}, (columns,))", "F.normalize({0}, dim=-1)", "F.softmax({0}, -1)",
            "F.log_softmax({0}, -1)", "{0} - {0}.mean(1, keepdim=True)",
            "a = {0} + y\n(a - a.mean(-1, keepdim=True)) * torch.rsqrt(a.var(-1, keepdim=True) + 0.1)",
        ),
        *_kinds(
            "tk", "t", "F.rms_norm({0}, (columns,), {1}, 1e-5)",
            "{1} * ({0}.float() * torch.rsqrt({0}.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(dtype)",
        ),
        *_kinds("ttk", "t", "F.rms_norm({0} + {1}, (columns,), {2}, 1e-5)"),
        *_kinds("xkk", "x", "F.group_norm({0} + x.mT, 2, {1}, {2})"),
        *_kinds("x", "x", "F.softmax({0}, -1)", "F.softmax({0}, 1)"),
        *_kinds("fkk", "f", "F.layer_norm({0} * 0.5 + x.flatten(0, 1), (columns,), {1}, {2})"),
        *_kinds("h", "h", "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-5)"),
    ],
    "reductions": [
        *_kinds(
            "t", "o", "{0}.sum(-1, keepdim=True)", "{0}.mean(-1, keepdim=True)", "{0}.amax(-1, keepdim=True)",
            "{0}.amin(-1, keepdim=True)", "torch.logsumexp({0}, -1, keepdim=True)", "{0}.var(-1, keepdim=True)",
            "{0}.norm(dim=-1, keepdim=True)", "{0}.abs().sum(-1, keepdim=True) / columns",
        ),
        *_kinds("t", "k", "{0}.mean((0, 1))", "{0}.amax(1).mean(0)", "{0}.square().mean((0, 1))"),
        *_kinds("t", "s", "{0}.mean()", "{0}.square().mean()"),
        *_kinds("f", "k", "{0}.mean(0)"),
        *_kinds("t", "t", "{0}.cumsum(-1) / columns", "{0}.cumsum(1) * 0.2"),
        *_kinds(
            "t", "t", "F.softmax({0}, -1).cumsum(-1)", "{0}.flip(-1).cumsum(-1).flip(-1) / columns",
            "a = {0}.tanh()\n(a.cumsum(-1) - a) / columns", "({0} > 0).cumsum(-1).to(dtype) / columns * {0}",
        ),
        *_kinds("q", "o", "{0}.mean(-1, keepdim=True)"),
        *_kinds("h", "h", "{0} - {0}.amax(-1, keepdim=True)"),
        *_kinds("x", "k", "{0}.mean(-1).sum(0)"),
    ],
    "views": [
        *_kinds("t", "x", "{0}.transpose(1, 2)", "{0}.mT.contiguous()"),
        *_kinds("x", "t", "{0}.transpose(1, 2)"),
        *_kinds("t", "f", "{0}.reshape(-1, columns)", "{0}.flatten(0, 1)"),
        *_kinds("f", "t", "{0}.view(BATCH, -1, columns)"),
        *_kinds(
            "t", "h", "{0}.view(BATCH, -1, HEADS, columns // HEADS).transpose(1, 2)",
            "{0}.reshape(BATCH, -1, HEADS, columns // HEADS).permute(0, 2, 1, 3).contiguous()",
        ),
        *_kinds("h", "t", "{0}.transpose(1, 2).reshape(BATCH, -1, columns)"),
        *_kinds(
            "t", "t", "{0}.flip(-1)", "{0}.roll(1, -1)", "{0}.flip(1)", "{0}[:, :1].expand_as({0})",
            "{0}.detach() * 0.5", "{0}.unsqueeze(1).squeeze(1).contiguous()", "{0}[..., 0:1] + torch.zeros_like({0})",
        ),
        *_kinds("o", "t", "{0}.expand(-1, -1, columns)"),
        *_kinds("k", "t", "{0}.expand_as(x).contiguous()"),
    ],
    "joins": [
        *_kinds("tt", "w", "torch.cat([{0}, {1}], -1)", "torch.stack([{0}, {1}], -1).flatten(-2)"),
        *_kinds(
            "w", "t", "{0}[..., :columns]", "{0}[..., columns:]", "{0}[..., ::2]", "{0}.chunk(2, -1)[1]",
            "{0}.split(columns, -1)[0]", "a, b = {0}.chunk(2, -1)\nF.silu(a) * b",
            "a, b = {0}.split(columns, -1)\na * b",
        ),
        *_kinds(
            "t", "t", "F.pad({0}, (1, 0))[..., :-1]", "F.pad({0}, (1, 2), value=0.5)[..., 1:-2]",
            "F.pad({0}, (0, 0, 1, 0))[:, :-1]", "torch.cat([{0}[:, 1:], {0}[:, :1]], 1)",
            "torch.cat([-{0}[..., columns // 2:], {0}[..., :columns // 2]], -1)",
            "torch.cat([{0}[..., :2] * 2, {0}[..., 2:]], -1)",
        ),
        *_kinds("h", "h", "torch.cat([-{0}.chunk(2, -1)[1], {0}.chunk(2, -1)[0]], -1)"),
        *_kinds(
            "tt", "t", "torch.cat([{0}[..., : columns // 2], {1}[..., columns // 2 :]], -1)",
            "torch.stack([{0}, {1}]).sum(0)", "torch.cat([{0}, {1}], 1).view(2, BATCH, -1, columns)[1]",
        ),
    ],
    "masks": [
        *_kinds("m", "m", "~{0}"),
        *_kinds("mm", "m", "{0} & {1}", "{0} | {1}"),
        *_kinds("n", "m", "(torch.arange(columns) % WORDS)[None, None] <= {0}[..., None]"),
        *_kinds("t", "m", "torch.arange({0}.shape[1])[:, None].expand({0}.shape) >= torch.arange(columns)"),
        *_kinds(
            "tm", "t", "{0}.masked_fill({1}, 0.25)", "torch.where({1}, {0}, -{0})", "{0} * {1}",
            "torch.where({1}, {0}, 0.0)", "F.softmax({0}.masked_fill({1}, -30.0), -1)",
        ),
        *_kinds("ttm", "t", "torch.where({2}, {0}, {1})"),
        *_kinds("x", "x", "torch.tril({0})"),
        *_kinds(
            "q", "q", "{0}.masked_fill(torch.arange({0}.shape[1])[None] > torch.arange({0}.shape[1])[:, None], -30.0)",
        ),
    ],
    "numbers": [
        *_kinds(
            "n", "n", "({0} + 3) % WORDS", "{0}.flip(1)", "torch.where({0} > 4, {0}, 2 * {0})", "{0}[:, order]",
            "{0}.cumsum(1) % WORDS",
        ),
        *_kinds("n", "t", "F.embedding({0}, table)", "table[{0}]", "F.one_hot({0} % columns, columns).to(dtype)"),
        *_kinds("n", "o", "({0}.to(dtype) / WORDS)[..., None]"),
        *_kinds(
            "tn", "o", "torch.gather({0}, -1, ({1} % columns)[..., None])",
            "{0}.take_along_dim(({1} % columns)[..., None], -1)",
        ),
        *_kinds(
            "tno", "t", "{0}.scatter(-1, ({1} % columns)[..., None], {2})",
            "{0}.scatter_add(-1, ({1} % columns)[..., None], {2})",
        ),
        *_kinds(
            "t", "t", "{0}[:, order]", "{0}.index_select(1, order)", "torch.zeros_like({0}).index_add(1, order, {0})",
            "{0}.sort(-1)[0]", "{0}.topk(3, -1)[0].sum(-1, keepdim=True) + {0}",
        ),
        *_kinds(
            "tn", "s", "F.cross_entropy({0}.flatten(0, 1), ({1} % columns).flatten())",
            "F.nll_loss(F.log_softmax({0}.flatten(0, 1).float(), -1), ({1} % 5).flatten(), ignore_index=2).to(dtype)",
        ),
        *_kinds("tt", "s", "F.mse_loss({0}, {1})", "F.smooth_l1_loss({0}, {1})"),
    ],
    "writes": [
        *_kinds(
            "tt", "t", "v = {0}.clone()\nv.add_({1}, alpha=0.5)\nv", "v = {0}.clone()\nv.mul_({1})\nv",
            "v = {0}.clone()\nv[:, 0] = {1}[:, -1]\nv",
            "v = {0}.clone()\nv[..., : columns // 2].copy_({1}[..., columns // 2 :])\nv",
            "v = {0}.clone()\nv[:, order] = {1}\nv", "v = torch.zeros_like({0})\nv[..., 1:] = {0}[..., 1:]\nv + {1}",
            "v = torch.empty_like({0})\nv.copy_({1})\nv.view(BATCH, -1)[:, ::2].mul_(0.5)\nv * {0}",
        ),
        *_kinds("tm", "t", "v = {0}.clone()\nv.masked_fill_({1}, 0.5)\nv"),
        *_kinds("t", "t", "F.relu({0} * 1.5, inplace=True)"),
        *_kinds("t", "t", "v = {0} * 1\nv[0].add_(0.25)\nv.clamp_(-2, 2)\nv"),
        *_kinds(
            "t", "t", "cache.index_copy_(1, order, {0}.detach())\ncache * 0.5 + {0}",
            "cache[:, 1:3] = {0}.detach()[:, :2]\ncache + {0}", "cache.mul_(0.5).add_({0}.detach())\n{0} * 0.5",
            "cache.copy_({0}.detach().flip(1))\ncache * {0}",
        ),
    ],
    "casts": [
        *_kinds("t", "g", "{0}.float()", "{0}.to(torch.float32) * 0.5"),
        *_kinds("g", "t", "{0}.to(dtype)"),
        *_kinds(
            "g", "g", "F.softmax({0}, -1)", "torch.exp({0}.clamp(max=1.0))",
            "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-6)",
        ),
        *_kinds("gt", "g", "{0} + {1}", "{0} * {1}"),
        *_kinds("t", "t", "{0}.bfloat16().to(dtype)", "({0}.half() * 0.5).to(dtype)"),
        *_kinds("m", "t", "{0}.to(dtype)"),
        *_kinds("m", "o", "{0}.sum(-1, keepdim=True).to(dtype) / columns"),
    ],
    "images": [
        *_kinds("t", "i", "{0}.mT[..., None] * scale[:4]", "{0}[:, :, None].expand(-1, -1, 4, -1).permute(0, 3, 1, 2)"),
        *_kinds("x", "i", "{0}[..., None] * scale[:4]", "torch.stack([{0}, -{0}, {0} * 0.5, {0}.flip(-1)], -1)"),
        *_kinds("i", "x", "{0}.mean(-1)", "{0}.amax(-1)", "{0}[..., 1]", "F.avg_pool2d({0}, (1, 4)).squeeze(-1)"),
        *_kinds("i", "t", "{0}.permute(0, 2, 3, 1)[:, :, 2]", "{0}.mean((2, 3))[:, None].expand_as(x)"),
        *_kinds("i", "k", "{0}.mean((0, 2, 3))"),
        *_kinds(
            "i", "i", "F.relu({0})", "F.silu({0})", "F.conv2d({0}, weight[..., None, None])",
            "F.conv2d({0}, weight[..., None, None] * scale[:3], bias, padding=(0, 1))",
            "F.conv2d({0}, weight.repeat(1, 2)[:, :9].view(columns, 1, 3, 3), padding=1, groups=columns)",
            "F.conv2d(F.pad({0}, (0, 1, 1, 0)), weight[:, :4].view(columns, 1, 2, 2), groups=columns)",
            "{0} * torch.sigmoid({0}.mean((2, 3), keepdim=True))", "F.max_pool2d({0}, 3, 1, 1)",
            "F.avg_pool2d({0}, 3, 1, 1, count_include_pad=False)", "{0}.roll((1, 2), (2, 3))", "{0}.roll(-1, 2)",
            "{0}.contiguous(memory_format=torch.channels_last)", "torch.cat([{0}[:, :2], {0}[:, 2:] * 2], 1)",
            "F.avg_pool2d(F.pad({0}, (1, 1, 0, 0)), (1, 3), 1)", "F.softmax({0}, 1)", "{0}.flip(2)",
            "F.layer_norm({0}.permute(0, 2, 3, 1) + x[:, :, None], (columns,)).permute(0, 3, 1, 2)",
            "F.interpolate({0}, scale_factor=2.0)[:, :, ::2, 1::2]",
        ),
        *_kinds(
            "ikk", "i", "F.batch_norm({0} + x.mT[..., None], None, None, {1}, {2}, True)",
            "F.batch_norm({0}, bias.detach(), bias.detach().square() + 0.5, {1}, {2})",
            "F.relu6(F.batch_norm({0} - x.mT[..., None], None, None, {1}, {2}, True) + {0})",
            "F.group_norm({0} + x.mT[..., None], 2, {1}, {2})",
        ),
        *_kinds("ii", "i", "{0} + {1}", "{0} * torch.sigmoid({1})", "torch.cat([{0}, {1}], 1)[:, 1 : columns + 1]"),
    ],
    "products": [
        *_kinds(
            "t", "t", "F.linear({0}, weight)", "F.linear({0}, weight, bias)",
            "({0}.flatten(0, 1) @ weight).view_as({0})",
            "a = {0}.reshape(-1, columns)\nb = F.linear(F.layer_norm(a, (columns,)), weight, bias)\n"
            "(F.relu(b) + a).view({0}.shape)",
        ),
        *_kinds("tt", "q", "{0} @ {1}.mT / columns"),
        *_kinds("q", "q", "F.softmax({0}, -1)", "torch.tanh({0})"),
        *_kinds("qt", "t", "{0} @ {1}", "torch.bmm({0}, {1})"),
        *_kinds("qtt", "q", "torch.baddbmm({0}, {1}, {2}.mT, beta=0.5, alpha=0.1)"),
        *_kinds(
            "ott", "q", "torch.baddbmm({0}.mT, {1}, {2}.mT, alpha=0.1)",
            "torch.baddbmm({0}.mT.expand(-1, {0}.shape[1], -1), {1}, {2}.mT, beta=0.5, alpha=0.1)",
        ),
        *_kinds("tk", "t", "torch.baddbmm({1}, {0}, weight.expand(BATCH, -1, -1), beta=0.5)"),
        *_kinds("t", "w", "F.linear({0}, torch.cat([weight, weight.mT]))"),
        *_kinds(
            "t", "h",
            "q, k, v = F.linear({0}, weight.repeat(3, 1)).view(BATCH, -1, 3, HEADS, columns // HEADS).unbind(2)\n"
            "a = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / columns\n"
            "F.softmax(a, -1, dtype=torch.float32).to(dtype) @ v.transpose(1, 2)",
        ),
        *_kinds(
            "hhh", "h", "F.softmax({0} @ {1}.mT / columns, -1) @ {2}",
            "a = torch.matmul({0} * 0.5, {1}.mT) - torch.arange({1}.shape[2])\nF.softmax(a, -1) @ {2}",
        ),
        *_kinds(
            "hhh", "h", "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)",
            "a = torch.arange({0}.shape[2])\na = (a[:, None] >= a - 2)[None, None].expand({0}.shape[0], 1, -1, -1)\n"
            "a = torch.where(a, scale[:HEADS, None, None], -30.0).to(dtype)\n"
            "F.scaled_dot_product_attention({0}, {1}, {2}, attn_mask=a)",
        ),
    ],
}
WEIGHTS = dict.fromkeys(KINDS, 2) | {"elementwise": 7, "norms": 4, "writes": 1, "casts": 1}
ARGUMENTS = {"x": "t", "y": "t", "scale": "k", "bias": "k", "ids": "n", "mask": "m"}  # values from the start
