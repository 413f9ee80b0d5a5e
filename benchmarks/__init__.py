"""How long loaders of optimizer checkpoints take, what they read, and how much memory they need.

``python -m benchmarks`` runs a quick form, ``python -m benchmarks --whole`` everything. Every measurement is taken in fresh
processes, and the loaders take turns, so that a slow moment of the machine hits all of them.
"""
