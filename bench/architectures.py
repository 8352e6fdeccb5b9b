"""Every other architecture that transformers knows, tiny, with random weights: do its numbers hold?

What families.py does for causal models, for all else: encoders, encoder-decoders, vision, speech, video, detection,
time series and models of several of these. Each has a process of its own. What its forward takes is found by trying:
words, images, videos, waves, spectrograms and series of the sizes that its configuration names, until eager runs it. It
compiles two calls of unequal batches (and lengths), and the values and gradients of all that it returns, of a weighted
sum, are compared with float64: a family holds where the larger error of Cermet's is at most twice eager's and one of
ROUNDING. Left out, with the reason in the results, are those that eager or Dynamo do not run this way, those of which
eager is further from float64 than DECIDED (which decide by what is rounded, or draw other random numbers there), and
those over MOST parameters.

    python bench/architectures.py [--dtype bfloat16] [--family NAME ...] [--layers 2] [--jobs 16] [--seconds 560]
                                   [--out FILE]

Of several GPUs each runs its share. It exits 1 unless all hold that end within --limit.
"""
from __future__ import annotations

import argparse
import copy
import inspect
import itertools
import math
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import transformers
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

import alone
import device
import environment
from families import MOST, SIZES, add_layers, error, in_float64, left_out, of_layers, of_such, prepared

FAMILIES = [name for name in MODEL_MAPPING_NAMES if name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES]
OTHER_SIZES = SIZES | {
    "num_frames": 4, "num_queries": 10,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "prediction_length": 8, "context_length": 32,
    "projection_dim": 32, "d_kv": 16, "num_mel_bins": 16, "mask_time_prob": 0.0, "layerdrop": 0.0,
}
IMAGE = 64
ROUNDING = {"float32": 1e-5, "bfloat16": 2e-2}
DECIDED = {"float32": 0.05, "bfloat16": 0.5}


def small(usual: transformers.PretrainedConfig, sizes: dict) -> transformers.PretrainedConfig:
    """A configuration of the same kind with these sizes, and so in each that it holds."""
    kind, changes = type(usual), {}
    for name, value in vars(usual).items():
        if isinstance(value, transformers.PretrainedConfig):
            changes[name] = small(value, sizes)
        elif "drop" in name and isinstance(value, float):
            changes[name] = 0.0
        elif name == "image_size" and value is not None:
            changes[name] = IMAGE if isinstance(value, int) else type(value)([IMAGE] * len(value))
        elif name == "depths":
            changes[name] = type(value)([sizes[name]] * len(value))
        elif name in sizes and type(value) in (int, float) and name not in kind.attribute_map:
            changes[name] = sizes[name]
    return kind(**changes)


def models_of(family: str, dtype: str, layers: int) -> Iterator[torch.nn.Module]:
    name = MODEL_MAPPING_NAMES[family]
    kind = getattr(transformers, name if isinstance(name, str) else name[0])
    problems = []
    for sizes in (OTHER_SIZES | of_layers(layers), of_layers(layers)):
        torch.manual_seed(0)
        try:
            with torch.device("meta"):
                size = sum(each.numel() for each in kind(small(CONFIG_MAPPING[family](), sizes)).parameters())
            if size > MOST:
                raise ValueError(f"{size} parameters")
            model = kind(small(CONFIG_MAPPING[family](), sizes)).to(getattr(torch, dtype))
        except Exception as problem:
            problems.append(f"{type(problem).__name__}: {problem}")
            continue
        yield prepared(model).train()
    if len(problems) == 2:
        raise ValueError(problems[0])


def named(config: transformers.PretrainedConfig, *names: str, default: object = None) -> object:
    """The first of these that the configuration or one in it has."""
    inside = [value for value in vars(config).values() if isinstance(value, transformers.PretrainedConfig)]
    for name in names:
        if isinstance(value := getattr(config, name, None), (int, tuple, list)) and value:
            return value if isinstance(value, int) else value[0]
    for each in inside:
        if (value := named(each, *names)) is not None:
            return value
    return default


def shapes(config: transformers.PretrainedConfig) -> dict[str, list[tuple]]:
    """What each input may be: shapes without the batch, of which one begins with `int` where it holds words."""
    image = named(config, "image_size", default=IMAGE)
    channels = named(config, "num_channels", "in_channels", default=3)
    frames = named(config, "num_frames", default=4)
    bins = named(config, "num_mel_bins", "feature_size", "input_feat_per_channel", default=80)
    context = named(config, "context_length", "prediction_length", default=32)
    series = named(config, "num_input_channels")
    positions = named(config, "max_source_positions", default=32)
    images = [(channels, image, image), (channels, 224, 224)]
    return {
        "input_ids": [(int, 21)], "decoder_input_ids": [(int, 9)],
        "pixel_values": [*images, (frames, channels, image, image), (frames, channels, 224, 224)],
        "pixel_values_videos": [(frames, channels, image, image)],
        "input_values": [(8000,), (1, 8000), (named(config, "max_length", default=64), bins)],
        "input_features": [(bins, 2 * positions), (64, bins)],
        "past_values": [(context, series), (context,), (context + 8, series), (context + 8,)],
        "bbox": [(4,)], "inputs": [(int, 21)],
    }


