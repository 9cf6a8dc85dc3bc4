"""Shared by the scripts of this folder."""
import contextlib
import statistics
import time

import torch


def add_options(parser, steps, warmup, device):
    """What every step can be asked for."""
    parser.add_argument("--steps", type=int, default=steps, help="timed steps")
    parser.add_argument("--warmup", type=int, default=warmup, help="steps before timing")
    parser.add_argument("--bf16", action="store_true", help="autocast products to bfloat16")
    parser.add_argument("--tf32", action="store_true", help="round the operands of f32 products on a GPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=device)
    parser.add_argument("--compile", nargs="?", const="default", choices=["default", "max-autotune"],
                        help="torch.compile instead of eager, in this mode")


def set_precision(a):
    """For f32; and the context in which the forward pass runs."""
    torch.set_float32_matmul_precision("high" if a.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = a.tf32
    return torch.autocast(a.device, dtype=torch.bfloat16) if a.bf16 else contextlib.nullcontext()


def compiled(a, model):
    """What runs the model's forward pass as asked for."""
    return torch.compile(model, mode=None if a.compile == "default" else a.compile) if a.compile else model


def timed_steps(a, step, unit, count):
    """Runs step(), which returns the loss, as asked for; so many of the unit are in one. What there is to print."""
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    begin = time.perf_counter()
    first = step().item()
    for _ in range(a.warmup - 1):
        step()
    wait()
    started = time.perf_counter() - begin
    times = []
    for _ in range(a.steps):
        wait()
        begin = time.perf_counter()
        loss = step()
        wait()
        times.append((time.perf_counter() - begin) * 1e3)
    median = statistics.median(times)
    return {
        "step_ms": round(median, 3),
        "min_step_ms": round(min(times), 3),
        f"{unit}_per_s": round(count / median * 1e3, 1),
        "device_peak_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else 0,
        "driver_bytes": torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0] if a.device == "cuda" else 0,
        "start_s": round(started, 1),
        "first_loss": round(first, 4),
        "last_loss": round(loss.item(), 4),
        "precision": "bf16" if a.bf16 else "tf32" if a.tf32 else "f32",
        "mode": f"compile {a.compile}" if a.compile else "eager",
        "torch": torch.__version__,
    }


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
