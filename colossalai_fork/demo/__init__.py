"""
What ``colossalai-fork demo`` runs: the fault in ColossalAI as it is installed, and what becomes of it.

    reproduction   the smallest case, a script to run by hand
    schedule       what the digits are trained by, and where the run goes back
    training       the same on real data, with Booster and LowLevelZeroPlugin on two processes
    processes      runs both in processes of their own that cannot hang
    results        what came of it, and what must hold
    report         the tables
    curves         the loss curves, for both ways to draw them
    terminal_plot  draws them in the terminal
    figure         draws them into a file
    show           all of it, from start to end
"""
