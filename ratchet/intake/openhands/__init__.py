"""OpenHands' two event streams as conversations: actions and observations, and the events of the agent SDK."""

from ratchet.intake.openhands.actions import Actions
from ratchet.intake.openhands.events import Events
from ratchet.intake.openhands.telling import Messages, Telling

__all__ = ["Actions", "Events", "Messages", "Telling"]
