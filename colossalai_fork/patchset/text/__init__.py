"""Reading and changing Python source, byte for byte where nothing has to change. Knows nothing of series or patches."""
