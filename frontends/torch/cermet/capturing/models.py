"""A model without numbers: made on torch's device `meta`, then on fake tensors of the device that it is meant for."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from ..errors import Error


def maker(name: str) -> Callable[[], Any]:
    """The function that `my_script:make_model` or `path/to/my_script.py:make_model` names. Raises cermet.Error."""
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise Error(f"the model is {name!r}, expected MODULE:FUNCTION or FILE.py:FUNCTION, a function that returns it")
    found: Any = _module(where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Error(f"{where} has no {attribute!r}, expected a function that returns the model")
        found = getattr(found, part)
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise Error(f"{name} is {type(found).__name__}, expected a function that returns the model")
    return found


def _module(where: str) -> Any:
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        if not os.path.isfile(where):
            raise Error(f"{where!r} is no file, expected a Python script with a function that returns the model")
        spec = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except ModuleNotFoundError as error:
        if error.name != where.partition(".")[0]:  # one that it imports
            raise
        raise Error(f"there is no module {where!r}, expected one that Python finds here, or FILE.py:FUNCTION") from None


def made(make: Callable[[], Any], mode: FakeTensorMode, device: torch.device) -> torch.nn.Module:
    """The model that `make` returns, its tensors being fake ones on `device`. Raises cermet.Error."""
    try:
        with torch.device("meta"), _Nowhere():
            model = make()
    except Exception as error:
        raise Error(
            f"the model cannot be made: {type(error).__name__}: {error}; it is made on torch's device 'meta', where "
            "tensors have no numbers: make it of its configuration, and read no tensor's elements"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise Error(f"the function returned {type(model).__name__}, expected a torch.nn.Module")
    known: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:
            with mode:
                copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            if isinstance(tensor, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
            known[id(tensor)] = copy
        return known[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers, vars(module)):
            for name, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor):
                    tensors[name] = fake(tensor)
    return model


class _Nowhere(TorchFunctionMode):
    """What a program does to put a model on a device leaves it without memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MOVES:
            tensor, *others = args
            dtypes = (each.dtype if isinstance(each, torch.Tensor) else each for each in (*others, *kwargs.values()))
            dtype = next((each for each in dtypes if isinstance(each, torch.dtype)), tensor.dtype)
            return tensor.to("meta", dtype)
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


_MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)


def takes(model: torch.nn.Module, name: str) -> bool:
    """Whether a model's forward has an input of a name."""
    return name in inspect.signature(model.forward).parameters


def takes_any(model: torch.nn.Module) -> bool:
    """Whether a model's forward takes inputs that it does not name."""
    parameters = inspect.signature(model.forward).parameters.values()
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def dtype_of(model: torch.nn.Module) -> torch.dtype:
    """What its parameters are of, the first that are no integers."""
    dtypes = (each.dtype for each in model.parameters())
    return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.get_default_dtype())
