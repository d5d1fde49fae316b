"""One front for several servers, with real processes: what goes where, what is missing, and what completes it."""

import json
import random
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from feed_assets.errors import SettingsError
from feed_assets.front.sites import Call, ask_site
from feed_assets.operation_list import find_operation
from feed_assets.setting_sections import SiteSettings
from feed_assets.settings import load_settings
from tests.cli.project import run
from tests.drills import drill_seed, sized
from tests.front.sites import COLOS, Sites, feed, started
from tests.projects import enter

KILLS = sized(2, 100)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("sites")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        with started(folder, is_guarded=True) as found:
            yield found


def _must(sites: Sites, *words: str, code: int = 0, **options: str) -> str:
    result = sites.ask(*words, **options)
    assert result.exit_code == code, result.output
    return result.output


def _versions(sites: Sites, name: str) -> dict[str, list[int]]:
    """The versions of an entity that each has recorded."""
    return {at: [each[2] for each in sites.record(at) if each[1] == name] for at in ("front", *COLOS)}


def _by_http(sites: Sites, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    token = Path(sites.tokens["ann", "front"]).read_text()
    request = Request(f"{sites.address('front')}/api/{path}", body, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urlopen(request) as answer:
            return answer.status, json.load(answer)
    except HTTPError as exc:
        return exc.code, json.load(exc)


def test_row_149_a_site_that_is_away_is_named_and_the_same_command_completes_it(sites: Sites) -> None:
    written = sites.write(feed("clicks", "east-1", "west-1"), feed("views", "east-1"))
    falcon = yaml.safe_dump(feed("told", "east-1", "west-1")).encode()
    sites.kill("west")
    try:
        partial = _must(sites, "entity", "submit", written, code=1)
        status, answer = _by_http(sites, "POST", "entities/submit/feed", falcon)
        assert _must(sites, "entity", "submit", sites.write(feed("alone", "east-1"))), "west is not concerned"
        found = json.loads(sites.ask("entity", "status", "clicks", "--output", "json").stdout)
    finally:
        sites.start_again("west")
    assert "east/feed 'clicks': submitted, version 1" in partial
    assert "PARTIAL: west/away: has not answered: Connection refused. Give the same command again" in partial
    assert (status, answer["status"]) == (200, "PARTIAL")
    assert answer["message"].startswith("east/feed 'told': submitted, version 1\nwest/away: ")
    assert [each["status"] for each in found["colos"]] == ["SUCCEEDED", "FAILED"]
    whole = _must(sites, "entity", "submit", written)
    assert "west/feed 'clicks': submitted, version 1" in whole
    assert _by_http(sites, "POST", "entities/submit/feed", falcon)[1]["status"] == "SUCCEEDED"
    assert _versions(sites, "clicks") == _versions(sites, "told") == {"front": [1], "east": [1], "west": [1]}
    assert _versions(sites, "views") == {"front": [1], "east": [1], "west": []}
    assert "unchanged" in _must(sites, "entity", "submit", written)


def test_row_149_an_update_and_a_deletion_follow_a_feed_from_colo_to_colo(sites: Sites) -> None:
    _must(sites, "entity", "submit", sites.write(feed("moved", "east-1"), feed("back", "east-1")))
    _must(sites, "entity", "update", sites.write(feed("moved", "west-1")))
    assert _versions(sites, "moved") == {"front": [1, 2], "east": [1, 2], "west": [1]}
    assert ("feed", "moved", 2, "DELETED", None) in sites.record("east")
    _must(sites, "apply", sites.write(feed("moved", "east-1", "west-1")), "--yes")
    sites.kill("east")
    try:
        assert "PARTIAL: east/away" in _must(sites, "entity", "delete", "feed", "moved", code=1)
        assert "moved" in _must(sites, "entity", "list", "--num-results", "99"), "it is not deleted everywhere"
        assert "PARTIAL" in _must(sites, "entity", "update", sites.write(feed("back", "west-1")), code=1)
    finally:
        sites.start_again("east")
    assert "west/feed 'back': deleted" in _must(sites, "entity", "update", sites.write(feed("back", "east-1")))
    _must(sites, "entity", "delete", "feed", "moved")
    last = {at: [each[3] for each in sites.record(at) if each[1] == "moved"][-1] for at in ("front", *COLOS)}
    assert last == dict.fromkeys(("front", *COLOS), "DELETED")


def test_what_one_site_refuses_is_done_nowhere(sites: Sites) -> None:
    lost = feed("lost", "east-1", "west-1")
    gone = {"kind": "cluster", "name": "west-2", "colo": "west", "storage": "file:///dev/null/nowhere"}
    for words in (("entity", "submit"), ("apply", "--yes")):
        refused = _must(sites, *words, sites.write(lost, gone), code=1)
        assert "west/" in refused
        assert "Nothing was changed, neither here nor in another colo." in refused
    assert _versions(sites, "lost") == {"front": [], "east": [], "west": []}


def test_row_150_only_the_chosen_colos_act(sites: Sites) -> None:
    _must(
        sites, "entity", "submit-and-schedule", sites.write(feed("chosen", "east-1", "west-1"), feed("easts", "east-1"))
    )
    suspended = _must(sites, "entity", "suspend", "chosen", "--colo", "west")
    assert suspended == "west/feed 'chosen': suspended (west-1 SUSPENDED)\n"
    table = _must(sites, "entity", "status", "chosen").splitlines()
    assert table == ["colo\tcluster\tstatus", "east\teast-1\tRUNNING", "west\twest-1\tSUSPENDED"]
    status, answer = _by_http(sites, "GET", "entities/status/feed/chosen?colo=*")
    assert (status, answer["status"], answer["message"]) == (200, "SUCCEEDED", "east/RUNNING\nwest/SUSPENDED\n")
    resumed = _by_http(sites, "POST", "entities/resume/feed/chosen?colo=west")[1]
    assert (resumed["status"], resumed["message"]) == ("SUCCEEDED", "west/resumed (feed) chosen\n")
    listed = json.loads(sites.ask("instance", "list", "chosen", "--colo", "east", "--output", "json").stdout)
    assert {each["colo"] for each in listed["instances"]} == {"east"}
    none = _must(sites, "entity", "schedule", "easts", "--colo", "west", code=1)
    assert "easts: no colo applies of west. easts is in east." in none
    assert "There" not in none
    assert "colo 'north': there is none. Colos are east, west." in _must(
        sites, "entity", "schedule", "easts", "--colo", "north", code=1
    )
    assert _by_http(sites, "POST", "entities/suspend/feed/easts?colo=west")[1]["status"] == "FAILED"
    assert "A front does not offer this" in _must(sites, "retention", "list", code=1)


_RECORDED = ("entity", "definition", "feed", "own", "--version", "1")


def test_what_does_not_come_from_the_front_is_foreign(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    _must(sites, "entity", "submit", sites.write(feed("own", "east-1")))
    foreign = _must(sites, "entity", "submit", sites.write(feed("strange", "east-1")), name="east", code=1)
    assert "Here only the front declares, as 'front'" in foreign
    monkeypatch.chdir(sites.folder / "front")
    assert "This project is a front" in run("entity", "submit", sites.write(feed("strange", "east-1"))).output
    file = next((sites.folder / "east/entities").rglob("own.yaml"))
    text = file.read_text()
    file.write_text(f"{text}description: edited\n")
    try:
        refused = _must(sites, "entity", "submit", sites.write(feed("other", "east-1")), code=1)
        assert "description: edited" not in _must(sites, *_RECORDED, name="east")
    finally:
        file.write_text(text)
    assert "own.yaml: feed 'own' was edited here, and here only the front declares. Undo that: " in refused
    assert f"`feed-assets {' '.join(_RECORDED)}` prints what is recorded" in refused
    _must(sites, "entity", "submit", sites.write(feed("other", "east-1")))
    copied = feed("copied", "east-1")
    file = sites.folder / "east/entities/copied.yaml"
    file.write_text(yaml.safe_dump(copied))
    try:
        unrecorded = _must(sites, "entity", "submit", sites.write(copied), code=1)
    finally:
        file.unlink()
    assert "copied.yaml: feed 'copied' was edited here" in unrecorded
    _must(sites, "entity", "submit", sites.write(copied))


def test_a_site_that_takes_a_call_and_never_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feed_assets.front.sites._AWAKE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        site = SiteSettings(url=f"http://127.0.0.1:{deaf.getsockname()[1]}", token="t")
        told = ask_site("east", site, [Call(find_operation("entity list"))], None)
    assert told.reason.startswith("away: has not answered: timed out")


def test_a_site_judges_by_whom_the_front_asks_for_and_no_token_is_told(sites: Sites) -> None:
    _must(sites, "entity", "submit", sites.write(feed("bobs", "east-1", acl={"owner": "bob"})), user="bob")
    assert "bob" in _must(sites, "entity", "history", "feed", "bobs", name="east")
    audit = json.loads(_must(sites, "admin", "audit", "show", "--output", "json", name="east"))["audit"]
    assert any(each["target"] == "feed 'bobs'" and "front" in json.dumps(each) for each in audit)
    _must(sites, "entity", "submit", sites.write(feed("anns", "east-1", acl={"owner": "ann"})))
    assert "'bob' may not" in _must(sites, "entity", "schedule", "anns", user="bob", code=1)
    told = _must(sites, "settings", "--output", "json")
    secret = Path(sites.tokens["front", "east"]).read_text()
    assert "colos.east.token" in told
    assert secret not in told


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"front": "front"}, "setting 'colo': it is missing, and front is there"),
        ({"colo": "a b"}, "setting 'colo': 'a b' is not the name of a colo"),
        ({"colos": {"east": {"url": "http://e"}}}, "setting 'colos.east.token': it is missing"),
        ({"colos": {"east": {"url": "http://e", "token": "s3cr3t word"}}}, "its value is not a token"),
        ({"colos": {"east": "s3cr3t"}}, "setting 'colos.east': its value is not a map"),
        ({"colo": "east", "colos": {"west": {"url": "http://w", "token": "t"}}}, "has no colo itself"),
    ],
)
def test_settings_that_do_not_fit_are_refused_without_a_secret(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "feed_assets.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(SettingsError) as refused:
        load_settings(start=tmp_path, environ={})
    assert reason in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_front_without_colos_with_a_wrong_token_or_another_colo_does_not_start(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = f"state: {sites.state('front')}\n"
    (tmp_path / "feed_assets.yaml").write_text(state)
    assert "setting 'colos': it is missing, or names none" in run("front", "--port", "0").output
    token = Path(sites.tokens["front", "east"]).read_text()
    for colo, given, reason in (
        ("east", "nothing", "its server refuses: "),
        ("west", token, "the server there has the colo 'east'"),
    ):
        colos = {colo: {"url": sites.address("east"), "token": given}}
        (tmp_path / "feed_assets.yaml").write_text(state + yaml.safe_dump({"colos": colos}))
        said = run("front", "--port", "0").output
        assert f"setting 'colos.{colo}': {reason}" in said
        assert token not in said
    assert "Start it by `feed-assets front`" in run("serve", "--port", "0").output


_NAMES = ("k0", "k1", "k2", "k3")


class _Declaring:
    """Gives one change after the other to the front, each again until all have it."""

    def __init__(self, sites: Sites, chance: random.Random) -> None:
        self.sites, self.chance, self.is_over = sites, chance, False
        self.done = self.asked = 0
        self.there = dict[str, Any]()

    def go_on(self) -> None:
        while not self.is_over:
            words = self._choose()
            while True:
                self.asked += 1
                found = self.sites.ask(*words)
                if found.exit_code == 0:
                    break
                assert any(each in found.output for each in ("PARTIAL", "away", "answer")), found.output
                time.sleep(0.2)
            self.done += 1

    def _choose(self) -> tuple[str, ...]:
        name = self.chance.choice(_NAMES)
        if name in self.there and self.chance.random() < 0.3:
            del self.there[name]
            return ("entity", "delete", "feed", name)
        on = self.chance.choice([("east-1",), ("west-1",), ("east-1", "west-1")])
        verb = "update" if name in self.there else "submit"
        self.there[name] = feed(name, *on, description=f"change {self.done}")
        return ("entity", verb, self.sites.write(self.there[name]))


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.timeout(3600)
def test_kills_of_the_front_and_of_sites_end_with_equal_records(sites: Sites) -> None:
    seed = drill_seed()
    chance = random.Random(seed)
    declaring = _Declaring(sites, chance)
    client = Thread(target=declaring.go_on)
    client.start()
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 1.0))
        name = chance.choice(("front", *COLOS))
        sites.kill(name)
        sites.start_again(name)
    declaring.is_over = True
    client.join()
    records = {at: [each for each in sites.record(at) if each[1] in _NAMES] for at in ("front", *COLOS)}
    print(f"seed {seed}: {KILLS} kills, {declaring.done} changes in {declaring.asked} commands")
    newest = {name: {each[1]: each for each in found} for name, found in records.items()}
    for name, declared in declaring.there.items():
        digest = newest["front"][name][4]
        on = {each.partition("-")[0] for each in declared["clusters"]}
        assert {at: newest[at][name][4] for at in on} == dict.fromkeys(on, digest), f"seed {seed}"
    for at in COLOS:
        there = {name for name, each in newest[at].items() if each[3] != "DELETED"}
        assert there == {name for name, each in declaring.there.items() if f"{at}-1" in each["clusters"]}, (
            f"seed {seed}"
        )
    doubled = [
        pair
        for found in records.values()
        for pair in pairwise(found)
        if pair[0][1] == pair[1][1] and pair[0][4] == pair[1][4]
    ]
    assert doubled == [], f"seed {seed}"
