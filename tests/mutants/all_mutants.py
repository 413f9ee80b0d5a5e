"""All faults to put into the loaders, by name.

A mutant replaces lines of one function by others, in memory, inside the worker processes. It swaps the function's code
and not the function, so it also reaches ColossalAI's own classes, which hold the very same functions. A mutant whose
lines are no longer there fails loudly: whoever rewrites the function decides what the same fault looks like now.
"""

import mutants_of_chunks
import mutants_of_files
import mutants_of_parts
import mutants_of_restoring
import mutants_of_saving

ALL = [
    each
    for module in (mutants_of_restoring, mutants_of_files, mutants_of_parts, mutants_of_chunks, mutants_of_saving)
    for table in vars(module).values()
    if isinstance(table, list)
    for each in table
]
MUTANTS = {each.name: each for each in ALL}
