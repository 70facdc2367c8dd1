"""Times weight files in attn and in Python: benchmark_weights.py WORKER FOLDER MIB PAGE

Both take turns on the same files, which the operating system holds in memory, inside processes that run already (WORKER
is attn_weights_benchmark). Unless said otherwise a task is the first of its process, a copy made for it: memory that
another one has freed would not have to be asked for again. The table replaces what stands between the markers of PAGE, which is made where it is
absent.
"""

import gc
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import threading
import time

import safetensors
import safetensors.torch
import torch

BEGIN, END = "<!-- benchmark_weights begins -->", "<!-- benchmark_weights ends -->"
ROUNDS = 7
TENSORS = 64


class Attn:
    """The worker; a task gives the seconds that it took there."""

    def __init__(self, binary, *options):
        self.process = subprocess.Popen([binary, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, task, path):
        self.process.stdin.write(f"{task} {path}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer or float(answer) < 0:
            raise SystemExit(f"the worker failed at: {task} {path}")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Model(torch.nn.Module):
    """A module with parameters like these, none of their memory touched yet."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty_like(tensor)))


def seconds(task):
    gc.collect()
    begin = time.perf_counter()
    kept = task()
    end = time.perf_counter()
    del kept
    return end - begin


def first(timed):
    """What `timed` returns in a copy of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(timed()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return float(text)


def copies(tensors):
    """The copies, and what they were made of: it is let go after the clock has stopped."""
    return {name: tensor.clone() for name, tensor in tensors.items()}, tensors


def load(reader, path):
    mapped = read_safetensors(path) if reader is read_safetensors else torch.load(path, mmap=True)
    model = Model(mapped)
    del mapped
    return seconds(lambda: model.load_state_dict(reader(path)))


def read_safetensors(path):
    return safetensors.torch.load_file(path)


def read_state_dict(path):
    return torch.load(path, mmap=False, weights_only=True)


def synced(save, tensors, path):
    """Written and on the disk, as attn's files are."""
    save(tensors, path)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def anonymous_bytes(process):
    """Memory of a process that is no file's page."""
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no RssAnon in /proc")


def peak_of(process, task):
    """The anonymous memory that a process takes for a task at its peak, beyond what it had."""
    before, peak, done = anonymous_bytes(process), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, anonymous_bytes(process))
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    task()
    done.set()
    watcher.join()
    return peak - before


def peaks_of_python(path):
    """The same of loading a file into a module in a Python that starts for it."""
    code = (
        "import sys, benchmark_weights as b\n"
        "reader = b.read_safetensors if sys.argv[1].endswith('safetensors') else b.read_state_dict\n"
        "import os, torch\n"
        "b.load(reader, sys.argv[2])\n"  # a small file: what a first call costs
        "print(b.peak_of(os.getpid(), lambda: b.load(reader, sys.argv[1])))\n"
    )
    small = path.with_name(f"small{path.suffix}")
    result = subprocess.run(
        [sys.executable, "-c", code, path, small], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return int(result.stdout)


def peak_of_attn(binary, path):
    attn = Attn(binary, "--here")
    attn.run("load", path.with_name(f"small{path.suffix}"))
    peak = peak_of(attn.process.pid, lambda: attn.run("load", path))
    attn.close()
    return peak


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def duration(value):
    return f"{value * 1e3:.2f} ms" if value < 0.01 else f"{value * 1e3:.0f} ms"


class Table:
    """Rows in turns: attn, then each opponent, ROUNDS times."""

    def __init__(self):
        self.lines = ["| | attn, best (median) | Python, best (median) | Python |", "|---|--:|--:|---|"]

    def row(self, title, ours, opponents):
        tasks = [ours, *(task for _, task in opponents)]
        times = [[] for _ in tasks]
        for _ in range(ROUNDS):
            for taken, task in zip(times, tasks):
                os.sync()  # or this one would wait for what another has left to write
                taken.append(task())
        texts = [f"{duration(min(x))} ({duration(statistics.median(x))})" for x in times]
        for number, (call, _) in enumerate(opponents, 1):
            self.lines.append(f"| {title if number == 1 else ''} | {texts[0] if number == 1 else ''} | {texts[number]} | {call} |")
        print(f"{title}: attn {texts[0]}; " + "; ".join(f"{call} {text}" for (call, _), text in zip(opponents, texts[1:])), flush=True)


def measure(binary, folder, mib):
    torch.set_num_threads(1)
    rows = mib * 2**20 // 4 // TENSORS // 1024
    tensors = {f"w{i}": torch.randn(rows, 1024) for i in range(TENSORS)}
    st, pt = folder / "weights.safetensors", folder / "weights.pt"
    for suffix, save in ((".safetensors", safetensors.torch.save_file), (".pt", torch.save)):
        save(tensors, folder / f"weights{suffix}")
        save({"w": torch.ones(8)}, folder / f"small{suffix}")

    attn, here, table = Attn(binary), Attn(binary, "--here"), Table()
    attn.run("read", pt)  # the files are in memory
    attn.run("keep", st)  # and what is saved later
    load_file, torch_load = "`safetensors.torch.load_file`", "`torch.load(mmap=False)`"

    table.row("open safetensors", lambda: attn.run("open", st), [(load_file, lambda: first(lambda: seconds(lambda: read_safetensors(st))))])
    table.row(
        "read safetensors, and copy every tensor",
        lambda: attn.run("read", st),
        [(load_file + ", `clone`", lambda: first(lambda: seconds(lambda: copies(read_safetensors(st)))))],
    )
    table.row(
        "load safetensors into a module",
        lambda: attn.run("load", st),
        [(load_file + ", `load_state_dict`", lambda: first(lambda: load(read_safetensors, st)))],
    )
    again = lambda: seconds(lambda: read_state_dict(pt))
    table.row("read .pt, checksums included", lambda: attn.run("open", pt), [(torch_load, lambda: first(again))])
    table.row("the same again, in the same process", lambda: here.run("open", pt), [(torch_load, again)])
    here.close()
    table.row(
        "load .pt into a module",
        lambda: attn.run("load", pt),
        [(torch_load + ", `load_state_dict`", lambda: first(lambda: load(read_state_dict, pt)))],
    )
    for suffix, name, save in ((".safetensors", "`save_file`", safetensors.torch.save_file), (".pt", "`torch.save`", torch.save)):
        ours, theirs = folder / f"ours{suffix}", folder / f"theirs{suffix}"
        table.row(
            f"write {suffix.removeprefix('.') if suffix != '.pt' else suffix}, synced",
            lambda: attn.run("save", ours),
            [
                (f"{name}, `fsync`", lambda: seconds(lambda: synced(save, tensors, theirs))),
                (f"{name}, left to the system", lambda: seconds(lambda: save(tensors, theirs))),
            ],
        )
    attn.close()
    del tensors

    lines = table.lines
    lines += ["", "| memory to load it into a module, beside the file's pages | attn | Python |", "|---|--:|--:|"]
    for path in (st, pt):
        ours, theirs = peak_of_attn(binary, path), peaks_of_python(path)
        lines.append(f"| {path.suffix.removeprefix('.') if path != pt else '.pt'} | {ours / 2**20:.0f} MiB | {theirs / 2**20:.0f} MiB |")
    size = f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
    head = (
        f"Measured by `./scripts/benchmark_weights` on {cpu()} ({os.cpu_count()} cores), one thread, PyTorch and LibTorch "
        f"{torch.__version__.split('+')[0]}, safetensors {safetensors.__version__}: {TENSORS} float32 tensors of {size} together, "
        f"whose file the system holds in memory; {ROUNDS} rounds, in which attn and Python take turns."
    )
    return [head, "", *lines]


def main():
    binary, folder, mib, page = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "weights", int(sys.argv[3]), pathlib.Path(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lines = measure(binary, folder, mib)
    finally:
        for file in folder.iterdir():
            file.unlink()
    text = page.read_text() if page.exists() else f"## Speed and memory\n\n{BEGIN}\n{END}\n"
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:])
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
