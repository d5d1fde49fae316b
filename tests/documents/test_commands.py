"""docs/commands.md and its pages against the command line: every command, its arguments and its options."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from feed_assets.operation import Operation as DeclaredOperation
from feed_assets.operation_list import find_operations, list_operations
from tests.cli.project import run
from tests.commands import iter_commands
from tests.documents.markdown import DOCS, ROOT, Table, codes, fences, plain, tables_of

PAGES = ("docs/commands.md", *(str(file.relative_to(ROOT)) for file in DOCS if file.parent.name == "commands"))
SIMULATE = ROOT / "docs/commands/simulate.md"
DERIVED = re.compile(r"(<!-- operations: ([a-z, \n-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
"""What `--update-golden` writes anew: a table of operations, or of all of some groups."""
NAMED = re.compile(r"\*([a-z]+)\*")  # *change*


def commands() -> Iterator[tuple[str, click.Command]]:
    """The commands by their whole names."""
    return ((name, each) for name, each in iter_commands() if not isinstance(each, click.Group))


def tables() -> list[Table]:
    return [table for table in every_table() if table.header[0] == "command" and "options" in table.header]


def every_table() -> list[Table]:
    return [table for page in PAGES for table in tables_of(page)]


def documented() -> dict[str, tuple[str, ...]]:
    """The rows about commands, by command."""
    rows = [row for table in tables() if len(table.header) == 4 for row in table.rows]
    return {plain(row[0]): row for row in rows}


def options_of(name: str) -> set[str]:
    """The options of a command: those of its row, or of the table of options below it, with the named ones resolved."""
    (named,) = [table for table in every_table() if table.header == ("name", "options")]
    groups = {row[0].strip("*"): codes(row[1]) for row in named.rows}
    rows = [row for table in tables() for row in table.rows if plain(row[0]) == name]
    cells = [row[2] if len(row) == 4 else row[1] for row in rows]
    by_name = (option for cell in cells for group in NAMED.findall(cell) for option in groups[group])
    return {*by_name, *(option for cell in cells for option in codes(cell))}


def arguments_of(command: click.Command) -> str:
    """The arguments of a command."""
    taken = [each for each in command.params if isinstance(each, click.Argument)]
    plainly = [(each.name or "").upper() if each.required else f"[{(each.name or '').upper()}]" for each in taken]
    forms = [
        each.metavar or "" if " " in (each.metavar or "") else form for each, form in zip(taken, plainly, strict=True)
    ]
    return " ".join(forms).replace("...", "")


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_arguments_and_options_are_those_of_the_command(name: str, command: click.Command) -> None:
    _, arguments, _, meaning = documented()[name]
    found = {text for each in command.params if isinstance(each, click.Option) for text in each.opts}
    assert options_of(name) == found
    assert arguments.split() == arguments_of(command).split()
    assert meaning
    assert command.help


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_operations_are_those_of_their_declarations(page: str, request: pytest.FixtureRequest) -> None:
    file = ROOT / page
    derived = DERIVED.sub(_derive, file.read_text("utf-8"))
    if request.config.getoption("--update-golden"):
        file.write_text(derived)
    assert file.read_text("utf-8") == derived


def test_every_operation_is_in_a_table_of_operations() -> None:
    texts = [(ROOT / page).read_text("utf-8") for page in PAGES]
    names = [name for text in texts for found in DERIVED.finditer(text) for name in _names_in(found)]
    shown = [each.name for name in names for each in _operations_of(name)]
    assert sorted(shown) == sorted(each.name for each in list_operations().items)


def test_the_overview_names_the_commands_of_each_page() -> None:
    (table,) = [table for table in tables_of(PAGES[0]) if table.header == ("page", "commands")]
    named = {re.findall(r"\((commands/\w+\.md)\)", row[0])[0]: set(codes(row[1])) for row in table.rows}
    told: dict[str, set[str]] = {page.removeprefix("docs/"): set() for page in PAGES[1:]}
    for each in tables():
        told.get(each.document.removeprefix("docs/"), set()).update(plain(row[0]).split()[0] for row in each.rows)
    assert named == told


def _operations_of(name: str) -> list[DeclaredOperation]:
    """An operation by its name, or those of a group."""
    return [each for each in find_operations(name.split()[0]) if name in (each.name, each.group)]


def _names_in(found: re.Match[str]) -> list[str]:
    return found[2].replace("\n", " ").split(", ")


def _derive(found: re.Match[str]) -> str:
    return f"{found[1]}\n{_table_of(_names_in(found))}\n{found[3]}"


def _table_of(names: list[str]) -> str:
    """The rows of operations and groups of them."""
    known = dict(commands())
    rows = [_row_of(each, known[each.name]) for name in names for each in _operations_of(name)]
    return "\n".join(["| command | arguments | options | what it does |", "|---|---|---|---|", *rows, ""])


def _row_of(operation: DeclaredOperation, command: click.Command) -> str:
    options = " ".join(f"`{each.opts[0]}`" for each in command.params if isinstance(each, click.Option))
    options = options.replace("`--author` `--dry-run` `--output`", "[*change*](../commands.md)")
    cells = (f"`{operation.name}`", arguments_of(command), options, operation.sentence)
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def test_every_command_that_is_documented_exists() -> None:
    assert documented().keys() == {name for name, _ in commands()}


def test_every_option_is_explained_somewhere() -> None:
    text = " ".join(" ".join(row) for table in every_table() for row in table.rows)
    options = {text for _, command in commands() for each in command.params for text in each.opts if "-" in text}
    assert options <= set(re.findall(r"--[a-z-]+", text))


def test_help_says_what_every_option_is_for() -> None:
    for name, command in commands():
        for each in command.params:
            assert not isinstance(each, click.Option) or each.help, (name, each.name)


def test_the_table_of_safe_mode_is_the_one_that_is_enforced() -> None:
    (table,) = [table for table in every_table() if table.header[0] == "operation"]
    refused = {name for row in table.rows if row[1] == "refused" for name in re.findall(r"`([a-z -]+)`", row[0])}
    allowed = {name for row in table.rows if row[1] != "refused" for name in re.findall(r"`([a-z -]+)`", row[0])}
    stopped = {each.name for each in list_operations().items if each.stops_in_safe_mode}
    assert refused == stopped
    assert allowed.isdisjoint(stopped)


def test_the_events_of_the_example_give_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (entities,) = [
        block for block in fences(ROOT / "docs/triggers.md", "yaml") if "or_every" in block or "by: " in block
    ]
    (events,) = [block for block in fences(SIMULATE, "json") if '"do": "suspend"' in block]
    (batches,) = [block for block in fences(SIMULATE, "text") if "batch cut" in block]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/all.yaml").write_text(entities)
    (tmp_path / "feed_assets.yaml").write_text("entities: entities\nvariables: {DATA_ROOT: /data}\n")
    (tmp_path / "events.jsonl").write_text(events)
    period = re.findall(r"from `(\S+Z)` to `(\S+Z)`, two batches", SIMULATE.read_text("utf-8"))[0]
    result = run("simulate", "--from", period[0], "--to", period[1], "--events", "events.jsonl")
    assert [line for line in result.stdout.splitlines() if "batch cut" in line] == batches.splitlines()
