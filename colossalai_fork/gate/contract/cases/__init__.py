"""The contract's cases, one module for each kind."""
