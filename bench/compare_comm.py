#!/usr/bin/env python3
"""All-reduce over threads against Open MPI's own on the same machine, in one run: the two take turns, and the medians of
all rounds are compared. Next to both stands a bound: the best time in which as many threads read and write as many bytes,
each its own and in place. Every rank's bytes must be read and written at least once, so no all-reduce is quicker.

    python3 bench/compare_comm.py [--ranks 2,4] [--sizes 1KiB,64MiB] [--rounds 7]

Needs mpirun. Open MPI runs its blocking MPI_Allreduce, which is its quickest, through `trireme bench comm --transport mpi
--blocking`; ranks that share a core yield while they wait (mpi_yield_when_idle), which is its quickest there.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def run(command, env=None):
    out = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **(env or {})}).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def human(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}"
        size /= 1024


def share_of(bound, median, best):
    """A bound that something beat was measured while the machine was slower, and bounds nothing."""
    return f"{100 * bound / median:.0f}%" if bound <= min(best.values()) else "– (measured on a slower machine: repeat)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="1KiB,64MiB")
    parser.add_argument("--rounds", type=int, default=7)
    a = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    times = {}  # (who, ranks, bytes) -> medians of the rounds

    def note(who, rows):
        for r in rows:
            times.setdefault((who, r["ranks"], r["bytes"]), []).append(r.get("median_us", r.get("best_us")))

    before = os.getloadavg()[0]
    common = ["bench", "comm", "--algorithms", "native", "--sizes", a.sizes, "--json"]
    for _ in range(a.rounds):
        for ranks in a.ranks.split(","):
            crowded = int(ranks) > cores
            mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1" if crowded else "0"}
            rows = run([TRIREME, *common, "--ranks", ranks, "--bound"])
            note("threads", [r for r in rows if r["transport"] == "threads"])
            note("bound", [r for r in rows if r["transport"] == "bound"])
            note("mpi", run(["mpirun", "-n", ranks, TRIREME, *common, "--transport", "mpi", "--blocking"], mpi))
    print(f"{cores} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after; "
          f"medians (best) of {a.rounds} rounds that took turns")
    print(f"{'ranks':>5} {'bytes':>8}  {'threads':>21} {'Open MPI':>21}  {'quicker':>7}  {'bus GB/s':>13}  "
          f"{'bound':>10}  of bound")
    for _, ranks, size in sorted(k for k in times if k[0] == "threads"):
        median = {w: statistics.median(times[w, ranks, size]) for w in ("threads", "mpi")}
        bound = min(times["bound", ranks, size])
        best = {w: min(times[w, ranks, size]) for w in ("threads", "mpi")}
        bus = {w: 2e-3 * size * (ranks - 1) / ranks / median[w] for w in ("threads", "mpi")}
        print(f"{ranks:>5} {human(size):>8}  {median['threads']:>9.1f} ({best['threads']:.1f}) µs "
              f"{median['mpi']:>11.1f} ({best['mpi']:.1f}) µs  {median['mpi'] / median['threads']:>6.1f}×  "
              f"{bus['threads']:>5.2f} / {bus['mpi']:<5.2f}  {bound:>7.1f} µs  {share_of(bound, median['threads'], best)}")


if __name__ == "__main__":
    main()
