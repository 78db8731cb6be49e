"""The gate into long-term memory: what is proposed, read by rules, passes small stages, each with its reasons. Pure.

``extract`` proposes from conversations; ``pipeline`` decides on one proposal; ``view`` is what a scope knows already,
folded from its own events, so that a decision depends on the log alone. Reactors do the rest.
"""
