"""From a policy to an arm: interfaces, perception, control and the runner that joins them."""
