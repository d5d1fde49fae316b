"""Plans as Spark tells them, in `plans/`: the names of the columns, the plan, and below a line what is read of it.

`pytest tests/engines/test_plan_columns.py --update-golden` writes what is read anew.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from feed_assets.engines import plan_tree
from feed_assets.engines.plan_columns import InputColumns, PlanNotReadError, read_plan
from feed_assets.entities.content.column_lineage import ColumnLineage, ColumnSource, SourceKind
from feed_assets.masking import remember_unnamed

PLANS = sorted((Path(__file__).parent / "plans").glob("*.txt"))
INPUTS = {"a": InputColumns(names=["k", "v", "w", "s"]), "late-b": InputColumns(names=["k", "z"])}
RULE = "-----\n"
WIDE = {"a": InputColumns(names=["id", "k", "v", "w", "s"])}
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


def under(*operators: str) -> str:
    """Return a plan of operators above each other."""
    leaf = ("Filter isnotnull(feed_assets_input:a)", "Relation [id#0L,k#1,v#2,w#3,s#4] csv")
    lines = enumerate(("SubqueryAlias root", *operators, *leaf))
    return "\n".join(f"{'   ' * (depth - 1)}{'+- ' if depth else ''}{text}" for depth, text in lines)


def everything(plan: str, *names: str) -> set[str]:
    """Return what the last of some columns depends on."""
    found = read_plan(plan, "root", names, WIDE)
    return {each.column for each in (*found.columns[names[-1]], *found.indirect)}


BY_V = "RepartitionByExpression [v#2], 2"
ALL_SHUFFLED = "Project [k#1, v#2, w#3]"


@pytest.mark.parametrize(
    ("operators", "name", "wanted"),
    [
        (("Project [k#1]", "Deduplicate [k#1]", "Repartition 3, true", ALL_SHUFFLED), "k", {"k", "v", "w"}),
        (("Project [k#1]", "Deduplicate [k#1]", "RebalancePartitions", ALL_SHUFFLED), "k", {"k", "v", "w"}),
        (("Project [k#1]", "Filter (rand(7) > 0.5)", BY_V), "k", {"k", "v"}),
        (("Project [k#1]", "Filter (SPARK_PARTITION_ID() = 0)", BY_V), "k", {"k", "v"}),
        (("Project [SPARK_PARTITION_ID() AS o#9]", BY_V), "o", {"v"}),
        (("Project [o#9]", "Project [round(v#2, 1) AS p#50, upper(s#4) AS o#9]"), "o", {"s"}),
    ],
)
def test_what_depends_on_the_order_of_rows_depends_on_what_orders_them(
    operators: tuple[str, ...], name: str, wanted: set[str]
) -> None:
    assert everything(under(*operators), name) == wanted


def test_the_numbers_of_a_range_hide_no_column_of_an_input() -> None:
    plan = """SubqueryAlias root
+- Project [k#1]
   +- Join Inner, (id#0L = id#20L)
      :- Filter isnotnull(feed_assets_input:a)
      :  +- Relation [id#0L,k#1,v#2,w#3,s#4] csv
      +- Range (0, 4, step=1, splits=None)
"""
    assert everything(plan, "k") == {"k", "id"}


@pytest.mark.parametrize(
    ("operators", "names"),
    [
        # an aggregate by translate(s, ')]', '[('), or by two columns
        (
            ("Aggregate [translate(s#4, )], [(), w#3], [translate(s#4, )], [() AS g#8, w#3, max(k#1) AS m#9]",),
            ("g", "w", "m"),
        ),
        # one column or two
        (("Project [o#9]", "Project [concat(v#2, ) AS p#50, concat(, w#3) AS o#9]"), ("o",)),
        (("Project [o#9]", "Project [concat(), s#4,  AS y#1, , v#2, () AS o#9]"), ("o",)),
        (("Project [n#9]", "Project [concat(v#2, x) AS p#50, count(1) AS n#9]"), ("n",)),
        (("Window [sum(concat(v#2,  AS q#9], [, w#3)) AS n#10], [k#1]",), ("id", "k", "v", "w", "s", "n")),
        (("Project [k#1]", "Filter (v#2 <= variablereference(system.session.m=3))"), ("k",)),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(operators: tuple[str, ...], names: tuple[str, ...]) -> None:
    with pytest.raises(PlanNotReadError):
        read_plan(under(*operators), "root", names, WIDE)


def test_what_operators_make_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    found = plan_tree._MADE.findall
    monkeypatch.setattr(plan_tree, "_MADE", SimpleNamespace(findall=lambda text: looked.append(text) or found(text)))
    lambdas = [f"transform(v#2, lambdafunction(lambda x_1#{place}, lambda x_1#{place}))" for place in range(20, 60)]
    items = ", ".join(f"{text} AS o#{place}" for place, text in enumerate(lambdas, 100))
    assert everything(under("Project [o#100]", f"Project [{items}]", "Project [v#2]"), "o") == {"v"}
    assert len(looked) == len(set(looked))


def test_values_are_constant_only_in_a_query() -> None:
    plan = "SubqueryAlias root\n+- LocalRelation [k#1]\n"
    assert read_plan(plan, "root", ["k"], WIDE, are_values_constant=True).columns == {"k": ()}
    assert read_plan(plan.replace("[", "<empty>, ["), "root", ["k"], WIDE).columns == {"k": ()}
    with pytest.raises(PlanNotReadError, match="values that went through the driver"):
        read_plan(plan, "root", ["k"], WIDE)


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
