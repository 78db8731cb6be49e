"""What a policy is asked for with: whose, and the context that its triggers are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.options import Options

POLICY_PATH = "/v1/policy"


def policy_params(task: str, tokens: int | None, asked: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The parameters of a request. ``asked``: field of the context -> text, number, bool, or a list of those.

    Raises TypeError for any other value: as a text it would never be what a trigger asks for.
    """
    for name, value in asked.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        if wrong := next((item for item in items if not isinstance(item, (str, int, float, type(None)))), None):
            raise TypeError(f"{name!r} of a context is a text, a number, a bool or a list of those, not {type(wrong)}")
    own = {} if task else {"agent": options.scope.agent, "user": options.scope.user}
    params = {**own, **asked, "task": task, "tokens": tokens}
    return {name: value for name, value in params.items() if value not in (None, "")}
