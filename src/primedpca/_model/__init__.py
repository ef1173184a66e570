"""Parts of a fitted model: attributes, scores, likelihood, the sketch of a stream.

May import everything below the estimator.  Only the estimator imports this package.
"""
