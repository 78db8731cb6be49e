"""The HTTP API: ``/v1``, health, problem+json. HTTP codes are known here and nowhere else."""

# routes name this convertor, so it must be registered before any of them is made
from services.api.paths import register_names

register_names()
