"""What requests about memories say: bodies, checked by pydantic, with an answer that names what is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.api.body import read_body
from services.api.problems import Problem

Kind = Literal["preference", "fact", "correction", "learning", "procedure", "convention"]
Name = Annotated[str, Field(max_length=256, pattern=r"^[^\x00\x1f]*$")]
Content = Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S")]


class Body(BaseModel):
    """A request body: unknown members are an error, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Message(Body):
    """A turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None


class Proposal(Body):
    """What may become memory: one ``content``, or ``messages`` whose users' words are read by rules."""

    content: Content | None = None
    messages: Annotated[list[Message], Field(max_length=1_000)] = []
    user: Name = ""
    agent: Name = ""
    session: Name = ""
    task: Name = ""
    run: Name = ""
    kind: Kind = "fact"
    memory_type: Literal["semantic", "episodic", "procedural"] = "semantic"
    scope: Annotated[Literal["user", "agent", "org"] | None, Field(description="Else as the kind says")] = None
    entity: Annotated[str, Field(max_length=500)] = ""
    attribute: Annotated[str, Field(max_length=500)] = ""
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    tags: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=64)] = []
    ttl_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    corrects: Annotated[str, Field(max_length=500, description="The value or memory that this corrects")] = ""
    infer: Annotated[bool, Field(description="False keeps it verbatim: only secrets and copies are refused")] = True
    id: Annotated[
        str, Field(max_length=100, description="Idempotency key; the header Idempotency-Key says the same")
    ] = ""
    wait_s: Annotated[float, Field(ge=0, le=30, description="How long to wait for the curator's decision")] = 5.0


class Edit(Body):
    """New words for a memory."""

    content: Content
    expected_version: Annotated[int | None, Field(ge=1, description="The version that the editor saw")] = None
    by: Name = ""


class Search(Body):
    """A search in memories."""

    query: Annotated[str, Field(max_length=200_000)] = ""
    user: Name = ""
    agent: Name = ""
    org: Annotated[bool, Field(description="Those of the organisation too")] = False
    kind: Kind | Literal[""] = ""
    tag: str = ""
    session: Name = ""
    status: Literal["active", "superseded", "invalidated", "expired", "any"] = "active"
    top_k: Annotated[int, Field(ge=1, le=200)] = 10
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    explain: bool = False
    record: Annotated[bool, Field(description="Count this as a recall of what is found")] = True
    after: str | None = None


class Forget(Body):
    """A policy of forgetting: what has expired, and what has become less important than ``below``."""

    user: Name = ""
    agent: Name = ""
    expired: bool = True
    below: Annotated[float, Field(ge=0, le=1)] = 0.0
    kind: Kind | Literal[""] = ""
    dry_run: Annotated[bool, Field(description="Only say what would be forgotten")] = True
    by: Name = ""


T = TypeVar("T", bound=Body)


async def parsed(request: Request, model: type[T]) -> T:
    """The body of a request. Raises Problem, naming every member that is wrong."""
    raw = await read_body(request, request.app.state.max_body_bytes)
    try:
        return model.model_validate_json(raw or b"{}")
    except ValidationError as error:
        wrong = [f"`{'.'.join(map(str, one['loc'])) or 'body'}`: {one['msg']}" for one in error.errors()]
        raise Problem(422, "bad_parameter", "; ".join(wrong)) from error


def schema(model: type[Body]) -> dict[str, Any]:
    """The body in the OpenAPI document."""
    return {"requestBody": {"content": {"application/json": {"schema": model.model_json_schema()}}}}
