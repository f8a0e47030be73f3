"""slack_sdk against the stand-in: is it Slack to Slack's own Python client?"""

import http.server
import json
import os
import threading
import time
import unittest
import urllib.parse

import websocket
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import Block
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.webhook import WebhookClient

from stand_in import ALICE, CHANNEL, StandIn


def plain(text):
    return {"type": "plain_text", "text": text}


def card(label="React"):
    """A message with every kind of element that askd uses."""
    with open(os.path.join(os.path.dirname(__file__), "payloads", "card.json"), encoding="utf-8") as file:
        blocks = json.load(file)["blocks"]
    blocks[-1]["elements"][0]["text"]["text"] = label
    return blocks


class Web(StandIn):
    def setUp(self):
        self.client = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")

    def fails(self, error, call):
        with self.assertRaises(SlackApiError) as raised:
            call()
        self.assertEqual(raised.exception.response["error"], error)
        return raised.exception.response

    def test_who_am_i(self):
        answer = self.client.auth_test()
        self.assertEqual((answer["team_id"], answer["user_id"]), ("T0ASKD", "U0ASKDBOT"))
        self.assertIn("chat:write", answer.headers["x-oauth-scopes"])
        self.assertTrue(self.client.api_test(foo="bar")["args"]["foo"] == "bar")

    def test_post_update_history_replies(self):
        metadata = {"event_type": "askd_question", "event_payload": {"ask": "k7"}}
        posted = self.client.chat_postMessage(channel=CHANNEL, text="fallback", blocks=card(), metadata=metadata)
        ts = posted["ts"]
        self.assertRegex(ts, r"^\d{10}\.\d{6}$")
        self.assertEqual(posted["message"]["bot_id"], "B0ASKD")
        for block in Block.parse_all(posted["message"]["blocks"]):
            block.validate_json()
        history = self.client.conversations_history(channel=CHANNEL, limit=1, include_all_metadata=True)
        self.assertEqual(history["messages"][0]["metadata"], metadata)
        self.assertNotIn("metadata", self.client.conversations_history(channel=CHANNEL, limit=1)["messages"][0])
        reply = self.client.chat_postMessage(channel=CHANNEL, thread_ts=ts, text="a reply")
        replies = self.client.conversations_replies(channel=CHANNEL, ts=ts)["messages"]
        self.assertEqual([message["ts"] for message in replies], [ts, reply["ts"]])
        self.assertEqual(replies[0]["reply_count"], 1)
        updated = self.client.chat_update(channel=CHANNEL, ts=ts, text="done", blocks=[{"type": "section", "text": plain("done")}])
        self.assertEqual(len(updated["message"]["blocks"]), 1)
        self.assertTrue(updated["message"]["edited"])

    def test_pages(self):
        posted = [self.client.chat_postMessage(channel="C0RESEARCH", text=f"m{n}")["ts"] for n in range(5)]
        seen = []
        for page in self.client.conversations_history(channel="C0RESEARCH", limit=2):
            seen += [message["ts"] for message in page["messages"]]
        self.assertEqual(seen, posted[::-1])
        window = self.client.conversations_history(channel="C0RESEARCH", oldest=posted[1], latest=posted[3])
        self.assertEqual([message["ts"] for message in window["messages"]], [posted[2]])
        window = self.client.conversations_history(channel="C0RESEARCH", oldest=posted[1], latest=posted[3], inclusive=True)
        self.assertEqual(len(window["messages"]), 3)

    def test_ephemeral_and_delete(self):
        self.client.chat_postEphemeral(channel=CHANNEL, user=ALICE, text="only you")
        self.assertTrue(any(message["only_for"] == ALICE for message in self.seen()))
        self.assertFalse(any(message["text"] == "only you" for message in self.seen(user="U0BOB")))
        ts = self.client.chat_postMessage(channel=CHANNEL, text="gone soon")["ts"]
        self.client.chat_delete(channel=CHANNEL, ts=ts)
        self.fails("message_not_found", lambda: self.client.chat_update(channel=CHANNEL, ts=ts, text="x"))

    def test_errors(self):
        client = self.client
        self.fails("channel_not_found", lambda: client.chat_postMessage(channel="C0NOWHERE", text="x"))
        self.fails("channel_not_found", lambda: client.chat_postMessage(channel="G0SECRET", text="x"))
        self.fails("not_in_channel", lambda: client.chat_postMessage(channel="C0UNINVITED", text="x"))
        self.fails("not_in_channel", lambda: client.conversations_history(channel="C0UNINVITED"))
        self.fails("is_archived", lambda: client.chat_postMessage(channel="C0ARCHIVED", text="x"))
        self.fails("no_text", lambda: client.chat_postMessage(channel=CHANNEL, text=""))
        self.fails("msg_too_long", lambda: client.chat_postMessage(channel=CHANNEL, text="x" * 40001))
        self.fails("invalid_blocks_format", lambda: client.chat_postMessage(channel=CHANNEL, text="x", blocks={"type": "divider"}))
        self.fails("user_not_in_channel", lambda: client.chat_postEphemeral(channel=CHANNEL, user="U0NOBODY", text="x"))
        self.fails("user_not_found", lambda: client.users_info(user="U0NOBODY"))
        self.fails("unknown_method", lambda: client.api_call("chat.shout"))
        self.fails("invalid_auth", lambda: WebClient(token="xoxb-no", base_url=self.slack["api_url"] + "/").auth_test())
        self.fails("not_authed", lambda: WebClient(base_url=self.slack["api_url"] + "/").auth_test())
        self.fails("not_allowed_token_type", lambda: client.apps_connections_open(app_token=self.slack["bot_token"]))
        long = {"type": "section", "text": plain("x" * 3001)}
        answer = self.fails("invalid_blocks", lambda: client.chat_postMessage(channel=CHANNEL, text="x", blocks=[long]))
        self.assertEqual(
            answer["response_metadata"]["messages"],
            ["[ERROR] must be less than 3001 characters [json-pointer:/blocks/0/text/text]"],
        )

    def test_reads(self):
        client = self.client
        self.assertEqual(client.users_info(user=ALICE)["user"]["name"], "alice")
        self.assertIn("U0ASKDBOT", [member["id"] for member in client.users_list()["members"]])
        names = [channel["name"] for channel in client.conversations_list()["channels"]]
        self.assertIn("agents", names)
        self.assertNotIn("secret", names)
        self.assertTrue(client.conversations_info(channel=CHANNEL)["channel"]["is_member"])
        self.assertIn(ALICE, client.conversations_members(channel=CHANNEL)["members"])
        ts = client.chat_postMessage(channel=CHANNEL, text="x")["ts"]
        client.reactions_add(channel=CHANNEL, timestamp=ts, name="eyes")
        self.fails("already_reacted", lambda: client.reactions_add(channel=CHANNEL, timestamp=ts, name="eyes"))


