"""Which torch calls the dialect has words for: tables of spellings (torch level, ATen) into one of translations.

A translation writes a call as dialect operations that round where torch rounds: scalars are constants, promotion and
broadcasting are explicit. Whatever it cannot say exactly it refuses, and the importer keeps the call opaque.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from ...graph import seeded
from ...graph.nodes import example
from ...text import STORED, Value
from . import activations, backward, complex, cumulative, elementwise, indexing, loss, products, random, reduction, shape
from .call import Call, Refused, symbolic_float

__all__ = ["Call", "Refused", "spelling", "symbolic_float", "translation", "translation_of_several"]

# Translations of calls that give one tensor, and of calls that give a tuple or list.
TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    **elementwise.TRANSLATIONS,
    **shape.TRANSLATIONS,
    **reduction.TRANSLATIONS,
    **cumulative.TRANSLATIONS,
    **loss.TRANSLATIONS,
    **indexing.TRANSLATIONS,
    **products.TRANSLATIONS,
    **backward.TRANSLATIONS,
    **activations.TRANSLATIONS,
    **random.TRANSLATIONS,
}
# What is the core of a fusion by itself; a plain sum of other dimensions than the last is not.
REDUCTIONS = frozenset(reduction.TRANSLATIONS) | frozenset(loss.TRANSLATIONS) | {"cumsum"}
REDUCTIONS -= {"sum", "mean", "amax", "amin", "max_along", "min_along", "gather"}
SEVERAL: dict[str, Callable[[Call, shape.Named], list[Value | None]]] = {
    **shape.SEVERAL,
    **reduction.SEVERAL,
    **loss.SEVERAL,
    **elementwise.SEVERAL,
    **backward.SEVERAL,
    **activations.SEVERAL,
}

# Spellings that are a tensor's method, a function of `torch` and an ATen packet alike; argument positions agree.
_ARITHMETIC = "add sub rsub mul div pow square reciprocal maximum minimum clamp clamp_min clamp_max masked_fill".split()
_EVERYWHERE = {name: name for name in _ARITHMETIC}
_EVERYWHERE |= {name: name for name in elementwise.UNARY if name != "silu"}
_EVERYWHERE |= {name: name for name in elementwise.COMPARISONS}
_EVERYWHERE |= {f"{kind}_{op}": f"{kind}_{op}" for kind in ("logical", "bitwise") for op in ("and", "or", "xor", "not")}
_EVERYWHERE |= {name: name for name in "mean sum amax amin cumsum flip logsumexp softmax log_softmax var std".split()}
_EVERYWHERE |= {name: name for name in "permute movedim narrow tril triu matmul".split()}
_EVERYWHERE |= {"max": "maximum", "min": "minimum", "mm": "matmul", "transpose": "transpose", "t": "transpose"}
_EVERYWHERE |= {"swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim", "select": "select_index"}
_EVERYWHERE |= {"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne"}
_EVERYWHERE |= {"true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg"}
_EVERYWHERE |= {"absolute": "abs", "clip": "clamp", "broadcast_to": "expand", "clone": "identity"}
_EVERYWHERE |= {name: "reshape" for name in "reshape flatten unflatten squeeze unsqueeze ravel".split()}
_EVERYWHERE |= {"repeat_interleave": "repeat_interleave", "gather": "gather"}
_EVERYWHERE |= {name: name for name in ("view_as_complex", "view_as_real")}
_SEVERAL_EVERYWHERE = {name: "pieces" for name in "chunk split split_with_sizes tensor_split".split()}
_SEVERAL_EVERYWHERE |= {"unbind": "unbind", "max": "max_along", "min": "min_along"}

# Tensor methods by name:
_METHODS = {**_EVERYWHERE, "where": "where_method", "contiguous": "identity", "expand": "expand", "repeat": "repeat"}
_METHODS |= {name: "cast" for name in "to float half bfloat16 double type type_as long int short bool".split()}
_METHODS |= {name: "reshape" for name in ("view", "view_as", "reshape_as")}
_METHODS |= {"norm": "norm"}
_METHODS |= {"expand_as": "expand", "__getitem__": "getitem", "new_zeros": "zeros", "new_ones": "ones"}
_METHODS |= {f"__{name}__": name for name in "add sub mul matmul pow neg abs eq ne lt le gt ge".split()}
_METHODS |= {"__truediv__": "div", "__rsub__": "rsub", "__radd__": "add", "__rmul__": "mul", "new_full": "new_full"}
_METHODS |= {f"__{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")} | {"__invert__": "bitwise_not"}

# Functions by object:
_FUNCTIONS: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.neg: "neg",
    operator.abs: "abs",
    operator.pow: "pow",
    operator.matmul: "matmul",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    operator.invert: "bitwise_not",
    operator.getitem: "getitem",
    getattr: "attribute",
    abs: "abs",
    torch.where: "where",
    torch.cat: "cat",
    torch.concat: "cat",
    torch.concatenate: "cat",
    torch.stack: "stack",
    torch.rms_norm: "rms_norm",
    torch.layer_norm: "layer_norm",
    torch.constant_pad_nd: "constant_pad",
    torch.special.logsumexp: "logsumexp",
    torch.embedding: "embedding_by_weight",
    torch.arange: "arange",
    torch.zeros: "zeros",
    torch.zeros_like: "zeros",
    torch.ones: "ones",
    torch.ones_like: "ones",
    torch.full: "full",
    torch.full_like: "full",
    torch.scalar_tensor: "scalar",
    torch.tensor: "tensor",
    torch.dropout: "dropout",
    seeded.dropout: "seeded_dropout",
    torch._C._nn.linear: "linear",
    torch._C._nn.gelu: "gelu",
    torch._C._nn.silu: "silu",
    torch._C._nn.log_sigmoid: "log_sigmoid",
    torch._C._nn.softplus: "softplus",
    torch.prelu: "prelu",
    torch._C._nn.pad: "pad",
    torch._C._nn.cross_entropy_loss: "cross_entropy_loss",
    torch._C._nn.nll_loss: "nll_loss",
    F.linear: "linear",
    F.gelu: "gelu",
    F.silu: "silu",
    F.logsigmoid: "log_sigmoid",
    F.softplus: "softplus",
    F.prelu: "prelu",
    F.relu: "relu",
    F.tanh: "tanh",
    F.sigmoid: "sigmoid",
    F.pad: "pad",
    F.dropout: "dropout",
    F.softmax: "softmax",
    F.log_softmax: "log_softmax",
    F.layer_norm: "layer_norm",
    F.rms_norm: "rms_norm",
    F.embedding: "embedding",
    F.cross_entropy: "cross_entropy",
    F.nll_loss: "nll",
    F.normalize: "normalize",
    F.cosine_similarity: "cosine_similarity",
    F.kl_div: "kl_div",
    F.mse_loss: "mse",
    F.l1_loss: "l1",
    F.smooth_l1_loss: "smooth_l1",
    F.huber_loss: "huber",
    F.binary_cross_entropy_with_logits: "binary_with_logits",
    torch.binary_cross_entropy_with_logits: "binary_cross_entropy_with_logits",
    torch.norm: "norm",
    torch.functional.norm: "norm",
    torch.linalg.vector_norm: "vector_norm",
    torch.linalg.norm: "norm",
    torch._C._linalg.linalg_vector_norm: "vector_norm",
    torch._C._linalg.linalg_norm: "norm",
}
_FUNCTIONS |= {getattr(torch, name): into for name, into in _EVERYWHERE.items() if hasattr(torch, name)}
_FUNCTIONS |= {getattr(operator, name): name for name in elementwise.COMPARISONS}
_SEVERAL_FUNCTIONS = {getattr(torch, name): into for name, into in _SEVERAL_EVERYWHERE.items()}
_SEVERAL_FUNCTIONS |= {torch.functional.split: "pieces"}

# ATen, by packet: the overloads differ in what the translations read anyway.
_ATEN = {**_EVERYWHERE, "silu": "silu", "gelu": "gelu", "where": "where", "expand": "expand", "repeat": "repeat"}
_ATEN |= {"linear": "linear", "alias": "identity", "contiguous": "identity", "lift_fresh_copy": "identity"}
_ATEN |= {"view": "reshape", "_unsafe_view": "reshape", "_to_copy": "cast", "to": "cast", "slice": "slice"}
_ATEN |= {"cat": "cat", "concat": "cat", "stack": "stack", "constant_pad_nd": "constant_pad", "pad": "pad"}
_ATEN |= {"_softmax": "softmax", "_log_softmax": "log_softmax", "layer_norm": "layer_norm", "rms_norm": "rms_norm"}
_ATEN |= {"_safe_softmax": "safe_softmax"}
_ATEN |= {"numpy_T": "turned", "matrix_H": "turned", "mT": "last_turned", "mH": "last_turned"}
_ATEN |= {"index": "index", "index_select": "index_select", "addmm": "addmm"}
_ATEN |= {"embedding": "embedding_by_weight", "arange": "arange", "cross_entropy_loss": "cross_entropy_loss"}
_ATEN |= {"nll_loss": "nll_loss", "zeros": "zeros", "zeros_like": "zeros", "new_zeros": "zeros", "ones": "ones"}
_ATEN |= {"ones_like": "ones", "new_ones": "ones", "full": "full", "full_like": "full", "new_full": "new_full"}
_ATEN |= {"scalar_tensor": "scalar", "linalg_vector_norm": "vector_norm"}
_ATEN |= {f"{name}_backward": f"{name}_backward" for name in "sigmoid tanh silu gelu threshold".split()}
_ATEN |= {f"_{name}_backward_data": f"{name}_backward" for name in ("softmax", "log_softmax")}
_ATEN |= {"log_sigmoid": "log_sigmoid", "softplus": "softplus", "prelu": "prelu", "_prelu_kernel": "prelu"}
_ATEN |= {name: name for name in ("smooth_l1_loss", "binary_cross_entropy_with_logits")} | {"huber_loss": "huber"}
_ATEN |= {name: name for name in activations.TRANSLATIONS}
_ATEN |= {"native_dropout_backward": "dropout_backward"}
_OURS = {"cermet_v1::embedding_bag": "embedding_bag"}
_SEVERAL_ATEN = {**_SEVERAL_EVERYWHERE, "_fused_rms_norm": "rms_norm_first", "native_layer_norm": "layer_norm_with_statistics"}
_SEVERAL_ATEN |= {"log_sigmoid_forward": "log_sigmoid_forward", "_prelu_kernel_backward": "prelu_backward"}
_SEVERAL_ATEN |= {"nll_loss_forward": "nll_loss_forward", "native_layer_norm_backward": "layer_norm_backward"}


def _ungraded(translate: Callable[[Call], Value]) -> Callable[[Call], Value]:
    def translated(call: Call) -> Value:
        if call.builder.differentiable:
            raise Refused("a float of eight bits before autograd")
        return translate(call)

    return translated


# What may be done with floats of eight bits: nothing is computed with them, and no gradient has their type.
_MOVES = {name: _ungraded(shape.TRANSLATIONS[name]) for name in shape.MOVES}


def spelling(node: fx.Node) -> str:
    """What the tables call the operation that gives one tensor, or "" where none knows the node's target."""
    return _spelled(node, _METHODS, _FUNCTIONS, _ATEN)


