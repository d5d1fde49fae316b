from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.catalog.run_metadata import Facts
from feed_assets.log.records import ProcessKey
from feed_assets.sql.database import open_database
from tests.cli.project import prepare, rows, run
from tests.instances.harness import at

FIRST = at("03T00:00")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of 40 hours, the third with two attempts, the newest of which was not good enough."""
    folder = tmp_path_factory.mktemp("quality")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(folder)
        assert run("entity", "submit", "all.yaml").exit_code == 0
    with open_database(f"sqlite:///{folder}/state.db").begin() as connection:
        for hour in range(40):
            record(Facts(connection), hour, 1, bad=0)
        record(Facts(connection), 2, 2, bad=30)
    return folder


@pytest.fixture(autouse=True)
def _here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def record(facts: Facts, hour: int, attempt: int, *, bad: int) -> None:
    said = {
        "records.count": "1000",
        "good.records.count": str(1000 - bad),
        "rejected.records.count": str(bad),
        "good.records.percent": f"{100 - bad / 10:g}",
        "good.records.threshold": "99",
        "did.dq.pass": "true" if bad < 10 else "false",
        "rule.counted": str(bad),
    }
    time = FIRST + timedelta(hours=hour)
    facts.add(ProcessKey("counting", "primary", time), attempt, "quality/counts", said, time)


def test_an_instance_is_shown_with_what_its_newest_attempt_has_found() -> None:
    result = run("quality", "show", "counts", "2013-11-03T02:00Z")
    assert result.stdout.splitlines() == [
        "feed counts on primary at 2013-11-03T02:00Z is not good enough",
        "  970 of 1,000 rows are good: 97 %, needed are 99 %",
        "  rule counted: broken by 30",
        "  by process counting at 2013-11-03T02:00Z, attempt 2, 2013-11-03T02:00Z",
    ]
    assert "at 2013-11-04T15:00Z is good enough" in run("quality", "show", "counts").stdout


def test_the_history_has_the_newest_thirty_instances_and_a_shorter_one_fewer() -> None:
    found = rows(run("quality", "history", "counts").stdout)
    assert [found[0][0], found[-1][0], len(found)] == ["2013-11-04T15:00Z", "2013-11-03T10:00Z", 30]
    result = run("quality", "history", "counts", "--limit", "39")
    assert rows(result.stdout)[-2] == ["2013-11-03T02:00Z", "primary", "1000", "30", "97", "99", "failed", "counted 30"]
    assert result.stderr == (
        "99.923 % of 39,000 rows are good; the worst instance is 2013-11-03T02:00Z with 97 %; 1 of 39 failed\n"
    )
