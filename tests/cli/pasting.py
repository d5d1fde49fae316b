"""Commands of messages, pasted where they were read, and the projects in which that is done.

`of` names the places of the code whose commands a test pastes. `test_hints.py` checks that each place has a test.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from click.testing import Result

from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstance, ProcessInstanceStatus
from tests.cli.project import ok, prepare, run, set_clock
from tests.commands import Offer, commands_in, words_of
from tests.databases import open_migrated
from tests.definitions.verbs.harness import NOON
from tests.replication.project import project as replicated
from tests.retention.project import project as expired

__all__ = ["expired", "replicated"]

TIME = "2013-11-03T05:00Z"
AT = datetime(2013, 11, 3, 5, tzinfo=UTC)
CLAIMED: dict[Callable[..., None], tuple[str, ...]] = {}

_Test = TypeVar("_Test", bound=Callable[..., None])


def of(*places: str) -> Callable[[_Test], _Test]:
    """Name the places of the code whose commands a test pastes."""

    def claim(test: _Test) -> _Test:
        CLAIMED[test] = places
        return test

    return claim


@dataclass(slots=True)
class Pasting:
    """Runs commands that a text offers, in the folder and with the environment of the test; `done` has what was run."""

    done: list[str] = field(default_factory=list)

    def __call__(self, text: str, verb: str, *, code: int = 0) -> Result:
        """Run the first command with a verb that a text offers, confirm what it asks, and return what it says."""
        offered = [each for each in commands_in(text) if f"{each} ".startswith(f"feed-assets {verb} ")]
        assert offered, f"no `feed-assets {verb}` in: {text}"
        self.done.append(offered[0])
        result = run(*words_of(offered[0]), stdin="y\n")
        assert result.exit_code == code, f"$ {offered[0]}\n{result.output}"
        return result


@pytest.fixture
def paste(request: pytest.FixtureRequest, offers: list[Offer]) -> Iterator[Pasting]:
    """Commands are pasted; what the test claims was offered in it, and pasted."""
    pasting = Pasting()
    yield pasting
    for place in CLAIMED[request.function]:
        function, _, verb = place.rpartition(": ")
        texts = [each.command for each in offers if each.function == place]
        if function.endswith("<module>"):
            texts = [text for text in pasting.done if f"{text} ".startswith(f"feed-assets {verb} ")]
        assert set(texts) & set(pasting.done), f"{place}: {texts or 'nothing'} was offered, {pasting.done} pasted"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clicks are counted; nothing has arrived, and no tick has been."""
    prepare(tmp_path)
    (tmp_path / "all.yaml").rename(tmp_path / "entities/all.yaml")
    set_clock(tmp_path, "2013-11-03T12:00Z")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_AUTHOR", "ann")
    return tmp_path


def declare(project: Path, *documents: object) -> None:
    (project / "entities/all.yaml").write_text(yaml.safe_dump_all(documents))


def begin(
    project: Path,
    status: ProcessInstanceStatus,
    process: str = "counting",
    cluster: str = "primary",
    cause: Cause | None = None,
) -> None:
    """Let the instance of 3 November, 5 o'clock, be in a status."""
    row = ProcessInstance(process=process, cluster=cluster, nominal_time=AT, status=status, updated_at=NOON)
    with open_migrated(f"sqlite:///{project}/state.db").begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([row])
        instances.transition_many([row.key], set(ProcessInstanceStatus), status=status, cause=cause, updated_at=NOON)


def status_of(name: str = "counting", time: str = TIME) -> str:
    """What `why` says of an instance in its first line."""
    return ok(run("why", name, time)).splitlines()[0].rpartition(" is ")[2]


def schedule_by_hand(project: Path) -> None:
    with (project / "feed_assets.yaml").open("a") as file:
        file.write("schedule: explicit\n")


def look(project: Path) -> None:
    """Let the clicks of 5 o'clock be looked for in storage."""
    run("feed", "notify", "clicks", "--start", TIME, "--end", "2013-11-03T06:00Z")


def land(project: Path, feed: str = "clicks") -> None:
    folder = project / f"data/{feed}/2013-11-03/05"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("1")
