"""The store: create-if-absent objects, compare-and-swap pointers and published folders, on a local disk or on S3."""

from ratchet.store.base import Store, folder_digest
from ratchet.store.home import open_store
from ratchet.store.local import LocalStore

__all__ = ["LocalStore", "Store", "folder_digest", "open_store"]
