"""Fuzzing: random inputs to find crashes, hangs, tracebacks, memory blowups and wrong results. `make fuzz` runs it."""
