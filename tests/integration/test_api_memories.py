"""Memories over HTTP and on the command line, on a real instance: proposing, reading, changing, forgetting, walls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.instance import Instance, running_instance, until


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    data = tmp_path_factory.mktemp("memories") / "data"
    with running_instance(data, REFOLD_EMBEDDING_MODEL="none") as running:
        yield running


def propose(instance: Instance, content: str, user: str, **more: Any) -> dict[str, Any]:
    body = {"content": content, "user": user, "kind": "preference", "wait_s": 30, **more}
    response = instance.http.post("/v1/memories", json=body)
    assert response.status_code == 200, response.text
    (item,) = response.json()["items"]
    return dict(item)


def listed(instance: Instance, user: str, **more: Any) -> list[str]:
    items = instance.http.get("/v1/memories", params={"user": user, **more}).json()["items"]
    return [item["content"] for item in items]


def test_what_is_proposed_enters_once_and_what_is_refused_says_why(instance: Instance) -> None:
    """C46, C47: the same again, under the same key and under another."""
    user = instance.name("u")
    first = propose(instance, "I prefer aisle seats", user, id=f"{user}-k")
    again = propose(instance, "I prefer aisle seats", user, id=f"{user}-k")
    assert first["status"] == "admitted" and again == first
    copy = propose(instance, "The user prefers aisle seats.", user)
    assert (copy["status"], copy["reason"], copy["memory"]) == ("rejected", "duplicate", first["memory"])
    secret = propose(instance, "my password is hunter2!x", user)
    assert (secret["status"], secret["reason"]) == ("rejected", "credentials")
    assert listed(instance, user) == ["I prefer aisle seats"]
    fates = instance.http.get("/v1/memories/proposals", params={"user": user}).json()["items"]
    assert [fate["status"] for fate in fates] == ["admitted", "rejected", "rejected"]
    assert "hunter2" not in instance.http.get("/v1/memories/proposals", params={"user": user}).text
    other = instance.http.post(
        "/v1/memories", json={"content": "I prefer tea over milk", "user": user, "id": f"{user}-k"}
    )
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


def test_a_decided_proposal_cannot_be_taken_back_and_a_key_may_come_as_a_header(instance: Instance) -> None:
    user, key = instance.name("u"), instance.name("k")
    body = {"content": "I prefer aisle seats", "user": user, "kind": "preference", "wait_s": 30}
    answers = [instance.http.post("/v1/memories", json=body, headers={"idempotency-key": key}) for _ in range(2)]
    assert answers[0].json()["items"] == answers[1].json()["items"]
    assert instance.http.get(f"/v1/memories/proposals/{key}").json()["status"] == "admitted"
    late = instance.http.delete(f"/v1/memories/proposals/{key}", params={"user": user})
    assert (late.status_code, late.json()["code"]) == (409, "decided")
    assert instance.http.delete("/v1/memories/proposals/nobody").status_code == 404


def test_verbatim_keeps_words_that_the_rules_would_refuse_but_no_secret(instance: Instance) -> None:
    user = instance.name("u")
    assert propose(instance, "ok", user, infer=False)["status"] == "admitted"
    assert propose(instance, "token=ghp_abcdefghijklmnop1234", user, infer=False)["reason"] == "credentials"
    assert listed(instance, user) == ["ok"]


def test_messages_are_read_for_what_users_say(instance: Instance) -> None:
    user = instance.name("u")
    messages = [
        {"role": "user", "content": "Hi, I live in Oslo. 请以后用中文回答我。"},
        {"role": "assistant", "content": "I live in the cloud."},
    ]
    answer = instance.http.post("/v1/memories", json={"messages": messages, "user": user, "wait_s": 30})
    assert [item["status"] for item in answer.json()["items"]] == ["admitted", "admitted"]
    assert sorted(listed(instance, user)) == ["I live in Oslo.", "请以后用中文回答我。"]


def test_a_memory_is_edited_invalidated_restored_and_deleted_with_a_history(instance: Instance) -> None:
    user = instance.name("u")
    path = f"/v1/memories/{propose(instance, 'I live in Oslo', user, kind='fact')['memory']}"
    edited = instance.http.patch(path, json={"content": "I live in Bergen", "expected_version": 1, "by": "ada"}).json()
    assert (edited["content"], edited["version"]) == ("I live in Bergen", 2)
    late = instance.http.patch(path, json={"content": "I live in Rome", "expected_version": 1})
    assert (late.status_code, late.json()["code"], late.json()["version"]) == (409, "version", 2)
    secret = instance.http.patch(path, json={"content": "password: hunter2hunter2"})
    assert (secret.status_code, secret.json()["code"]) == (422, "credentials")
    assert instance.http.post(f"{path}/invalidate", params={"reason": "moved"}).json()["status"] == "invalidated"
    assert listed(instance, user) == []
    assert listed(instance, user, status="invalidated") == ["I live in Bergen"]
    assert instance.http.post(f"{path}/restore").json()["status"] == "active"
    gone = instance.http.delete(path, params={"by": "ada"}).json()
    assert gone["status"] == "deleted" and "content" not in gone
    history = instance.http.get(f"{path}/history").json()["items"]
    assert [change["change"] for change in history] == ["admitted", "edited", "invalidated", "restored", "deleted"]
    assert "Bergen" not in instance.http.get(f"{path}/history").text
    assert instance.http.post(f"{path}/restore").status_code == 410


def test_search_finds_in_two_languages_and_counts_recalls(instance: Instance) -> None:
    """C19, C31: operators are text, forms of letters do not matter, two Chinese characters are enough."""
    user = instance.name("u")
    for content in ("I like the café in C:\\repo\\a|b", "我对花生过敏", "I prefer aisle seats"):
        assert propose(instance, content, user)["status"] == "admitted"

    def found(query: str) -> list[str]:
        items = instance.http.get("/v1/memories/search", params={"q": query, "user": user})
        assert items.status_code == 200, items.text
        return [item["content"] for item in items.json()["items"]]

    assert found("花生") == ["我对花生过敏"]
    assert found("cafe\u0301")[0].startswith("I like the café")
    assert found('C:\\repo\\a|b (x:y) "q" @z -not * ~ AND')[0].startswith("I like the café")
    assert found("which seat does the user like best?")[0] == "I prefer aisle seats"
    assert found("zebra") == [] and len(found("")) == 3
    body = {"query": "seats", "user": user, "explain": True}
    (hit,) = instance.http.post("/v1/memories/search", json=body).json()["items"]
    assert sum(hit["signals"].values()) == pytest.approx(hit["relevance"], abs=1e-5)

    def recalled() -> bool:
        return bool(instance.http.get(f"/v1/memories/{hit['memory']}").json()["hits"] == 1)

    assert until(recalled)


def test_expiry_fading_and_a_policy_of_forgetting_that_first_says_what_it_would_do(instance: Instance) -> None:
    user = instance.name("u")
    short = propose(instance, "I prefer aisle seats", user, ttl_s=0.001)
    propose(instance, "I prefer tea over coffee", user)
    assert listed(instance, user, status="expired") == ["I prefer aisle seats"]
    plan = instance.http.post("/v1/memories/forget", json={"user": user, "below": 1.0}).json()
    assert (plan["dry_run"], sorted(item["why"][:7] for item in plan["items"])) == (True, ["expired", "its imp"])
    assert len(listed(instance, user, status="any")) == 2 and listed(instance, user) == ["I prefer tea over coffee"]
    done = instance.http.post("/v1/memories/forget", json={"user": user, "dry_run": False}).json()
    assert [item["memory"] for item in done["items"]] == [short["memory"]]
    after = {"after": done["token"], "status": "invalidated"}
    assert listed(instance, user, **after) == ["I prefer aisle seats"]


def test_deleting_all_of_a_user_leaves_every_other_word_as_it_was(instance: Instance) -> None:
    """Invariant 7: and no answer to one user shows anything of another one, or of another org."""
    one, other = instance.name("u"), instance.name("u")
    mine = propose(instance, "I prefer aisle seats", one)
    propose(instance, "I prefer window seats", other)
    before = instance.http.get("/v1/memories", params={"user": other}).json()["items"]
    elsewhere = {"x-refold-org": instance.name("org")}
    assert instance.http.get(f"/v1/memories/{mine['memory']}", headers=elsewhere).status_code == 404
    assert instance.http.get(f"/v1/memories/{mine['memory']}", params={"user": other}).status_code == 404
    assert instance.http.get("/v1/memories", params={"user": one}, headers=elsewhere).json()["items"] == []
    gone = instance.http.delete("/v1/memories", params={"user": one}).json()
    assert gone["deleted"] == 1
    assert listed(instance, one, status="any", after=gone["token"]) == []
    (left,) = instance.http.get("/v1/memories", params={"user": one, "status": "deleted"}).json()["items"]
    assert left["memory"] == mine["memory"] and "content" not in left
    assert instance.http.get("/v1/memories", params={"user": other}).json()["items"] == before


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"content": "x", "confidence": 85}, "confidence"),
        ({"content": "x", "confidence": -1}, "confidence"),
        ({"content": "x", "confidence": "0.9"}, "confidence"),
        ({"content": "x", "kind": "wish"}, "kind"),
        ({"content": "  "}, "content"),
        ({"content": "x", "colour": 1}, "colour"),
        ({"messages": [], "user": "u1"}, "messages"),
        ({"content": "x", "kind": "preference"}, "user"),
    ],
)
def test_what_is_no_proposal_is_refused_with_the_member_that_is_wrong(
    instance: Instance, body: dict[str, Any], says: str
) -> None:
    """C35."""
    response = instance.http.post("/v1/memories", json=body)
    assert response.status_code == 422, response.text
    assert says in response.json()["detail"]


def test_the_commands(instance: Instance) -> None:
    user = instance.name("u")
    done = instance.refold("remember", "I prefer aisle seats", "--user", user, "--kind", "preference", "--json")
    assert done.returncode == 0, done.stderr
    name = json.loads(done.stdout)["memory"]
    ours = instance.refold("remember", "Deploys happen on Tuesdays.", "--org", "--json")
    assert json.loads(ours.stdout)["status"] == "admitted", ours
    said = [json.loads(line)["content"] for line in instance.refold("memories", "--json").stdout.splitlines()]
    both = instance.refold("memories", "--user", user, "--org", "--json").stdout.splitlines()
    assert "Deploys happen on Tuesdays." in said and len(both) == len(said) + 1
    refused = instance.refold("remember", "ok thanks", "--user", user)
    assert (refused.returncode, b"low_signal" in refused.stdout + refused.stderr) == (1, True)
    assert json.loads(instance.refold("memories", "--user", user, "--json").stdout)["memory"] == name
    changed = instance.refold("memory", name, "--edit", "I prefer window seats", "--by", "ada", "--json")
    assert [change["change"] for change in json.loads(changed.stdout)["history"]] == ["admitted", "edited"]
    assert b"I prefer window seats" in instance.refold("memory", name).stdout
    assert b"low_signal" in instance.refold("memories", "--user", user, "--proposals").stdout
    assert (
        json.loads(instance.refold("forget", "--user", user, "--everything", "--yes", "--json").stdout)["deleted"] == 1
    )
