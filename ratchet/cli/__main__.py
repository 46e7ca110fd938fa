"""`python -m ratchet.cli`: the same as `ratchet`."""

from ratchet.cli.main import app

if __name__ == "__main__":
    app(prog_name="ratchet")
