"""Sources that wrap another source: mapped rows, other devices, users' own sources completed.

May import ``sources.memory`` and ``sources.maps``.
"""
