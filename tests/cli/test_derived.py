"""Commands that are derived from declarations: each kind of parameter, each form of a result, and the list of all."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, BinaryIO, Literal

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from feed_assets.catalog.run_metadata import PROGRAM, Facts
from feed_assets.cli import derived, options
from feed_assets.cli.main import main
from feed_assets.context.operation import OperationContext
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.log.records import ProcessKey
from feed_assets.operation import DECLARATION, Does, Operation, Param, operation
from feed_assets.operation_list import MODULES, find_operations, list_operations
from feed_assets.pages import Page
from feed_assets.parameters import Clusters, Files, KindFirst, Name, Names, OnlyKind, OnlyName
from feed_assets.sql.database import open_database
from feed_assets.timing.sequence import Frequency, Unit
from tests.cli.project import ok, rows, run, set_clock

HOURLY = Frequency(unit=Unit.HOURS, count=1)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    level: str
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    at: datetime
    part: Part | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    rows: tuple[Row, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    lines: tuple[str, ...] = ("one", "two")
    notes: tuple[str, ...] = ("a note",)
    summary: str = "done"
    has_failed: bool = False


NOON = datetime(2013, 11, 3, 12, tzinfo=UTC)


def give(function: Callable[..., Any], *words: str, stdin: str | None = None) -> Result:
    """Give the command of a declared function."""
    command = derived.derive_command(getattr(function, DECLARATION))
    return CliRunner().invoke(command, list(words), prog_name="feed-assets try", input=stdin)


def take(annotation: Any, *words: str, default: Any = None, stdin: str | None = None) -> Any:
    """What a function is given for the parameter `value` with an annotation; the message, if the words are refused."""
    taken: list[Any] = []

    def ask(*, value: Any = default) -> None:
        taken.append(value)

    ask.__annotations__["value"] = annotation
    result = give(operation("ask")(ask), *words, stdin=stdin)
    assert result.exit_code in (0, 2), result.output
    return taken[0] if result.exit_code == 0 else result.stderr.splitlines()[-1]


def test_a_value_is_of_the_type_of_its_parameter(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"{}")
    option = Param("What.")
    assert take(Annotated[str | None, option], "--value", "x") == "x"
    assert take(Annotated[str | None, option], "--value", "-1") == "-1"
    assert take(Annotated[str | None, option]) is None
    assert take(Annotated[str, Param(argument=True)], "x") == "x"
    assert take(Annotated[bool, option], "--value", default=False) is True
    assert take(Annotated[int, Param(least=1)], default=3) == 3
    assert take(Annotated[Colour | None, option], "--value", "RED") is Colour.RED
    assert take(Annotated[Literal["asc", "desc"] | None, option], "--value", "DESC") == "desc"
    assert take(Annotated[Frequency, option], default=HOURLY) == HOURLY
    assert take(Annotated[Frequency, option], "--value", "hours(1)") == HOURLY
    assert take(OnlyKind, "--value", "Feed") is Kind.FEED
    assert take(Clusters, "--value", "a, b", default=()) == ("a", "b")
    assert take(Annotated[tuple[str, ...], option], "--value", "a", "--value", "b", default=()) == ("a", "b")
    assert take(Annotated[tuple[str, ...], Param(argument=True)], "a", "b", default=()) == ("a", "b")
    assert take(Annotated[tuple[Colour, ...], option], "--value", "blue", default=()) == (Colour.BLUE,)
    assert take(Annotated[dict[str, object] | None, option], "--value", '{"a": 1}') == {"a": 1}
    assert take(Annotated[dict[str, str], option], "--value", "a=1", "--value", "b = 2", default={}) == {
        "a": "1",
        "b": "2",
    }
    assert take(Annotated[Path | None, Param(file=True)], "--value", str(file)) == file
    (tmp_path / "b").write_text("# what\n\n a = 1\n! more\nb=\n")
    assert take(Annotated[dict[str, str] | None, Param(file=True)], "--value", f"{tmp_path}/b") == {"a": "1", "b": ""}
    assert take(Annotated[dict[str, str] | None, Param(file=True)]) is None
    (tmp_path / "b").write_bytes(b"a=\xff")
    assert "is not UTF-8: invalid start" in take(
        Annotated[dict[str, str], Param(file=True)], "--value", f"{tmp_path}/b"
    )
    assert take(Annotated[bytes | None, Param(file=True)], "--value", "-", stdin="{}") == b"{}"
    assert take(Annotated[BinaryIO | None, Param(file=True)], "--value", str(file)).name == str(file)
    assert take(Annotated[bool, Param(option="all")], "--all", default=False) is True
    assert take(Annotated[Colour, option], default=Colour.RED) is Colour.RED


@pytest.mark.parametrize(
    ("annotation", "words", "message"),
    [
        (Annotated[dict[str, str], Param()], ("--value", "a"), "'a' is not NAME=VALUE."),
        (Annotated[dict[str, str], Param()], ("--value", "a=\udcff"), "'\\udcff' has bytes that are not UTF-8."),
        (Annotated[str | None, Param()], ("--value", "a\0b"), "'a\\x00b' has a NUL. Leave it out."),
        (Annotated[datetime | None, Param()], ("--value", "2013-11-03T02:00+25:00"), "is not a date and time"),
        (Annotated[datetime | None, Param()], ("--value", "2013-11-03T02:00+01:99"), "is not a date and time"),
        (Annotated[dict[str, object], Param()], ("--value", '{"a": 1, "a": 2}'), "the key 'a' stands twice"),
        (Annotated[dict[str, object], Param()], ("--value", "[" * 100_000), "nested too deep"),
        (Annotated[dict[str, object], Param()], ("--value", '{"a": "\udcff"'), "is not a JSON object"),
        (Annotated[dict[str, object], Param()], ("--value", "[1]"), "is not a JSON object"),
        (Names, ("feed",), "There is no name after the kind 'feed'."),
        (Annotated[int | None, Param(least=1)], ("--value", "0"), "0 is not in the range x>=1."),
        (Annotated[Colour | None, Param()], ("--value", "green"), "'green' is not one of 'red', 'blue'."),
        (Annotated[Frequency | None, Param()], ("--value", "daily"), "'daily' is not a frequency"),
        (Annotated[datetime | None, Param()], ("--value", "soon"), "'soon' is not a date and time"),
        (OnlyName, ("--value", ""), "it is empty. Give a name, or leave it out."),
        (OnlyKind, ("--value", "cluster"), "'cluster' is not one of 'feed', 'process'."),
    ],
)
def test_what_is_no_such_value_is_wrong_usage(annotation: Any, words: tuple[str, ...], message: str) -> None:
    assert message in take(annotation, *words)


@pytest.fixture
def submitted(submitted: Path) -> Path:
    """It is noon."""
    set_clock(submitted, "2013-11-03T12:00Z")
    return submitted


@operation("ask")
def name_files(context: "EntityContext", *, files: Files) -> str:
    """Name files."""
    return f"{len(files)} {files[0].name} {context.dry_run}"


def test_files_are_read(submitted: Path) -> None:
    (submitted / "a.yaml").write_text("kind: feed")
    assert ok(give(name_files, "a.yaml", "-", stdin="kind: feed")) == "2 a.yaml True\n"


def test_what_does_not_fit_together_is_wrong_usage() -> None:
    @operation("ask")
    def ask() -> None:
        """Ask."""
        raise WrongUsageError("Give one or the other.")

    result = give(ask)
    assert (result.exit_code, "Error: Give one or the other." in result.stderr) == (2, True)


Time = Annotated[datetime, Param("When.")]


@operation("ask")
def ask_when(context: "OperationContext", *, kind: KindFirst = None, name: Name, at: Time) -> str:
    """Say when it is."""
    return f"{kind} {name} {at.isoformat()} as of {context.as_of.isoformat()}"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2013-11-03T05:00Z", "2013-11-03T05:00"),
        ("2013-11-03T05:00+01:00", "2013-11-03T04:00"),
        ("2013-11-03-05:00", "2013-11-03T05:00"),
        ("2013-11-03", "2013-11-03T00:00"),
        ("2013-11", "2013-11-01T00:00"),
        ("now-7d", "2013-10-27T12:00"),
        ("now", "2013-11-03T12:00"),
    ],
)
def test_a_time_has_many_forms(submitted: Path, text: str, moment: str) -> None:
    assert f"clicks {moment}:00+00:00 as of 2013-11-03T12:00" in ok(give(ask_when, "clicks", "--at", text))


def test_days_are_those_of_the_time_zone_of_the_entity(submitted: Path) -> None:
    entities = submitted / "entities"
    for file in entities.rglob("*.yaml"):
        text = file.read_text().replace("frequency: hours(1)", "frequency: days(1)\ntimezone: America/New_York")
        file.write_text(text)
    assert "2013-11-03T04:00" in ok(give(ask_when, "feed", "clicks", "--at", "2013-11-03"))


def test_commands_by_hand_take_the_same_forms(submitted: Path) -> None:
    for span in (("2013-11-03", "2013-11-03-02:00"), ("2013-11", "now-10h"), ("2013-11-03T01:00+01:00", "now")):
        result = run("instance", "kill", "counting", "--start", span[0], "--end", span[1], "--dry-run")
        assert (result.exit_code, "no tick has created 2013-11-" in result.stderr) == (1, True), result.output
    refused = run("instance", "kill", "counting", "--start", "soon").stderr
    assert "'soon' is not a date and time: it has neither that form nor that of a day, a month or" in refused
    assert ", or of now-7d. Write" in refused


def test_a_kind_stands_before_a_name_or_is_left_out(submitted: Path) -> None:
    assert ok(give(ask_when, "FEED", "clicks", "--at", "now")).startswith("feed clicks")
    assert ok(give(ask_when, "clicks", "--at", "now")).startswith("None clicks")
    assert "Give one KIND and one NAME." in give(ask_when, "feed", "feed", "clicks", "--at", "now").stderr


def test_a_kind_stands_before_several_names() -> None:
    @operation("ask")
    def ask(*, kind: KindFirst = None, names: Names) -> str:
        """Ask."""
        return f"{kind} {' '.join(names)}"

    assert ok(give(ask, "Feed", "clicks", "counts")) == "feed clicks counts\n"
    assert ok(give(ask, "clicks")) == "None clicks\n"
    assert "[KIND] NAMES..." in give(ask).stderr


@operation(
    "ask",
    table="name, when=at, level=part.level:upper, late=part.seconds|never:duration",
    rows="rows",
    spare=("when",),
)
def list_rows() -> tuple[Row, ...]:
    """List rows."""
    return Row(name="a", at=NOON, part=Part(level="low", seconds=5400)), Row(name="b", at=NOON)


def test_rows_are_a_table_csv_and_json() -> None:
    assert rows(ok(give(list_rows))) == [
        ["a", "2013-11-03T12:00Z", "LOW", "1:30"],
        ["b", "2013-11-03T12:00Z", "", "never"],
    ]
    assert ok(give(list_rows, "--output", "csv")).splitlines()[0] == "name,when,level,late"
    assert [each["name"] for each in json.loads(ok(give(list_names, "--output", "json")))["items"]] == ["a"]


def test_other_rows_stand_above_for_people() -> None:
    @operation("ask", table="level", rows="parts", above=("rows", "name, when=at"))
    def list_both() -> Both:
        """List both."""
        return Both(rows=(Row(name="a", at=NOON),), parts=(Part(level="low", seconds=1),))

    assert ok(give(list_both)) == "name\twhen\na\t2013-11-03T12:00Z\nlevel\nlow\n"
    assert ok(give(list_both, "--output", "csv")) == "level\nlow\n"


@operation("ask", table="name", rows="items")
def list_names() -> Page[Row]:
    """List the first of some rows."""
    return Page(items=(Row(name="a", at=NOON),), total=3, what="rows")


def test_a_page_says_how_many_there_are() -> None:
    result = give(list_names)
    assert (rows(result.stdout), result.stderr) == ([["a"]], "1 of 3 rows; --limit shows more\n")
    document = json.loads(ok(give(list_names, "--output", "json")))
    assert {**document, "items": len(document["items"])} == {
        "version": 2,
        "items": 1,
        "total": 3,
        "more_than_total": False,
        "has_more": True,
    }
    last = Page(items=("c",), total=3, what="rows", offset=2)
    assert (last.document("rows")["has_more"], last.summary) == (False, "1 of 3 rows; --limit shows more")


def test_a_page_has_failed_if_one_of_its_rows_has() -> None:
    assert Page.of((Shown(), Shown(has_failed=True))).has_failed
    assert not Page.of((Shown(), "a text")).has_failed


@operation("ask", text="lines")
def say_lines(*, failed: Annotated[bool, Param("Fail.")] = False) -> Shown:
    """Say two lines."""
    return Shown(has_failed=failed)


def test_a_text_its_notes_and_its_failure() -> None:
    result = give(say_lines)
    assert (result.stdout, result.stderr, result.exit_code) == ("one\ntwo\n", "a note\ndone\n", 0)
    assert give(say_lines, "--failed").exit_code == 1
    assert json.loads(ok(give(say_lines, "--output", "json")))["lines"] == ["one", "two"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    items: Mapping[str, int]

    @property
    def cells(self) -> tuple[tuple[str, int], ...]:
        return tuple(self.items.items())

    @property
    def loud(self) -> str:
        return ", ".join(self.items).upper()

    def document(self, name: str) -> Mapping[str, object]:
        return {name: self.items}


def test_rows_of_a_table_may_be_others_than_those_of_the_document() -> None:
    @operation("ask", table="name, count", rows="cells")
    def count() -> Counted:
        """Count."""
        return Counted(items={"a": 1, "b": 2})

    assert rows(ok(give(count))) == [["a", "1"], ["b", "2"]]
    assert json.loads(ok(give(count, "--output", "json")))["cells"] == {"a": 1, "b": 2}


def test_a_text_has_other_forms() -> None:
    @operation("ask", rows="counted", text="items", forms=("loud",))
    def count() -> tuple[Counted, ...]:
        """Count."""
        return (Counted(items={"a": 1, "b": 2}),)

    assert ok(give(count)) == "a\nb\n"
    assert ok(give(count, "--output", "loud")) == "A, B\n"


def test_a_document_that_is_asked_for_has_no_other_forms() -> None:
    @operation("ask", text="text", forms=("dot",))
    def tell() -> Mapping[str, Any]:
        """Tell."""
        return {"a": 1}

    assert json.loads(ok(give(tell)))["a"] == 1
    refused = give(tell, "--output", "dot")
    assert (refused.exit_code, "has no --output dot: leave that out" in refused.stderr) == (2, True)


def test_a_result_is_drawn_by_hand_where_a_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "DRAWN", {"ask": f"{__name__}:draw"})
    assert ok(give(say_lines)) == "drawn 2 text\n"
    assert json.loads(ok(give(say_lines, "--output", "json")))["summary"] == "done"


def draw(result: Shown, output: str) -> None:
    """Draw a result."""
    click.echo(f"drawn {len(result.lines)} {output}")


def test_what_changes_something_can_be_tried_and_has_an_author() -> None:
    with pytest.raises(TypeError, match="what acts takes author"):
        operation("ask", does=Does.ACTS)(lambda dry_run: dry_run)
    with pytest.raises(TypeError, match="what notifies takes dry_run"):
        operation("ask", does=Does.NOTIFIES)(lambda: None)

    with pytest.raises(TypeError, match="what acts takes a context"):
        operation("ask", does=Does.ACTS)(lambda author, dry_run: (author, dry_run))

    @operation("ask", does=Does.ACTS, safe=True)
    def act(*, author: str, dry_run: bool = False) -> str:
        """Act."""
        return f"{author} {dry_run}"

    assert ok(give(act, "--author", "ann", "--dry-run")) == "ann True\n"
    assert {"--author", "--dry-run"} <= set(give(act, "--help").stdout.split())


def test_the_context_of_entities_has_the_author_of_what_is_changed_with_it(submitted: Path) -> None:
    @operation("ask", does=Does.DECLARES, checks=True)
    def declare(context: "EntityContext", *, at: Time, name: Name) -> str:
        """Declare."""
        return f"{context.author} {context.dry_run} {context.skip_checks} {name} {at.isoformat()}"

    words = ("--at", "2013-11-03", "clicks", "--author", "ann", "--dry-run", "--skip-checks")
    assert ok(give(declare, *words)) == "ann True True clicks 2013-11-03T00:00:00+00:00\n"
    assert ok(give(declare, "--at", "now", "clicks")).split()[1:3] == ["False", "False"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    name: Annotated[str, Param(argument=True)]
    within: Annotated[Frequency, Param("So long.", default="hours(1)")]
    colours: Annotated[tuple[Colour, ...], Param("Only these.", option="colour")] = ()


def test_the_fields_of_a_query_are_parameters() -> None:
    @operation("ask")
    def ask(*, query: Query, more: Annotated[bool, Param("More.")] = False) -> str:
        """Ask."""
        return f"{query.name} {query.within} {[*query.colours]} {more}"

    assert ok(give(ask, "a", "--more")) == "a hours(1) [] True\n"
    assert ok(give(ask, "a", "--colour", "red", "--within", "days(1)")) == f"a days(1) {[Colour.RED]} False\n"
    assert "Missing argument 'NAME'" in give(ask).stderr


def test_a_parameter_without_a_declaration_is_refused() -> None:
    def ask(*, value: str) -> None: ...

    with pytest.raises(TypeError, match="'value' is not Annotated"):
        give(operation("ask")(ask))


def test_what_works_long_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    @operation("ask", long=True)
    def work(*, progress: Callable[..., None]) -> None:
        """Work."""
        progress("half", 1, 2)

    told: list[tuple[object, ...]] = []
    monkeypatch.setattr(derived.status_line, "show", lambda *values: told.append(values))
    assert ok(give(work)) == ""
    assert told == [("half", 1, 2)]


def test_a_shell_completes_files() -> None:
    for words in (["bundle", "import"], ["instance", "rerun", "counting", "--file"], ["mirror", "new", "--file"]):
        (item,) = ShellComplete(main, {}, "feed-assets", "_FEED_ASSETS_COMPLETE").get_completions(words, "")
        assert item.type == "file", words


def declared() -> Iterator[Operation]:
    for group in MODULES:
        yield from find_operations(group)


def test_what_modules_of_commands_import_for_a_type_checker_is_there_when_it_is_used() -> None:
    names = {each for modules in MODULES.values() for each in modules}
    found = [each for name in names for each in vars(import_module(name)).values() if isinstance(each, ModuleType)]
    later = [each for each in found if type(each) is not ModuleType]
    assert len(later) > 100
    assert [each for each in later if not each.__file__ or not each.__file__.startswith("/")] == []


@pytest.mark.parametrize("group", MODULES)
def test_every_group_has_a_text(group: str) -> None:
    command = main.get_command(click.Context(main), group)
    assert command is not None
    assert command.help


def test_all_operations_are_listed() -> None:
    listed: Mapping[str, Any] = json.loads(ok(run("admin", "operations", "--output", "json")))
    assert [each["name"] for each in listed["operations"]] == [each.name for each in declared()]
    (acknowledging,) = [each for each in listed["operations"] if each["name"] == "sla ack"]
    assert (acknowledging["does"], acknowledging["author"], acknowledging["dry_run"]) == ("acts", True, True)
    (level,) = [each for each in acknowledging["parameters"] if each["name"] == "level"]
    assert (level["type"], level["choices"], level["required"]) == ("choice", ["low", "high"], False)
    (start,) = [each for each in acknowledging["parameters"] if each["name"] == "start"]
    assert (start["type"], start["required"], start["help"] != "") == ("time", True, True)


@pytest.mark.parametrize("each", list(declared()), ids=lambda each: each.name)
def test_every_operation_and_every_parameter_has_a_text(each: Operation) -> None:
    assert [parameter.name for parameter in each.parameters if not parameter.param.help] == []
    assert all(hasattr(options, f"find_{parameter.param.proposes or 'names'}") for parameter in each.parameters)
    assert each.about


def test_the_history_of_facts_has_a_row_for_each_that_a_run_has_reported(submitted: Path) -> None:
    with open_database(f"sqlite:///{submitted}/state.db").begin() as connection:
        for hour, category in ((3, PROGRAM), (4, PROGRAM), (4, "quality/counts"), (5, PROGRAM)):
            key = ProcessKey("counting", "primary", NOON.replace(hour=hour))
            Facts(connection).add(key, 1, category, {"clicks": str(hour), "views": "1"}, NOON)
    words = ("facts", "history", "counting", "--name", "clicks")
    told = ["primary", "1", "clicks"]
    late, early = (
        [[f"2013-11-03T0{hour}:00Z", *told, str(hour), "2013-11-03T12:00:00Z"] for hour in hours]
        for hours in ((5, 4), (4, 3))
    )
    assert rows(ok(run(*words, "--start", "now-8h"))) == late
    assert rows(ok(run(*words, "--start", "2013-11", "--end", "2013-11-03-05:00"))) == early
    assert len(rows(ok(run("facts", "history", "counting", "--start", "2013-11-03")))) == 6
    assert "no process" in run("facts", "history", "clicks").stderr


SAYS_WHY = {"admin audit verify", "batch show", "entity lookup", "instance list", "instance logs", "instance params"}
SAYS_WHY |= {"instance running", "instance search", "instance status", "instance steps", "keys list", "keys show"}
SAYS_WHY |= {"metadata get", "queue show", "queue verify", "registration verify", "search"}
"""Results that have a sentence of their own for nothing, or say nothing if all is well."""
NEVER_EMPTY = {"admin operations", "entity blame", "entity governing", "entity history", "entity status", "settings"}
NEVER_EMPTY |= {"instance asset", "instance calendar", "instance summary", "mirror plan", "replication status"}
NEVER_EMPTY |= {"replication verify", "retention show", "datasource check", "datasource columns"}
NEVER_EMPTY |= {"extension job show", "import plan"}


def test_every_table_says_why_it_is_empty() -> None:
    tables = {each.name for each in list_operations().items if each.does is Does.READS and each.table and not each.none}
    assert tables == SAYS_WHY | NEVER_EMPTY
