"""Directories without dates that are kept equal. Rows are features of Falcon."""

from collections.abc import Callable
from pathlib import Path

import pytest

from feed_assets.plan.copy_records import OnError
from feed_assets.storage.errors import StorageError
from feed_assets.storage.records import Outcome
from feed_assets.transfer.errors import (
    ForeignTargetError,
    MirrorEmptiedError,
    MirrorFailedError,
    RemovalLimitError,
    SourceNotAvailableError,
    TargetRefusedError,
)
from feed_assets.transfer.mirroring import count_standing
from tests.transfer.mirrors import DIRECTORY, Mirrored
from tests.transfer.sides import Pair, local_place, pattern
from tests.transfer.test_options import broken

FILES = {
    "model.bin": b"weights" * 100,
    "nested/deep/vocabulary.txt": b"a b c",
    "empty.csv": b"",
    "_delta_log/0.json": b"{}",
    ".env": b"hidden",
}
Remove = Callable[[Mirrored], None]


def test_row_141_the_target_becomes_equal_to_the_source(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair)
    mirror.land(FILES)
    told = mirror.run()
    assert mirror.there() == FILES
    assert (told["copy"], told["copied_files"]) == ("copied", len(FILES))
    assert told["copied_bytes"] == sum(map(len, FILES.values()))
    mirror.land({"model.bin": b"better weights", "new/added.txt": b"added"})
    told = mirror.run()
    assert mirror.there() == {**FILES, "model.bin": b"better weights", "new/added.txt": b"added"}
    assert (told["copied_files"], told["copied_bytes"]) == (2, len(b"better weights") + len(b"added"))


def test_row_141_files_that_are_gone_stay_at_the_target_unless_they_are_to_be_removed(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair)
    mirror.land(FILES)
    mirror.run()
    mirror.remove("model.bin", ".env")
    assert mirror.run()["removed_files"] == 0
    assert mirror.there() == FILES
    mirror.removes = True
    assert mirror.run()["removed_files"] == 2
    assert mirror.there() == {name: data for name, data in FILES.items() if name not in ("model.bin", ".env")}


def test_a_run_that_finds_nothing_new_copies_and_publishes_nothing(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair)
    mirror.land(FILES)
    mirror.run()
    mark = any_pair.target.store.mark(DIRECTORY)
    told = mirror.run()
    assert (told["copy"], told["copied_files"], told["copied_bytes"]) == ("unchanged", 0, 0)
    assert any_pair.target.store.mark(DIRECTORY) == mark


@pytest.mark.parametrize("removes", [False, True])
def test_what_others_wrote_at_the_target_goes_only_if_files_are_removed(any_pair: Pair, removes: bool) -> None:
    mirror = Mirrored(any_pair, removes=removes, limits=(1.0, 10))
    any_pair.target.harness.land(DIRECTORY, {"theirs.txt": b"theirs", "model.bin": b"another"})
    mirror.land(FILES)
    foreign = 1 + removes
    with pytest.raises(ForeignTargetError, match=f"{foreign} files there, which no mirror has written"):
        mirror.run(approved=foreign - 1)
    assert mirror.there() == {"theirs.txt": b"theirs", "model.bin": b"another"}
    assert mirror.run(approved=foreign)["displaced_files"] == foreign
    assert mirror.there() == (FILES if removes else {**FILES, "theirs.txt": b"theirs"})


