"""``primedpca datasets`` and ``primedpca reproduce``."""

# The command line loads the commands below as entry points.  It has to come first, or it would
# find the module half imported that began by importing it.
import primedpca.cli  # noqa: F401
