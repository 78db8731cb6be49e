"""Tables of the task-state read model. One row a thing; histories are rows that are only added to.

What grows with the length of a task, and what does not: a row for each run, step, call and decision stays for good,
since a resumed run must know them all; there is a row for each blocker, approval, artifact, note and judgement that has
a name of its own. What is only looked back on is kept in *rings* (``SNAPSHOTS``, ``NOTE_CONFLICTS``, ``LATE_EVENTS``):
the slot of a row is the count of its kind modulo the ring's size, so a new row takes the place of the oldest one, and
nothing has to be looked for. What a ring has let go of is in the archive, and in the state at an earlier position.

Times are raw, as published (``""`` = unknown): durations are computed at read, and only where both ends make sense.
``epoch`` and ``n`` are the log position, the way back to the original event. Where a name is too long for an index, its
key is cut and ``full`` has the whole of it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Double, Index, MetaData
from sqlalchemy import text as sql

from projections.draft import Blanks, count, flag, json, maybe, text
from projections.projection import read_model_table

METADATA = MetaData()

KEPT_SNAPSHOTS = 10
"""Latest checkpoints of the agent's own runtime that are kept with their data, milestones apart."""

KEPT_MILESTONES = 100
"""Latest milestones among them that are kept besides."""

KEPT_CONFLICTS = 100
"""Latest conflicts of notes that are kept."""

KEPT_LATE = 1_000
"""Latest events after the end of their run that are kept."""

TASKS = read_model_table(
    METADATA,
    "tasks",
    text("status"),  # by projections.task.status
    text("goal"),
    text("agent"),
    text("user"),
    text("session"),
    text("run"),  # the current run: of the highest attempt
    count("attempt"),
    text("verdict"),  # how the current run left the task; "" while it goes on
    text("reason"),
    text("detail"),
    flag("active"),  # work has begun
    text("current_step"),
    count("plan_version"),
    text("plan_digest"),  # of its steps' ids and titles, as the SDK computes it
    count("events"),
    count("runs"),
    count("steps"),
    count("steps_done"),
    count("steps_open"),  # of the plan
    count("calls"),
    count("calls_in_flight"),
    count("calls_failed"),
    count("approvals"),
    count("approvals_pending"),
    count("blockers"),
    count("blockers_open"),
    count("artifacts"),
    count("decisions"),
    count("notes"),
    count("note_conflicts"),
    count("checkpoints"),
    count("milestones"),  # of the checkpoints
    count("feedback"),
    count("tokens_in"),
    count("tokens_out"),
    json("cost"),  # by currency: decimal text
    count("late"),
    text("first_time"),
    text("last_time"),
    count("epoch"),
    count("n"),
)

RUNS = read_model_table(
    METADATA,
    "runs",
    text("run", pk=True),
    text("full"),
    count("attempt"),  # 0: its run.started has not come
    text("parent_run"),
    text("parent"),  # the parent run as it stands in a key
    text("goal"),
    text("mode"),
    text("model"),
    text("settles"),
    maybe("settle_deadline_s", Double),
    json("budget"),
    json("digests"),  # model, system_prompt, tools, plan
    text("agent"),
    text("user"),
    text("session"),
    text("started"),
    text("ended"),
    flag("over"),
    flag("provisional"),  # ended as lost: a sign of life undoes it
    count("revived"),
    text("reason"),
    text("outcome"),
    text("detail"),
    json("result"),  # what the run hands to whoever waits for it: a parent, a person
    flag("interrupted"),
    count("events"),
    count("late"),
    count("tokens_in"),
    count("tokens_out"),
    text("last_time"),
    count("epoch"),
    count("n"),
)
Index("runs_by_run", RUNS.c.org, RUNS.c.run)
_HAS_PARENT = sql("parent <> ''")
Index("runs_by_parent", RUNS.c.org, RUNS.c.parent, sqlite_where=_HAS_PARENT, postgresql_where=_HAS_PARENT)

PLAN = read_model_table(
    METADATA,
    "plan",
    json("steps"),
    count("version"),
    text("reason"),
    text("time"),
    count("epoch"),
    count("n"),
)

STEPS = read_model_table(
    METADATA,
    "steps",
    text("step", pk=True),
    text("full"),
    text("title"),
    maybe("place", BigInteger),  # in the plan, from 0; NULL when it is not in the plan
    text("status"),
    text("summary"),
    json("result"),
    text("error"),
    flag("open"),
    flag("ahead"),
    count("attempts"),
    text("started"),
    text("ended"),
    text("run"),
    flag("late"),
    count("epoch"),
    count("n"),
)

