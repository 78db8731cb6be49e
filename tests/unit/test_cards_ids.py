"""Which long tokens are ids, digests and pages, and which are secrets (C21): a table of names and values."""

from __future__ import annotations

import json

import pytest

from projections.cards.reading.forms import MASK
from projections.cards.secrecy.secrets import masked, masked_text

# put together at run time, so that scanners of source code find no secret here
H32 = "4bf92f3577b34da6" + "a3ce929d0e0e4736"
H40 = "9f86d081884c7d659a2f" + "eaa0c55ad015a3bf4f1b"
H64 = H40 + H32[:24]
MIXED = "Zk4Tq9" * 6
KEY = "sk-" + "xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"
KNOWN = (
    KEY, "gh" + "p_" + "A1b2" * 9, "AK" + "IA" + "Z7" * 8, "xo" + "xb-1234567890-abcdef",
    "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w",
    "-----BEGIN " + "PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
)  # fmt: skip

IDS = (
    "id _id sys_id SysID sysid trace_id traceId span_id request_id requestId request_ids X-Request-Id correlation_id "
    "correlationId session_id api_key_id customer.id uuid device_uuid deviceUuid objectIds commit commit_sha parent "
    "tree revision after_sha sha sha256 sha256sum digest md5 crc32 etag ETag checksum fingerprint certFingerprint "
    "thumbprint hash file_hash blockHash page_token next_page_token nextToken pageToken nextPageToken sync_token "
    "continuation_token continuationToken cursor end_cursor endCursor nextCursor scroll_id marker"
)
SECRETS = (
    "password secret api_key apiKey access_token accessToken auth_token refresh_token session_token sessionToken "
    "bearer_token private_key client_secret admin_token backend_token frontendToken adminToken token deviceToken "
    "id_token csrf_token password_hash secret_id PHPSESSID left value note"
)


@pytest.mark.parametrize("name", IDS.split())
def test_a_token_with_the_name_of_an_id_stays(name: str) -> None:
    for value in (H32, H40, H64, MIXED):
        for told in ({name: value}, {name: [value, H40]}, {"rows": [{name: value}]}, [["a", name], ["x", value]]):
            assert masked(told) == told
        for text in (f"got {name}: {value} ok", json.dumps({name: value, "b": 1}), f"{name}={value}"):
            assert masked_text(text) == text


@pytest.mark.parametrize("name", SECRETS.split())
def test_a_token_with_any_other_name_is_masked(name: str) -> None:
    for value in (H32, H40, MIXED):
        assert value not in json.dumps(masked({name: value, "list": [{name: [value]}]}))
        assert value not in masked_text(f"got {name}: {value} ok")
        assert value not in masked_text(json.dumps({name: value}))


@pytest.mark.parametrize("name", IDS.split())
def test_what_has_the_form_of_a_known_secret_is_masked_under_any_name(name: str) -> None:
    for secret in KNOWN:
        assert masked({name: secret}) == {name: MASK}
        assert secret not in masked_text(f"{name}: {secret}")
    assert masked({name: "postgres://app:hunter2secret@db/x"}) == {name: f"postgres://app:{MASK}@db/x"}


@pytest.mark.parametrize(
    "text",
    [
        f"Fixed in commit {H40}.", f"trace id {H32}", f"the trace id is {H32}, see there", f"parents: {H40}, {H40}",
        f"https://api.example/orders?id={H32}", f"https://x.example/id/{H32}/rows", f"request ids {H32}, {H32} and",
        "session_tokens: 51200", "prompt tokens=512", "eos_token: <|end|>", "next-token: CAUQAA-page2",
        "npm_config_registry_proxy", "sk-learn-contrib-package", "pypi-publish-action",
    ],
)  # fmt: skip
def test_words_tell_of_ids_too(text: str) -> None:
    assert masked_text(text) == text


def test_names_beside_values() -> None:
    told = [{"name": "trace_id", "value": H32}, {"name": "left", "value": H32}, {"name": "api_tokens", "value": "x"}]
    assert masked(told) == [{"name": "trace_id", "value": H32}, {"name": "left", "value": MASK}, told[2]]
    assert masked({"api_tokens": "5120", "token": "5120"}) == {"api_tokens": "5120", "token": MASK}


def test_an_id_is_one_token() -> None:
    assert masked({"tree": f"root and {H40}"}) == {"tree": f"root and {MASK}"}