def test_what_others_wrote_at_the_target_later_goes_to_the_trash_and_what_the_mirror_wrote_does_not(
    any_pair: Pair,
) -> None:
    mirror = Mirrored(any_pair, removes=True, limits=(0.5, 5))
    mirror.land(FILES)
    mirror.run()
    theirs = {"theirs.txt": b"theirs", "deep/more.txt": b"more", "_SUCCESS": b""}
    any_pair.target.harness.land(DIRECTORY, theirs)
    mirror.remove("empty.csv")
    mirror.land({"deep/more.txt": b"ours"})
    told = mirror.run()
    ours = {**{name: data for name, data in FILES.items() if name != "empty.csv"}, "deep/more.txt": b"ours"}
    assert mirror.there() == ours
    assert (told["removed_files"], told["displaced_files"]) == (3, 3)
    trash, sweep = any_pair.target.store.trash(), str(told["displaced_to"])
    assert sorted(trash.contents(sweep)) == sorted(f"{DIRECTORY}/{name}" for name in theirs)
    any_pair.target.harness.remove(f"{DIRECTORY}/deep/more.txt")
    assert {moved.outcome for moved in trash.restore(sweep, sorted(trash.contents(sweep)))} == {Outcome.MOVED}
    assert mirror.there() == {**ours, **theirs}


def test_files_of_others_that_were_kept_are_still_theirs_when_files_are_to_be_removed(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair)
    mirror.land(FILES)
    any_pair.target.harness.land(DIRECTORY, {"theirs.txt": b"theirs", ".theirs": b"hidden"})
    assert "displaced_files" not in mirror.run()
    mirror.land({"model.bin": b"better"})
    assert "displaced_files" not in mirror.run()
    mirror.removes = True
    mirror.remove("empty.csv")
    told = mirror.run()
    assert mirror.there() == {**{name: FILES[name] for name in FILES if name != "empty.csv"}, "model.bin": b"better"}
    assert (told["removed_files"], told["displaced_files"]) == (3, 2)


@pytest.mark.parametrize("removes", [False, True])
def test_a_source_that_has_vanished_is_no_empty_source(any_pair: Pair, removes: bool) -> None:
    mirror = Mirrored(any_pair, removes=removes, allow_emptying=True, limits=(1.0, 10))
    mirror.land(FILES)
    mirror.run()
    mirror.remove(*FILES)
    if any_pair.source.root is not None:
        (any_pair.source.root / "models").rename(any_pair.source.root / "elsewhere")
    with pytest.raises(SourceNotAvailableError, match="it is MISSING"):
        mirror.run()
    assert mirror.there() == FILES


def test_a_storage_that_is_not_mounted_is_no_empty_source(pair: Pair, tmp_path: Path) -> None:
    mirror = Mirrored(pair, removes=True, allow_emptying=True)
    mirror.land(FILES)
    mirror.run()
    (tmp_path / "source").rename(tmp_path / "unmounted")
    with pytest.raises(StorageError, match="the root is not there"):
        mirror.run()
    assert mirror.there() == FILES


@pytest.mark.parametrize("removes", [False, True])
def test_an_empty_source_is_refused_unless_it_may_be_empty(pair: Pair, removes: bool) -> None:
    mirror = Mirrored(pair, removes=removes, limits=(1.0, 10))
    mirror.land(FILES)
    mirror.run()
    mirror.remove(*FILES)
    with pytest.raises(MirrorEmptiedError, match="it has no files") as caught:
        mirror.run()
    assert caught.value.files == len(FILES)
    assert mirror.there() == FILES
    mirror.allow_emptying = True
    assert mirror.run()["removed_files"] == (len(FILES) if removes else 0)
    assert mirror.there() == ({} if removes else FILES)


def test_a_first_run_on_an_empty_source_is_no_harm(pair: Pair) -> None:
    assert pair.source.root is not None
    (pair.source.root / DIRECTORY).mkdir(parents=True)
    mirror = Mirrored(pair, removes=True)
    assert mirror.run()["copied_files"] == 0
    mirror.land(FILES)
    mirror.run()
    assert mirror.there() == FILES


MANY = {f"part-{number}": b"x" for number in range(10)}


def remove_six(mirror: Mirrored) -> None:
    mirror.remove(*list(MANY)[:6])


