"""The systems BP is compared with: CBMLC, FastXML, label filters and LPSR."""

from blockxmc.baselines.cbmlc import CBMLC
from blockxmc.baselines.fastxml import FastXML
from blockxmc.baselines.label_filters import LabelFilters
from blockxmc.baselines.lpsr import LPSR

__all__ = ["CBMLC", "LPSR", "FastXML", "LabelFilters"]
