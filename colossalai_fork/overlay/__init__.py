"""
Puts the corrected functions into the installed ColossalAI and takes them out again.

    table        which upstream function each of ours replaces: the one list that everything else reads
    fingerprint  recognises a function by its source, without carrying that source
    inspection   what is installed now, row by row
    apply        puts in and takes out
"""
