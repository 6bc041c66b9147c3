"""temporary"""
from blockxmc.learners.ppd_sparse import PPDSparse
class DiSMEC(PPDSparse):
    def __init__(self, C=1.0, bias=1.0, prune=0.01, tol=0.01, n_jobs=None, random_state=0, verbose=0):
        self.C=C; self.bias=bias; self.prune=prune; self.tol=tol; self.n_jobs=n_jobs; self.random_state=random_state; self.verbose=verbose
    lam=0.0
    max_iter=50