class Pace(StandIn):
    options = []

    def test_second_post_within_a_second_is_limited(self):
        client = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")
        client.chat_postMessage(channel=CHANNEL, text="one")
        with self.assertRaises(SlackApiError) as raised:
            client.chat_postMessage(channel=CHANNEL, text="two")
        response = raised.exception.response
        self.assertEqual((response.status_code, response["error"], response.headers["retry-after"]), (429, "ratelimited", "1"))
        client.chat_postMessage(channel="C0RESEARCH", text="elsewhere")


class Sockets(StandIn):
    def test_a_click_and_a_reply_arrive_over_the_socket(self):
        web = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")
        app = WebClient(base_url=self.slack["api_url"] + "/")
        client = SocketModeClient(app_token=self.slack["app_token"], web_client=app)
        got, arrived = [], threading.Condition()

        def listen(client, request):
            client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
            with arrived:
                got.append((request.type, request.payload))
                arrived.notify_all()

        client.socket_mode_request_listeners.append(listen)
        client.connect()
        try:
            ts = web.chat_postMessage(channel=CHANNEL, text="pick", blocks=card())["ts"]
            self.person("act", ts=ts, block_id="q1", action_id="r", act="choose", values=["1"])
            clicked = self.person("act", ts=ts, block_id="go", action_id="a0", act="click")
            self.assertEqual(clicked, {"sent": True, "acknowledged": True})
            self.person("say", thread_ts=ts, text="a <b> reply")
            with arrived:
                self.assertTrue(arrived.wait_for(lambda: any("reply" in str(payload) for _, payload in got), 5))
            payload = next(payload for kind, payload in got if kind == "interactive")
            self.assertEqual(payload["actions"][0]["value"], "0")
            values = payload["state"]["values"]
            self.assertEqual(values["q1"]["r"]["selected_option"]["value"], "1")
            self.assertEqual(values["q2"]["c"]["selected_options"], [])
            self.assertIsNone(values["q3"]["t"]["value"])
            self.assertIsNone(values["go"]["s"]["selected_option"])
            events = [payload["event"] for kind, payload in got if kind == "events_api"]
            reply = next(event for event in events if event.get("thread_ts") == ts)
            self.assertEqual((reply["user"], reply["text"]), (ALICE, "a &lt;b&gt; reply"))
        finally:
            client.close()


    def test_an_eleventh_socket_is_sent_away(self):
        web = WebClient(base_url=self.slack["api_url"] + "/")
        sockets = []
        for _ in range(11):
            url = web.apps_connections_open(app_token=self.slack["app_token"])["url"]
            sockets.append(websocket.create_connection(url, timeout=5))
        said = [json.loads(socket.recv())["type"] for socket in sockets]
        self.assertEqual(said, ["hello"] * 11)
        self.assertEqual(json.loads(text_of(sockets[10]))["reason"], "too_many_websockets")
        with self.assertRaises(websocket.WebSocketBadStatusException):
            websocket.create_connection(url, timeout=5)
        for socket in sockets:
            socket.close()


