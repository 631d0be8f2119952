"""What is known about every target, as data with its source."""

from rlt_hw.devices.facts.lookup import facts, find_target, known_targets
from rlt_hw.devices.facts.record import Bandwidth, TargetFacts

__all__ = ["Bandwidth", "TargetFacts", "facts", "find_target", "known_targets"]
