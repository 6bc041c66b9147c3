"""The paper's section 3.4: from the features of a row to its blocks."""

from blockxmc.routing.assessment import assess_routing
from blockxmc.routing.router import Router, only_block

__all__ = ["Router", "assess_routing", "only_block"]
