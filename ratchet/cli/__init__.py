"""The command line: thin commands over the domain, heavy imports inside them."""
