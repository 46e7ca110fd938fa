"""Training rights: the ledger of grants, and the datasets that they authorise. What is not granted is denied."""

from ratchet.rights.dataset import AuthorisedDataset, authorise, recheck, reopen
from ratchet.rights.events import Clock, Event, Right, utc_now
from ratchet.rights.fold import fold
from ratchet.rights.ledger import Ledger, record_grants

__all__ = [
    "AuthorisedDataset",
    "Clock",
    "Event",
    "Ledger",
    "Right",
    "authorise",
    "fold",
    "recheck",
    "record_grants",
    "reopen",
    "utc_now",
]
