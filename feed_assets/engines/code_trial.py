"""Try the code of works without data: import functions, and let Spark analyze SQL over empty views.

Importing runs modules of the user. So it is done in a process of its own, `python -m feed_assets.engines.code_trial`,
which may print, hang or end as it likes.
"""

import inspect
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

from feed_assets.engines.code_faults import CodeFault
from feed_assets.engines.errors import WorkflowFailedError, WorkflowNotFoundError, WorkflowSignatureError
from feed_assets.engines.failures import last_lines
from feed_assets.engines.port import Work
from feed_assets.engines.python_engine import bind_names, importable, load_function
from feed_assets.engines.quality import RuleTrial, find_rule_fault
from feed_assets.engines.sessions import session_conf, start_session
from feed_assets.engines.sql_trial import try_sql
from feed_assets.engines.supervised import SupervisedProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IMPORTING = ("importlib", "feed_assets/engines/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A work without data, whose inputs are all optional, and the Spark configuration of its cluster.

    Without `is_certain` a step may get more frames than are known.
    """

    work: Work
    conf: Mapping[str, str]
    is_certain: bool = True


def try_elsewhere(trials: Sequence[Trial | RuleTrial], seconds: float) -> list[tuple[CodeFault, ...]]:
    """Return the faults of each trial, found by another process.

    After `seconds`, or when that process ends early, the trial that it was at has failed; those after it have not been
    made.
    """
    with tempfile.TemporaryDirectory(prefix="feed-assets-trial-") as place:
        folder = Path(place)
        given, found, log = folder / "trials", folder / "faults", folder / "log"
        given.write_bytes(pickle.dumps(tuple(trials)))
        found.touch()
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(folder)]
        with log.open("wb") as output, SupervisedProcess(command, env=os.environ, cwd=Path.cwd(), output=output) as run:
            try:
                ended = f"it ended Python with exit code {run.wait(seconds)}"
            except TimeoutExpired:
                ended = f"it has not ended within {seconds:g} seconds"
        faults = list(_load(found))
        if len(faults) < len(trials):
            last = last_lines(log.read_text("utf-8", "replace").splitlines())[-1:]
            reason = ": ".join(["the code could not be tried", ended, *last])
            faults.append((CodeFault(reason=reason, next_step="Run it by itself to see why."),))
        return [*faults, *[()] * (len(trials) - len(faults))]


def try_here(
    trials: Sequence[Trial | RuleTrial], session: "Callable[[], SparkSession]"
) -> Iterator[tuple[CodeFault, ...]]:
    """Yield the faults of each trial. Imports modules of the user; `session` is called for the first SQL."""
    for trial in trials:
        if isinstance(trial, RuleTrial):
            fault = find_rule_fault(session(), trial)
            yield () if fault is None else (fault,)
            continue
        match trial.work.engine:
            case "python":
                fault = _try_function(trial.work, is_certain=trial.is_certain)
                yield () if fault is None else (fault,)
            case "sql":
                yield tuple(try_sql(session().newSession(), trial.work, trial.conf))
            case _:
                yield ()


def _try_function(work: Work, *, is_certain: bool) -> CodeFault | None:
    with importable(work.root):
        try:
            function = load_function(work)
        except WorkflowNotFoundError as exc:
            return CodeFault(reason=exc.reason, next_step=exc.next_step)
        except WorkflowFailedError as exc:
            file, line = _place_of(exc.__cause__)
            return CodeFault(
                reason=f"importing it fails: {exc.reason}", next_step="Correct the module.", file=file, line=line
            )
        try:
            bind_names(work, function)
        except WorkflowSignatureError as exc:
            code = getattr(inspect.unwrap(function), "__code__", None)
            return CodeFault(
                reason=f"{work.path.rpartition(':')[2]} does not match the inputs: {exc.reason}",
                next_step=exc.next_step,
                file=Path(code.co_filename) if code else None,
                line=code.co_firstlineno if code else None,
                is_certain=is_certain,
            )
    return None


def _place_of(error: BaseException | None) -> tuple[Path | None, int | None]:
    """Return the file and line at which an import failed."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Path(error.filename), error.lineno
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    own = [frame for frame in frames if not any(part in frame.filename for part in _IMPORTING)]
    return (Path(own[-1].filename), own[-1].lineno) if own else (None, None)


def _load(file: Path) -> Iterator[tuple[CodeFault, ...]]:
    with file.open("rb") as stream, suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(stream)  # our own process has written it


@cache
def _start_spark() -> "SparkSession":
    return start_session(session_conf(master="local[1]"))


def main(folder: Path) -> None:
    """Make the trials of a folder, and write the faults of each as soon as they are known."""
    trials = pickle.loads((folder / "trials").read_bytes())
    with (folder / "faults").open("wb") as stream:
        for faults in try_here(trials, _start_spark):
            pickle.dump(faults, stream)
            stream.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
