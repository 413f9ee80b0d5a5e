"""
What can be told of a checkpoint without the optimizer that it is for, and without colossalai.

    opened      opens a checkpoint, and lists what no optimizer could load
    summary     what it holds: headers only
    contents    reads all bytes: checksums, NaN and infinity
    comparison  what differs between two checkpoints
    manifest    writes the checksums of all files beside the index
"""
