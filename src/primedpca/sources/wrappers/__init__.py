"""Sources that wrap another source: mapped rows, other devices, rows on several ranks."""
