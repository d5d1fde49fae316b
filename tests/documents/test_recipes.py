"""The commands of the recipes run, one recipe after the other, in one project."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from feed_assets import Process, build_definitions
from feed_assets.clock import SystemClock
from feed_assets.settings import load_settings
from feed_assets.timing.dates import parse_datetime, parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.windows import parse_window
from tests.documents.markdown import FENCE, ROOT, plain, tables_of
from tests.documents.shell import Shell, lines_of
from tests.documents.test_shell_commands import ELSEWHERE
from tests.projects import enter

PAGE = (ROOT / "docs/recipes.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OF_A_SERVER = "export"  # the address and the token of one that is not there


def follow(shell: Shell, recipe: str) -> dict[str, str]:
    """Give the commands of a recipe, and return what each of ours has said."""
    lines = [
        line for language, body in FENCE.findall(RECIPES[recipe]) if language == "console" for line in lines_of(body)
    ]
    shell.answers = {}
    for line in lines:
        shell.run(line)
    return shell.answers


def test_the_commands_of_the_recipes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)
    yesterday = f"{SystemClock().now().date() - timedelta(days=1)}"
    shell = Shell(monkeypatch=monkeypatch, elsewhere={*ELSEWHERE, OF_A_SERVER}, words={"YESTERDAY": yesterday})
    for line in (
        "feed-assets init shop",
        "cd shop",
        "feed-assets apply --yes",
        "feed-assets feed notify orders YESTERDAY",
    ):
        shell.run(line)

    made = build_definitions(settings=load_settings(environ={}, start=Path.cwd()))
    names = {each.name.replace("primary", "<cluster>") for each in (*(made.sensors or ()), *(made.schedules or ()))}
    (table,) = tables_of("docs/recipes.md")
    assert {*map(plain, table.column["sensor or schedule"])} == names | {"replication_<cluster>"}

    moved = follow(shell, "Another place for a feed")
    assert "1 instance at a former place of the feed" in moved["feed-assets plan"]
    assert f"data/raw/orders/{yesterday}" in moved["feed-assets instance listing orders"]

    renamed = follow(shell, "Another name")
    assert "would be renamed to 'purchases'" in renamed["feed-assets entity rename orders purchases --dry-run"]
    assert f"data/raw/orders/{yesterday}" in renamed["feed-assets instance listing purchases"]

    listed = follow(shell, "A project in another folder")
    assert "purchases" in listed["feed-assets entity list"]
    assert (tmp_path / "store/.env").read_text().endswith(f"DAGSTER_HOME={tmp_path}/store/dagster_home\n")

    shell.words = {"REPOSITORY": f"{tmp_path}/store"}
    for line in (
        "git init -q",
        "git add .",
        "git -c user.name=ann -c user.email=ann@example.org commit -qm first",
        "cd ..",
    ):
        shell.run(line)
    assert "0 errors, 0 warnings" in follow(shell, "A second developer")["feed-assets validate"]

    assert "0 errors, 0 warnings" in follow(shell, "CI")["feed-assets validate --strict"]


def test_a_month_of_its_days_reads_each_of_its_days() -> None:
    ((_, written),) = FENCE.findall(RECIPES["A month of its days"])
    *_, document = yaml.safe_load_all(written)
    process = Process.model_validate({key: of for key, of in document.items() if key != "kind"})
    days, utc = parse_frequency("days(1)"), parse_timezone("UTC")
    feed = InstanceSequence(start=parse_datetime("2026-01-01T00:00Z"), frequency=days, timezone=utc)
    window = parse_window(process.inputs["orders"].start, process.inputs["orders"].end, utc)
    assert [len(window.indices(process.sequence_on("primary").at(n), feed)) for n in range(3)] == [31, 28, 31]
