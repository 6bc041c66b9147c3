"""What exists to reproduce the paper and its comparisons. Nothing but the command line imports it.

Bases (PD-Sparse, PPD-Sparse, LEML, naive Bayes), systems (CBMLC, LPSR, label filters, FastXML), synthetic data, and the
paper's tables and figures (:mod:`~blockxmc.paper.experiments`). Users reach them as ``blockxmc.LEML``,
``blockxmc.baselines.CBMLC`` and ``blockxmc.data.make_synthetic``, which import this room on first use.
"""
