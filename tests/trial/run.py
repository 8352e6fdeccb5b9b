"""The sections of the trial: each runs what is built as often as it is asked and compares what it saw.

    python tests/trial/run.py [--part 1.0] [--out FILE] [SECTION ...]

--part is of the counts. What was seen takes its sections' places in tests/trial/results.json, with the commit, or with
--out is written there alone. Ends with 1 where something did not hold; a section that cannot run here says why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD, FUZZERS = ROOT / "build" / "bin", ROOT / "build-libfuzzer" / "bin"
CORPORA = ROOT / "tests" / "fuzz" / "bytes" / "corpora"
KEPT = Path(__file__).resolve().with_name("results.json")
sys.path[:0] = [str(ROOT / "bench")]
import environment
import results


class Absent(Exception):
    """What a section needs is not here."""


@dataclass
class Seen:
    """What a section saw, and what of it must hold."""

    figures: dict[str, float | int | str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def must(self, what: str, holds: bool) -> None:
        if not holds:
            self.broken.append(what)


@dataclass
class Counts:
    part: float

    def __call__(self, whole: int, least: int = 1) -> int:
        return max(least, round(whole * self.part))


def program(name: str, where: Path = BUILD) -> str:
    path = where / name
    if not path.exists():
        raise Absent(f"{path} is not built")
    return str(path)


def tests(seen: Seen, name: str, counts: dict[str, int]) -> dict[str, float]:
    """Tests of test_runtime with counts of their own; what they recorded, added up."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        ran = subprocess.run([program("test_runtime"), f"--gtest_filter={name}", f"--gtest_output=xml:{report}"],
                             env=os.environ | {f"TRIAL_{key}": str(value) for key, value in counts.items()},
                             capture_output=True, text=True)
        seen.must(f"{name}: {ran.stdout[-2000:]}{ran.stderr[-500:]}", ran.returncode == 0)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    seen.must(f"{name} is no test", bool(cases))
    found: dict[str, float] = {}
    for each in (each for case in cases for each in case.iter("property")):
        found[each.get("name", "")] = found.get(each.get("name", ""), 0) + float(each.get("value", "nan"))
    return {what: int(value) if value.is_integer() else round(value, 4) for what, value in found.items()}


def kills(seen: Seen, counts: Counts) -> None:
    """kill -9 while publishing, evicting, packing: 10,000, 0 damaged loads; a control that writes in place has some"""
    stores = tests(seen, "StoreTest.AKilledProcessLeavesNoDamage", {"KILLS": counts(8000, 20)})
    packs = tests(seen, "PackTest.AKilledWriterLeavesTheOldOrTheNew", {"PACK_KILLS": counts(2000, 10)})
    seen.figures |= {what: stores.get(what, -1) + packs.get(what, -1) for what in stores}
    seen.must("nothing is damaged", seen.figures.get("damaged") == 0)
    seen.must("each control shows some", min(found.get("damaged by the control", 0) for found in (stores, packs)) > 0)


def damage(seen: Seen, counts: Counts) -> None:
    """truncations, flips and other damage of each kind of entry and a pack: at least 500,000, all rejected"""
    each = {"DAMAGES": counts(200_000)}
    entries = tests(seen, "Entry.RefusesDamageOfEveryKind", each)
    packs = tests(seen, "PackTest.DamageIsFound", each)
    seen.figures |= {"of entries": entries.get("damages", 0), "of a pack": packs.get("damages", 0)}


NORM = """module attributes {{cermet.version = 1 : i64}} {{
  func.func @norm(%x: tensor<?x{0}xf32, #cermet.symbols<["r0"]>>, %w: tensor<{0}xf32>)
      -> tensor<?x{0}xf32, #cermet.symbols<["r0"]>> {{
    %y = cermet.rms_norm %x, %w {{eps = 1.0e-6 : f64}}
        : tensor<?x{0}xf32, #cermet.symbols<["r0"]>>, tensor<{0}xf32> to tensor<?x{0}xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x{0}xf32, #cermet.symbols<["r0"]>>
  }}
}}"""


