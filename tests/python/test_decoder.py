"""A decoder in C++ (frontends/c/examples/decoder) over tiny random checkpoints, from a pack and with nothing else of
Cermet's: its tokens are those of transformers' greedy search in float64."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
LENGTH, TOKENS = 256, 48
COMMON = dict(vocab_size=311, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=LENGTH, bos_token_id=1, eos_token_id=2, pad_token_id=0,
              initializer_range=0.08)  # fmt: skip
STRETCHED = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=64)  # fmt: skip
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON, rope_parameters=STRETCHED)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**COMMON, head_dim=32, tie_word_embeddings=True)
    ),
}


def program(*names: str) -> Path:
    """The first of some programs of the bundle, or of the build folder."""
    found = [folder / name for name in names for folder in (ROOT / "bin", ROOT / "build/bin")]
    found = [path for path in found if path.exists()]
    if not found:
        pytest.skip(f"{' or '.join(names)} is in neither {ROOT / 'bin'} nor {ROOT / 'build/bin'}")
    return found[0]


def attempt(*command, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=os.environ | variables, timeout=300
    )


def run(*command, **variables: str) -> str:
    done = attempt(*command, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fields(output: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)


class Checkpoint:
    """A saved model, a pack of what its decoder asks for, and the decoder."""

    def __init__(self, folder: Path, name: str, device: str, dtype: torch.dtype, shards: str):
        torch.manual_seed(0)
        self.folder, self.device = folder / name, device
        self.model = MODELS[name]().to(dtype).eval()
        with torch.no_grad():  # a norm's weights are 1 in new models
            for key, value in self.model.named_parameters():
                if "norm" in key:
                    value.uniform_(0.5, 1.5)
            if self.model.config.tie_word_embeddings:  # else a word would follow itself
                self.model.model.embed_tokens.weight.mul_(0.1)
                self.model.model.norm.weight.mul_(10)
        self.model.save_pretrained(self.folder, max_shard_size=shards)
        self.model.double()
        self.graphs, self.pack = folder / f"{name}-graphs", folder / f"{name}.cpack"
        self.target = "auto" if device == "cuda" else "host"
        self.options = ["--target", self.target, "--dtype", "f32", "--length", LENGTH]
        printed = run(self.program(), self.folder, "--graphs", self.graphs, *self.options)
        assert printed == f"cermet compile {self.graphs}/*.mlir -t {self.target} -o decoder.cpack\n"
        graphs = sorted(self.graphs.glob("*.mlir"))
        run(program("cermet"), "compile", *graphs, "-t", self.target, "-o", self.pack, **compiler())

    def program(self) -> Path:
        return program("cermet_decoder_cuda", "cermet_decoder") if self.device == "cuda" else program("cermet_decoder")

    def decode(self, prompt: list[int], *options) -> subprocess.CompletedProcess[str]:
        """With nothing at hand that could compile."""
        alone = {"CERMET_COMPILER_LIBRARY": "/nowhere", "CERMET_NVRTC": "/nowhere", "OPENBLAS_NUM_THREADS": "1"}
        alone |= wheel_library("DECODER_CUBLAS", "libcublas.so.1[23]")
        ids = ",".join(map(str, prompt))
        given = [self.folder, "--ids", ids, "--tokens", TOKENS, "--pack", self.pack, *self.options, *options]
        return attempt(self.program(), *given, **alone)

    def tokens(self, prompt: list[int], *options) -> list[int]:
        done = self.decode(prompt, *options)
        assert done.returncode == 0, done.stderr
        said = fields(done.stdout)
        assert said["prompt"] == " ".join(map(str, prompt))
        assert "kernels: 0 from packs" not in done.stdout and ", 0 compiled;" in done.stdout
        return [int(token) for token in said["tokens"].split()]

    def greedy(self, prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        made = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, use_cache=True
        )
        return made[0, len(prompt) :].tolist()


def wheel_library(variable: str, pattern: str) -> dict[str, str]:
    """A variable with the path of a library that PyPI's wheels of NVIDIA have, unless the environment names one."""
    spec = importlib.util.find_spec("nvidia")
    found = [path for folder in (spec.submodule_search_locations if spec else []) for path in
             sorted(Path(folder).glob(f"*/lib/{pattern}"))]  # fmt: skip
    return {variable: str(found[-1])} if found and variable not in os.environ else {}


def compiler() -> dict[str, str]:
    """Where the tool finds what it compiles with."""
    found = wheel_library("CERMET_NVRTC", "libnvrtc.so.1[23]")
    if not (ROOT / "build/bin/cermet").exists():  # the bundle's tool lies apart from the library
        package = importlib.util.find_spec("cermet").submodule_search_locations[0]
        found["CERMET_COMPILER_LIBRARY"] = str(Path(package) / "libcermet_compiler.so")
    return found


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def name(request) -> str:
    return request.param


@pytest.fixture
def checkpoint(name, device, tmp_path) -> Checkpoint:
    return Checkpoint(tmp_path, name, device, torch.float32, shards="200KB" if name == "llama" else "5GB")


def test_tokens_are_those_of_greedy_search(checkpoint):
    for prompt in ([5, 17, 100, 9], [7], torch.randint(3, 311, (200,)).tolist()):
        expected = checkpoint.greedy(prompt)
        assert checkpoint.tokens(prompt) == expected
        assert len(set(expected)) > 4  # and no text of one word


