from pathlib import Path

import pytest

from feed_assets.clock import ReplayClock, SystemClock, open_clock
from feed_assets.errors import SettingsError
from feed_assets.settings import Settings, load_settings


def _file(folder: Path, text: str) -> Path:
    file = folder / "feed_assets.yaml"
    file.write_text(text, "utf-8")
    return file


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = load_settings(environ={}, start=tmp_path)
    assert settings.model_dump() == Settings().model_dump()
    assert (settings.entities, settings.state, settings.strict, settings.root) == ("entities", None, False, tmp_path)
    assert settings.entities_location == str(tmp_path / "entities")


def test_the_command_line_beats_the_environment_and_that_the_file(tmp_path: Path) -> None:
    _file(tmp_path, "entities: from-file\nstate: from-file\nstrict: true\n")
    environ = {"FEED_ASSETS_ENTITIES": "from-environment", "FEED_ASSETS_STATE": "from-environment"}
    settings = load_settings({"entities": "from-command-line"}, environ, tmp_path)
    assert (settings.entities, settings.state, settings.strict) == ("from-command-line", "from-environment", True)


def test_maps_of_several_places_are_merged_and_names_of_variables_keep_their_case(tmp_path: Path) -> None:
    _file(tmp_path, "variables: {DATA_ROOT: /file, OTHER: /other}\n")
    environ = {"FEED_ASSETS_VARIABLES__DATA_ROOT": "/environment"}
    assert load_settings({}, environ, tmp_path).variables == {"DATA_ROOT": "/environment", "OTHER": "/other"}


def test_a_map_can_be_json_in_the_environment(tmp_path: Path) -> None:
    environ = {"FEED_ASSETS_VARIABLES": '{"A": "1"}', "FEED_ASSETS_VARIABLES__B": "2"}
    assert load_settings({}, environ, tmp_path).variables == {"A": "1", "B": "2"}


