"""What the numbers of demonstrations are, found in the numbers themselves."""