@pytest.mark.parametrize(
    ("limits", "limit"), [((0.5, 100), "more than the share 0.5"), ((1.0, 5), "more than 5"), ((0.6, 6), None)]
)
def test_row_141_a_run_that_would_remove_too_much_changes_nothing_and_asks(
    any_pair: Pair, limits: tuple[float, int], limit: str | None
) -> None:
    mirror = Mirrored(any_pair, removes=True, limits=limits)
    mirror.land(MANY)
    mirror.run()
    remove_six(mirror)
    mirror.land({"part-9": b"changed"})
    left = {**dict(list(MANY.items())[6:]), "part-9": b"changed"}
    if limit is not None:
        with pytest.raises(RemovalLimitError, match=f"6 of the 10 files there would be removed, {limit}"):
            mirror.run()
        assert mirror.there() == MANY
        ((_, refusal),) = mirror.plan()
        assert isinstance(refusal, RemovalLimitError)
        with pytest.raises(RemovalLimitError):
            mirror.run(approved=5)
    assert mirror.run(approved=6)["removed_files"] == 6
    assert mirror.there() == left


def test_who_approves_that_everything_goes_has_approved_the_emptying(pair: Pair) -> None:
    mirror = Mirrored(pair, removes=True)
    mirror.land(MANY)
    mirror.run()
    mirror.remove(*MANY)
    with pytest.raises(MirrorEmptiedError):
        mirror.run(approved=9)
    assert mirror.run(approved=10)["removed_files"] == 10


def test_a_plan_says_what_a_run_would_do_and_does_nothing(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, removes=True)
    mirror.land(FILES)
    mirror.run()
    mirror.remove("model.bin")
    mirror.land({"more.txt": b"more"})
    ((plan, refusal),) = mirror.plan()
    assert refusal is None
    assert plan is not None
    assert [file.path for file in plan.transfers] == ["more.txt"]
    assert (plan.bytes, plan.removed, count_standing(plan)) == (4, ("model.bin",), len(FILES))
    assert mirror.there() == FILES
    mirror.run()
    ((plan, _),) = mirror.plan()
    assert plan is not None
    assert plan.is_unchanged


def test_several_directories_are_mirrored_each_by_itself(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, removes=True, names=("a", "b"))
    mirror.land(MANY, f"{DIRECTORY}/a")
    mirror.land({"b.txt": b"b"}, f"{DIRECTORY}/b")
    assert mirror.run()["copied_files"] == 11
    for name in list(MANY)[:8]:
        any_pair.source.harness.remove(f"{DIRECTORY}/a/{name}")
    mirror.land({"b.txt": b"later"}, f"{DIRECTORY}/b")
    with pytest.raises(MirrorFailedError, match=r"1 of 2 directories could not be mirrored \(.*/a\).*The other 1 are"):
        mirror.run()
    assert mirror.there(f"{DIRECTORY}/a") == MANY
    assert mirror.there(f"{DIRECTORY}/b") == {"b.txt": b"later"}


def test_files_that_cannot_be_read_stay_as_they_stood_where_errors_are_ignored(pair: Pair) -> None:
    mirror = Mirrored(pair, removes=True, options={"on_error": OnError.PUBLISH})
    mirror.land(FILES)
    mirror.run()
    mirror.land({"model.bin": b"later", "empty.csv": b"not empty", "more.txt": b"more"})
    mirror.remove(".env")
    trouble = broken(pair, "model.bin", "more.txt")
    told = mirror.run()
    expected = {**FILES, "empty.csv": b"not empty"}
    del expected[".env"]
    assert mirror.there() == expected
    assert (told["copy"], told["failed_files"], told["copied_files"]) == ("incomplete", 2, 1)
    assert "model.bin" in str(told["failures"])
    trouble.files.clear()
    assert mirror.run()["copied_files"] == 2
    assert mirror.there() == {**expected, "model.bin": b"later", "more.txt": b"more"}


def test_only_what_the_patterns_name_is_copied_and_removed(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, removes=True, options={"include": ("**.txt",), "exclude": ("tmp/**",)})
    any_pair.target.harness.land(DIRECTORY, {"theirs.bin": b"theirs", "gone.txt": b"gone", "stays.txt": b"stays"})
    mirror.land({**FILES, "stays.txt": b"stays", "tmp/x.txt": b"x"})
    mirror.run(approved=2)
    vocabulary = "nested/deep/vocabulary.txt"
    assert mirror.there() == {"theirs.bin": b"theirs", "stays.txt": b"stays", vocabulary: FILES[vocabulary]}