def _spelled(node: fx.Node, methods: dict[str, str], functions: dict[Any, str], aten: dict[str, str]) -> str:
    target = node.target
    if node.op == "call_method":
        return methods.get(str(target), "")
    if node.op != "call_function":
        return ""
    if isinstance(target, torch._ops.OpOverload):
        name = target.overloadpacket.__name__
        return aten.get(name, "") if target.namespace == "aten" else _OURS.get(target._schema.name, "")
    if isinstance(target, torch._ops.OpOverloadPacket):
        namespace, _, name = target._qualified_op_name.partition("::")
        return aten.get(name, "") if namespace == "aten" else ""
    try:
        return functions.get(target, "")
    except TypeError:  # an unhashable callable
        return ""


def translation(node: fx.Node) -> Callable[[Call], Value] | None:
    """How to write `node`, which gives one tensor, or None where no table knows its target."""
    values = [example(item) for item in (node, *node.all_input_nodes)]
    if any(isinstance(value, torch.Tensor) and value.is_complex() for value in values):
        return complex.COMPLEX.get(spelling(node))
    if any(isinstance(value, torch.Tensor) and value.dtype in STORED for value in values):
        return _MOVES.get(spelling(node))
    return TRANSLATIONS.get(spelling(node))


def translation_of_several(node: fx.Node) -> Callable[[Call, shape.Named], list[Value | None]] | None:
    """How to write `node`, which gives a tuple or list of tensors. A translation names each before it writes it; None
    stands for one that the dialect has no words for."""
    values = [value for item in node.all_input_nodes if isinstance(value := example(item), torch.Tensor)]
    if any(value.is_complex() or value.dtype in STORED for value in values):
        return None
    return SEVERAL.get(_spelled(node, _SEVERAL_EVERYWHERE, _SEVERAL_FUNCTIONS, _SEVERAL_ATEN))
