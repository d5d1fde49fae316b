"""`metadata` in a shell: what CDAP's users expect of annotations, each a line of a script."""

from pathlib import Path

import pytest

from tests.catalog.project import prepare
from tests.cli.scripts import run_script

SCRIPT = {
    "CA-01": """metadata put feed/flights a=1 b=2 && metadata put feed/flights b=3 c=4 &&
        test "$(said feed/flights | grep property,)" = "$(printf 'property,%s\\n' a,1 b,3 c,4 owner,ops)" """,
    "CA-02": """said feed/flights > before && echo null > null.json && echo '{' > broken.json &&
        ! metadata put feed/flights && ! metadata import null.json && ! metadata import broken.json &&
        said feed/flights | cmp - before""",
    "CA-03": """said feed/flights > before && metadata remove feed/flights no-key &&
        metadata untag feed/flights no-tag && metadata untag feed/flights no-tag &&
        metadata untag feed/flights --all && said feed/flights | cmp - before""",
    "CA-04": """test "$(metadata get feed/flights --output csv | tail -n +2 | cut -d, -f1 | sort -u)" =
        "$(printf 'SYSTEM\\nUSER')" && metadata get feed/flights --scope SySTeM | grep frequency &&
        ! metadata get feed/flights --scope foo""",
    "CA-05": """metadata get feed/flights --scope system > before && metadata put feed/flights format=mine &&
        ! metadata import of-system.json && metadata remove feed/flights format frequency &&
        metadata drop feed/flights && metadata get feed/flights --scope system | cmp - before""",
    "CA-06": """! metadata get feed/flight && ! metadata tag process/absent late &&
        ! metadata tag feed/flights/column/absent late && test -z "$(said dashboard/otd)" &&
        metadata tag dashboard/otd late && said dashboard/otd | grep tag,late""",
    "CA-10": """metadata put feed/flights checked=yes && feed-assets apply next.yaml --yes &&
        metadata get feed/flights | grep 'version.2' && said feed/flights | grep property,checked,yes""",
    "CA-11": """said feed/flights > before && long=$(printf a%.0s $(seq 100)) && for key in $long 'aKey$' tags; do
        ! metadata put feed/flights $key=aValue || exit 1; done && ! metadata tag feed/flights $long &&
        ! metadata tag feed/flights 'aTag$' && echo 'metadata: {strict: true}' >> feed_assets.yaml &&
        ! metadata put feed/flights 'aKey=aValue$' && ! metadata put feed/flights aKey=$long &&
        said feed/flights | cmp - before""",
    "CA-12": """metadata get feed/flights | grep creation-time > before && feed-assets apply again.yaml --yes &&
        metadata get feed/flights | grep creation-time | cmp - before &&
        metadata get feed/flights | grep 'description.Flights.' && said feed/flights | grep property,checked,yes""",
    "CA-08": """metadata tag feed/flights/column/plane.seats.row nested && feed-assets search nested | grep row &&
        feed-assets apply narrow.yaml --yes && ! metadata get feed/flights/column/plane.seats.row &&
        ! feed-assets search nested | grep row""",
    "CA-07": """metadata tag process/delays doomed && feed-assets search doomed | grep process/delays &&
        feed-assets entity delete process delays && ! metadata get process/delays &&
        ! feed-assets search doomed | grep process/delays""",
    "CA-09": "said feed/flights | grep property,checked,yes && feed-assets search checked:yes | grep feed/flights",
}
"""One line each, and CA-13 below: there many write at once."""

BEGINNING = """
metadata() { feed-assets metadata "$@"; }
said() { metadata get "$1" --scope user --output csv | tail -n +2 | cut -d, -f2-4; }
"""


@pytest.fixture
def project(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path, monkeypatch, database_url)
    return tmp_path


def test_annotations_are_as_in_cdap_each_a_line_of_a_script(project: Path) -> None:
    lines = {name: " ".join(line.split()) for name, line in SCRIPT.items()}
    script = "\n".join(f"{{ {line}; }} >/dev/null || {{ echo {name}; exit 1; }}" for name, line in lines.items())
    done = run_script(BEGINNING + script, project / "shell")
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