def test_a_checkpoint_in_bfloat16_is_converted(name, device, tmp_path):
    checkpoint = Checkpoint(tmp_path, name, device, torch.bfloat16, shards="5GB")
    assert (checkpoint.graphs / "convert_bf16.mlir").exists()
    prompt = [5, 17, 100, 9]
    assert checkpoint.tokens(prompt) == checkpoint.greedy(prompt)


def test_every_graph_agrees_with_the_interpreter(checkpoint):
    for graph in sorted(checkpoint.graphs.glob("*.mlir")):
        sizes = [argument for symbol in ("tokens",) for argument in ("--size", f"{symbol}=7")]
        target = "host" if checkpoint.device == "cpu" else "cuda"
        output = run(program("cermet"), "run", graph, "-t", target, "--check", "--repeat", 1, *sizes, **compiler())
        assert "WRONG" not in output and ": ok" in output, output


def test_sampling_draws_from_the_softmax(checkpoint):
    prompt, temperature = [5, 17, 100, 9], 1.0
    options = ["--temperature", temperature, "--seed", 3, "--tokens", 200]
    drawn = checkpoint.tokens(prompt, *options)
    assert checkpoint.tokens(prompt, *options) == drawn
    assert checkpoint.tokens(prompt, *options[:3], 4, *options[4:]) != drawn
    surprises, z = surprise(checkpoint.model, prompt, drawn)
    assert abs(z) < 4, f"{len(drawn)} tokens surprise {z:.1f} standard deviations more than draws from softmax do"
    said = float(checkpoint.decode(prompt, *options).stdout.split(" nats each")[0].split()[-1])
    assert said == pytest.approx(surprises, abs=1e-3)
    control = checkpoint.tokens(prompt, "--tokens", 200)
    assert abs(surprise(checkpoint.model, prompt, control)[1]) > 4 or len(control) < 20


def surprise(model, prompt: list[int], tokens: list[int]) -> tuple[float, float]:
    """The mean of -log p over the tokens, and how many standard deviations its sum is from what draws would have."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    logarithms = logits.log_softmax(-1)
    p, own = logarithms.exp(), -logarithms.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    mean = -(p * logarithms).sum(-1)
    variance = (p * logarithms**2).sum(-1) - mean**2
    return own.mean().item(), ((own - mean).sum() / math.sqrt(variance.sum().item())).item()


def test_what_cannot_be_decoded_is_named(checkpoint, tmp_path):
    def refused(*options, folder: Path | None = None) -> str:
        kept, checkpoint.folder = checkpoint.folder, folder or checkpoint.folder
        done = checkpoint.decode([5, 17], *options)
        checkpoint.folder = kept
        assert done.returncode == 1 and done.stderr.startswith("decoder: "), done.stdout + done.stderr
        return done.stderr

    assert "NOT_STORED" in (miss := refused("--length", LENGTH // 2)) and "attend" in miss and "cermet compile" in miss
    assert "token 311 is none of the 311" in refused("--ids", "311")
    assert "no more than 256 in all" in refused("--ids", ",".join(["5"] * 257))
    assert "--ids is '5x', expected a whole number" in refused("--ids", "5x")
    assert "tokenizer.model" in refused("--prompt", "a text")

    def damaged(**changes) -> Path:
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(checkpoint.folder, folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    assert "model_type is \"gemma\", expected" in refused(folder=damaged(model_type="gemma"))
    assert "hidden_act is \"gelu\", expected silu" in refused(folder=damaged(hidden_act="gelu"))
    assert "rope_type is 'yarn', expected" in refused(folder=damaged(rope_parameters={"rope_type": "yarn"}))
    assert "the checkpoint has no model.layers.3." in refused(folder=damaged(num_hidden_layers=4))
    assert "which this program would leave out" in refused(folder=damaged(num_hidden_layers=2))
    folder = damaged()
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert "lies outside of the file" in refused(folder=folder)
    shard.write_bytes(b"")
    assert shard.name in refused(folder=folder)


def test_text_becomes_tokens_by_the_checkpoints_tokenizer(checkpoint, tmp_path):
    if not shutil.which("spm_train"):
        pytest.skip("spm_train, of Debian's sentencepiece, is not here")
    lines = [f"the {a} {b} is what a decoder reads and {c} writes" for a in ("small", "large", "third") for b in
             ("model", "kernel", "row", "text") for c in ("never", "often", "seldom")]  # fmt: skip
    (tmp_path / "corpus").write_text("\n".join(lines))
    prefix = checkpoint.folder / "tokenizer"
    sizes = ["--vocab_size=64", "--hard_vocab_limit=false"]
    run("spm_train", f"--input={tmp_path / 'corpus'}", f"--model_prefix={prefix}", *sizes)
    known = len(prefix.with_suffix(".vocab").read_text().splitlines())
    text = "the third row is a text"
    (tmp_path / "text").write_text(text)
    encoded = run("spm_encode", f"--model={prefix}.model", "--output_format=id", tmp_path / "text").split()
    done = checkpoint.decode([5], "--prompt", text)
    if "a build with SentencePiece" in done.stderr:
        pytest.skip("this decoder was built without SentencePiece")
    said = fields(done.stdout)
    prompt = [1, *map(int, encoded)]  # the first is the beginning's
    assert said["prompt"] == " ".join(map(str, prompt))
    made = checkpoint.greedy(prompt)
    assert [int(token) for token in said["tokens"].split()] == made
    (tmp_path / "made").write_text(" ".join(str(token) for token in made if token < known))
    decoded = run("spm_decode", f"--model={prefix}.model", "--input_format=id", tmp_path / "made")
    assert said.get("text", "") == decoded.strip()
