"""Shared by all tests; its presence lets every test import the helper modules of this folder."""
