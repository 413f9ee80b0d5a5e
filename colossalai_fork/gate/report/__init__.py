"""What a run came to: counts, tables, files and a verdict."""
