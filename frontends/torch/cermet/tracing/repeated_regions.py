"""Regions that a program marks (`torch.compiler.nested_compile_region`), of which torch traces one call for all.

From torch 2.13 on Dynamo gives the graph of a region's first call to the others, with what the first one read of its
arguments read of theirs: `layers[1].weight` for `layers[0].weight`, where the layer is an argument. Where the first one
reached the layer by another name than the argument's, as by the module that holds it where the argument is a bound
method's `__self__`, every call is given the first layer's weights. Such a region is traced for each call.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from torch._dynamo.source import is_from_source

from ..patching import replace, traces_for_us

# Of Dynamo, 2.13 to 2.15: what keeps a region's graph for other calls, and what says where the graph's inputs are from.
_MODULE, _KEEPS, _INPUTS = "torch._dynamo.variables.invoke_subgraph", "save_reuse_entry", "build_subgraph_input_mapping"
_READ = {"tx", "fingerprint", "p_args"}  # of what it is given


def given_what_is_theirs() -> None:
    """From now on, in what Cermet compiles."""
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        return
    keeps = getattr(module, _KEEPS, None)
    if keeps is not None and hasattr(module, _INPUTS) and _READ <= inspect.signature(keeps).parameters.keys():
        replace(module, _KEEPS, lambda theirs: _keeping(theirs, getattr(module, _INPUTS)))


def _keeping(theirs: Callable[..., Any], inputs: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(theirs)

    def save_reuse_entry(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named).arguments
        tx, fingerprint = bound["tx"], bound["fingerprint"]
        found = (getattr(each, "source", None) for each in inputs(tx, bound["p_args"], fingerprint.flat_vts))
        arguments = [source for source in fingerprint.arg_sources if source is not None]
        captured = [source for source in found if source is not None]
        of_arguments = all(any(is_from_source(source, each) for each in arguments) for source in captured)
        if of_arguments or not arguments or not traces_for_us(tx):
            theirs(*given, **named)

    return save_reuse_entry