def test_hidden_files_can_be_left_out(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, removes=True, options={"hidden": False, "exclude": (".*",)})
    any_pair.target.harness.land(DIRECTORY, {"_theirs": b"theirs"})
    mirror.land(FILES)
    mirror.run()
    plain = {name: data for name, data in FILES.items() if name not in (".env", "_delta_log/0.json")}
    assert mirror.there() == {**plain, "_theirs": b"theirs"}


def test_what_a_store_keeps_for_itself_is_not_mirrored(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, removes=True)
    mirror.land({**FILES, "inner/.feed-assets/staging/staging.json": b"{}", "inner/data.csv": b"data"})
    mirror.run()
    assert mirror.there() == {**FILES, "inner/data.csv": b"data"}


def test_a_mirror_can_be_the_source_of_another(pair: Pair, tmp_path: Path) -> None:
    mirror = Mirrored(pair, removes=True)
    mirror.land(FILES)
    mirror.run()
    second = Mirrored(Pair(pair.target, local_place(tmp_path / "third")), removes=True)
    assert second.run()["copied_files"] == len(FILES)
    assert second.there() == FILES
    assert second.run()["copy"] == "unchanged"
    mirror.land({"more.txt": b"more"})
    mirror.run()
    assert second.run()["copied_files"] == 1


def test_directories_keep_their_rights(pair: Pair) -> None:
    assert pair.target.root is not None
    target = pair.target.root / DIRECTORY
    mirror = Mirrored(pair)
    mirror.land(FILES)
    (target / "nested").mkdir(parents=True)
    target.chmod(0o2750)
    (target / "nested").chmod(0o700)
    mirror.run()
    assert (target.stat().st_mode & 0o7777, (target / "nested").stat().st_mode & 0o7777) == (0o2750, 0o700)
    mirror.land({"more.txt": b"more"})
    mirror.run()
    assert (target.stat().st_mode & 0o7777, (target / "nested").stat().st_mode & 0o7777) == (0o2750, 0o700)


def make_link(target: Path) -> None:
    target.rename(target.with_name("elsewhere"))
    target.symlink_to("elsewhere")


def make_file(target: Path) -> None:
    target.rename(target.with_name("elsewhere"))
    target.write_text("a file")


def make_link_inside(target: Path) -> None:
    (target / "link").symlink_to("/tmp")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (make_link, "it is a symbolic link|Not a directory"),
        (make_file, "Not a directory"),
        (make_link_inside, "'link' in it is no"),
    ],
)
def test_what_cannot_be_replaced_is_not_touched(pair: Pair, spoil: Callable[[Path], None], reason: str) -> None:
    assert pair.target.root is not None
    target = pair.target.root / DIRECTORY
    target.mkdir(parents=True)
    (target / "theirs.txt").write_text("theirs")
    spoil(target)
    mirror = Mirrored(pair, removes=True, limits=(1.0, 10))
    mirror.land(FILES)
    with pytest.raises((TargetRefusedError, StorageError), match=reason):
        mirror.run()
    assert (target / "theirs.txt").exists() or target.is_file()


def test_what_is_forbidden_at_the_end_changes_nothing_and_is_gone_on_with(any_pair: Pair) -> None:
    class TakenOver(Exception):
        pass

    def forbid() -> None:
        raise TakenOver

    mirror = Mirrored(any_pair, removes=True)
    mirror.land({"large.bin": pattern(6 << 20), **FILES})
    with pytest.raises(TakenOver):
        mirror.run(guard=forbid)
    assert mirror.there() == {}
    told = mirror.run()
    assert told["resumed_bytes"] > 5 << 20
    assert mirror.there() == {"large.bin": pattern(6 << 20), **FILES}
