"""Documents that are not built as Falcon's schemas say, or are not safe to read."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feed_assets.loading.bundles import load_files
from feed_assets.loading.documents import PlainDocument
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon.documents import read_falcon
from feed_assets.loading.falcon.reading import MAX_PROBLEMS
from feed_assets.loading.falcon.xml_nodes import MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS

FOLDER = Path(__file__).parent / "documents"
TEXTS = [file.read_text("utf-8") for file in sorted(FOLDER.glob("*.xml"))]
CLICKS = (FOLDER / "clicks.xml").read_text("utf-8")
SPARK = (FOLDER / "daily-spark.xml").read_text("utf-8")
PRIMARY = (FOLDER / "primary.xml").read_text("utf-8")
SHOP = (FOLDER / "orders-db.xml").read_text("utf-8")
VALUES = Values(variables={}, environ={"DB_PASSWORD": "top-secret"})


def _issues(text: str) -> list[str]:
    (document,) = iter_entities("a.xml", text, VALUES)
    assert (document.entity is None) == bool(document.issues)
    return [f"{issue.code} {issue.render()}" for issue in document.issues]


_LATE = '<late-arrival cut-off="hours(6)"/>'
_CASES = {
    "unknown element": (
        CLICKS.replace(_LATE, '<late-arival cut-off="hours(6)"/>'),
        "xml-unknown-element a.xml:13: feed 'clicks': <late-arival> is not an element of <feed>. "
        "Did you mean 'late-arrival'?",
    ),
    "wrong order": (
        CLICKS.replace(_LATE, "").replace("<partitions>", f"{_LATE}<partitions>"),
        "xml-order a.xml:4: feed 'clicks': <partitions> occurs too late in <feed>. The order is tags, partitions, "
        "groups, availabilityFlag, frequency, sla, timezone, late-arrival, clusters, locations, table, notification, "
        "ACL, schema, properties, lifecycle.",
    ),
    "missing attribute": (
        CLICKS.replace(' slaHigh="hours(3)"', ""),
        "xml-missing-attribute a.xml:11: feed 'clicks': <sla> has no attribute 'slaHigh'. Add slaHigh=\"…\".",
    ),
    "unknown attribute": (
        CLICKS.replace('slaHigh="hours(3)"', 'slaHigh="hours(3)" slahigh="1"'),
        "xml-unknown-attribute a.xml:11: feed 'clicks': 'slahigh' is not an attribute of <sla>. "
        "Did you mean 'slaHigh'?",
    ),
    "missing element": (
        CLICKS.replace('<schema location="/schema/clicks" provider="protobuf"/>', ""),
        "xml-missing-element a.xml:2: feed 'clicks': <schema> is missing in <feed>. Add it after <ACL>.",
    ),
    "element twice": (
        CLICKS.replace(_LATE, _LATE * 2),
        "xml-twice a.xml:13: feed 'clicks': <late-arrival> occurs twice in <feed>, first in line 13. Keep one of them.",
    ),
    "cluster twice": (
        CLICKS.replace('name="backup"', 'name="primary"'),
        "xml-twice a.xml:51: feed 'clicks': <cluster> with name 'primary' occurs twice, first in line 15. "
        "Keep one of them.",
    ),
    "both of a choice": (
        CLICKS.replace("<notification", '<table uri="catalog:a:b#c=d"/><notification'),
        "xml-choice a.xml:63: feed 'clicks': <feed> contains both <locations> and <table>. Keep one of them.",
    ),
    "wrong choice": (
        CLICKS.replace('type="source"', 'type="sauce"'),
        "xml-value a.xml:15: feed 'clicks': type of <cluster> is 'sauce', not source or target. Did you mean 'source'?",
    ),
    "wrong text": (
        SPARK.replace("LIFO", "LILO"),
        "xml-value a.xml:12: process 'daily-spark': <order> is 'LILO', not FIFO, LIFO or LAST_ONLY. "
        "Did you mean 'LIFO'?",
    ),
    "stray text": (
        CLICKS.replace("<partitions>", "<partitions>oops"),
        "xml-text a.xml:4: feed 'clicks': <partitions> contains the text 'oops'. "
        "Remove it; only elements are allowed there.",
    ),
    "no namespace": (
        CLICKS.replace(' xmlns="uri:falcon:feed:0.1"', ""),
        "xml-namespace a.xml:2: feed 'clicks': <feed> is in no namespace. "
        'Write <feed xmlns="uri:falcon:feed:0.1" …>.',
    ),
    "child of another namespace": (
        CLICKS.replace("<timezone>", '<timezone xmlns="urn:x">'),
        "xml-namespace a.xml:12: feed 'clicks': <timezone> is in namespace 'urn:x'. "
        'Write xmlns="uri:falcon:feed:0.1" at the root, and no other.',
    ),
    "another document": (
        "<workflow-app/>",
        "xml-root a.xml:1: <workflow-app> is not a document of Falcon. "
        "Documents are <cluster>, <datasource>, <feed>, <process>.",
    ),
    "syntax": (
        CLICKS.replace("</partitions>", ""),
        "xml-syntax a.xml:74: the file is not XML from here on: mismatched tag. "
        "Check tags, quotes and & in and above this line.",
    ),
    "empty": (
        "",
        "xml-syntax a.xml:1: the file is not XML from here on: no element found. "
        "Check tags, quotes and & in and above this line.",
    ),
    "encoding": (
        CLICKS.replace("UTF-8", "ISO-8859-1"),
        "xml-encoding a.xml:1: the document says that it is in ISO-8859-1. Save it as UTF-8, and say so.",
    ),
    "document type": (
        CLICKS.replace("<feed", '<!DOCTYPE feed SYSTEM "file:///etc/passwd">\n<feed', 1),
        "xml-doctype a.xml:2: document types and entities are not allowed. Remove <!DOCTYPE …>.",
    ),
    "undefined entity": (
        CLICKS.replace("US", "&us;"),
        "xml-syntax a.xml:3: the file is not XML from here on: undefined entity. "
        "Check tags, quotes and & in and above this line.",
    ),
    "value of ours": (
        CLICKS.replace("hours(6)", "hours(0)"),
        "frequency a.xml:13: feed 'clicks': late_arrival.cut_off: 'hours(0)' is not a frequency: "
        "'0' is not a whole number of at least 1 without leading zeros. Write minutes(n), hours(n), days(n) or "
        "months(n) with n at least 1, for example hours(1).",
    ),
    "storage of an interface": (
        PRIMARY.replace("hdfs://nn:8020", "nn:8020"),
        "storage a.xml:8: cluster 'primary': storage: 'nn:8020' is not a URL. "
        "Write for example file:///data or s3://bucket.",
    ),
    "spark options": (
        SPARK.replace("--num-executors 2", "--num-executors 2 oops"),
        "xml-spark-opts a.xml:35: process 'daily-spark': <spark-opts>: 'oops' is not an option. "
        "Write --conf name=value or --name value.",
    ),
    "spark without attributes": (
        SPARK[: SPARK.index("<spark-attributes>")] + SPARK[SPARK.index("</spark-attributes>") + 19 :],
        "xml-missing-element a.xml:28: process 'daily-spark': <spark-attributes> is missing in <process>: "
        "the engine is spark. Add it after <workflow>, with name and jar.",
    ),
    "credential of another type": (
        SHOP.replace('type="password-text"', 'type="password-file"'),
        "xml-choice a.xml:17: datasource 'orders-db': <credential> says that its type is password-file, "
        "but contains another kind of password. Write the matching type.",
    ),
    "reserved property": (
        CLICKS.replace("'\"csv\"'", "'csv'"),
        "xml-property a.xml:69: feed 'clicks': the property 'feed_assets.format' is reserved: its value is not JSON. "
        "Write feed_assets.<key> and a JSON value.",
    ),
    "reserved property for another kind": (
        CLICKS.replace("feed_assets.format", "feed_assets.kind"),
        "xml-property a.xml:69: feed 'clicks': the property 'feed_assets.kind' is reserved: "
        "the root of the document says its kind. Remove it.",
    ),
    "misspelt attribute": (
        CLICKS.replace("cut-off=", "cutoff="),
        "xml-unknown-attribute a.xml:13: feed 'clicks': 'cutoff' is not an attribute of <late-arrival>. "
        "Did you mean 'cut-off'?",
    ),
    "misspelt element": (
        CLICKS.replace("<frequency>hours(1)</frequency>", "<freqency>hours(1)</freqency>"),
        "xml-unknown-element a.xml:10: feed 'clicks': <freqency> is not an element of <feed>. "
        "Did you mean 'frequency'?",
    ),
    "fields without a list": (
        CLICKS.replace("<includes><field>id</field><field>url</field></includes>", ""),
        "xml-missing-element a.xml:25: feed 'clicks': <includes> or <excludes> is missing in <fields>. Add it.",
    ),
    "misspelt password": (
        SHOP.replace("passwordFile>", "passwordFiles>"),
        "xml-unknown-element a.xml:10: datasource 'orders-db': <passwordFiles> is not an element of <credential>. "
        "Did you mean 'passwordFile'?",
    ),
    "cluster without a name": (
        SPARK.replace('<cluster name="primary"', "<cluster"),
        "xml-missing-attribute a.xml:6: process 'daily-spark': <cluster> has no attribute 'name'. Add name=\"…\".",
    ),
    "storage without a type": (
        PRIMARY.replace('type="write" ', ""),
        "xml-missing-attribute a.xml:8: cluster 'primary': <interface> has no attribute 'type'. Add type=\"…\".",
    ),
    "catalog without an address": (
        PRIMARY.replace("thrift://hive1:9083,hive2:9083", ""),
        "text-empty a.xml:12: cluster 'primary': interfaces.registry.endpoint: the text is empty. "
        "Write a value, or remove the key.",
    ),
    "process without a workflow": (
        SPARK[: SPARK.index("<workflow")] + SPARK[SPARK.index("<spark-attributes>") :],
        "xml-missing-element a.xml:2: process 'daily-spark': <workflow> is missing in <process>. "
        "Add it after <properties>.",
    ),
    "reserved property of nothing": (
        CLICKS.replace("feed_assets.format", "feed_assets.fromat"),
        "unknown-key a.xml:69: feed 'clicks': 'fromat' is not a key of a feed. Did you mean 'format'?",
    ),
}


@pytest.mark.parametrize("name", list(_CASES))
def test_row_1_a_document_that_is_not_built_as_the_schema_says_is_refused_with_its_place(name: str) -> None:
    text, expected = _CASES[name]
    assert _issues(text) == [expected]


def test_row_26_a_spark_process_without_a_jar_is_refused() -> None:
    (issue,) = _issues(SPARK.replace("<jar>/apps/daily/daily.jar</jar>", ""))
    assert issue == (
        "xml-missing-element a.xml:29: process 'daily-spark': <jar> is missing in <spark-attributes>. "
        "Add it after <class>."
    )


def test_all_that_is_wrong_is_said_at_once() -> None:
    text = CLICKS.replace(_LATE, "<late/>").replace(' slaHigh="hours(3)"', "").replace("hours(10)", "weeks(1)")
    assert [issue.split()[0] for issue in _issues(text)] == [
        "xml-missing-attribute",
        "xml-unknown-element",
        "frequency",
    ]


def test_a_cluster_without_a_write_interface_has_no_storage() -> None:
    text = PRIMARY.replace('type="write" endpoint="hdfs://nn:8020"', 'type="execute" endpoint="x"').replace(
        'type="execute" endpoint="rm:8050"', 'type="readonly" endpoint="x"'
    )
    codes = [issue.split()[0] for issue in _issues(text)]
    assert codes == ["xml-twice", "xml-missing-element"]


def test_the_hundred_and_first_problem_ends_the_reading() -> None:
    text = CLICKS.replace("<tags>", "<x/>" * 5_000 + "<tags>")
    issues = _issues(text)
    assert len(issues) == MAX_PROBLEMS + 1
    assert issues[-1].startswith("xml-more a.xml:3: feed 'clicks': there are more problems than 100.")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{'<a>' * (MAX_DEPTH + 1)}", "xml-too-deep"),
        (f"<a>{'<b/>' * MAX_ELEMENTS}</a>", "xml-too-big"),
        ("<a " + " ".join(f'a{number}=""' for number in range(MAX_ATTRIBUTES + 1)) + "/>", "xml-too-big"),
        (f"<a>{'x' * MAX_BYTES}</a>", "xml-too-big"),
        ("<a>\ud800</a>", "xml-syntax"),
        ("<a>\x00</a>", "xml-syntax"),
        ("not xml", "xml-syntax"),
    ],
)
def test_bounds_end_the_reading(text: str, code: str) -> None:
    document = read_falcon(text)
    assert ([problem.code for problem in document.problems], document.value) == ([code], None)


_ENTITIES = "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
_BOMB = f'<!DOCTYPE feed [<!ENTITY a "aaaaaaaaaa">{_ENTITIES}]><feed>&j;</feed>'


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (f"{_BOMB!r}.encode()", ["xml-doctype"]),
        ("""b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'""", ["xml-doctype"]),
        ("""b'<!DOCTYPE a SYSTEM "http://localhost:1/a.dtd"><a/>'""", ["xml-doctype"]),
        ("""b'<!DOCTYPE a [<!ENTITY % x SYSTEM "http://localhost:1/a">%x;]><a/>'""", ["xml-doctype"]),
        ("b'<a>' * (MAX_FILE_BYTES // 3)", ["xml-too-big"]),
        ("b'<a>' * 33_000_000", ["file-too-big"]),
        ("b'<a>' * 300_000", ["xml-too-deep"]),
        ("b'<a ' + b' '.join(b'a%d=\"\"' % n for n in range(100_000)) + b'/>'", ["xml-too-big"]),
        ("b'<feed>' + b'<x/>' * 200_000 + b'</feed>'", ["xml-too-big"]),
        ("b'<feed xmlns=\"uri:falcon:feed:0.1\">' + b'<x/>' * 19_000 + b'</feed>'", None),
        ("b'<a>' + b'\\xf0\\x9f\\x98\\x80' * (MAX_FILE_BYTES // 4 - 9) + b'</a>'", ["xml-too-big"]),
        ("('<?xml version=\"1.0\" encoding=\"UTF-16\"?><a/>').encode('utf-16')", ["file-encoding"]),
        ("'<a>é</a>'.encode('latin-1')", ["file-encoding"]),
        ('b\'<?xml version="1.0" encoding="UTF-7"?><a/>\'', ["xml-encoding"]),
    ],
)
def test_attacks_are_refused_within_seconds_and_100_megabytes(make: str, codes: list[str] | None) -> None:
    program = f"""
        import resource, time
        from feed_assets.loading.bundles import load_files
        from feed_assets.loading.entity_files import MAX_FILE_BYTES, EntityFile
        from feed_assets.loading.entity_files import Values
        content = {make}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        loaded = load_files([EntityFile(name="a.xml", content=content)], Values(variables={{}}, environ={{}}))
        took = time.process_time() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert took < 5, took
        assert grown < 100 * 1024, grown
        print(*[issue.code for issue in loaded.issues])
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert codes is None or result.stdout.split() == codes


_POSITIONS = st.integers(0, 10_000)
_PIECES = st.one_of(
    st.sampled_from(["<", ">", "/", "&", "'", '"', "]]>", "<!--", "&#0;", "<x/>", "\x00", "\ud800", "[1,", "{"]),
    st.sampled_from(TEXTS).flatmap(
        lambda text: st.tuples(_POSITIONS, st.integers(0, 80)).map(lambda cut: text[cut[0] : cut[0] + cut[1]])
    ),
    st.text(max_size=5),
)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(_POSITIONS) % (len(text) + 1)
        stop = min(len(text), start + draw(st.integers(0, 60)))
        text = text[:start] + draw(_PIECES) + text[stop:]
    return text


_ANY = st.text(max_size=20)
_VALUE = st.one_of(_ANY, st.sampled_from(["null", "[]", "{}", "1", '{"a": {"a": null}}', '""', "[[[[]]]]", "NaN"]))


@st.composite
def _revalued(draw: st.DrawFn) -> str:
    """A document whose attributes and texts hold anything, still well-formed."""
    text = draw(st.sampled_from(TEXTS))
    pieces = text.split('"')
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(pieces) // 2 - 1)) * 2 + 1
        pieces[position] = _escaped(draw(_VALUE))
    text = '"'.join(pieces)
    key = draw(st.sampled_from(["workflow", "clusters", "inputs.x", "format", "interfaces", "kind", "name", "spark.a"]))
    extra = f'<property name="feed_assets.{key}" value="{_escaped(draw(_VALUE))}"/></properties>'
    return text.replace("</properties>", extra) if draw(st.booleans()) else text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(_mutated(), _revalued(), _ANY))
@example(text="\r")
def test_whatever_is_read_is_an_entity_or_issues_with_a_place(text: str) -> None:
    (document,) = iter_entities("a.xml", text, VALUES)
    assert (document.entity is None) == bool(document.issues)
    for issue in document.issues:
        assert issue.source is not None
        assert issue.source.line is not None


def _spliced(parts: tuple[str, int, bytes]) -> bytes:
    text, position, piece = parts
    content = text.encode()
    return content[: position % len(content)] + piece + content[position % len(content) + len(piece) :]


_CUTS = st.tuples(st.sampled_from(TEXTS), st.integers(0, 5_000), st.binary(max_size=5))


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(max_size=60), _CUTS.map(_spliced)))
def test_whatever_the_bytes_there_is_no_traceback(content: bytes) -> None:
    loaded = load_files([EntityFile(name="a.xml", content=content)], VALUES)
    assert bool(loaded.issues) == (not loaded.bundle.entities)


def test_a_document_is_read_as_plain_values() -> None:
    document = read_falcon('<process xmlns="uri:falcon:process:0.1" name="p"/>')
    assert isinstance(document, PlainDocument)
    assert document.value == {"kind": "process", "name": "p"}
    assert {problem.code for problem in document.problems} == {"xml-missing-element"}
