"""The benchmarks of scenes run in a tiny size on a CPU, and what they write becomes a table of docs/performance.md."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

import forked

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"


def ran(benchmark: str, *arguments: str, folder: pathlib.Path) -> pathlib.Path:
    """What it wrote; the benchmark itself compares losses, logits and gradients with eager's or float64's."""
    out = folder / f"{benchmark}.json"
    asked = forked.run(str(BENCH / f"{benchmark}.py"), "--tiny", "--out", str(out), *arguments)
    assert asked.returncode == 0, asked.stdout[-2000:] + asked.stderr[-2000:]
    return out


def tabled(written: pathlib.Path, monkeypatch) -> str:
    monkeypatch.syspath_prepend(str(BENCH))
    import results
    import tables

    runs = [{"part": part, "environment": environment, "result": result}
            for _, part, environment, result in results.runs(written)]
    return getattr(tables, written.stem)(runs)


@pytest.mark.parametrize("scene", ["padded", "packed"])
def test_lengths_end_in_two_graphs(scene, tmp_path, monkeypatch) -> None:
    written = ran("lengths", "--scene", scene, "--rounds", "1", "--contender", "eager", "cermet-aot", folder=tmp_path)
    (ours,) = [line for line in tabled(written, monkeypatch).splitlines() if "`aot`" in line]
    assert ours.split("|")[4].strip() == "2", ours


def test_longest_sequences_are_told(tmp_path, monkeypatch) -> None:
    written = ran("longest", "--first", "32", "--most", "2", "--contender", "eager", "cermet-aot", folder=tmp_path)
    rows = json.loads(written.read_text())["contenders"]
    assert [[step["tokens"] for step in row["steps"]] for row in rows] == [[32, 64], [32, 64]]
    assert "| Cermet, `aot` | 0 |" in tabled(written, monkeypatch)


def test_longest_by_memory_follows_the_last_two(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import longest

    steps = [{"tokens": 1000, "peak_gb": 5.0}, {"tokens": 2000, "peak_gb": 6.0}, {"tokens": 4000, "peak_gb": 9.0}]
    assert longest.by_memory({"ended": "time", "steps": steps, "memory_gb": 12.0}) == 6000
    assert longest.by_memory({"ended": "memory", "steps": steps, "memory_gb": 12.0}) is None
    assert longest.by_memory({"ended": "time", "steps": steps[:1], "memory_gb": 12.0}) is None


def test_a_family_holds_its_numbers(tmp_path, monkeypatch) -> None:
    table = tabled(ran("families", "--family", "llama", folder=tmp_path), monkeypatch)
    assert "| steps | 1 | 1 |" in table and "| tokens | 1 | 1 |" in table, table


def test_an_architecture_holds_its_numbers(tmp_path, monkeypatch) -> None:
    table = tabled(ran("architectures", "--family", "vit", "dpr", "--jobs", "2", folder=tmp_path), monkeypatch)
    assert "| float32 | 2 | 2 |" in table, table


def test_kinds_are_beside_one_another(tmp_path, monkeypatch) -> None:
    table = tabled(ran("kinds", "--kind", "OPT", "--contender", "cermet", folder=tmp_path), monkeypatch)
    assert "| OPT (" in table, table


def test_decoding_gives_eager_s_logits(tmp_path, monkeypatch) -> None:
    asked = ("--scene", "2:1024/2048", "1:512/8192", "--rounds", "1", "--contender", "eager", "cermet-aot")
    table = tabled(ran("decode", *asked, folder=tmp_path), monkeypatch)
    assert "| 512 of 8192 | Cermet, `aot`" in table and "| 1024 of 2048 | Cermet, `aot`" in table, table


def test_functions_give_float64_s_results(tmp_path, monkeypatch) -> None:
    names = ("layer_norm", "gelu", "cross_entropy", "rms_norm", "group_norm", "embedding", "cumsum", "top_p")
    table = tabled(ran("functions", "--repeats", "2", "--contender", "cermet", "--only", *names, folder=tmp_path), monkeypatch)
    wanted = ("LayerNorm backward", "gelu forward", "cross-entropy loss and gradient", "RMSNorm backward",
              "GroupNorm backward", "embedding backward", "cumulative sum backward", "exclusive cumulative sum forward")
    assert [name for name in wanted if name not in table] == []


def test_heads_in_pieces_give_float64_s_results(tmp_path, monkeypatch) -> None:
    written = ran("heads", "--rounds", "1", "--steps", "1", "--budget", "0.002", "whole", folder=tmp_path)
    cases = json.loads(written.read_text())["cases"]
    assert [case["name"] for case in cases] == ["products", "eager", "0.002", "whole"]
    assert "200 × 32 by 96 words" in tabled(written, monkeypatch)


@pytest.mark.parametrize("model", ["Qwen3-MoE", "Qwen2.5-7B, LoRA, checkpointing", "Llama-3.2-1B, documents",
                                   "Gemma-3-1B", "BERT-large, padding"])
def test_a_step_replaces_what_it_should(model, tmp_path, monkeypatch) -> None:
    if "LoRA" in model and importlib.util.find_spec("peft") is None:
        pytest.skip("peft is not installed")
    asked = ("--check", "--model", model, "--rounds", "1", "--steps", "1", "--contender", "eager", "cermet-aot")
    written = ran("step", *asked, folder=tmp_path)
    assert model in tabled(written, monkeypatch)
    for row in json.loads(written.read_text())["models"][0]["contenders"]:
        parts, compiled = row["first_step_parts"], row["contender"] != "eager"
        assert sum(parts.values()) == pytest.approx(row["first_step_s"], rel=0.05), row
        assert all((parts[part] > 0.0) == compiled for part in ("tracing", "guards", "matching", "joint", "cutting")), row


def test_a_first_step_from_a_pack_makes_nothing(tmp_path, monkeypatch) -> None:
    """Beside the cold one, which fills the caches, and the warm one, which finds them."""
    asked = ("--check", "--model", "Llama-3-8B", "--rounds", "1", "--steps", "1", "--contender", "eager", "cermet-aot",
             "--warm", "cermet-aot", "--pack")
    written = ran("step", *asked, folder=tmp_path)
    (model,) = json.loads(written.read_text())["models"]
    eager, ours = model["contenders"]
    (warm,), (packed,) = ours["warm"], ours["packed"]
    assert eager["packed"] == [] and model["failures"] == {}
    assert ours["stored"]["made"] > 0 and warm["stored"]["from the directory"] > 0, (ours, warm)
    assert packed["stored"]["made"] == 0 == packed["stored"]["from the directory"], packed
    assert packed["stored"]["from packs"] >= ours["stored"]["made"], (packed, ours)
    assert packed["loss"] == pytest.approx(eager["loss"], rel=1e-4)

    monkeypatch.syspath_prepend(str(BENCH))
    import tables

    # The table compares with Inductor, which takes minutes here.
    model["contenders"].append(ours | {"contender": "inductor"})
    assert f"| {packed['first_step_s']:.1f} (" in tables.first_steps([{"result": model}])


def test_a_pack_is_of_those_that_are_asked_for_warm() -> None:
    asked = subprocess.run([sys.executable, BENCH / "step.py", "--tiny", "--pack", "--warm", "inductor"],
                           capture_output=True, text=True)
    assert asked.returncode == 2
    assert "--pack is of Cermet's contenders that --warm names, and it names none" in asked.stderr
