"""What every estimator shares: base class, label names, matrix and parameter checks, progress."""
