"""What a checkpoint of an optimizer holds. Knows formats; knows nothing of optimizers or ranks."""
