"""Copies that an object store has written where they belong, because nothing stood there: hidden, ours, withdrawn."""

from datetime import UTC, datetime

import pytest

from feed_assets.storage import object_assembly
from feed_assets.storage.copy_port import Assembly, Stored
from feed_assets.storage.errors import InstanceChangingError, StagingLostError
from feed_assets.storage.records import Availability
from tests.storage.assemblies import FILES, FLAG, PATH, TOKEN, MiB, note, prepared
from tests.storage.beds import Bed, FencedOut, allow, forbid, publish, read_all

MARKER = f"{PATH}/.feed-assets.publishing.json"


def opened(bed: Bed, token: str = TOKEN, *, names: tuple[str, ...] = tuple(FILES), is_vacant: bool = True) -> Assembly:
    assembly = bed.store.copying().assembly(PATH, token)
    assembly.open(names, is_vacant=is_vacant)
    return assembly


def written(bed: Bed) -> Assembly:
    assembly = opened(bed)
    assembly.note([note(name, data)._replace(proof=assembly.put(name, data).proof) for name, data in FILES.items()])
    return assembly


def availability(bed: Bed) -> Availability:
    return bed.store.look([PATH], FLAG)[0].availability


def content(bed: Bed) -> set[str]:
    return {name.removeprefix(f"{PATH}/") for name in bed.names() if ".feed-assets" not in name}


def test_what_is_written_in_place_is_partial_until_it_is_published(bucket: Bed) -> None:
    assembly = written(bucket)
    assert (availability(bucket), content(bucket)) == (Availability.PARTIAL, set(FILES))
    assembly.seal()
    assembly.prepare(prepared(FILES))
    with pytest.raises(FencedOut):
        assembly.publish(forbid)
    assert availability(bucket) is Availability.PARTIAL
    assembly.publish(allow)
    assembly.remove()
    assert (availability(bucket), read_all(bucket.store, PATH)) == (Availability.AVAILABLE, FILES)
    assert content(bucket) == {*FILES, FLAG}
    assert bucket.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 0


def test_a_broken_off_copy_goes_on_with_what_it_has_noted(bucket: Bed) -> None:
    written(bucket).close()
    assert not bucket.store.recover(PATH)
    assert not bucket.store.copying().recover(PATH)
    assembly = opened(bucket, is_vacant=False)
    assert {each.file for each in assembly.journal()} == set(FILES)
    assert bucket.store.copying().standing(PATH) == ("", {}, True)
    assembly.prepare(prepared(FILES))
    assembly.publish(allow)
    assert read_all(bucket.store, PATH) == FILES


def test_what_the_copy_has_no_more_goes_when_it_is_published(bucket: Bed) -> None:
    written(bucket).close()
    fewer = {"a.csv": b"aaa", "new.csv": b"new"}
    assembly = opened(bucket, names=tuple(fewer))
    assembly.put("new.csv", b"new")
    assembly.prepare(prepared(fewer))
    assembly.publish(allow)
    assert read_all(bucket.store, PATH) == fewer


def test_the_storage_proves_what_it_has_as_long_as_nobody_writes_it(bucket: Bed) -> None:
    assembly = written(bucket)
    noted = {each.file: each.proof for each in assembly.journal()}
    told = {name: proof for name, proof in assembly.told().items() if name in FILES}
    assert {name: proof for name, proof in noted.items() if proof} == told
    if not told:
        return  # a storage that keeps no checksums
    bucket.put(f"{PATH}/a.csv", b"aab")
    assert {name for name, proof in noted.items() if assembly.told()[name] != proof} == {"a.csv"}


@pytest.mark.parametrize("is_vacant", [True, False])
def test_what_an_earlier_try_has_put_is_not_sent_again_where_the_storage_proves_it(
    bucket: Bed, monkeypatch: pytest.MonkeyPatch, is_vacant: bool
) -> None:
    monkeypatch.setattr(object_assembly, "_SURE", 0.1)
    first = opened(bucket, is_vacant=is_vacant)
    proofs = {name: first.put(name, data).proof for name, data in FILES.items()}
    first.close()
    again = opened(bucket, is_vacant=is_vacant)
    for name, data in FILES.items():
        assert again.put(name, data) == Stored(proofs[name], was_there=bool(proofs[name]))
    assert not again.put("a.csv", b"aab").was_there
    assert again.read("a.csv", 3) == b"aab"