def text_of(socket):
    """The next text, past pings."""
    while True:
        kind, data = socket.recv_data(control_frame=True)
        if kind == websocket.ABNF.OPCODE_TEXT:
            return data


class Signed(StandIn):
    """Without sockets: a form-encoded POST that Slack's own verifier accepts."""

    @classmethod
    def setUpClass(cls):
        cls.got = got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                got.append((body, dict(self.headers)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.options = ["--pace", "0", "--interactivity-url", f"http://127.0.0.1:{cls.server.server_port}/"]
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.server.shutdown()
        cls.server.server_close()

    def test_the_verifier_of_slack_sdk_accepts_it(self):
        web = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")
        ts = web.chat_postMessage(channel=CHANNEL, text="pick", blocks=card("naïve \N{GRINNING FACE}"))["ts"]
        self.assertTrue(self.person("act", ts=ts, block_id="go", action_id="a0", act="click")["acknowledged"])
        body, headers = self.got[-1]
        self.assertTrue(SignatureVerifier(self.slack["signing_secret"]).is_valid_request(body, headers))
        self.assertFalse(SignatureVerifier("another").is_valid_request(body, headers))
        self.assertLess(abs(time.time() - int(headers["x-slack-request-timestamp"])), 5)
        payload = json.loads(urllib.parse.parse_qs(body)["payload"][0])
        self.assertEqual(payload["type"], "block_actions")
        self.assertEqual(payload["message"]["ts"], ts)
        self.assertEqual(payload["team"]["id"], "T0ASKD")
        response_url = payload["response_url"]
        hook = WebhookClient(response_url)
        self.assertEqual(hook.send(text="replaced", replace_original=True).status_code, 200)
        self.assertEqual([m["text"] for m in self.seen() if m["ts"] == ts], ["replaced"])
        for _ in range(4):
            self.assertEqual(hook.send(text="note").status_code, 200)
        self.assertEqual(hook.send(text="too often").status_code, 404)


if __name__ == "__main__":
    unittest.main()