def compiled(seen: Seen, cache: str, processes: int, texts: list[str]) -> tuple[int, int, float]:
    """Plans and kernels that so many tools made which start together over a directory, and the seconds of all."""
    nvrtc = next((each for each in sys.path for each in Path(each).glob("nvidia/cu13/lib")), None)
    target = "sm_90" if nvrtc else "host"
    began = time.monotonic()
    tools = [subprocess.Popen([program("cermet"), "compile", *texts, "--target", target, "--cache", cache],
                              env=os.environ | ({"CERMET_NVRTC": str(nvrtc)} if nvrtc else {}),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(processes)]
    plans = kernels = 0
    for tool in tools:
        said, warned = tool.communicate()
        counted = re.search(r"plans: (\d+) made .* kernels: (\d+) made", said)
        seen.must(f"cermet compile: {warned}", tool.returncode == 0 and not warned and counted is not None)
        plans, kernels = plans + int(counted[1]) if counted else -1, kernels + int(counted[2]) if counted else -1
    return plans, kernels, time.monotonic() - began


def graphs_of_a_node(seen: Seen, counts: Counts) -> None:
    """64 processes x 200 graph texts, cold, to kernels (of NVRTC's, if here): 200 of each, at most 1.3 x one's time"""
    processes, many = counts(64, 4), counts(200, 10)
    with tempfile.TemporaryDirectory() as scratch:
        texts = [f"{scratch}/{number}.mlir" for number in range(many)]
        for number, text in enumerate(texts):
            Path(text).write_text(NORM.format(512 + 8 * number))
        alone = compiled(seen, f"{scratch}/one", 1, texts)
        together = compiled(seen, f"{scratch}/all", processes, texts)
    seen.figures |= {"processes": processes, "texts": many, "plans made": together[0], "kernels made": together[1],
                     "seconds of one": round(alone[2], 2), "times the seconds of one": round(together[2] / alone[2], 2)}
    seen.must("each is made once", alone[:2] == together[:2] == (many, many))
    seen.must("at most 1.3 x the time of one", together[2] <= 1.3 * alone[2])


def node(seen: Seen, counts: Counts) -> None:
    """64 processes x 200 keys, cold: 200 made, at most 1.3 x the time of one; locks stubbed out: right, 0 errors"""
    asked = {"PROCESSES": counts(64, 4), "KEYS": counts(200, 10), "MILLISECONDS": 100}
    together = tests(seen, "Turn.ProcessesThatStartTogetherMakeEachKeyOnce", asked)
    seen.figures |= together
    seen.must("at most 1.3 x the time of one", together.get("times the seconds of one", 9) <= 1.3)
    alone = tests(seen, "Turn.WithoutLocksEachMakesItsOwn", asked)
    seen.figures |= {f"without locks, {what}": alone.get(what, -1) for what in ("made", "failures")}


def holders(seen: Seen, counts: Counts) -> None:
    """whoever makes an entry killed, 1,000 times: the next goes on within 1 s"""
    seen.figures |= tests(seen, "Turn.AKilledMakerIsFollowedWithinASecond", {"HOLDERS": counts(1000)})


def bound(seen: Seen, counts: Counts) -> None:
    """16 writers with removal at a small bound, and 1,000 wipes: bound held within 5 %, 0 failed loads"""
    seen.figures |= tests(seen, "BoundTest.HoldsWhileManyWrite", {"ASKS": counts(3000, 300)})
    seen.figures |= tests(seen, "BoundTest.WipesFailNoLoad", {"WIPES": counts(1000)})
    seen.must("within 5 % of the bound", seen.figures.get("most of the bound", 9) <= 1.05)


def calls(seen: Seen, counts: Counts) -> None:
    """every Nth system call fails, once and from there on, 12 errors: 0 failed compiles, 0 leaks, one warning"""
    seen.figures |= {"errors": counts(12)} | tests(seen, "Scenes/FailingCallsTest.*", {"ERRORS": counts(12)})


FUZZED = {"text": "graph texts", "entry": "an entry's bytes", "pack": "a pack's bytes", "plan": "plans",
          "calls": "sequences of C calls"}


def fuzzed(name: str) -> Callable[[Seen, Counts], None]:
    """A section for one of them; as many fuzzers at once as cores that this process may use."""
    def fuzz(seen: Seen, counts: Counts) -> None:
        workers = len(os.sched_getaffinity(0))
        corpora = [CORPORA / name] + [ROOT / "tests" / more for more in ("graphs", "errors") if name == "text"]
        with tempfile.TemporaryDirectory() as scratch:
            running = []
            for worker in range(workers):
                (found := Path(scratch) / str(worker)).mkdir()
                command = [program(f"bytes_{name}", FUZZERS), f"-runs={-(-counts(1_000_000) // workers)}", "-timeout=60",
                           "-rss_limit_mb=6000", "-print_final_stats=1", f"-artifact_prefix={FUZZERS}/found-{name}-",
                           str(found), *(str(path) for path in corpora if path.exists())]
                said = open(f"{found}.said", "w+", errors="replace")
                running.append((subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said), said))
            executed = 0
            for process, said in running:
                process.wait()
                said.seek(0)
                text = said.read()
                counted = re.search(r"number_of_executed_units: +(\d+)", text)
                executed += int(counted[1]) if counted else 0
                seen.must(f"bytes_{name}: {text[-3000:]}", process.returncode == 0 and counted is not None)
        seen.figures["inputs"] = executed
        seen.must(f"{counts(1_000_000)} inputs", executed >= counts(1_000_000))

    fuzz.__name__ = f"fuzz_{name}"
    fuzz.__doc__ = f"libFuzzer on {FUZZED[name]}, ASan and UBSan: 1,000,000 inputs, nothing found"
    return fuzz


