"""Carries the fork's functions and modules into ColossalAI's files, as the ``contract`` series does."""
