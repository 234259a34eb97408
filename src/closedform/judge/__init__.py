"""What the demonstrations themselves decide, by predicting episodes that were left out."""
