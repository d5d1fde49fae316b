"""`search` and `keys` in a shell, among the entities of the demo: what CDAP's users expect of searches, each a line of
a script.
"""

from pathlib import Path

import pytest

from tests.cli.project import below, must, rows, run, shown
from tests.cli.scripts import run_script
from tests.databases import open_migrated
from tests.projects import enter

pytestmark = pytest.mark.both_databases

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "examples" / "flights" / "entities" / "flights.yaml"
DELAYS = "Delays of each airline on a local day, with the weather of its hours."
SAID = "aV1 av2 ,  -  ,  av3 - av4_av5 av6"

SCRIPT = {
    "CA-20": """metadata put doc/one sKey=sValue && finds one 'sKey:s*' && finds one 'sval*' && finds one svalue &&
        finds '' sKey:s && finds '' s""",
    "CA-21": f"""metadata put doc/two 'multiword={SAID}' && metadata tag doc/two tag12-tag33 &&
        finds two multiword:av5 && finds two av2 && finds two tag33 && finds two tags:tag33 && finds two tag12-tag33 &&
        for text in - , _ ', - ,'; do finds '' "$text" || exit 1; done""",
    "CA-22": """metadata put doc/three multiword=av5 other=red && finds 'three two' 'av5 red' &&
        finds three 'av5 +red' && finds three '+av5 +red' && finds '' '+av5 +blue'""",
    "CA-23": """test "$(entities dep_delay)" = "feed/flights/column/dep_delay feed/flights" &&
        test "$(entities dep_delay:DOUBLE)" = feed/flights && test "$(entities schema:dep_delay)" = feed/flights &&
        test -z "$(entities dep_delay:STRING)" """,
    "CA-24": """for name in a b c d e; do metadata tag page/$name paged || exit 1; done &&
        finds 'a b' paged --limit 2 && finds 'c d' paged --limit 2 --offset 2 && finds e paged --limit 2 --offset 4 &&
        finds 'e d c b a' paged --sort 'entity-name desc' && finds 'e d' paged --sort 'creation-time desc' --limit 2 &&
        next=$(feed-assets search paged --sort 'entity-name asc' --limit 2 --cursors 1 2>&1 |
        sed -n 's/.*--cursor //p') &&
        finds 'c d' paged --sort 'entity-name asc' --cursor $next --offset 4 --limit 1 &&
        ! feed-assets search paged --cursor $next && ! feed-assets search paged --sort 'size asc'""",
    "CA-25": """metadata tag doc/_secret quiet && metadata tag doc/loud quiet && finds loud quiet &&
        finds loud quiet --limit 1 && finds '_secret loud' quiet --hidden""",
    "CA-26": """finds '' 'schema:*' --namespace nobody &&
        feed-assets search 'owner:ops' --namespace default | grep flights""",
    "CA-27": """feed-assets search owner:ops --output json | grep SYSTEM &&
        feed-assets search sKey:svalue --output json > doc && grep USER doc && ! grep SYSTEM doc""",
    "I1": """test "$(feed-assets keys cla --output csv | tail -n +2)" = classification,2 &&
        feed-assets keys show classification | grep 'public.2.feed/flights, feed/weather' &&
        test "$(entities 'owner:ops +classification:public')" = "feed/flights feed/weather" """,
    "I2": """feed-assets keys --output csv | grep '^schema,5' && test "$(entities 'schema:*' | wc -w)" = 5 &&
        feed-assets keys --scope user | grep skey && ! feed-assets keys --scope system | grep skey &&
        test "$(feed-assets keys owner --output csv | tail -n +2)" = owner,8 &&
        feed-assets search properties:owner --output json | grep '"total": 8,' && feed-assets keys show nobody""",
    "tags": """metadata put feed/flights checked=yes && metadata tag process/daily-delays late &&
        feed-assets entity list --tags checked=yes --fields TAGS |
        grep 'flights.owner=ops,classification=public,checked=yes$' &&
        test "$(feed-assets entity list --tagkeys LATE --output csv | tail -n +2)" = process,daily-delays &&
        feed-assets instance search --tagkeys checked --end 2013-11-03T12:00Z | grep 'MISSING.*public, checked=yes'""",
}
BEGINNING = """
metadata() { feed-assets metadata "$@"; }
entities() { echo $(feed-assets search "$@" --output csv | tail -n +2 | cut -d, -f1); }
finds() { expected=$1; shift; test "$(entities "$@" | sed 's:[a-z]*/::g')" = "$expected"; }
"""


@pytest.fixture
def demo(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The entities of the demo have been applied."""
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("FEED_ASSETS_VARIABLES__DATA_ROOT", str(tmp_path / "data"))
    monkeypatch.setenv("FEED_ASSETS_VARIABLES__S3_ENDPOINT", "http://127.0.0.1:1")
    (tmp_path / "entities").mkdir()
    text = DEMO.read_text().replace("examples/flights/airline_report.sql", "report.sql")
    (tmp_path / "entities" / "flights.yaml").write_text(text)
    (tmp_path / "report.sql").write_text("select 1 as n")
    (tmp_path / "feed_assets.yaml").write_text(f"state: {database_url}\n")
    open_migrated(database_url).close()
    must("apply", "--yes", "--skip-checks")
    return tmp_path


def test_what_is_found_is_a_table_and_what_else_there_is_is_said(demo: Path) -> None:
    found = run("search", "delays carrier", "--target", "feed", "--limit", "1")
    assert rows(found.stdout) == [["feed/daily-delays", "2", "description, entity-name, feed, schema, writers", DELAYS]]
    assert found.stderr == "1 of 4 entities; --offset shows the next ones\n"
    nothing = run("search", "zebra")
    assert (below(nothing.stdout), nothing.exit_code) == ("", 0)
    assert nothing.stderr == "nothing is found; a term is a whole word, and word* is the beginning of one\n"
    near = run("search", "temprature owner:opss")
    assert near.stderr == f"did you mean temperature or ops?\n{nothing.stderr}"
    page = shown("search", "owner:ops")
    assert {each["entity"]: each["fields"] for each in page["results"]} == {
        "feed/flights": ["owner"],
        "feed/weather": ["owner"],
    }


def test_a_mistake_is_named_with_what_helps(demo: Path) -> None:
    for arguments, code, message in (
        ("--sort size", 1, "sort 'size': nothing can be sorted so. Write one of 'entity-name asc', "),
        ("--cursor x", 1, "the search: a cursor needs an order. Write --sort 'entity-name asc'.\n"),
        ("--target fed", 1, "kind 'fed': nothing has it. Kinds are cluster, column, datasource, feed, instance, "),
        ("--scope mine", 2, "'mine' is not one of 'user', 'system'."),
        ("--limit 0", 1, "limit 0: there is no such page. Ask for 1 to 1,000.\n"),
    ):
        done = run("search", "delays", *arguments.split())
        assert (done.exit_code, done.stdout) == (code, "")
        assert message in done.stderr


def test_searches_are_as_in_cdap_each_a_line_of_a_script(demo: Path) -> None:
    lines = {name: " ".join(line.split()) for name, line in SCRIPT.items()}
    script = "\n".join(f"{{ {line}; }} >/dev/null || {{ echo {name}; exit 1; }}" for name, line in lines.items())
    done = run_script(BEGINNING + script, demo / "shell")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
