"""Damages runs that the real executable made, and sees what resume, digest and the reader do.

    /usr/bin/python3 tests/io/run/soak_mutations.py build/release/app/paceline --rounds 500 --seed 1

A soak, not part of ctest: run it after a change to io/run, io/telemetry, io/hdf5 or io/python. It needs h5py, numpy and
Open MPI; half a second to a second a round on one core. Start several with other seeds to use more.
What goes wrong is kept, as the damaged directory and its log, under --keep.

Each round takes a copy of a run (complete, stopped, killed, killed and stopped again, or killed
between its two final files), damages one to three of its HDF5 files (bits flipped, ranges zeroed,
doubled or filled with noise, files cut, datasets and attributes forged with plausible values), and
runs the Python reader, `paceline digest` and `paceline rollout --resume`, the first two once more
after it. All must end by themselves, within 10 s (a resume 30 s), with a documented exit code and
less than 1 GiB of memory; the reader raises ReaderError or OSError only. What is mendable is mended:

  - damage to shards, to prompts.h5 or to telemetry.h5: the resume ends with 0, and the digest is
    that of a run that nothing happened to; telemetry.h5 is there and the shards are gone;
  - damage to trajectories.h5 is not, when its shards are gone: but a digest that is printed with
    exit code 0 is the right one.

Not damaged: run.json, which says what is to be generated.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
import paceline_reader as reader  # noqa: E402

EXIT_CODES = (0, 64, 65, 70, 74, 75)
MEMORY = 1 << 30
SIGNATURES = re.compile(b"\x89HDF|OHDR|OCHK|EAHD|EAIB|EASB|EADB|FAHD|FADB|BT[HIL][DNF]|FR[HS][PB]|FHDB|FHIB|FSHD|FSSE")


class Failure(Exception):
    pass


class Runner:
    """Commands under limits."""

    def __init__(self, program, scratch):
        self.program = os.path.abspath(program)
        self.scratch = scratch
        self.slowest = {}
        self.busiest = {}
        self.largest = {}
        prompts = os.path.join(scratch, "prompts.jsonl")
        with open(os.path.join(ROOT, "configs/prompts/quickstart.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()[:8]
        with open(prompts, "w", encoding="utf-8") as file:
            file.writelines(lines)
        settings = {
            "prompts.path": prompts,
            "prompts.samples": 2,
            "sampling.max_tokens": 96,
            "engine.backend": "cpu",
            "engine.threads": 1,
            "engine.max_batch": 4,
            "engine.kv_memory": "32MiB",
            "output.flush_seconds": 0.05,
            "speculation.drafters": "[{method: suffix}]",
        }
        self.rollout = [self.program, "rollout", os.path.join(ROOT, "configs/quickstart.yaml")]
        for key, value in settings.items():
            self.rollout += ["--set", f"{key}={value}"]

    def start(self, command, log):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (8 * MEMORY, 8 * MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with open(log, "wb") as file:
            return subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, preexec_fn=limit, start_new_session=True
            )

    def wait(self, pid, what, seconds):
        """The exit code; a Failure when the process crashed, hung or took too much memory."""
        begin = time.monotonic()
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            took = time.monotonic() - begin
            if ended:
                break
            if took > seconds:
                os.kill(pid, signal.SIGKILL)
                os.wait4(pid, 0)
                raise Failure(f"{what} took more than {seconds} s")
            time.sleep(0.002)
        self.slowest[what] = max(self.slowest.get(what, 0), took)
        cpu = usage.ru_utime + usage.ru_stime
        self.busiest[what] = max(self.busiest.get(what, 0), cpu)
        self.largest[what] = max(self.largest.get(what, 0), usage.ru_maxrss << 10)
        if os.WIFSIGNALED(status):
            raise Failure(f"{what} died of signal {os.WTERMSIG(status)}")
        if usage.ru_maxrss << 10 > MEMORY:
            raise Failure(f"{what} took {usage.ru_maxrss >> 10} MiB")
        return os.WEXITSTATUS(status)

    def run(self, command, what, seconds):
        log = os.path.join(self.scratch, "log")
        child = self.start(command, log)
        code = self.wait(child.pid, what, seconds)
        child.returncode = code  # reaped above
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if code not in EXIT_CODES:
            raise Failure(f"{what} ended with {code}: {text[-2000:]}")
        return code, text

    def resume(self, directory):
        return self.run(self.rollout + ["--output", directory, "--resume"], "resume", 30)

    def digest(self, directory):
        code, text = self.run([self.program, "digest", directory], "digest", 10)
        if code == 70:
            raise Failure(f"digest: {text}")
        found = re.search(r"^[0-9a-f]{32}$", text, re.MULTILINE)
        return found[0] if code == 0 and found else None

    def read(self, directory):
        """All that the reader offers, in a process of its own."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
                code = read_all(directory)
            except BaseException:
                with open(os.path.join(self.scratch, "log"), "w", encoding="utf-8") as file:
                    file.write(traceback.format_exc())
            finally:
                os._exit(code)
        if self.wait(pid, "reader", 10) != 0:
            with open(os.path.join(self.scratch, "log"), encoding="utf-8") as file:
                raise Failure(f"reader: {file.read()}")


