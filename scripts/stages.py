"""Stages of a long job as data: each has a limit and a log, passed stages are not repeated, and all are run.

The module requires the standard library only: it also runs with a Python without the project.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

PASSED, FAILED, UNFINISHED, OMITTED = "passed", "failed", "unfinished", "left out"
NOT_YET = 75  # exit status of a command that continues when it is started again (EX_TEMPFAIL)
SLACK = 30  # seconds for a command that watches its time to finish


class Stage(NamedTuple):
    """Commands of one stage; "{seconds}" in a command becomes the time after which it should begin nothing."""

    name: str
    part: str  # part of the job, which can be left out as a whole
    commands: Sequence[Sequence[str]]
    needs: Tuple[str, ...] = ()  # stages that must have passed
    seconds: int = 450  # limit in seconds of all commands together
    environment: Dict[str, str] = {}


class Outcome(NamedTuple):
    status: str
    said: str
    seconds: float


class Job:
    """Runner of stages, with their outcomes in ``folder/stages.json`` and their output in ``folder/logs``.

    Args:
        folder: where results go.
        settings: of the results; a folder with results of other settings is an error.
        minutes: time for this call; later stages are left to the next call. None for no limit.

    Raises:
        SystemExit: if the folder was begun with other settings.
    """

    def __init__(self, folder: Path, settings: Dict[str, Any], minutes: Optional[float] = None) -> None:
        self.folder, self.file = folder, folder / "stages.json"
        self.end = None if minutes is None else time.monotonic() + 60 * minutes
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.kept: Dict[str, Any] = {"settings": settings, "stages": {}}
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            changed = [name for name, value in settings.items() if kept["settings"].get(name) != value]
            if changed:
                sys.exit(
                    f"{folder} holds results of another state ({', '.join(changed)} changed): remove it, or give "
                    "another --out"
                )
            self.kept = kept

    def status(self, name: str) -> Optional[str]:
        return self.kept["stages"].get(name, {}).get("status")

    def turn(self, stage: Stage) -> int:
        """Return the turn of a stage: 0, 1 if it failed before, 2 if a stage that it requires failed or was omitted."""
        if any(self.status(need) in (FAILED, OMITTED) for need in stage.needs):
            return 2
        return 1 if self.status(stage.name) == FAILED else 0

    def run(self, stages: Sequence[Stage]) -> int:
        """Run the stages that have not passed; stages that failed before come last.

        Returns 0, 1 if a stage failed, or 3 if some are left.

        A stage is left out if a stage that it requires has not passed; all other stages run.
        """
        waiting = [stage for stage in stages if self.status(stage.name) != PASSED]
        for stage in sorted(waiting, key=self.turn):
            missing = [need for need in stage.needs if self.status(need) != PASSED]
            if missing:
                outcome = Outcome(OMITTED, f"{' and '.join(missing)} has not passed", 0.0)
            elif self.end is not None and self.end - time.monotonic() < 2 * SLACK:
                continue
            else:
                print_line(f"{stage.name}: begins")
                outcome = self.attempt(stage)
            print_line(f"{stage.name}: {outcome.status} {outcome.said}")
            when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            self.kept["stages"][stage.name] = {**outcome._asdict(), "date": when}
            partial = self.file.with_suffix(".partial")
            partial.write_text(json.dumps(self.kept, indent=1))
            partial.replace(self.file)
        return self.report(stages)

    def attempt(self, stage: Stage) -> Outcome:
        """Run the commands of one stage."""
        started = time.monotonic()
        limit = started + stage.seconds
        last = limit if self.end is None else min(limit, self.end)
        for command in stage.commands:
            for_start = max(0, int(last - SLACK - time.monotonic()))
            filled = [part.replace("{seconds}", str(for_start)) for part in command]
            code = self.execute(stage, filled, last)
            seconds = round(time.monotonic() - started, 1)
            if code == NOT_YET or (code is None and last < limit):
                return Outcome(UNFINISHED, "(the same command continues)", seconds)
            if code is None:
                return Outcome(FAILED, f"(did not end within {stage.seconds} s)", seconds)
            if code != 0:
                return Outcome(FAILED, f"with status {code}, see {self.log(stage)}", seconds)
        return Outcome(PASSED, "", round(time.monotonic() - started, 1))

    def log(self, stage: Stage) -> Path:
        return self.folder / "logs" / f"{stage.name}.log"

    def execute(self, stage: Stage, command: List[str], last: float) -> Optional[int]:
        """Return the exit status of one command, or None if it was ended at the time ``last``."""
        with self.log(stage).open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            environment = {**os.environ, **stage.environment}
            try:
                process = subprocess.Popen(
                    command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                log.write(f"{error}\n")
                return 127
            try:
                return process.wait(max(0.0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:  # with all processes that it has started
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def report(self, stages: Sequence[Stage]) -> int:
        """Print the outcome of every stage, with the last lines of failed stages; return the exit status."""
        outcomes = [
            (stage, self.kept["stages"].get(stage.name, {"status": "not begun", "seconds": ""})) for stage in stages
        ]
        for stage, outcome in outcomes:
            if outcome["status"] == FAILED and self.log(stage).exists():
                tail = self.log(stage).read_text(errors="replace").splitlines()[-15:]
                print("\n".join([f"--- {self.log(stage)}", *tail]))
        print(f"{'stage':32} {'outcome':12} seconds")
        for stage, outcome in outcomes:
            print(f"{stage.name:32} {outcome['status']:12} {outcome['seconds']}")
        statuses = {outcome["status"] for _, outcome in outcomes}
        if FAILED in statuses:
            return 1
        return 0 if statuses == {PASSED} else 3


def print_line(text: str) -> None:
    print(f"[{datetime.datetime.now():%H:%M:%S}] {text}", file=sys.stderr, flush=True)