CALLS = read_model_table(
    METADATA,
    "calls",
    text("run", pk=True),
    text("call_id", pk=True),
    count("nth", pk=True),  # some runtimes use one call id again within a run
    text("full"),
    text("run_id"),  # the run in full
    count("uses"),  # on the row with nth 1: how many uses the id has had
    text("name"),
    json("arguments"),
    text("step"),
    text("idempotency_key"),
    flag("side_effect"),
    flag("called"),  # false while only its result has come
    text("status"),  # in_flight, returned, failed
    json("result"),
    text("error"),
    text("called_at"),
    text("returned_at"),
    flag("late"),
    count("repeats"),  # further results, which change nothing
    maybe("expected_s", Double),
    count("epoch"),
    count("n"),
    count("result_epoch"),
    count("result_n"),
)

BLOCKERS = read_model_table(
    METADATA,
    "blockers",
    text("blocker", pk=True),
    text("full"),
    text("description"),
    flag("open"),
    flag("ahead"),
    text("detail"),
    text("raised"),
    text("cleared"),
    text("run"),
    flag("late"),
)

APPROVALS = read_model_table(
    METADATA,
    "approvals",
    text("approval", pk=True),
    text("full"),
    text("action"),
    json("arguments"),
    json("versions"),
    flag("open"),
    flag("ahead"),
    maybe("approved", Boolean),
    text("by"),
    text("detail"),
    text("requested"),
    text("resolved"),
    text("run"),
    flag("late"),
)

ARTIFACTS = read_model_table(
    METADATA,
    "artifacts",
    text("name", pk=True),
    text("full"),
    text("uri"),
    text("kind"),
    text("digest"),
    maybe("size_bytes", BigInteger),
    text("step"),
    text("run"),
    count("version"),
    text("time"),
    flag("late"),
    count("epoch"),
    count("n"),
)

DECISIONS = read_model_table(
    METADATA,
    "decisions",
    count("epoch", pk=True),
    count("n", pk=True),
    text("event_id"),
    text("question"),
    text("chosen"),
    json("alternatives"),
    text("rationale"),
    json("based_on"),
    text("run"),
    text("time"),
    flag("late"),
    unread=True,
)

NOTES = read_model_table(
    METADATA,
    "notes",
    text("note", pk=True),
    text("full"),
    count("version"),
    json("content"),
    text("category"),
    maybe("ttl_s", Double),
    text("written_at"),
    text("source"),
    text("run"),
    count("conflicts"),
    flag("late"),
    count("epoch"),
    count("n"),
)

NOTE_CONFLICTS = read_model_table(
    METADATA,
    "note_conflicts",
    count("slot", pk=True),  # a ring of KEPT_CONFLICTS
    text("event_id"),
    text("note"),
    count("expected_version"),
    count("found_version"),
    json("content"),
    text("run"),
    text("time"),
    count("epoch"),
    count("n"),
    unread=True,
)

SNAPSHOTS = read_model_table(
    METADATA,
    "snapshots",
    text("ring", pk=True),  # recent (of KEPT_SNAPSHOTS) or milestone (of KEPT_MILESTONES)
    count("slot", pk=True),
    text("checkpoint"),  # as the agent calls it
    text("data_version"),
    flag("milestone"),
    text("run"),
    text("time"),
    flag("late"),
    count("epoch"),
    count("n"),
    count("size_bytes"),  # of the data
    text("data"),  # JSON text, never re-ordered: it comes back as it was
    was="checkpoint",
    unread=True,
)

FEEDBACK = read_model_table(
    METADATA,
    "feedback",
    text("digest", pk=True),
    text("text"),
    maybe("score", Double),
    text("target_kind"),
    text("target"),
    text("by"),
    text("run"),
    text("time"),
    count("epoch"),
    count("n"),
)

WORKBENCH = read_model_table(
    METADATA,
    "workbench",
    text("run"),  # that changed it last
    json("observations"),
    json("preconditions"),
    json("requirements"),
    json("to_retry"),
    json("came_through"),  # [effect, epoch, n] of calls that came through while others had no result yet
    text("time"),
    count("epoch"),
    count("n"),
)
"""What a run has at hand: one row, at most ``retries.ITEMS`` items a section, gone when the task's work ends."""

LATE_EVENTS = read_model_table(
    METADATA,
    "late_events",
    count("slot", pk=True),  # a ring of KEPT_LATE
    text("event_id"),
    text("type"),
    text("run"),
    text("reason"),
    text("time"),
    count("epoch"),
    count("n"),
    unread=True,
)

TABLES = (
    TASKS, RUNS, PLAN, STEPS, CALLS, BLOCKERS, APPROVALS, ARTIFACTS, DECISIONS, NOTES, NOTE_CONFLICTS, SNAPSHOTS,
    FEEDBACK, WORKBENCH, LATE_EVENTS,
)  # fmt: skip

BLANKS = Blanks(TABLES)
