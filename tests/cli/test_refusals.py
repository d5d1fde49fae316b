"""What commands refuse: `refusals.yaml` has the command lines of each project; none of them leaves anything behind."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from feed_assets.log.audit import Audit
from feed_assets.sql.database import open_database
from tests.cli.pasting import expired, replicated
from tests.cli.project import rows, run
from tests.instances.inbox.test_inbox_commands import project as inbox
from tests.projects import enter
from tests.triggers.test_queues import project as orders

__all__ = ["expired", "inbox", "orders", "replicated"]

FOLDER = Path(__file__).parent
REFUSALS: Mapping[str, Mapping[int, Mapping[str, str | list[str]]]] = yaml.safe_load(
    (FOLDER / "refusals.yaml").read_text("utf-8")
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no project, with a file of Falcon's."""
    enter(tmp_path, monkeypatch)
    shutil.copy(FOLDER.parent / "loading/falcon/documents/clicks.xml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_wrong_is_refused_with_a_sentence_and_leaves_nothing_behind(
    name: str, request: pytest.FixtureRequest
) -> None:
    project: Path = request.getfixturevalue(name)
    before, wrong = left_in(project), []
    for code, lines in REFUSALS[name].items():
        for line, said in lines.items():
            result = run(*shlex.split(line))
            sentences = [said] if isinstance(said, str) else said
            is_refused = (result.exit_code, rows(result.stdout)) == (code, [])
            if not is_refused or any(each not in result.stderr for each in sentences) or left_in(project) != before:
                wrong.append(f"$ feed-assets {line}\n{result.exit_code}: {result.output}")
    assert not wrong, "\n".join(wrong)


def left_in(project: Path) -> tuple[set[Path], int]:
    """The files of a project, but for its record, and how many actions of people are audited."""
    files = {
        file for file in project.rglob("*") if file.is_file() and not file.name.startswith(("state.db", "actions"))
    }
    if not (project / "state.db").exists():
        return files, 0
    with open_database(f"sqlite:///{project}/state.db").read() as connection:
        return files, len(Audit(connection).newest(1_000))
