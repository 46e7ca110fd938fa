"""Message content as logs have it: a string, null, or a list of parts, to ATIF content.

Images and audio stay references: a URL or `data:` URL becomes the path of the part. A part that ATIF has no kind for
is kept as text, the JSON of the part, with the anomaly `unknown_part`.
"""

from __future__ import annotations

import re
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.records import Unreadable

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
AUDIO = ("wav", "mpeg", "mp4", "aac", "ogg", "flac", "webm", "aiff")
_SUFFIXES = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}
_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)[;,]")


def content_of(content: Any, anomalies: list[str]) -> str | list[dict[str, Any]]:
    """Return ATIF content; null and a missing content become the empty string. Raises Unreadable for another type."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Unreadable("bad_content", "content must be a string, null or an array of parts")
    return [_part(part, anomalies) for part in content]


def beside_text(content: Any) -> tuple[Any, dict[str, Any]]:
    """Return content whose text parts hold text alone, and what stood beside it (`cache_control`), by position."""
    if not isinstance(content, list):
        return content, {}
    plain, beside = [], {}
    for position, part in enumerate(content):
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            rest = {key: value for key, value in part.items() if key not in ("type", "text")}
            if rest:
                beside[str(position)] = rest
                part = {"type": "text", "text": part["text"]}
        plain.append(part)
    return plain, beside


def _part(part: Any, anomalies: list[str]) -> dict[str, Any]:
    if isinstance(part, str):
        anomalies.append("part_as_string")
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise Unreadable("bad_content", "a content part must be an object")
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str) and len(part) == 2:
        return {"type": "text", "text": part["text"]}
    media = _image(part, anomalies) if kind == "image_url" else _audio(part) if kind == "input_audio" else None
    if media is not None:
        return media
    anomalies.append("unknown_part")
    return {"type": "text", "text": canonical_json(part)}


def _image(part: dict[str, Any], anomalies: list[str]) -> dict[str, Any] | None:
    holder = part.get("image_url")
    url = holder if isinstance(holder, str) else holder.get("url") if isinstance(holder, dict) else None
    if not isinstance(url, str):
        return None
    stated = _DATA.match(url)
    suffix = url.split("?", 1)[0].rsplit(".", 1)[-1].lower()
    media_type = stated.group(1) if stated else _SUFFIXES.get(suffix)
    if media_type is None:
        anomalies.append("media_type_assumed")
        media_type = "image/png"
    if media_type not in IMAGES:
        return None
    if isinstance(holder, dict) and set(holder) - {"url"}:
        anomalies.append("image_detail_dropped")
    return {"type": "image", "source": {"media_type": media_type, "path": url}}


def _audio(part: dict[str, Any]) -> dict[str, Any] | None:
    holder = part.get("input_audio")
    if not isinstance(holder, dict) or not isinstance(holder.get("data"), str):
        return None
    kind = {"mp3": "mpeg"}.get(str(holder.get("format")), str(holder.get("format")))
    if kind not in AUDIO:
        return None
    return {
        "type": "audio",
        "source": {"media_type": f"audio/{kind}", "path": f"data:audio/{kind};base64,{holder['data']}"},
    }
