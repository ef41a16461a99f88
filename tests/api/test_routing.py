"""Where the rules lead a message, asked over REST."""

import httpx

from tests.api.conftest import Connect
from tests.api.memory_service import MemoryService
from tests.api.uploads import PATH, body, metadata, part, post

ORDER = "order/1@buyer.example"


def test_where_the_rules_lead_a_message_is_told(
    http: httpx.Client, service: MemoryService, connect: Connect
) -> None:
    path = post(http, body(metadata(message_id=ORDER), part("order", b"1"))).headers["Location"]
    told = http.get(f"{path}/route")
    assert (told.status_code, told.json()["rule"]) == (200, "orders")
    assert told.json()["because"] == [{"criterion": "to_party", "value": "seller"}]
    report = connect().route(ORDER)
    assert (report.rule, report.also, report.nearly[0].rule) == ("orders", ("all",), "invoices")


def test_of_a_message_that_is_not_there_nothing_is_told(http: httpx.Client) -> None:
    assert http.get(f"{PATH}/nobody@x/route").status_code == 404
