"""The page about work elsewhere: its loader works as it stands there, also when a step of it fails."""

from pathlib import Path

import pytest

from tests.cli.project import run
from tests.cli.scripts import run_script
from tests.documents.markdown import ROOT, fences
from tests.projects import declare, enter

PAGE = ROOT / "docs/elsewhere.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    declare(tmp_path, *fences(PAGE, "yaml"), variables={"DATA_ROOT": f"{tmp_path}/data"})
    return tmp_path


def test_the_loader_of_the_page_goes_on_behind_the_step_that_failed(project: Path) -> None:
    (loader,) = fences(PAGE, "sh")
    nothing = run_script(loader, project / "first")
    assert (nothing.returncode, "orders lacks an event" in nothing.stderr) == (0, True)
    for second in (2, 1):
        folder = project / f"data/orders/2026-03-01/06000{second}"
        folder.mkdir(parents=True)
        (folder / "part-0.csv").write_text(f"{second}\n")
        assert run("feed", "notify", "orders", f"2026-03-01T06:00:0{second}Z").exit_code == 0
    failed = run_script(loader.replace('cp scratch/sorted.csv "$out', 'cp scratch/none "$out'), project / "second")
    assert (failed.returncode, "step store has failed" in failed.stdout) == (1, True), failed.stderr
    done = run_script(loader, project / "third")
    assert done.returncode == 0, done.stderr
    assert "step extract begins" not in done.stdout
    assert "attempt 2: step sort begins" in done.stdout
    (file,) = (project / "data/orders-loaded").rglob("*.csv")
    assert file.read_text() == "1\n2\n"
