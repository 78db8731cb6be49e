"""Tables of the task-state read model. One row a thing; histories are rows that are only added to.

Times are raw, as published (``""`` = unknown): durations are computed at read, and only where both ends make sense.
``epoch`` and ``n`` are the log position, the way back to the original event. Where a name is too long for an index, its
key is cut and ``full`` has the whole of it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Double, Index, MetaData

from projections.draft import Blanks, count, flag, json, maybe, text
from projections.projection import read_model_table

METADATA = MetaData()

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
    count("events"),
    count("runs"),
    count("steps"),
    count("steps_done"),
    count("steps_open"),  # of the plan
    count("calls"),
    count("calls_in_flight"),
    count("calls_failed"),
    count("approvals_pending"),
    count("blockers_open"),
    count("artifacts"),
    count("decisions"),
    count("notes"),
    count("note_conflicts"),
    count("checkpoints"),
    count("feedback"),
    count("tokens_in"),
    count("tokens_out"),
    json("cost"),  # by currency
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

PLAN = read_model_table(
    METADATA, "plan", json("steps"), count("version"), text("reason"), text("time"), count("epoch"), count("n")
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
    count("epoch", pk=True),
    count("n", pk=True),
    text("note"),
    count("expected_version"),
    count("found_version"),
    json("content"),
    text("run"),
    text("time"),
)

CHECKPOINT = read_model_table(
    METADATA,
    "checkpoint",
    text("checkpoint"),
    text("data"),  # JSON text, never re-ordered: it comes back as it was
    text("data_version"),
    flag("milestone"),
    text("run"),
    text("time"),
    flag("late"),
    count("epoch"),
    count("n"),
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

LATE_EVENTS = read_model_table(
    METADATA,
    "late_events",
    count("epoch", pk=True),
    count("n", pk=True),
    text("event_id"),
    text("type"),
    text("run"),
    text("reason"),
    text("time"),
)

TABLES = (
    TASKS, RUNS, PLAN, STEPS, CALLS, BLOCKERS, APPROVALS, ARTIFACTS, DECISIONS, NOTES, NOTE_CONFLICTS, CHECKPOINT,
    FEEDBACK, LATE_EVENTS,
)  # fmt: skip

BLANKS = Blanks(TABLES)
