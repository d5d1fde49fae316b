"""Several processes change a store at random and are killed at random; a checker proves what is left."""

from pathlib import Path

import pytest

from feed_assets.sql.database import Database
from tests.definitions.stress import Size, run
from tests.drills import drill_seed, sized

SIZE = Size.parse(sized("3,60,4", "8,1000,120"))


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.timeout(SIZE.seconds * 4 + 120)
def test_a_store_that_is_changed_and_killed_at_random_equals_a_serial_history(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    outcome = run(database_url, str(tmp_path / "entities"), tmp_path / "notes", SIZE, seed=drill_seed())
    print(outcome.render())
    assert outcome.problems == ()
    assert outcome.lost == ()
    assert outcome.refused_but_made == ()
    assert outcome.states["DONE"] > 10
    assert set(outcome.actions) == {"SUBMITTED", "UPDATED", "DELETED"}
    assert outcome.states.get("UNDONE", 0) == 0
