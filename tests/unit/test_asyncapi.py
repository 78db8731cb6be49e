"""The AsyncAPI document is made offline and names what may be published to and what is listened to."""

from __future__ import annotations

from services.apps.asyncapi import describe


def test_the_inbox_and_the_wake_ups_are_described() -> None:
    document = describe("redis://user:secret@redis.example:6379/0")
    assert document["asyncapi"] == "3.0.0"
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert addresses == {"refold:inbox", "refold:archived"}
    assert document["channels"]["inbox"]["bindings"]["redis"]["groupName"] == "refold-door"
    assert "secret" not in str(document)
