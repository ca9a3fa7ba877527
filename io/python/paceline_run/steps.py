"""The trainer's end of a resident job (`paceline rollout CONFIG --watch DIR`).

    with Steps.launch("my.yaml", "steps", launcher=["mpirun", "-n", "8"]) as steps:
        run = steps.submit("17", {"model": {"path": "policies/17", "weight_version": 17}}, prompts=rows)

Or, where the job was started by sbatch or another shell:

    run = Steps("steps").submit("17", {...})

A step is generated once. A trainer that was killed and asks for the same step again, with the same
request, prompts and weights, gets the run that is there. One thread for each name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type

from .complete import Run, open_run
from .records import PathLike, ReaderError

#: Seconds between two looks for a step's output. The job looks for requests every 20 ms.
PAUSE = 0.02

#: Seconds that a job may take to end once it was asked to.
ENDING = 60.0


class StepRefused(ReaderError):
    """The job refused the request; the text is that of its .error file."""


class JobEnded(ReaderError):
    """The job that this object launched ended while a step was waited for."""


class Steps:
    """The folder of a resident job."""

    def __init__(self, folder: PathLike, job: Optional["subprocess.Popen[bytes]"] = None) -> None:
        """`folder`: what --watch names; made where it is missing. `job`: the process, where it is ours."""
        self.folder = os.path.abspath(os.fspath(folder))
        os.makedirs(self.folder, exist_ok=True)
        self.job = job

    @classmethod
    def launch(
        cls,
        config: PathLike,
        folder: PathLike,
        launcher: Sequence[str] = ("mpirun",),
        program: str = "paceline",
        settings: Sequence[str] = (),
    ) -> "Steps":
        """Starts the job; its output goes to FOLDER.log. Use it as a context: the job ends with it.

        `launcher`: what starts the ranks. `settings`: as of --set, "engine.threads=8", for all
        steps.
        """
        steps = cls(folder)
        if os.path.exists(steps._path("stop")):
            os.remove(steps._path("stop"))  # an earlier job's
        command = [*launcher, program, "rollout", os.fspath(config), "--watch", steps.folder]
        command += [word for setting in settings for word in ("--set", setting)]
        with open(steps.log, "ab") as log:
            steps.job = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return steps

    @property
    def log(self) -> str:
        """Where the output of a job goes that `launch` started."""
        return self.folder + ".log"

    def submit(
        self,
        name: str,
        request: Mapping[str, Any],
        prompts: Optional[Iterable[Mapping[str, Any]]] = None,
        timeout: Optional[float] = None,
    ) -> Run:
        """Asks for a step, waits for it and opens it.

        `request`: the keys of the configuration that this step has of its own, by sections.
        `prompts`: lines of a prompt file, which is then written beside the request; otherwise the
        request or the job's configuration names one. `timeout`: seconds to wait; none: for ever.

        Raises StepRefused with the text of the job's .error file, JobEnded where a job of this
        object ended first, TimeoutError, and ValueError where the name has been used for another
        request.
        """
        self.begin(name, request, prompts)
        return self.wait(name, timeout)

    def begin(
        self,
        name: str,
        request: Mapping[str, Any],
        prompts: Optional[Iterable[Mapping[str, Any]]] = None,
    ) -> None:
        """Asks for a step. Relative paths in the request are relative to the working directory."""
        text, lines, weights = self._asked(name, request, prompts)
        target, error = self._path(f"{name}.yaml"), self._path(f"{name}.error")
        if os.path.exists(error):
            # Refused before, and tried again. The old request goes first, or it would be met.
            if os.path.exists(target):
                os.remove(target)
            os.remove(error)
        if os.path.exists(target):
            self._require_same(name, text, lines, weights)
            return
        if lines is not None:
            self._write(f"{name}.jsonl", lines)
        self._write(f"{name}.yaml", text)

    def announce(
        self,
        name: str,
        request: Mapping[str, Any],
        prompts: Optional[Iterable[Mapping[str, Any]]] = None,
    ) -> None:
        """Tells of a step that will be asked for, as far as it is known: its prompts, sampling.seed and
        model.weight_version. Ranks that run dry before it begin its responses, for its drafts
        (speculation.pregenerate). Nothing of it binds."""
        text, lines, _ = self._asked(name, request, prompts)
        if os.path.exists(self._path(f"{name}.yaml")):
            return
        if lines is not None:
            self._write(f"{name}.jsonl", lines)
        self._write(f"{name}.upcoming", text)

    def _asked(
        self,
        name: str,
        request: Mapping[str, Any],
        prompts: Optional[Iterable[Mapping[str, Any]]],
    ) -> Tuple[str, Optional[str], Optional[str]]:
        """The text of a request, of its prompts if they are given, and the path of its weights."""
        if not name or name.startswith(".") or "/" in name or name == "stop":
            raise ValueError(f"{name!r} is no name for a step: expected one for a file, as step-17")
        asked: Dict[str, Any] = {k: dict(v) for k, v in request.items()}
        for section, key in (("model", "path"), ("prompts", "path"), ("prompts", "begun")):
            if asked.get(section, {}).get(key) is not None:
                asked[section][key] = os.path.abspath(os.fspath(asked[section][key]))
        if "drafters" in asked.get("speculation", {}):
            asked["speculation"]["drafters"] = [
                {k: os.path.abspath(os.fspath(v)) if k in ("path", "stop") else v for k, v in drafter.items()}
                for drafter in asked["speculation"]["drafters"]
            ]
        lines = None
        if prompts is not None:
            if "path" in asked.get("prompts", {}):
                raise ValueError("the request names prompts.path, and prompts are given too")
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in prompts)
            asked.setdefault("prompts", {})["path"] = self._path(f"{name}.jsonl")
        text = json.dumps(asked, indent=1) + "\n"  # JSON is YAML
        return text, lines, asked.get("model", {}).get("path")

    def _require_same(
        self, name: str, text: str, lines: Optional[str], weights: Optional[str]
    ) -> None:
        """Raises ValueError where a step of this name was asked for with other words or weights."""
        target = self._path(f"{name}.yaml")
        same = _read(target) == text
        if same and lines is not None:
            same = _read(self._path(f"{name}.jsonl")) == lines
        if same and weights is not None:
            asked_at = os.stat(target).st_mtime_ns
            with os.scandir(weights) as files:
                same = all(file.stat().st_mtime_ns <= asked_at for file in files)
        if not same:
            raise ValueError(
                f"{target} is there already, and its request, prompts or weights were others; "
                f"give the step another name, or forget() it"
            )

    def wait(self, name: str, timeout: Optional[float] = None) -> Run:
        """Waits for a step that was asked for, and opens it. Raises as submit()."""
        output, error = self._path(name), self._path(f"{name}.error")
        limit = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = self.job is not None and self.job.poll() is not None
            if os.path.exists(output):
                return open_run(output)
            if os.path.exists(error):
                raise StepRefused(_read(error).strip())
            if ended:
                raise JobEnded(f"the job ended with {self.job.returncode}: {self._last_words()}")
            if limit is not None and time.monotonic() > limit:
                raise TimeoutError(f"{output} is not there after {timeout} s")
            time.sleep(PAUSE)

    def forget(self, name: str) -> None:
        """Removes a step that is complete, with its request: no job begins it again meanwhile."""
        for suffix in (".yaml", ".upcoming", ".jsonl", ".error"):
            if os.path.exists(self._path(name + suffix)):
                os.remove(self._path(name + suffix))
        shutil.rmtree(self._path(name), ignore_errors=True)

    def close(self) -> int:
        """Ends the job once it has no request left; waits, and returns its exit code, where it is ours."""
        self._write("stop", "")
        if self.job is None:
            return 0
        return self.job.wait()

    def __enter__(self) -> "Steps":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Of a trainer that fails no ranks are left behind, in the midst of a step or not."""
        if self.job is not None and kind is not None and self.job.poll() is None:
            self.job.terminate()
        code = self.close()
        if kind is None and code != 0:
            raise JobEnded(f"the job ended with {code}: {self._last_words()}")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _write(self, name: str, text: str) -> None:
        """By rename, so that the job sees all of it or nothing."""
        growing = self._path(f".{name}.{os.getpid()}")
        with open(growing, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(growing, self._path(name))

    def _last_words(self) -> str:
        """The end of the job's log."""
        return f"the end of {self.log}:\n{_read(self.log)[-2000:]}"


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def require_all_prompts(run: Run, submitted: int) -> None:
    """Raises ReaderError where a run has some of its prompts alone (prompts.enough, prompts.overlong: skip). Who goes by
    the rows of its own batch would give them other prompts' responses."""
    if len(run.prompts) != submitted:
        raise ReaderError(
            f"{run.path}: it has {len(run.prompts)} of {submitted} prompts, and this trainer's rollout function needs "
            f"responses to all: expected no prompts.enough, and no prompts.overlong that skips"
        )


def steps_of_environment() -> Steps:
    """The folder that PACELINE_STEPS names, for trainers that are told of functions alone."""
    folder = os.environ.get("PACELINE_STEPS")
    if not folder:
        raise ReaderError(
            "PACELINE_STEPS is not set: expected the folder of a job "
            "(paceline rollout CONFIG --watch FOLDER)"
        )
    return Steps(folder)


def unsupported(settings: Mapping[str, Any], neutral: Mapping[str, List[Any]]) -> List[str]:
    """Settings, as 'name=value', that paceline does not have and that are not neutral."""
    return [
        f"{name}={settings[name]!r}"
        for name, values in neutral.items()
        if name in settings and settings[name] not in values
    ]
