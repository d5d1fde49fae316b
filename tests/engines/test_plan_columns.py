"""Plans as Spark tells them, in `plans/`: the names of the columns, the plan, and below a line what is read of it.

`pytest tests/engines/test_plan_columns.py --update-golden` writes what is read anew.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from feed_assets.engines.plan_columns import InputColumns, PlanNotReadError, read_plan
from feed_assets.entities.content.column_lineage import ColumnLineage, ColumnSource, SourceKind
from feed_assets.masking import remember_unnamed

PLANS = sorted((Path(__file__).parent / "plans").glob("*.txt"))
INPUTS = {"a": InputColumns(names=["k", "v", "w", "s"]), "late-b": InputColumns(names=["k", "z"])}
RULE = "-----\n"
LEAF = "+- Filter isnotnull(feed_assets_input:a)\n{0}   +- Relation [k#0L,v#1,w#2,s#3] csv\n"


def shown(sources: Iterable[ColumnSource]) -> list[str]:
    return [
        f"{'by ' if each.kind is SourceKind.INDIRECT else ''}{each.input}.{each.column}: {each.text}"
        for each in sources
    ]


def render(plan: str) -> str:
    names, _, text = plan.partition("\n")
    try:
        found = read_plan(text, "root", json.loads(names), INPUTS)
    except PlanNotReadError as exc:
        return f"unknown: {exc}\n"
    lines = {**found.columns, "rows": found.indirect} if found.indirect else found.columns
    read = {name: shown(sources) for name, sources in lines.items()} | (
        {"beyond": found.beyond} if found.beyond else {}
    )
    return json.dumps(read, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_a_plan_is_read_as_its_file_says(file: Path, request: pytest.FixtureRequest) -> None:
    plan, _, read = file.read_text().partition(RULE)
    if request.config.getoption("--update-golden"):
        file.write_text(f"{plan}{RULE}{render(plan)}")
    else:
        assert render(plan) == read


def project(items: str, *names: str, inputs: dict[str, InputColumns] = INPUTS) -> ColumnLineage:
    return read_plan(f"SubqueryAlias root\n+- Project [{items}]\n   {LEAF.format('   ')}", "root", names, inputs)


def sources(lineage: ColumnLineage, column: str) -> list[str]:
    return [each.column for each in lineage.columns[column]]


def test_the_explanation_of_a_connect_session_is_read_where_the_plan_is_analyzed() -> None:
    plan = f"SubqueryAlias root\n{LEAF.format('')}"
    text = f"== Parsed Logical Plan ==\n'{plan}\n== Analyzed Logical Plan ==\nk: bigint\n{plan}"
    text += "\n\n== Optimized Logical Plan ==\nx"
    assert sources(read_plan(text, "root", ["k", "v", "w", "s"], INPUTS), "s") == ["s"]


def test_two_hundred_columns_are_read() -> None:
    names = [f"c{number}" for number in range(200)]
    columns = ",".join(f"{name}#{number}" for number, name in enumerate(names))
    items = ", ".join(f"({name}#{number} + c0#0) AS {name}#{number + 200}" for number, name in enumerate(names))
    plan = f"SubqueryAlias root\n+- Project [{items}]\n   +- Filter isnotnull(feed_assets_input:a)\n"
    text = f"{plan}      +- Relation [{columns}] csv\n"
    found = read_plan(text, "root", names, {"a": InputColumns(names=names)})
    assert sources(found, "c199") == ["c0", "c199"]


@pytest.mark.parametrize(
    "name", ["a#1", "a#1,b", "x, y", "a] b", "p(q", "x AS y", "d.e", "`q`", "n\nl", "n\n+- x", "ü"]
)
def test_an_input_may_have_a_column_of_any_name(name: str) -> None:
    leaf = f"   +- Filter isnotnull(feed_assets_input:a)\n      +- Relation [k#0L,{name}#7] csv\n"
    text = f"SubqueryAlias root\n+- Project [upper({name}#7) AS o#9, k#0L]\n{leaf}"
    try:
        found = read_plan(text, "root", ["o", "k"], {"a": InputColumns(names=["k", name])})
    except PlanNotReadError:
        assert name == "n\n+- x"
    else:
        assert (sources(found, "o"), sources(found, "k")) == ([name], ["k"])


@pytest.mark.parametrize(
    "items",
    [
        "concat(v#1, x AS q#99, w#2) AS o#9",  # a literal that looks like a column
        "concat(v#1, () AS n#8, concat(w#2, )) AS o#9",  # brackets in literals
        "concat(v#1, \n   +- Project [w#2 AS o#9]\n      +- Foo) AS o#9",  # a line of its own
        "concat(v#1, c3#2) AS o#9",  # an id of a column of another name
        "v#1 AS o#9, w#2 AS p#10",  # more columns than the frame has
        "scalar_thing(v#1",
        "",
    ],
)
def test_what_is_not_certain_is_refused(items: str) -> None:
    with pytest.raises(PlanNotReadError):
        project(items, "o")


def test_a_column_that_was_lost_below_is_not_taken_for_a_literal() -> None:
    inner = f"Project [cut(x#5, v#1 AS lost#8, k#0L) AS o#9]\n      {LEAF.format('      ')}"
    with pytest.raises(PlanNotReadError):
        read_plan(f"SubqueryAlias root\n+- Project [(lost#8 + 1) AS p#10]\n   +- {inner}", "root", ["p"], INPUTS)


def test_a_column_may_be_written_in_other_letters() -> None:
    assert sources(project("(V#1 + W#2) AS o#9", "o"), "o") == ["v", "w"]


def test_an_id_in_a_literal_is_no_source() -> None:
    assert sources(project("concat(v#1, w#77 [s#3x) AS o#9", "o"), "o") == ["v"]


def test_frames_of_steps_have_the_sources_of_the_inputs() -> None:
    direct = ColumnSource(input="raw", column="x", kind=SourceKind.DIRECT, text="(raw.x + 1)")
    by = ColumnSource(input="raw", column="y", kind=SourceKind.INDIRECT, text="where raw.y")
    made_of = ColumnLineage(
        columns={"k": (), "v": (direct,), "w": (), "s": (direct, by)}, indirect=(by,), beyond=("external/t",)
    )
    names = ["k", "v", "w", "s"]
    found = project("(v#1 * 2) AS o#9", "o", inputs={"a": InputColumns(names=names, made_of=made_of)})
    assert shown(found.columns["o"]) == ["raw.x: ((raw.x + 1) * 2)"]
    assert (shown(found.indirect), found.beyond) == (["by raw.y: where raw.y"], ("external/t",))
    unknown = InputColumns(names=names, made_of=ColumnLineage(unknown="it is an RDD"))
    with pytest.raises(PlanNotReadError, match="it is an RDD"):
        project("v#1", "v", inputs={"a": unknown})


def test_secrets_are_in_no_text() -> None:
    remember_unnamed("hunter2-hunter2")
    long = "x" * 290
    found = project(f"concat(v#1, {long}hunter2-hunter2) AS o#9, concat(v#1, jdbc:x;password=abc) AS p#10", "o", "p")
    texts = " ".join(each.text for name in "op" for each in found.columns[name])
    assert "hunter2" not in texts
    assert "abc" not in texts


def test_texts_are_the_same_from_run_to_run() -> None:
    found = project("f(v#1)#41 AS o#9", "o")
    assert shown(found.columns["o"]) == ["a.v: f(a.v)"]
