"""What stands in for an accelerator."""
