"""Records of actions: where they go, what they hide, and what becomes of them when they cannot be written."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feed_assets import actions
from feed_assets.actions import (
    FILE_NAME,
    Action,
    ActionStatus,
    close_actions,
    find_destination,
    record_action,
    send_actions,
)
from feed_assets.masking import remember
from feed_assets.settings import Actions, Settings, load_settings


@pytest.fixture(autouse=True)
def nowhere() -> Iterator[None]:
    yield
    close_actions()


def done(name: str, reason: str = "", **dimensions: str | None) -> Action:
    status = ActionStatus.FAILED if reason else ActionStatus.SUCCEEDED
    return Action(name=name, dimensions=dimensions, status=status, seconds=0.5, reason=reason)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_record_is_one_line_of_json_without_secrets(tmp_path: Path) -> None:
    remember("xyzzy-plugh", "TOKEN")
    send_actions(Settings(actions=str(tmp_path / "a.jsonl"), namespace="shop"), {})
    record_action(done("why", 'of "xyzzy-plugh"\nat s3://me:hush@host?token=abc', kind="feed", entity=None))
    (line,) = lines(tmp_path / "a.jsonl")
    assert line.pop("at")
    assert line == {
        "action": "why",
        "dimensions": {"kind": "feed", "namespace": "shop"},
        "status": "FAILED",
        "seconds": 0.5,
        "reason": 'of "${env:TOKEN}"\nat s3://me:***@host?token=***',
    }


@pytest.mark.parametrize(
    ("given", "state", "home", "expected"),
    [
        ("actions: off", None, "home", Actions.OFF),
        ("actions: stderr", None, "home", Actions.STDERR),
        ("actions: logs/a.jsonl", None, "home", "logs/a.jsonl"),
        ("", None, "home", f"home/{FILE_NAME}"),
        ("", None, "", Actions.OFF),
        ("", None, "gone", Actions.OFF),
        ("", "sqlite:///{folder}/data/state.db", "home", f"data/{FILE_NAME}"),
        ("", "postgresql://host/db", "home", f"home/{FILE_NAME}"),
    ],
)
def test_records_go_where_the_setting_says_or_beside_the_state(
    tmp_path: Path, given: str, state: str | None, home: str, expected: str
) -> None:
    for name in ("home", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "feed_assets.yaml").write_text(given)
    overrides = {} if state is None else {"state": state.format(folder=tmp_path)}
    settings = load_settings(overrides, {}, tmp_path)
    environ = {"DAGSTER_HOME": str(tmp_path / home)} if home else {}
    found = find_destination(settings, environ)
    assert found == (expected if isinstance(expected, Actions) else tmp_path / expected)


def test_a_full_disk_loses_records_and_says_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for file in ("/dev/full", str(tmp_path / "no" / "folder"), str(tmp_path)):
        send_actions(Settings(actions=file), {})
        record_action(done("why"))
    assert capfd.readouterr() == ("", "")


def test_standard_error_is_a_choice(capfd: pytest.CaptureFixture[str]) -> None:
    send_actions(Settings(actions="stderr"), {})
    record_action(done("why"))
    assert json.loads(capfd.readouterr().err)["action"] == "why"


def test_a_file_is_limited_and_a_process_follows_when_another_has_renamed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOST_BYTES", 1_000)
    file = tmp_path / "a.jsonl"
    send_actions(Settings(actions=str(file)), {})
    record_action(done("first"))
    file.rename(tmp_path / "a.jsonl.1")
    record_action(done("second"))
    assert [line["action"] for line in lines(file)] == ["second"]
    for number in range(100):
        record_action(done(f"action {number}"))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1 + actions.OLDER_FILES
    assert all(each.stat().st_size <= 1_000 for each in files)
    assert lines(file)[-1]["action"] == "action 99"


def test_others_can_listen_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(actions.LOGGER)
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, actions.LOGGER):
            record_action(done("why"))
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.action.name for record in caplog.records if hasattr(record, "action")][:1] == ["why"]
