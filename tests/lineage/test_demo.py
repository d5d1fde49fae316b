"""The lineage of the demo: the days are simulated, so that no work needs Spark."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.simulate.parts import Arrival
from feed_assets.testing import simulate
from tests.documents.markdown import ROOT
from tests.instances.harness import at

HOUR = timedelta(hours=1)


def test_a_report_leads_to_seven_days_of_flights_late_weather_and_both_attempts(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "feed_assets.yaml").write_text(
        "entities: examples/flights/entities\nvariables: {DATA_ROOT: /data, S3_ENDPOINT: 'http://127.0.0.1:1'}\n"
    )
    days = [at("01T04:00"), at("02T04:00"), at("03T04:00"), *(at(f"0{day}T05:00") for day in range(4, 8))]
    hours = [at("01T04:00") + n * HOUR for n in range(7 * 24 + 1)]
    late = at("01T10:00")
    arrivals = [
        *(
            Arrival(at=day + 25 * HOUR, feed="flights", cluster="primary", nominal_time=day, content="f")
            for day in days
        ),
        *(Arrival(at=hour + HOUR, feed="weather", cluster="primary", nominal_time=hour, content="w") for hour in hours),
        Arrival(at=at("04T12:00"), feed="weather", cluster="primary", nominal_time=late, content="late"),
    ]
    end = "2013-11-09T05:00Z"
    with simulate(arrivals, start="2013-11-01T04:00Z", end=end, every=6 * HOUR, folder=tmp_path) as simulated:
        up = simulated.lineage("airline-report", "2013-11-07T05:00Z", down=False)
        down = simulated.lineage("weather", "2013-11-01T10:00Z", up=False)
        with pytest.raises(LookupError, match="'daily-delays' is on backup, primary; name one"):
            simulated.lineage("daily-delays", "2013-11-01T04:00Z")
    read = {(each.name, each.nominal_time) for each in up.nodes if each.name == "flights"}
    assert read == {("flights", day) for day in days}
    first = [each for each in up.nodes if (each.name, each.nominal_time) == ("daily-delays", days[0]) and each.run_id]
    assert sorted(each.number or 0 for each in first) == [1, 2]
    weather = [each.state for each in up.nodes if (each.name, each.nominal_time) == ("weather", late)]
    assert weather == ["ARRIVED", "CHANGED"]
    assert {each.cluster for each in down.nodes if each.name == "daily-delays"} == {"primary", "backup"}
