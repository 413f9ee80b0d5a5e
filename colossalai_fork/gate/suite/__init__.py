"""The contract for each checkpoint IO class of ColossalAI, as pytest runs it."""