def calls(model: torch.nn.Module) -> Iterator[list[dict]]:
    """Pairs of calls to try."""
    known, takes = shapes(model.config), inspect.signature(model.forward).parameters
    usual = [name for name in known if name in takes]
    needed = [name for name in usual if takes[name].default is inspect.Parameter.empty]
    words = ["input_ids", "decoder_input_ids"]
    for names in dict.fromkeys(map(tuple, (needed, usual, [model.main_input_name], words))):
        if not names or any(name not in known for name in names):
            continue
        for forms in itertools.product(*(known[name] for name in names)):
            if any(None in form for form in forms):
                continue
            yield [{name: made(form, batch) for name, form in zip(names, forms)} for batch in (2, 3)]


def made(form: tuple, batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch)
    if form[0] is int:
        return torch.randint(3, 300, (batch, form[1] + 4 * batch), generator=generator).to(device.DEVICE)
    return torch.randn((batch, *form), generator=generator).to(device.DEVICE)


def results(model: torch.nn.Module, pair: list[dict], backend: str | None) -> list[torch.Tensor]:
    """Of each call the values and, of their weighted sum, the gradients."""
    call, found = torch.compile(model, backend=backend) if backend else model, []
    like = next(model.parameters()).dtype
    for inputs in pair:
        torch.manual_seed(3)
        model.zero_grad()
        cast = {name: each.to(like) if each.is_floating_point() else each for name, each in inputs.items()}
        values = [each for each in pytree.tree_leaves(call(**cast, return_dict=False)) if torch.is_tensor(each)
                  and each.requires_grad and each.is_floating_point()]
        generator = torch.Generator().manual_seed(7)
        sum((each * torch.randn(each.shape, generator=generator).to(each)).sum() for each in values).backward()
        found.append(torch.cat([each.detach().flatten() for each in values]))
        found.append(torch.cat([torch.zeros_like(each).flatten() if each.grad is None else each.grad.flatten()
                                for each in model.parameters()]))
    return found


def measure(family: str, dtype: str, layers: int) -> dict:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem = None
    try:
        for model in models_of(family, dtype, layers):
            for pair in calls(model):
                try:
                    usual = results(copy.deepcopy(model), pair, None)
                    return {"key": family} | compare(model, pair, usual, dtype)
                except Exception as one:
                    problem = problem or one
    except Exception as one:
        problem = one
    return {"key": family} | left_out(problem or ValueError("takes none of the inputs that are tried"))


def compare(model: torch.nn.Module, pair: list[dict], usual: list[torch.Tensor], dtype: str) -> dict:
    exact = results(in_float64(model), pair, None)
    eager = error(usual, exact)
    inputs = {name: list(each.shape) for name, each in pair[0].items()}
    if not math.isfinite(eager) or eager > DECIDED[dtype]:
        return {"left_out": f"eager is {eager} from float64", "inputs": inputs}
    counters.clear()
    begin = time.perf_counter()
    try:
        ours = error(results(copy.deepcopy(model), pair, "cermet"), exact)
        failed = None
    except Exception as problem:
        traceback.print_exc()
        failed = f"{type(problem).__name__}: {problem}"[:600]
    row = {"inputs": inputs, "graphs": counters["stats"]["unique_graphs"],
           "breaks": sum(counters["graph_break"].values()), "seconds": round(time.perf_counter() - begin, 1)}
    if not failed:
        row |= {"cermet": ours, "eager": eager, "holds": ours <= 2 * eager + ROUNDING[dtype]}
        if row["holds"]:
            return row
    try:
        torch._dynamo.reset()
        traced = error(results(copy.deepcopy(model), pair, "eager"), exact)
    except Exception as problem:
        return left_out(problem) | {"inputs": inputs}
    if failed:
        return row | {"failed": failed}
    if ours <= 2 * traced + ROUNDING[dtype]:
        return {"left_out": "the model computes something else where Dynamo traces it", "inputs": inputs}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/architectures.json")
    parser.add_argument("--family", choices=FAMILIES, nargs="+", metavar="NAME", default=FAMILIES)
    parser.add_argument("--dtype", choices=ROUNDING, default="float32")
    add_layers(parser)
    alone.add_arguments(parser)
    arguments = parser.parse_args()
    how = arguments.dtype, arguments.layers
    if arguments.here:
        return alone.answer(arguments.out, arguments.family[0], lambda: measure(arguments.family[0], *how))

    asked = {family: ["--family", family, "--dtype", how[0], "--layers", str(how[1])] for family in arguments.family}
    cases = []
    for family, row in alone.each("architectures.py", asked, arguments, torch.cuda.device_count()):
        told = {name: value for name, value in row.items() if name != "key"}
        cases.append({"family": family, "scene": of_such(*how)} | told)
        print(cases[-1], flush=True)
    environment.write(arguments.out, "architectures", {"cases": cases})
    wrong = [case["family"] for case in cases
             if not case.get("holds", not case.keys().isdisjoint(("left_out", "late")))]
    print(f"{len(wrong)} of {len(cases)} do not hold: {', '.join(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
