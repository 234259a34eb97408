"""The mathematics of the paper on numpy arrays and torch tensors alike."""
