"""Shared by the scripts beside it."""
import statistics

import torch


def milliseconds(f, repeats=20):
    """The median of so many calls, by the GPU's own events."""
    for _ in range(3):
        f()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        f()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)
