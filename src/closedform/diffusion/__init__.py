"""The paper's mathematics: processes, denoisers and samplers, for numpy arrays and torch tensors."""
