"""What runs inside the sandbox: standard library only, Python 3.10 or later, no other module of Ratchet.

The sandbox's interpreter is the system's, not the one Ratchet is installed in; these files reach it as data.
"""
