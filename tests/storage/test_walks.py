"""Walking and measuring what is below a store's root, on every implementation whose instances are directories."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.records import Measure
from tests.storage.harnesses import StoreHarness, publish

DAYS = ("2013/11/01", "2013/11/02", "2013/12/01", "2014/01/01")


def land_days(harness: StoreHarness) -> None:
    for day in DAYS:
        harness.land(f"weather/{day}", {"part-0.csv": b"123", "_SUCCESS": b""})


def everything(folder: str, names: Sequence[str]) -> Sequence[str]:
    return names


def test_a_walk_finds_what_is_chosen_and_enters_nothing_else(file_harness: StoreHarness) -> None:
    land_days(file_harness)
    asked: dict[str, list[str]] = {}

    def choose(folder: str, names: Sequence[str]) -> list[str]:
        asked[folder] = sorted(names)
        return [name for name in names if name not in ("2014", "12")]

    assert sorted(file_harness.store.walk("weather", 3, choose)) == ["weather/2013/11/01", "weather/2013/11/02"]
    assert asked == {"": ["2013", "2014"], "2013": ["11", "12"], "2013/11": ["01", "02"]}


@pytest.mark.parametrize("base", ["/weather/2013/", "weather//2013"])
def test_a_base_is_spelled_as_any_path_and_what_is_found_is_plain(file_harness: StoreHarness, base: str) -> None:
    land_days(file_harness)
    assert sorted(file_harness.store.walk(base, 1, everything)) == ["weather/2013/11", "weather/2013/12"]


def test_the_root_is_a_base_and_the_hidden_folder_is_not_in_it(file_harness: StoreHarness) -> None:
    publish(file_harness.store, "weather/2013", {"x": b"1"})
    file_harness.store.trash().describe("sweep-1", {})
    file_harness.put("flights/2014/.feed-assets/x", b"1")
    assert sorted(file_harness.store.walk("", 1, everything)) == ["flights", "weather"]
    assert sorted(file_harness.store.walk("", 2, everything)) == ["flights/2014", "weather/2013"]
    assert list(file_harness.store.walk("flights/2014", 1, everything)) == []


def test_files_are_shown_at_the_last_level_and_at_no_other(file_harness: StoreHarness) -> None:
    land_days(file_harness)
    file_harness.put("weather/2015", b"1")
    file_harness.put("weather/2013/13", b"1")
    shown: list[str] = []
    found = list(file_harness.store.walk("weather", 2, lambda _, names: shown.extend(names) or names))
    assert sorted(found) == ["weather/2013/11", "weather/2013/12", "weather/2013/13", "weather/2014/01"]
    assert "2015" not in shown


@pytest.mark.parametrize("base", ["nothing", "weather/2013/11/01/part-0.csv/x", "nothing/at/all"])
def test_a_base_that_is_missing_has_nothing_and_nobody_is_asked(file_harness: StoreHarness, base: str) -> None:
    land_days(file_harness)
    asked: list[str] = []
    try:
        found = list(file_harness.store.walk(base, 2, lambda folder, _: asked.append(folder) or ()))
    except PathRefusedError:  # a file stands on the way
        found = []
    assert found == []


@pytest.mark.parametrize("base", ["..", "weather/../..", ".feed-assets", "./weather"])
def test_a_base_that_is_none_is_refused(file_harness: StoreHarness, base: str) -> None:
    with pytest.raises(PathRefusedError):
        list(file_harness.store.walk(base, 1, everything))


def test_what_is_chosen_beside_the_names_given_is_passed_over(file_harness: StoreHarness) -> None:
    land_days(file_harness)
    others = ["..", ".", "", "2013/11", "/", ".feed-assets", "1999"]
    assert list(file_harness.store.walk("weather", 1, lambda *_: others)) == []
    assert list(file_harness.store.walk("weather", 2, lambda *_: others)) == []
    assert list(file_harness.store.walk("weather/2013", 1, lambda _, names: [*others, *names, *others])) != []


def test_names_of_all_kinds_come_back_as_they_are(file_harness: StoreHarness) -> None:
    names = {"a b", "c%20d", "2013-11-03\n", "é", "e\u0301", "a" * 200, "…", "x:y", "'quoted\"", "+1", "-1"}
    if not file_harness.store.root_url.startswith(("file", "sftp", "hdfs")):  # whose client cannot
        names.remove("2013-11-03\n")
    if file_harness.store.root_url.startswith("hdfs"):
        names.remove("x:y")
    for name in names:
        file_harness.put(f"odd/{name}/x", b"1")
    assert {path.removeprefix("odd/") for path in file_harness.store.walk("odd", 1, everything)} == names


def test_a_measure_counts_all_that_a_path_holds(file_harness: StoreHarness) -> None:
    file_harness.land(
        "weather/05", {"part-0.csv": b"123", "_SUCCESS": b"", ".hidden/x": b"45", "a/b/c": b"6", "_metadata": b"7"}
    )
    file_harness.put("weather/05_backup/x", b"1234567890")
    found = file_harness.store.measure(["/weather/05/", "weather/06", "weather/05/a"])
    assert [(one.path, one.exists, one.bytes, one.files, one.obstacle) for one in found] == [
        ("/weather/05/", True, 7, 5, None),
        ("weather/06", False, 0, 0, None),
        ("weather/05/a", True, 1, 1, None),
    ]
    assert [bool(one.fingerprint) for one in found] == [True, False, True]


def test_a_file_is_measured_as_one(file_harness: StoreHarness) -> None:
    file_harness.put("weather/05", b"123")
    (found,) = file_harness.store.measure(["weather/05"])
    assert (found.exists, found.bytes, found.files, found.obstacle) == (True, 3, 1, None)
    assert file_harness.store.all_files("weather/05") == ("",)


@pytest.mark.parametrize("path", ["", "/", "..", "a/../b", ".feed-assets/trash", "a\0b"])
def test_a_path_that_is_none_is_an_obstacle_and_not_an_error(file_harness: StoreHarness, path: str) -> None:
    (found,) = file_harness.store.measure([path])
    assert found == Measure(path=path, obstacle=found.obstacle)
    assert found.obstacle


def test_a_sign_changes_with_every_write_and_with_nothing_else(file_harness: StoreHarness) -> None:
    file_harness.land("weather/05", {"part-0.csv": b"123", "a/b": b"4"})

    def fingerprint() -> str:
        return file_harness.store.measure(["weather/05"])[0].fingerprint

    fingerprints = [fingerprint()]
    assert fingerprint() == fingerprints[0]
    file_harness.put("weather/05/part-0.csv", b"1234")
    fingerprints.append(fingerprint())
    file_harness.put("weather/05/a/c", b"")
    fingerprints.append(fingerprint())
    file_harness.remove("weather/05/a/b")
    fingerprints.append(fingerprint())
    assert len(set(fingerprints)) == 4
    assert fingerprint() == fingerprints[-1]


def test_all_files_are_listed_in_order_with_flag_manifest_and_hidden_ones(file_harness: StoreHarness) -> None:
    publish(file_harness.store, "weather/05", {"b": b"1", "a/.x": b"2"})
    assert file_harness.store.all_files("weather/05") == (".feed-assets.manifest.json", "_SUCCESS", "a/.x", "b")
    with pytest.raises(InstanceNotFoundError):
        file_harness.store.all_files("weather/06")


def test_a_folder_of_nothing_but_folders_is_told_from_one_with_links_and_files(
    file_harness: StoreHarness, tmp_path: Path
) -> None:
    land_days(file_harness)
    assert sorted(file_harness.store.walk("weather", 1, everything)) == ["weather/2013", "weather/2014"]
    folder = file_harness.store.local_path("weather")
    if folder is None:
        return
    (tmp_path / "elsewhere/11").mkdir(parents=True)
    (folder / "2015").symlink_to(tmp_path / "elsewhere")
    (folder / "notes.txt").write_text("a file")
    assert sorted(file_harness.store.walk("weather", 1, everything)) == [
        "weather/2013",
        "weather/2014",
        "weather/notes.txt",
    ]
    assert sorted(file_harness.store.walk("weather", 2, everything)) == [
        "weather/2013/11",
        "weather/2013/12",
        "weather/2014/01",
    ]
