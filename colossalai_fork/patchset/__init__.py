"""Writes this project's changes as series of commits for a ColossalAI source tree.

    text          reading and changing source: names, imports, modules, places found by structure
    fixes         the ``fix`` series: small edits of upstream's functions, a module a patch
    edits         makes patches of such edits
    functions     the ``contract`` series: whole functions and new modules of the fork, carried into upstream's files
    series        a series as it lies in ``patches/``: order, titles, texts, tests
    points        which contract points hold after each patch, as the gate has measured
    tree          a git checkout or an unpacked sdist, read without touching it; whose commits they are
    finding       what a patch meets at one place of a tree
    stack         the commits, made in a scratch clone
    export        the commits as files for ``git am``, with texts for the pull requests
    apply         the commits on a branch of a checkout
    check         does a series fit a tree
    gate          has the gate judge a tree
    project       this project's own series and code

Needs the ``patch`` extra (libcst, isort) and git.
"""
