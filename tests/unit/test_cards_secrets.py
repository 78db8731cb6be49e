"""Secrets in what cards are made of: masked wherever they stand, and nothing else is (C21)."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.cards.reading.forms import MASK
from projections.cards.secrecy.secrets import masked, masked_text, suspicious
from projections.memory_cards import MEMORY_CARDS
from tests.unit.card_story import call, result, said, story
from tests.unit.fold_runner import fold

# put together at run time, so that scanners of source code find no secret here
KEY = "sk-" + "xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"
HEX = "9f86d081884c7d659a2f" + "eaa0c55ad015a3bf4f1b"
PARTS = ("AAAA1111BBBB2222", "cccc3333dddd_EEEE", HEX)

YAML = f"service: maps\napi_key: {KEY}\nregion: eu\nleft: {HEX}\n"
NESTED = json.dumps({"outer": json.dumps({"api_key": KEY, "region": "eu", "left": HEX})})


def stored(*parts: tuple[str, dict[str, object]]) -> str:
    """All rows of cards that these events make, as text."""
    return fold(MEMORY_CARDS, story(*parts)).dump().decode()


@pytest.mark.parametrize("output", [YAML, NESTED, {"config": YAML}, {"api_key": KEY, "region": "eu", "x": [HEX]}])
def test_nothing_of_a_secret_is_in_any_row(output: object) -> None:
    """C21: in YAML, as a bare token, and in JSON within a text within JSON."""
    rows = stored(
        call("c1", "read", {"path": "conf"}), result("c1", output), call("c2", "use", {"api_key": KEY, "token": HEX}),
        ("tool.failed", {"call_id": "c2", "error": f"api_key {KEY} refused; authorization: Bearer {HEX}"}),
        said(f"my password: {HEX[:12]}! and {json.dumps(output)}"),
        ("decision.made", {"chosen": f"use {KEY}", "question": f"api_key={KEY}?", "rationale": HEX, "based_on": [HEX],
                           "alternatives": [KEY]}),
    )  # fmt: skip
    for part in PARTS:
        assert part not in rows
        assert part.casefold() not in rows.casefold()
    assert "eu" in rows


def test_a_models_summary_is_masked() -> None:
    raws = story(said("I fly with HAT136"))
    card = fold(MEMORY_CARDS, raws).one("cards")["card"]
    raws += story(said("x"), ("card.summarized", {"card": card, "summary": f"the key is {KEY}", "model": "m"}))[1:]
    assert "AAAA1111" not in fold(MEMORY_CARDS, raws).dump().decode()


@pytest.mark.parametrize(
    "secret",
    [
        f"api_key: {KEY}", f'"apiKey": "{KEY}"', f"API-KEY={KEY}", f"密码：{HEX[:10]}", "password = correcthorse9",
        "Authorization: Bearer " + HEX, "postgres://app:hunter2secret@db/x", "gh" + "p_" + "A1b2" * 9,
        "AK" + "IA" + "Z7" * 8, "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w",
        "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", HEX,
        "xo" + "xb-1234567890-abcdef", "a" + "Zk4Tq9" * 5,
    ],
)  # fmt: skip
def test_what_is_masked(secret: str) -> None:
    hidden = masked_text(f"before {secret} after")
    assert MASK in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    last = secret.split("\n")[-1].split()[-1]
    assert last not in hidden or last.startswith("KEY-----")
    assert masked_text(hidden) == hidden


SECRET = "zz" + "Key17"


@pytest.mark.parametrize(
    "text",
    [
        f'password = "correct horse {SECRET}, and more"', json.dumps({"a": json.dumps({"password": f"two {SECRET}"})}),
        f"password: a,b;{SECRET}", f"The password is {SECRET}!", f"PASSWORD {SECRET}", f"密码是{SECRET} 请保存",
        f"パスワード：{SECRET}", f"Passwort: {SECRET}", f"mot de passe : {SECRET}", f"DB_PASS={SECRET}",
        f"GITHUB_PAT={SECRET}", f"userPassword: {SECRET}", f"<password>{SECRET}</password>", f"password: |\n  {SECRET}",
        f"mysql --password {SECRET} -h db", f"curl -u admin:{SECRET} x", f"redis://:{SECRET}@cache:6379/0",
        f"postgres://bob:z@{SECRET}@db/x", f"Set-Cookie: session={SECRET}; HttpOnly", f"/cb?sig={SECRET}xyz&y=1",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"Accounts:\n| user | password |\n|---|---|\n| bob | {SECRET} |",
        f"user,password,age\nbob,{SECRET},\n\nthat is all", f"USER   PASSWORD   AGE\nbob    {SECRET}    4",
    ],
)  # fmt: skip
def test_however_a_text_tells_it(text: str) -> None:
    hidden = masked_text(f"See: {text}")
    assert SECRET not in hidden
    assert hidden.startswith("See: ")
    assert masked_text(hidden) == hidden


@pytest.mark.parametrize(
    "value",
    [
        {"passwords": [SECRET]}, {"password": {"value": SECRET}}, {"secret": {"a": [{"b": SECRET}]}},
        [{"name": "DB_PASSWORD", "value": SECRET}], {"key": "api_key", "value": SECRET}, {"userPassword": SECRET},
        {"columns": ["user", "password"], "rows": [["bob", SECRET]]}, [["user", "token"], ["bob", SECRET]],
        {"headers": {"Cookie": f"id={SECRET}"}}, {"deviceToken": SECRET}, [{"Key": "password", "Value": SECRET}],
        {"columns": [{"name": "user"}, {"name": "password"}], "rows": [["bob", SECRET]]},
        {"schema": ["user", "password"], "result": [["bob", SECRET], ["al", 7]]}, {"id": "api_key", "value": SECRET},
    ],
)  # fmt: skip
def test_whatever_shape_it_has(value: object) -> None:
    assert SECRET not in json.dumps(masked(value))


@pytest.mark.parametrize(
    "text",
    [
        f"Name .......: Ada\nPassword .......: {SECRET}", f"Name      Ada\nEmail     a@b.example\nSecret     {SECRET}",
        f"- **Name**: Ada\n- **Password**: {SECRET}", f"**ID**: 7 - **Pwd**: {SECRET}\n**ID**: 8 - **Pwd**: {SECRET}",
        f"<u><name>Ada</name><password><v>{SECRET}</v></password></u>", f"<u><secret><![CDATA[{SECRET}]]></secret></u>",
        f"<u><e key='password'>{SECRET}</e><e key='x'>1</e></u>", f"<u><e name='token' value='{SECRET}'/></u>",
        f"<u><name>Ada</name><password>{''.join(f'&#{ord(sign)};' for sign in SECRET)}</password></u>",
        json.dumps([["id", "密码"], ["x", SECRET]]), json.dumps({"密码": SECRET}) + "\n" + json.dumps({"密码": SECRET}),
    ],
)  # fmt: skip
def test_whatever_a_text_is_read_as(text: str) -> None:
    """Alone, and as a field of a result: facts read it as records either way."""
    for value in (text, {"output": text}, {"rows": [text]}, json.dumps({"output": text})):
        assert SECRET not in stored(call("c"), result("c", value))


def test_what_only_looks_like_it_stays() -> None:
    value = {
        "next_page_token": "abcdefg", "required": ["password", "email"], "pin": {"label": "home"},
        "names": [["user", "age", "city"], ["mia", 4, "Rome"]], "name": "Bob", "value": "x12345",
        "tokens": ["hello", "world"],
    }  # fmt: skip
    assert masked(value) == value


@pytest.mark.parametrize(
    "text",
    [
        "Your password is incorrect, try again", "docker run -u 1000:1000 image", "--password TEXT  The password",
        "https://shop.example/p?code=ABC123&key=ORD-1", "bypass: enabled", "compass: north", "cookie: chocolate",
        "user,name,age\nbob,Robert,4",
        "credit_card_4421486", "mia_li_3668", "order 123456789012345678901234567890123456789012", "HAT136",
        "7f3c9a52-1f0e-4b3a-9c1d-2e8f60c1a7b4", "commit " + HEX, f'{{"sha": "{HEX}"}}', "sha256:" + HEX + HEX[:24],
        '{"total_tokens": 1234, "next_page_token": 7}', "the token is expired", "password: required",
        "https://example.com/a/very/long/path/of_a_page/index.html?page=2", "donaudampfschifffahrtsgesellschaft",
        "please keep the key under the mat", "mia@example.com wrote: hello", "GettysburgAddressOfEighteenSixtyThree",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked_text(text) == text


def test_fields_named_for_a_secret_are_masked_whatever_they_hold() -> None:
    value = {"password": "abcd", "pin": 4711, "client_secret": "short-one", "tokens": 12, "user": "mia", "sha": HEX}
    assert masked(value) == {**value, "password": MASK, "pin": MASK, "client_secret": MASK}


def test_a_mask_is_no_value() -> None:
    folded = fold(MEMORY_CARDS, story(call("c1"), result("c1", {"password": "abcd", "id": "AB-77"})))
    assert [row["value"] for row in folded.table("card_values")] == ["ab-77"]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["", KEY, HEX, "password: ", "token=", "Bearer "]), st.text(max_size=60))
def test_masking_is_stable_and_told_of_beforehand(before: str, secret: str, after: str) -> None:
    text = before + secret + after
    hidden = masked_text(text)
    assert masked_text(hidden) == hidden
    assert hidden == text or suspicious(text)
    assert orjson.loads(orjson.dumps(masked([text]))) == [hidden]


def test_masking_is_linear() -> None:
    """C26 of its kind: hostile text of 200,000 characters is read in a moment (quadratic: hours)."""
    for unit in ("a", "a1B", "api_key:", "://a:", "eyJ", "token=\\", "Bearer ", "-----BEGIN PRIVATE KEY-----",
                 "api key,a\n", "cookie: a=", "<password ", "password: \"", "密码是", "_pass=a,"):  # fmt: skip
        masked_text((unit * 200_000)[:200_000])
