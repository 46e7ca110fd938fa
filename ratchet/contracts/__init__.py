"""The interfaces that are fixed before any training compute starts. Framework-free, frozen, identified by content."""
