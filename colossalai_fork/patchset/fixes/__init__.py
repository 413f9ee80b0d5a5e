"""The edits of the ``fix`` series: a module a patch, named as its section in ``patches/fix/series.ini``.

Each module has ``CHANGES``: which place of which function of ColossalAI is edited, and our statements for it.
"""
