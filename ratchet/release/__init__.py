"""Release: the gate that decides, the ledger that remembers, the certificate that every consumer verifies."""