def test_the_file_is_looked_for_in_the_folders_above(tmp_path: Path) -> None:
    _file(tmp_path, "entities: s3://bucket/definitions\nvariables: {DATA: '${PROJECT_ROOT}/data'}\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    settings = load_settings({}, {}, below)
    assert settings.root == tmp_path
    assert settings.entities_location == "s3://bucket/definitions"
    assert settings.cluster_variables == {"PROJECT_ROOT": str(tmp_path), "DATA": f"{tmp_path}/data"}


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    file = _file(tmp_path / "x", "strict: true\n")
    settings = load_settings({}, {"FEED_ASSETS_SETTINGS": str(file)}, tmp_path)
    assert (settings.strict, settings.root) == (True, tmp_path / "x")


REPLAY = "demo: {replay: {origin: 2013-11-01T00:00:00Z, real_start: 2026-01-01T00:00:00Z, speed: 60}}\n"


def test_only_the_demo_can_ask_for_another_clock(tmp_path: Path) -> None:
    assert isinstance(open_clock(load_settings({}, {}, tmp_path)), SystemClock)
    _file(tmp_path, REPLAY)
    clock = open_clock(load_settings({}, {"FEED_ASSETS_DEMO__REPLAY__SPEED": "10"}, tmp_path))
    assert isinstance(clock, ReplayClock)
    assert clock.speed == 10.0


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("namespace: Web-1", {}, "setting 'namespace': 'Web-1' is not letters a to z, digits and _, beginning with"),
        ("unconfirmed_deletions: 2", {}, "setting 'unconfirmed_deletions': 2 is not at most 1."),
        ("strct: true", {}, "setting 'strct': there is no such setting."),
        (
            "server: {proxy_users: {portal: {host: ['*'], hosts: []}}}",
            {},
            "setting 'server.proxy_users.portal.host': there is no such setting. Settings of server.proxy_users."
            "portal are groups, hosts, users.",
        ),
        (
            "oidc: {issuer: 'https://a.example', client_id: a, scope: []}",
            {},
            "setting 'oidc.scope': there is no such setting. Settings of oidc are audience, client_id",
        ),
        ("", {"FEED_ASSETS_STRICT": "maybe"}, "setting 'strict': 'maybe' is not true or false."),
        (
            "",
            {"FEED_ASSETS_VARIABLES": "x"},
            "setting 'FEED_ASSETS_VARIABLES': a FEED_ASSETS_… variable cannot be read",
        ),
        (
            "",
            {"FEED_ASSETS_ENTITIES": "a", "FEED_ASSETS_SERVER__PROXIES": "10.0.0.0/8"},
            "setting 'FEED_ASSETS_SERVER__PROXIES': a FEED_ASSETS_… variable cannot be read as JSON: Extra data: line 1"
            ' column 5 (char 4). Write lists as JSON, ["a", "b"]',
        ),
        ("", {"FEED_ASSETS_NOTIFY": "[" * 100_000}, "setting 'environment': a FEED_ASSETS_… variable cannot be read"),
        (f"notify: {'[' * 10_000}", {}, "setting 'feed_assets.yaml': cannot be read: maximum recursion depth exceeded"),
        ("entities: [a]", {}, "setting 'entities': ['a'] is not text."),
        ("- a", {}, "setting 'feed_assets.yaml': it is not a map."),
        ("a: b: c", {}, "setting 'feed_assets.yaml': cannot be read: mapping values are not allowed here"),
        ("demo: {replay: {origin: 2013-11-01T00:00:00Z}}", {}, "setting 'demo.replay.real_start': it is missing."),
        (
            REPLAY.replace("00Z", "00", 1),
            {},
            "setting 'demo.replay.origin': datetime.datetime(2013, 11, 1, 0, 0) is not",
        ),
        (REPLAY.replace("60", "0"), {}, "setting 'demo.replay.speed': 0 is not above 0."),
        ("", {"FEED_ASSETS_SETTINGS": "nowhere.yaml"}, "setting 'FEED_ASSETS_SETTINGS': the file 'nowhere.yaml' does"),
        (
            "server: {proxies: [all]}",
            {},
            "setting 'server.proxies.0': 'all' is not an address or a network, such as 10.0.0.5",
        ),
        ("access: {superusers: ['']}", {}, "setting 'access.superusers.0': '' is not text"),
        ("server: {author_header: cookie}", {}, "setting 'server.author_header': 'cookie' is not the name of a header"),
        (
            "server: {url: 'javascript:alert(1)'}",
            {},
            "setting 'server.url': 'javascript:alert(1)' is not an address such as https://feeds.example.org",
        ),
        (
            "webserver: 'javascript:alert(1)'",
            {},
            "setting 'webserver': 'javascript:alert(1)' is not an address such as https://feeds.example.org",
        ),
        (
            "metadata: {system: {exclude: [schema]}}",
            {},
            "setting 'metadata.system.exclude': ['schema'] is not a list of KIND/NAME, such as feed/schema or */owner.",
        ),
        (
            "",
            {"FEED_ASSETS_MAIL__SENDER": "a\udcff@example.org"},
            "setting 'mail.sender': its value is not an address in ASCII, such as ops@example.com",
        ),
        (
            "notify: {ops: {url: 'mailto:jürgen@example.org'}}",
            {},
            "setting 'notify.ops.url': its value is not the URL of a receiver",
        ),
        (
            "",
            {"FEED_ASSETS_NOTIFY": '{"ops": {"url": "http://x", "topics": ["x"]}}'},
            "setting 'notify.ops.topics.0': 'x'",
        ),
        (
            "metadata: {system: {include: feed/*}}",
            {},
            "setting 'metadata.system.include': 'feed/*' is not a list, such as [a",
        ),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, environ: dict[str, str], message: str) -> None:
    _file(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings({}, environ, tmp_path)
    assert str(caught.value).startswith(message)
    assert "__TOPICS__" not in str(caught.value)  # a list is one variable


def test_every_place_that_was_tried_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {"FEED_ASSETS_STRICT": "maybe"}, tmp_path)
    assert str(caught.value) == (
        "setting 'strict': 'maybe' is not true or false. Set it in feed_assets.yaml, or as FEED_ASSETS_STRICT. "
        "Tried in this order: the command line, FEED_ASSETS_… in the environment, "
        f"feed_assets.yaml in {tmp_path} and above (not found), the default."
    )


def test_the_folders_of_a_search_are_tried_one_after_the_other(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    below = there / "new" / "entities"
    here.mkdir()
    below.mkdir(parents=True)
    assert load_settings({}, {}, (here, below)).root == here
    file = _file(there, "strict: true\n")
    found = load_settings({}, {}, (here, below))
    assert (found.root, found.file, found.strict) == (there, file, True)
    _file(here, "")
    assert load_settings({}, {}, (here, below)).root == here


def test_each_setting_knows_its_source(tmp_path: Path) -> None:
    file = _file(tmp_path, "entities: a\nvariables: {ROOT: /file, OTHER: /file}\n")
    settings = load_settings({"strict": True}, {"FEED_ASSETS_VARIABLES__ROOT": "/environment"}, tmp_path)
    assert {name: settings.origin_of(name) for name in ("strict", "variables.ROOT", "variables.OTHER", "state")} == {
        "strict": "the command line",
        "variables.ROOT": "FEED_ASSETS_… in the environment",
        "variables.OTHER": str(file),
        "state": "the default",
    }
