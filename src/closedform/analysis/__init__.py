"""What demonstrations are like, and what follows from it."""
