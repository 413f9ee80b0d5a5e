"""Writes the fork's functions as a series of commits for a ColossalAI source tree.

    names        which module-level names a piece of source uses, imports and defines (pure functions of text)
    modules      what a dotted module name means: files, relative imports, where a re-exported name was defined
    transplant   puts a function or method into a source file and leaves its neighbours byte for byte
    graft        puts several of them into one file
    imports      adds the imports that a file now needs, takes out those that it no longer needs
    source       where the fork's code lies and where each part of it goes
    carry        the fork's code in upstream's words: functions with what they need, and whole new modules
    known        is upstream's function one that we know, and if not, what changed
    series       the patches in order, with titles, texts and tests
    tree         a git checkout or an unpacked sdist, read without touching it
    stack        the commits, made in a scratch clone
    export       the commits as files for ``git am``, with texts for the pull requests
    apply        the commits on a branch of a checkout
    leftovers    what a change leaves without any use
    python_floor is it fit for the oldest Python that ColossalAI supports
    contract     runs the gate's cases against a source tree
    check        does the series fit a tree
    project      this project's own series and code

Needs the ``patch`` extra (libcst, isort) and git.
"""
