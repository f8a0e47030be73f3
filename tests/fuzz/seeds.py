#!/usr/bin/env python3
"""Writes the seeds of the corpus: a valid text for each parser. The first byte says which parser reads it."""
import json
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
corpus = here / sys.argv[1] if not sys.argv[1].startswith("/") else pathlib.Path(sys.argv[1])
corpus.mkdir(parents=True, exist_ok=True)
ask = "00000000000000000000000000000007"
seeds = {
    "request": (0, json.dumps({"type": "ask_user:ask", "requestId": "r1", "title": "T", "context": "C", "maxRetries": 1,
        "renderTimeout": 20000, "timeoutMs": 30000, "timeoutPolicy": "return_cancel", "session_id": "s", "opCode": "o",
        "process": "p", "questions": [{"question": "Go?", "id": "q", "header": "H", "type": "multi-select",
        "options": ["a", {"label": "b", "description": "d"}], "required": False, "placeholder": "p", "custom": True}]})),
    "cancel": (0, json.dumps({"type": "ask_user:cancel", "request_id": "r1"})),
    "click": (1, json.dumps({"type": "block_actions", "trigger_id": "t", "team": {"id": "T1"}, "user": {"id": "U1"},
        "container": {"message_ts": "1.2", "channel_id": "C1"}, "message": {"ts": "1.2", "metadata": {"event_type": "a",
        "event_payload": {"ask": ask}}, "blocks": [{"block_id": f"askd:{ask}:q0:1"}]}, "actions": [{"action_id": "submit",
        "block_id": f"askd:{ask}:q0:1", "value": "1"}], "state": {"values": {f"askd:{ask}:q0:1": {"choice:0":
        {"selected_options": [{"value": "0"}]}}, f"askd:{ask}:t0:1": {"text:0": {"value": "mine"}}}}})),
    "event": (1, json.dumps({"type": "event_callback", "event": {"type": "message", "user": "U1", "channel": "C1",
        "ts": "5.6", "thread_ts": "1.2", "text": "1", "team": "T1"}})),
    "message": (2, json.dumps({"entry": [{"changes": [{"field": "messages", "value": {"metadata": {"phone_number_id":
        "106"}, "contacts": [{"wa_id": "1", "profile": {"name": "Ada"}}], "messages": [{"from": "1", "id": "w", "timestamp":
        "1790000000", "type": "text", "text": {"body": "1"}, "context": {"id": "x", "forwarded": True}}], "statuses":
        [{"id": "w", "status": "failed", "timestamp": "1", "recipient_id": "1", "biz_opaque_callback_data": "c", "errors":
        [{"code": 131026, "title": "t"}]}]}}]}]})),
    "words": (3, "k7 1, 2 and c, d"),
    "time": (4, "2026-09-21T14:43:20.000Z"),
}
for path in sorted((root / "tests/golden").glob("*/state/*/*/*.json"), key=lambda path: path.stat().st_size)[:6]:
    seeds[f"record-{path.parts[-5]}-{path.stem[:8]}"] = (5, path.read_text())
for name, (parser, text) in seeds.items():
    (corpus / name).write_bytes(bytes([parser]) + text.encode())