def test_a_writer_whose_copy_was_taken_over_replaces_nothing(bucket: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(bucket)
    late, sure = bucket.store.copying().assembly(PATH, TOKEN), bucket.store.copying().assembly(PATH, TOKEN)
    late.join(1)
    sure.join(1)
    opened(bucket).put("a.csv", b"new")
    monkeypatch.setattr(object_assembly, "_SURE", 60.0)
    with pytest.raises(StagingLostError):  # it takes the place for its own, but finds that somebody has written there
        late.put("a.csv", b"old")
    monkeypatch.setattr(object_assembly, "_SURE", 0.0)
    for step in (
        lambda: sure.put("s/b.csv", b"old"),
        lambda: sure.write("empty.csv", 3, 0, [b"old"]),
        lambda: sure.drop(["a.csv"]),
    ):
        with pytest.raises(StagingLostError):
            step()
    assert content(bucket) == {"a.csv"}


def test_who_goes_on_in_place_waits_until_former_writers_have_noticed(
    bucket: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(bucket)
    former = bucket.store.copying().assembly(PATH, TOKEN)
    former.join(1)
    monkeypatch.setattr(object_assembly, "_SURE", 0.3)
    opened(bucket)
    with pytest.raises(StagingLostError):
        former.put("a.csv", b"old")
    assert content(bucket) == set()


def test_a_large_file_is_completed_by_the_owner_of_the_place_alone(bucket: Bed) -> None:
    data = bytes(range(256)) * (36 * 1024)
    assert len(data) == 9 * MiB
    assembly = opened(bucket, names=("large",))
    if not assembly.grain(len(data)):
        return
    for _ in range(2):
        assembly.begin("large", len(data))
        assembly.write("large", len(data), 0, [data])
        assert content(bucket) == set()
    owner = opened(bucket, names=("large",))
    with pytest.raises(StagingLostError):
        assembly.complete("large", len(data))
    owner.complete("large", len(data))
    assert content(bucket) == {"large"}
    owner.prepare(prepared({"large": data}))
    owner.publish(allow)
    assert read_all(bucket.store, PATH) == {"large": data}


def test_another_publication_takes_the_place_over(bucket: Bed) -> None:
    assembly = written(bucket)
    assembly.prepare(prepared(FILES))
    publish(bucket.store, PATH, {"other.csv": b"other"})
    with pytest.raises(InstanceChangingError, match="overtaken"):
        assembly.publish(allow)
    assert read_all(bucket.store, PATH) == {"other.csv": b"other"}
    assert bucket.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert read_all(bucket.store, PATH) == {"other.csv": b"other"}


def test_a_copy_whose_place_was_taken_is_staged_when_it_goes_on(bucket: Bed) -> None:
    written(bucket).close()
    publish(bucket.store, PATH, {"other.csv": b"other"})
    assembly = opened(bucket, is_vacant=False)
    assert (assembly.journal(), bucket.store.copying().standing(PATH).files) == ([], {"other.csv": 5, FLAG: 0})
    assembly.put("a.csv", b"aaa")
    assert read_all(bucket.store, PATH) == {"other.csv": b"other"}
    assembly.prepare(prepared({"a.csv": b"aaa"}))
    assembly.publish(allow)
    assert read_all(bucket.store, PATH) == {"a.csv": b"aaa"}


def test_a_copy_that_lost_its_marker_before_it_wrote_anything_begins_again_in_place(bucket: Bed) -> None:
    opened(bucket).close()
    bucket.remove(MARKER)
    opened(bucket).put("a.csv", b"aaa")
    assert content(bucket) == {"a.csv"}
    assert MARKER in bucket.names()


def test_a_place_where_another_publication_has_begun_is_left_to_it(bucket: Bed) -> None:
    bucket.put(MARKER, b'{"version": 1, "token": "run-9"}')
    assembly = opened(bucket)
    assembly.put("a.csv", b"aaa")
    assert content(bucket) == set()
    assembly.prepare(prepared({"a.csv": b"aaa"}))
    assembly.publish(allow)
    assert read_all(bucket.store, PATH) == {"a.csv": b"aaa"}


def test_a_place_that_is_not_vacant_any_more_is_not_written_to(bucket: Bed) -> None:
    publish(bucket.store, PATH, {"other.csv": b"other"})
    assembly = opened(bucket)
    assembly.put("a.csv", b"aaa")
    assert (availability(bucket), content(bucket)) == (Availability.AVAILABLE, {"other.csv", FLAG})
    assembly.prepare(prepared({"a.csv": b"aaa"}))
    assembly.publish(allow)
    assert read_all(bucket.store, PATH) == {"a.csv": b"aaa"}


def test_what_nobody_goes_on_with_is_withdrawn_with_its_staging(bucket: Bed) -> None:
    written(bucket).close()
    bucket.put(f"{PATH}/foreign.csv", b"foreign")
    assert bucket.store.sweep_staging(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert content(bucket) == {*FILES, "foreign.csv"}
    assert bucket.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert bucket.names() == {f"{PATH}/foreign.csv"}


def test_an_assembly_that_is_removed_leaves_nothing(bucket: Bed) -> None:
    written(bucket).remove()
    assert bucket.names() == set()
    assert bucket.store.sweep_staging(datetime(2100, 1, 1, tzinfo=UTC)) == 0
