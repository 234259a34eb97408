"""Fuzzing: random inputs that look for crashes, hangs, tracebacks, memory and wrong results. `make fuzz` runs it."""
