"""What a policy is asked for with: whose, and the context that its triggers are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POLICY_PATH = "/v1/policy"


def policy_params(context: Mapping[str, Any], **whose: Any) -> dict[str, Any]:
    """The parameters of a request. ``context``: name of a field -> text, number, bool, or a list of those.

    Raises TypeError for any other value: as a text it would never be what a trigger asks for.
    """
    for name, value in context.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        if wrong := next((item for item in items if not isinstance(item, (str, int, float, type(None)))), None):
            raise TypeError(f"{name!r} of a context is a text, a number, a bool or a list of those, not {type(wrong)}")
    return {name: value for name, value in {**context, **whose}.items() if value not in (None, "")}
