"""What the loaders of all checkpoint IO classes share: validate a saved optimizer, agree, replace."""
