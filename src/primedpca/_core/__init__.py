"""Arrays, linear algebra of tall blocks, parameters, units, threads and hashing.

Nothing here knows about PCA.  Imports nothing else of the package.
"""
