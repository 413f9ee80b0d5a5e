"""The processes that cases run in, one per rank."""
