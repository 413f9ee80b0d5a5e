"""The contract of loading an optimizer, as cases that run against any checkpoint IO class."""
