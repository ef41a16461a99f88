"""Where a message is, what happened to it, and the proof."""

import io
import threading
import zipfile
from typing import Any

import httpx
import pytest
from msgspec import structs

from postroad.api.segments import id_of, kept_apart, segment_of
from postroad.node.service import Service
from postroad.store.records import Event, Message, Seal, Side
from tests.api.conftest import Serve
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, part, post
from tests.api.world import Faulty, Given, World

ODD_IDS = [
    "a/b/c@buyer.example",
    "a/events@x",
    "a%2Fevents@x",
    "100%@x",
    "?#&=+;:'\"@x",
    "../../admin/status@x",
    "m@x/events",
    "m@x/../../inbox",
    "x" * 120 + "@x",
]
"""Such as a message may have."""
ODDER_IDS = ["order 1", "é", "..", ".", "a/..", "<>", "%", "%2F", "notices", "x" * 1000]


def _submit(http: httpx.Client, message_id: str) -> httpx.Response:
    return post(http, body(metadata(message_id=message_id), part("order", b"1")))


@pytest.mark.parametrize("message_id", ODD_IDS, ids=range(len(ODD_IDS)))
def test_an_id_may_have_any_characters(http: httpx.Client, message_id: str) -> None:
    submitted = _submit(http, message_id)
    assert submitted.status_code == 202
    path = submitted.headers["Location"]
    assert path == f"{PATH}/{segment_of(message_id)}"
    assert http.get(path).json()["message_id"] == message_id
    [event, *_] = http.get(f"{path}/events").json()["events"]
    assert event["message_id"] == message_id
    assert http.get(f"{path}/evidence").status_code == 200


@pytest.mark.parametrize("id", [*ODD_IDS, *ODDER_IDS], ids=range(len(ODD_IDS + ODDER_IDS)))
def test_an_id_is_one_segment_of_a_path(id: str) -> None:
    segment = segment_of(id)
    assert id_of(segment) == id
    assert "/" not in segment
    assert segment not in (".", "..")
    _, _, kept, last = kept_apart(f"/api/{segment}/events").split("/")
    assert (id_of(kept), last) == (id, "events")
    assert kept not in (".", "..", "notices")


@pytest.mark.parametrize("segment", ["a%00b", "a%0D%0Ab", "x" * 2000], ids=["nul", "crlf", "long"])
def test_an_id_that_cannot_be_is_refused(http: httpx.Client, segment: str) -> None:
    answer = http.get(f"{PATH}/{segment}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "path.message_id"


def test_a_message_that_is_not_there_is_told_as_such(http: httpx.Client) -> None:
    for rest in ("", "/events", "/evidence", "/signals", "/signals/s"):
        answer = http.get(f"{PATH}/nobody{rest}")
        assert answer.status_code == 404
        assert "nobody" in answer.json()["detail"]
    assert http.post(f"{PATH}/nobody/resend").status_code == 404


def test_of_both_sides_the_sending_one_is_shown_unless_asked_otherwise(
    http: httpx.Client, site: Site, world: World
) -> None:
    _submit(http, "same@x")
    site.run(world.deliver([Given(b"2")], "same@x"))
    assert http.get(f"{PATH}/same@x").json()["side"] == "sending"
    assert http.get(f"{PATH}/same@x?side=receiving").json()["side"] == "receiving"
    assert http.get(f"{PATH}/same@x?side=forwarding").status_code == 404
    assert http.get(f"{PATH}/same@x?side=upwards").status_code == 422


def test_waiting_ends_when_the_message_is_settled(
    http: httpx.Client, site: Site, world: World, serve: Serve, service: Service
) -> None:
    _submit(http, "m-1@x")
    waiting = threading.Event()

    async def settled(message_id: str, timeout: float) -> Message | None:
        assert timeout == 30
        waiting.set()
        return await service.settled(message_id, timeout)

    def acknowledge() -> None:
        assert waiting.wait(10)
        site.run(world.acknowledge("m-1@x"))

    serve(Faulty(service, settled=settled))
    partner = threading.Thread(target=acknowledge)
    partner.start()
    answer = http.get(f"{PATH}/m-1@x?wait=30")
    partner.join()
    assert answer.json()["state"] == "acknowledged"


def test_waiting_ends_after_its_time(http: httpx.Client) -> None:
    _submit(http, "m-1@x")
    answer = http.get(f"{PATH}/m-1@x?wait=0.01")
    assert answer.status_code == 200
    assert answer.json()["message_id"] == "m-1@x"


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "soon"])
def test_waiting_has_its_bounds(http: httpx.Client, wait: str) -> None:
    _submit(http, "m-1@x")
    assert http.get(f"{PATH}/m-1@x?wait={wait}").status_code == 422


def test_an_event_has_the_columns_of_the_journal(http: httpx.Client, service: Service) -> None:
    _submit(http, "m-1@x")
    [event, *_] = http.get(f"{PATH}/m-1@x/events").json()["events"]
    columns = set(Event.__struct_fields__) | {"node", "epoch", "seq"}
    assert event.keys() == columns
    assert event["event"] == "submitted"
    assert (event["epoch"], event["node"]) == (1, service.name)


def test_evidence_is_a_zip(http: httpx.Client) -> None:
    _submit(http, "m-1@x")
    answer = http.get(f"{PATH}/m-1@x/evidence")
    assert answer.headers["Content-Type"] == "application/zip"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="evidence-m-1@x.zip"'
    assert "verdict.json" in zipfile.ZipFile(io.BytesIO(answer.content)).namelist()


def test_a_receipt_can_be_had_byte_for_byte(http: httpx.Client, site: Site, world: World) -> None:
    _submit(http, "m-1@x")
    assert http.get(f"{PATH}/m-1@x/signals").json() == {"signals": []}
    receipt = site.run(world.acknowledge("m-1@x"))
    [signal] = http.get(f"{PATH}/m-1@x/signals").json()["signals"]
    assert (signal["kind"], signal["incoming"], signal["valid"]) == ("receipt", True, True)
    assert signal["size"] == len(receipt)
    answer = http.get(f"{PATH}/m-1@x/signals/{signal['signal_id']}")
    assert answer.content == receipt
    assert answer.headers["Content-Type"] == signal["content_type"]
    assert http.get(f"{PATH}/m-1@x/signals/other").status_code == 404


def test_what_failed_can_be_sent_again(http: httpx.Client, site: Site, world: World) -> None:
    _submit(http, "m-1@x")
    site.run(world.fail("m-1@x"))
    answer = http.post(f"{PATH}/m-1@x/resend")
    assert answer.status_code == 202
    assert answer.json()["state"] != "failed"


def test_what_is_acknowledged_is_not_sent_again(
    http: httpx.Client, site: Site, world: World
) -> None:
    _submit(http, "m-1@x")
    site.run(world.acknowledge("m-1@x"))
    assert http.post(f"{PATH}/m-1@x/resend").status_code == 409


def test_no_key_is_ever_shown(http: httpx.Client, serve: Serve, service: Service) -> None:
    _submit(http, "m-1@x")
    secret = b"\x13\x37" * 8

    async def message(*asked: Any) -> Message | None:
        found = await service.message(*asked)
        return found and structs.replace(
            found, seal=Seal("aes", secret, ()), fingerprint="fingerprint"
        )

    serve(Faulty(service, message=message))
    shown = http.get(f"{PATH}/m-1@x", params={"side": Side.SENDING})
    assert shown.status_code == 200
    assert shown.json().keys().isdisjoint({"seal", "fingerprint", "envelope", "boundary", "key"})
    assert "13371337" not in shown.text
