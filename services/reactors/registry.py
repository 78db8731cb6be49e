"""The one place to add a reactor."""

from __future__ import annotations

from services.reactors.consolidator import CONSOLIDATOR
from services.reactors.curator import CURATOR
from services.reactors.extractor import EXTRACTOR
from services.reactors.forgetter import FORGETTER
from services.reactors.hindsight import HINDSIGHT
from services.reactors.promoter import PROMOTER
from services.reactors.reactor import Reactor
from services.reactors.settler import SETTLER
from services.reactors.summarizer import SUMMARIZER

REACTORS: tuple[Reactor, ...] = (SETTLER, HINDSIGHT, SUMMARIZER, EXTRACTOR, CURATOR, CONSOLIDATOR, PROMOTER, FORGETTER)