def read_all(directory):
    calls = [
        lambda: reader.summary(directory),
        lambda: [r.tokens.sum() for r in reader.iter_live(directory, partial=True)],
        lambda: reader.live_prompts(directory),
        lambda: list(reader.open_run(directory).iter_slime()),
        lambda: reader.open_run(directory).to_verl(),
        lambda: reader.acceptance(directory, by=("drafter", "batch")),
    ]
    for call in calls:
        try:
            call()
        except (reader.ReaderError, OSError):
            pass
    return 0


def finished(directory):
    try:
        return sum(1 for _ in reader.iter_live(directory))
    except (reader.ReaderError, OSError):
        return 0


def interrupted(runner, directory, responses, number, resume=False):
    """A run that gets `number` when so many responses are on disk."""
    command = runner.rollout + ["--output", directory] + (["--resume"] if resume else [])
    child = runner.start(command, os.path.join(runner.scratch, "log"))
    while child.poll() is None and finished(directory) < responses:
        time.sleep(0.01)
    child.send_signal(number)
    child.wait()
    if os.path.exists(os.path.join(directory, "trajectories.h5")):
        raise RuntimeError("the run ended before it was interrupted")


def bases(runner):
    folder = os.path.join(runner.scratch, "bases")
    os.mkdir(folder)
    at = {name: os.path.join(folder, name) for name in ("complete", "stopped", "killed", "again", "between")}
    runner.resume(at["complete"])
    interrupted(runner, at["stopped"], 5, signal.SIGUSR1)
    interrupted(runner, at["killed"], 8, signal.SIGKILL)
    shutil.copytree(at["killed"], at["again"])
    interrupted(runner, at["again"], 11, signal.SIGUSR1, resume=True)
    shutil.copytree(at["again"], at["between"])
    shutil.copy(os.path.join(at["complete"], "trajectories.h5"), at["between"])
    return at


# --- damage ---------------------------------------------------------------------------------------


def place(rng, data):
    """Often in HDF5's own structures: most of a small file is holes."""
    marks = [match.start() for match in SIGNATURES.finditer(data)]
    if marks and rng.random() < 0.6:
        return min(len(data) - 1, rng.choice(marks) + rng.randrange(96))
    return rng.randrange(len(data))


