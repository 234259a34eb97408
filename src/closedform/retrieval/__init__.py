"""Finding the demonstrations that matter: feature maps, metrics, indexes and frames."""