def graphs(seen: Seen, counts: Counts) -> None:
    """graphs of 1,000, 10,000, 50,000 operations: 0.1, 1.5, 10 s to a plan, linear"""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "plans.json"
        subprocess.run([program("cermet_bench_plans"), "--ask", "compile", "--repeats", "2", "--out", str(out)],
                       check=True, capture_output=True)
        rows = json.loads(out.read_text())["times"]
    seconds = {(row["graph"], row["operations"]): row["processor_ms"] / 1e3 for row in rows}
    for operations, most in ((1000, 0.1), (10_000, 1.5), (50_000, 10)):
        slowest = max((time, graph) for (graph, size), time in seconds.items() if size == operations)
        seen.figures[f"{operations} operations, seconds"] = round(slowest[0], 3)
        seen.must(f"{slowest[1]} of {operations} operations takes {slowest[0]:.2f} s, at most {most}",
                  slowest[0] <= most)
    growth, graph = max((seconds[graph, 50_000] / 5 / seconds[graph, 10_000], graph) for graph, _ in seconds)
    seen.figures["an operation of 50,000 beside one of 10,000"] = round(growth, 2)
    seen.must(f"{graph}: an operation of 50,000 takes {growth:.2f} x one of 10,000, at most 2", growth <= 2)


def warm(seen: Seen, counts: Counts) -> None:
    """warm start from a pack, text to launch, new process: at most 5 ms beside the driver's own"""
    target = "auto" if environment.describe()["gpu"] else "host"
    asked = subprocess.run([program("cermet_bench_warm_start"), "--packed", "--target", target, "--turns",
                            str(counts(100, 5))], check=True, capture_output=True, text=True)
    taken = json.loads(asked.stdout)["without_driver"]
    seen.figures |= {"target": target, "median, ms": taken["median_ms"], "nine of ten, ms": taken["p90_ms"]}
    seen.must("at most 5 ms", taken["median_ms"] <= 5)


SECTIONS: dict[str, Callable[[Seen, Counts], None]] = {
    each.__name__: each for each in (kills, damage, node, graphs_of_a_node, holders, bound, calls,
                                     *map(fuzzed, FUZZED), graphs, warm)}


def tried() -> dict:
    """On what: the results of an earlier run of some sections make no other commit of it."""
    on = environment.describe() | {"cores": os.cpu_count()}
    clean = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", f":!{KEPT.relative_to(ROOT)}"], cwd=ROOT)
    return on | {"commit": on["commit"].removesuffix("-dirty")} if clean.returncode == 0 else on


def keep(taken: dict[str, dict]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.write_text(results.text({name: taken.get(name, kept.get(name)) for name in SECTIONS
                                  if name in taken or name in kept}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=1, help="of the counts")
    parser.add_argument("--out", type=Path, help="where to write what was seen, in the kept results' place")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all without one")
    asked = parser.parse_args()
    if unknown := [name for name in asked.sections if name not in SECTIONS]:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if asked.part != 1 and not asked.out:
        parser.error("a part of the counts is not kept: give --out FILE")
    on = tried()
    taken: dict[str, dict] = {}
    broken = False
    for name in asked.sections or SECTIONS:
        seen, began = Seen(), time.monotonic()
        try:
            SECTIONS[name](seen, Counts(asked.part))
        except Absent as why:
            print(f"{name}: not run: {why}")
            continue
        seconds = round(time.monotonic() - began, 1)
        broken |= bool(seen.broken)
        taken[name] = {"asked": SECTIONS[name].__doc__, "held": not seen.broken, "figures": seen.figures,
                       "seconds": seconds, "commit": on["commit"], "time": on["time"], "cores": on["cores"],
                       "load": round(os.getloadavg()[0], 1)}
        print(f"{name}: {taken[name]['asked']}\n    {'held' if not seen.broken else 'BROKEN'}, {seconds} s: "
              + ", ".join(f"{what} {figure}" for what, figure in seen.figures.items()), flush=True)
        for what in seen.broken:
            print(f"    not so: {what}")
        if not asked.out:
            keep(taken)
    if asked.out:
        asked.out.write_text(results.text(taken) + "\n")
    sys.exit(broken)


if __name__ == "__main__":
    main()
