"""temporary"""
import numpy as np
from scipy import sparse
from blockxmc.scoring import Scorer
from blockxmc.learners.ppd_sparse import PPDSparse
from blockxmc.learners._learner import Job
from blockxmc import metrics
class _S:
    def update(self, d): pass
class Router:
    def __init__(self, scorer): self.scorer=scorer; self.products = scorer.n_labels if scorer.n_labels>1 else 0
    @classmethod
    def from_weights(cls, w): 
        return cls(Scorer.pack([w],[np.arange(w.n_labels)],n_features=w.coef.shape[0],n_labels=w.n_labels))
    @classmethod
    def fit(cls, X, assignment, *, n_blocks, threads=1, phase=None):
        Y=sparse.csr_array((np.ones(assignment.size,np.float32),(np.arange(assignment.size),assignment)),shape=(assignment.size,n_blocks))
        return cls.from_weights(PPDSparse(lam=0,tol=.1,bias=0)._train(X,Y,Job(threads,0,phase or _S())))
    def route(self, X, b, *, threads=1):
        l,s=self.scorer.topk(X,None,b,threads=threads)
        return l.astype(np.int32), s
    def state(self): return {"scorer": self.scorer.state()}
    @classmethod
    def from_state(cls, s): return cls(Scorer.from_state(s["scorer"]))
def assess_routing(X, Y, assignment, clusters, b, *, threads=1, seed=0):
    n=X.shape[0]; rng=np.random.default_rng(seed); p=rng.permutation(n); h=np.sort(p[:max(1,n//10)]); t=np.sort(p[max(1,n//10):])
    if len(t)==0: t=h
    r=Router.fit(X[t],assignment[t],n_blocks=len(clusters),threads=threads)
    bl,_=r.route(X[h],b,threads=threads)
    return {"candidate_recall":metrics.candidate_recall(Y[h],(bl,clusters)),"router_accuracy":float((bl[:,0]==assignment[h]).mean()),"candidates":float(metrics.candidate_counts((bl,clusters),Y.shape[1]).mean()),"products":float(metrics.candidate_counts((bl,clusters),Y.shape[1]).mean()+len(clusters))}