def damage_bytes(rng, path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if not data:
        return "empty"
    kind = rng.choice(("flip", "flip", "flip", "cut", "zero", "double", "noise"))
    at = place(rng, bytes(data))
    size = rng.choice((1, 8, 64, 512, 4096, 65536))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 1, 4, 32))):
            data[place(rng, bytes(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[rng.choice((at, rng.randrange(len(data)), len(data) - 1)) :]
    elif kind == "zero":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "noise":
        data[at : at + size] = rng.randbytes(len(data[at : at + size]))
    else:
        part = data[at : at + size]
        to = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[to : to + len(part)] = part
        else:
            data[to:to] = part
    with open(path, "wb") as file:
        file.write(data)
    return kind


def forge_value(rng, dtype):
    if dtype.kind == "f":
        return rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e300))
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    plausible = (0, 1, 2, 3, 7, 15, 16, 17, 255, 4096, 1 << 20, most, most - 1, most // 2, least)
    return min(max(rng.choice(plausible), least), most)


def forge(rng, path):
    """A valid file that says something else."""
    subprocess.run(["h5clear", "-s", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with h5py.File(path, "r+", libver="latest") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        name = rng.choice(names)
        column = file[name]
        kind = rng.choice(("value", "value", "value", "size", "type", "delete", "attribute"))
        if kind == "size" and column.maxshape != (None,):
            kind = "value"
        if kind == "value" and len(column) == 0:
            kind = "type"
        if kind == "value":
            for _ in range(rng.choice((1, 1, 4))):
                row = rng.randrange(len(column))
                if column.dtype.names:
                    record = column[row]
                    field = rng.choice(column.dtype.names)
                    record[field] = forge_value(rng, column.dtype[field])
                    column[row] = record
                else:
                    column[row] = forge_value(rng, column.dtype)
        elif kind == "size":
            size = rng.choice((0, 1, len(column) // 2, len(column) + 1, 1 << 20, 1 << 33, 1 << 45, (1 << 63) - 1))
            column.resize((size,))
        elif kind == "type":
            dtype, size = column.dtype, len(column)
            del file[name]
            if rng.random() < 0.3:
                file.create_dataset(name, data=["x"] * min(size, 5), dtype=h5py.string_dtype())
            elif rng.random() < 0.4:
                file.create_dataset(name, (rng.choice((size, 1 << 33)),), dtype, chunks=(1 << 16,), compression="gzip")
            elif rng.random() < 0.5:
                file.create_dataset(name, (1 << rng.choice((4, 20, 33, 40)),), dtype, chunks=(1 << 20,))
            else:
                file.create_dataset(name, data=np.zeros((max(size, 1), 2), np.float64))
        elif kind == "delete":
            del file[name]
        else:
            owner = rng.choice([file, column])
            keys = list(owner.attrs) or ["samples"]
            key = rng.choice(keys)
            value = owner.attrs.get(key)
            if isinstance(value, (str, bytes)) or value is None:
                owner.attrs[key] = rng.choice(("", "x", "{", "x" * 70000, np.zeros(1000), b"\xff\xfe"))
            else:
                owner.attrs[key] = rng.choice((forge_value(rng, np.asarray(value).dtype), "text", np.zeros(1000)))
    return kind + " of " + name


def damage(rng, path):
    """What was done. Forging has a process of its own: HDF5 may crash when it writes a damaged file."""
    if rng.random() < 0.35:
        with open(path, "rb") as file:
            before = file.read()
        seed = rng.random()
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(into, forge(random.Random(seed), path).encode())
            finally:
                os._exit(0)
        os.close(into)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(out, "rb") as pipe:
            what = pipe.read().decode()
        if status == 0 and what:
            return "forged " + what
        with open(path, "wb") as file:  # half done: as it was
            file.write(before)
    return damage_bytes(rng, path)


def hdf5_files(directory, base):
    found = []
    for folder, _, names in os.walk(directory):
        found += [os.path.join(folder, name) for name in names if name.endswith(".h5")]
    if base == "between":  # its final file is whole
        found = [path for path in found if not path.endswith("/trajectories.h5")]
    return sorted(found)


# --- a round --------------------------------------------------------------------------------------


def check_round(runner, directory, base, expected, damaged):
    runner.read(directory)
    early = runner.digest(directory)
    if base in ("complete", "between") and early not in (expected, None):
        raise Failure(f"digest printed {early}, not {expected}")
    code, text = runner.resume(directory)
    digest = runner.digest(directory)
    runner.read(directory)
    if any(name == "trajectories.h5" for name in damaged):
        if code not in (0, 64, 74):
            raise Failure(f"resume of a damaged final file ended with {code}: {text[-2000:]}")
        if digest not in (expected, None):
            raise Failure(f"digest printed {digest}, not {expected}")
        return
    if code != 0:
        raise Failure(f"resume ended with {code}: {text[-2000:]}")
    if digest != expected:
        raise Failure(f"digest is {digest}, not {expected}: {text[-2000:]}")
    if "come out the same" in text:
        raise Failure(f"damage was taken for another response: {text[-2000:]}")
    if sorted(os.listdir(directory)) != ["run.json", "telemetry.h5", "trajectories.h5"]:
        raise Failure(f"what is left: {sorted(os.listdir(directory))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the paceline executable")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this round alone")
    parser.add_argument("--keep", default=os.path.join(tempfile.gettempdir(), "paceline-soak"))
    arguments = parser.parse_args()
    failures = mutations = 0
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(arguments.program, scratch)
        at = bases(runner)
        expected = runner.digest(at["complete"])
        print(f"digest {expected}", flush=True)
        for number in range(arguments.rounds):
            if arguments.only not in (None, number):
                continue
            rng = random.Random(f"{arguments.seed}-{number}")
            base = rng.choice(("complete", "stopped", "stopped", "killed", "killed", "again", "again", "between"))
            directory = os.path.join(scratch, "run")
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(at[base], directory)
            files = hdf5_files(directory, base)
            what = {}
            for path in rng.sample(files, min(len(files), rng.choice((1, 1, 2, 3)))):
                for _ in range(rng.choice((1, 1, 2))):
                    what.setdefault(os.path.basename(path), []).append(damage(rng, path))
                    mutations += 1
            kept = os.path.join(arguments.keep, f"{arguments.seed}-{number}")
            before = os.path.join(scratch, "before")
            shutil.rmtree(before, ignore_errors=True)
            shutil.copytree(directory, before)
            try:
                check_round(runner, directory, base, expected, what)
            except Failure as failure:
                failures += 1
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(before, kept)
                print(f"FAIL {number} {base} {json.dumps(what)}: {failure}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1} rounds, {mutations} mutations, {failures} failures", flush=True)
    times = ", ".join(
        f"{name} {seconds:.2f} s ({runner.busiest[name]:.2f} s of CPU)"
        for name, seconds in sorted(runner.slowest.items())
    )
    sizes = ", ".join(f"{name} {size >> 20} MiB" for name, size in sorted(runner.largest.items()))
    print(f"{mutations} mutations, {failures} failures; slowest {times}; largest {sizes}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
