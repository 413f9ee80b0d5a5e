"""All faults to put into the loaders, by name; see :mod:`mutation`."""

import mutants_of_chunks
import mutants_of_files
import mutants_of_fitting
import mutants_of_parts
import mutants_of_ranks
import mutants_of_restoring
import mutants_of_saving
import mutation

ALL = [
    each
    for module in (
        mutants_of_restoring,
        mutants_of_ranks,
        mutants_of_files,
        mutants_of_fitting,
        mutants_of_parts,
        mutants_of_chunks,
        mutants_of_saving,
    )
    for table in vars(module).values()
    for each in (table if isinstance(table, list) else [table])
    if isinstance(each, mutation.Mutant)
]
MUTANTS = {each.name: each for each in ALL}
