"""What the SDK asks for a context, and for a policy, with."""

from __future__ import annotations

from typing import Any

import pytest
from refold.address import Address
from refold.contexts import context_params
from refold.envelope import Scope
from refold.options import Options
from refold.policies import policy_params


def test_what_is_given_is_asked_for_and_nothing_else() -> None:
    asked = context_params("t", "", {"max_tokens": 400, "parts": ["cards", "query"], "mode": "", "originals": ()})
    assert asked == {"task": "t", "max_tokens": 400, "parts": "cards,query"}


def test_a_budget_of_nothing_is_for_the_backend_to_refuse() -> None:
    assert context_params("t", "q", {"max_tokens": 0}) == {"task": "t", "query": "q", "max_tokens": 0}


def test_an_option_that_there_is_not_is_told() -> None:
    options: Any = {"budget": 300}
    with pytest.raises(TypeError, match=r"no option budget; there are max_tokens, parts"):
        context_params("t", "q", options)


OPTIONS = Options(Address("http://127.0.0.1:1", "here"), Scope(agent="clerk", user="ida"))


def test_a_policy_is_asked_for_the_client_s_own_agent_and_user_unless_a_task_or_somebody_else_is_named() -> None:
    assert policy_params("", None, {"path": "a"}, OPTIONS) == {"agent": "clerk", "user": "ida", "path": "a"}
    assert policy_params("t", 9, {"goal": ""}, OPTIONS) == {"task": "t", "tokens": 9}
    assert policy_params("", None, {"user": "bob"}, OPTIONS) == {"agent": "clerk", "user": "bob"}


@pytest.mark.parametrize("value", [{"a": 1}, [["x"]], object()])
def test_a_context_of_a_policy_has_plain_values(value: Any) -> None:
    with pytest.raises(TypeError, match="'amount' of a context is a text, a number, a bool or a list of those"):
        policy_params("", None, {"amount": value}, OPTIONS)
