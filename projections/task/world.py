"""Effects of decisions, notes, blockers, approvals, artifacts, checkpoints and feedback."""

from __future__ import annotations

import orjson

from events.event import Event
from events.types.thought import DecisionMade, NoteWritten
from events.types.world import (
    ApprovalRequested,
    ApprovalResolved,
    ArtifactCreated,
    BlockerCleared,
    BlockerRaised,
    CheckpointSaved,
    FeedbackGiven,
)
from projections.bounds import canonical, clip_json, digest, short, whole
from projections.draft import pairs_end, pairs_start
from projections.task.scene import JSON_LIMIT, Mutable, Scene
from projections.task.tables import KEPT_CONFLICTS, KEPT_MILESTONES, KEPT_SNAPSHOTS


def decided(scene: Scene, payload: DecisionMade) -> None:
    """A decision is kept for good."""
    row = scene.draft.add("decisions", scene.epoch, scene.n)
    row.update(
        event_id=scene.event.id,
        question=scene.text(payload.question),
        chosen=scene.text(payload.chosen),
        alternatives=clip_json(payload.alternatives, JSON_LIMIT, at_most=len(scene.event.data)),
        rationale=scene.text(payload.rationale),
        based_on=clip_json(payload.based_on, JSON_LIMIT, at_most=len(scene.event.data)),
        time=scene.event.time,
    )
    scene.stamp(row)
    scene.task["decisions"] += 1


def noted(scene: Scene, payload: NoteWritten) -> None:
    """A note gets its next version, unless its writer expected another one: then it is kept as a conflict."""
    event, note = scene.event, short(payload.key)
    stored = scene.draft.peek("notes", note)
    version = stored["version"] if stored else 0
    if payload.expected_version not in (None, version):
        _conflict(scene, payload, version)
        return
    row = scene.draft.edit("notes", note)
    row.update(
        full=whole(payload.key),
        version=version + 1,
        content=payload.content,
        category=payload.category,
        ttl_s=None if payload.ttl_s is None else float(payload.ttl_s),
        written_at=event.time,
        source=event.agent or event.source,
        late=False,
    )
    scene.stamp(row)
    scene.task["notes"] += version == 0


def _conflict(scene: Scene, payload: NoteWritten, version: int) -> None:
    row = scene.draft.add("note_conflicts", scene.task["note_conflicts"] % KEPT_CONFLICTS)
    row.update(
        event_id=scene.event.id,
        note=payload.key,
        expected_version=payload.expected_version,
        found_version=version,
        content=payload.content,
        run=scene.event.run,
        time=scene.event.time,
        epoch=scene.epoch,
        n=scene.n,
    )
    scene.task["note_conflicts"] += 1
    if version:
        scene.draft.edit("notes", short(payload.key))["conflicts"] += 1


def _counted(scene: Scene, table: str, name: str) -> Mutable:
    """The row of a thing, which counts as known from its first event on, whichever that is."""
    if scene.draft.peek(table, short(name)) is None:
        scene.task[table] += 1
    return scene.draft.edit(table, short(name))


def blocked(scene: Scene, payload: BlockerRaised) -> None:
    """A blocker is open until it is cleared."""
    row = _counted(scene, "blockers", payload.blocker)
    was_open = row["open"]
    if pairs_start(row) and not was_open:
        scene.task["blockers_open"] += 1
        row["cleared"] = row["detail"] = ""
    row.update(full=whole(payload.blocker), raised=scene.event.time, run=scene.event.run)
    row["description"] = scene.text(payload.description) or row["description"]
    row["late"] = row["late"] or scene.late


def unblocked(scene: Scene, payload: BlockerCleared) -> None:
    """A blocker is gone."""
    row = _counted(scene, "blockers", payload.blocker)
    if row["open"]:
        scene.task["blockers_open"] -= 1
    pairs_end(row)
    row.update(full=whole(payload.blocker), cleared=scene.event.time, detail=scene.text(payload.detail))
    row["late"] = row["late"] or scene.late


def asked(scene: Scene, payload: ApprovalRequested) -> None:
    """The task waits for a person."""
    row = _counted(scene, "approvals", payload.approval)
    was_open = row["open"]
    if pairs_start(row) and not was_open:
        scene.task["approvals_pending"] += 1
        row.update(approved=None, by="", detail="", resolved="")
    row.update(
        full=whole(payload.approval),
        action=scene.text(payload.action),
        arguments=clip_json(payload.arguments, JSON_LIMIT, at_most=len(scene.event.data)),
        versions=payload.versions,
        requested=scene.event.time,
        run=scene.event.run,
    )
    row["late"] = row["late"] or scene.late


def resolved(scene: Scene, payload: ApprovalResolved) -> None:
    """A person answered."""
    row = _counted(scene, "approvals", payload.approval)
    if row["open"]:
        scene.task["approvals_pending"] -= 1
    pairs_end(row)
    row.update(
        full=whole(payload.approval),
        approved=payload.approved,
        by=payload.by,
        detail=scene.text(payload.detail),
        resolved=scene.event.time,
    )
    row["late"] = row["late"] or scene.late


def made(scene: Scene, payload: ArtifactCreated) -> None:
    """An artifact, or its next version."""
    row = scene.draft.edit("artifacts", short(payload.name))
    scene.task["artifacts"] += not row["version"]
    row.update(
        full=whole(payload.name),
        uri=payload.uri,
        kind=payload.kind,
        digest=payload.digest,
        size_bytes=payload.size_bytes,
        step=payload.step,
        version=row["version"] + 1,
        time=scene.event.time,
    )
    scene.stamp(row)


def saved(scene: Scene, payload: CheckpointSaved) -> None:
    """A checkpoint as it was given, in the place of the oldest one of its ring."""
    task, data = scene.task, orjson.dumps(payload.data)
    if payload.milestone:
        row = scene.draft.add("snapshots", "milestone", task["milestones"] % KEPT_MILESTONES)
    else:
        row = scene.draft.add("snapshots", "recent", (task["checkpoints"] - task["milestones"]) % KEPT_SNAPSHOTS)
    row.update(
        checkpoint=payload.checkpoint,
        data=data.decode(),
        size_bytes=len(data),
        data_version=payload.data_version,
        milestone=payload.milestone,
        time=scene.event.time,
    )
    scene.stamp(row)
    task["checkpoints"] += 1
    task["milestones"] += payload.milestone


def feedback_key(event: Event, payload: FeedbackGiven) -> str:
    """What makes two judgements the same one."""
    return digest(canonical([event.run, payload.target_kind, payload.target, payload.by, payload.text, payload.score]))


def judged(scene: Scene, payload: FeedbackGiven) -> None:
    """Feedback on the task or a part of it; the same words of the same giver on the same thing count once."""
    key = feedback_key(scene.event, payload)
    if scene.draft.peek("feedback", key) is not None:
        return
    row = scene.draft.edit("feedback", key)
    row.update(
        text=scene.text(payload.text),
        score=None if payload.score is None else float(payload.score),
        target_kind=payload.target_kind,
        target=payload.target,
        by=payload.by,
        time=scene.event.time,
    )
    row.update(run=scene.event.run, epoch=scene.epoch, n=scene.n)
    scene.task["feedback"] += 1
