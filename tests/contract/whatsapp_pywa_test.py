"""The stand-in of the WhatsApp Cloud API, judged by pywa: a library that knows Meta and not this project.

pywa verifies the signature of every webhook the stand-in sends and reads it; its client sends what the
stand-in takes. pywa looks at the first event of a POST only, so batches are checked for their signature
and for being read at all. Needs $ASKD_BIN and requirements-whatsapp.txt; binds 127.0.0.1 only.
"""

import http.server
import json
import logging
import os
import queue
import subprocess
import threading
import time
import unittest
import urllib.parse
import urllib.request

import httpx
import pywa
from pywa import errors, types, utils

ADA = "15550001111"
GRACE = "4915100001111"
TEMPLATE = {"name": "agent_question", "language": "en_US", "body": "{{1}} has a question", "buttons": ["Show it"]}


class StandIn:
    """`askd sim whatsapp` as a process."""

    def __init__(self, config, folder):
        path = os.path.join(folder, "sim.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        command = [os.environ["ASKD_BIN"], "sim", "whatsapp", "--config", path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.facts = json.loads(self.process.stdout.readline())

    def tell(self, do, **order):
        body = json.dumps({"do": do, **order}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.facts["url"] + "/control", body, headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def list(self, what):
        with urllib.request.urlopen(f"{self.facts['url']}/control/{what}") as answer:
            return json.load(answer)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Base(unittest.TestCase):
    config = {}

    @classmethod
    def setUpClass(cls):
        import tempfile

        logging.getLogger("pywa").setLevel(logging.CRITICAL)
        cls.folder = tempfile.TemporaryDirectory()
        people = [
            {"wa_id": ADA, "name": "Ada Lövelace"},
            {"wa_id": GRACE, "name": "Grace", "username": "grace", "number_hidden": True},
        ]
        cls.sim = StandIn({"people": people, "templates": [TEMPLATE], **cls.config}, cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.sim.stop)
        facts = cls.sim.facts
        session = httpx.Client(trust_env=False)
        cls.addClassCleanup(session.close)
        cls.wa = pywa.WhatsApp(
            phone_id=facts["phone_number_id"], token=facts["token"], waba_id=facts["waba_id"], session=session,
            verify_token=facts["verify_token"], app_secret=facts["app_secret"], api_version=25.0, server=None,
        )
        # pywa has no setting for the base URL; this is the one line it is kept in.
        session.base_url = facts["api_url"]
        cls.seen = queue.Queue()
        cls.refused = []
        for name in ("message", "callback_button", "callback_selection", "message_status"):
            getattr(cls.wa, f"on_{name}")()(lambda _, update: cls.seen.put(update))
        cls.listen()

    @classmethod
    def listen(cls):
        class Hook(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
                text, status = cls.wa.webhook_challenge_handler(query.get(utils.HUB_VT), query.get(utils.HUB_CH))
                self.reply(status, text)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                refusal = cls.wa.webhook_update_validator(body, self.headers.get(utils.HUB_SIG))
                if refusal:
                    cls.refused.append(refusal)
                    self.reply(refusal[1], refusal[0])
                    return
                text, status = cls.wa.webhook_update_handler(body)
                self.reply(status, text)

            def reply(self, status, text):
                self.send_response(status)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(thread.join)
        cls.addClassCleanup(server.shutdown)
        cls.sim.tell("webhook", url=f"http://127.0.0.1:{server.server_port}/hook")

    def next(self, kind=None, like=lambda _: True):
        """The next update of a kind; others are left out."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                update = self.seen.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                break
            if (kind is None or isinstance(update, kind)) and like(update):
                return update
        self.fail(f"no {kind} came; refused: {self.refused}; {self.sim.list('webhooks')[-3:]}")

    def message(self, text):
        """The stand-in's record of a message of the business, once it is on the phone."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for message in self.sim.list("messages"):
                if message["outgoing"] and message["text"] == text and message["stage"] in ("delivered", "read"):
                    return message
            time.sleep(0.01)
        self.fail(f"{text!r} was never shown")

    def setUp(self):
        # Time for the pair limit to forget what the test before sent.
        self.sim.tell("advance", seconds=600)
        while not self.seen.empty():
            self.seen.get()


class Webhooks(Base):
    """pywa reads what people do."""

    def test_handshake(self):
        self.assertEqual(self.sim.tell("handshake"), {"ok": True})

    def test_text_in_any_script(self):
        for text in ("2", "naïve Ümläute / ø @you <b> 5% \\ \"q\"", "日本語", "שלום", "🤔👩‍👩‍👧 𝒳", "a\nb\tc"):
            sent = self.sim.tell("says", who=ADA, text=text)
            message = self.next(types.Message)
            self.assertEqual((message.id, message.text), (sent["id"], text))
            self.assertEqual(message.type, types.MessageType.TEXT)
            self.assertEqual((message.from_user.wa_id, message.from_user.name), (ADA, "Ada Lövelace"))
            self.assertEqual(message.from_user.bsuid, f"US.9{ADA}")
        self.assertEqual(self.refused, [])

    def test_quoted_reply(self):
        self.sim.tell("says", who=ADA, text="hi")
        sent = self.wa.send_message(ADA, "Which?")
        self.message("Which?")
        self.sim.tell("says", who=ADA, text="the second", quotes=sent.id)
        message = self.next(types.Message, lambda m: m.text == "the second")
        self.assertEqual(message.reply_to_message.message_id, sent.id)

    def test_no_text_at_all(self):
        self.sim.tell("sticker", who=ADA)
        message = self.next(types.Message)
        self.assertEqual(message.type, types.MessageType.STICKER)
        self.assertEqual(message.sticker.mime_type, "image/webp")
        self.sim.tell("voice", who=ADA)
        message = self.next(types.Message)
        self.assertTrue(message.type == types.MessageType.AUDIO and message.audio.voice)
        for caption in (None, "", "a caption"):
            self.sim.tell("image", who=ADA, caption=caption)
            message = self.next(types.Message)
            self.assertEqual((message.type, message.caption or None), (types.MessageType.IMAGE, caption or None))
        self.sim.tell("unsupported", who=ADA)
        message = self.next(types.Message)
        self.assertEqual((message.type, message.error.code), (types.MessageType.UNSUPPORTED, 131051))

    def test_reaction(self):
        self.sim.tell("says", who=ADA, text="hi")
        sent = self.wa.send_message(ADA, "Like it?")
        self.message("Like it?")
        for emoji in ("👍", ""):
            self.sim.tell("reaction", who=ADA, on=sent.id, emoji=emoji)
            message = self.next(types.Message, lambda m: m.type == types.MessageType.REACTION)
            self.assertEqual((message.reaction.message_id, message.reaction.emoji or ""), (sent.id, emoji))

    def test_username_only(self):
        self.sim.tell("says", who=GRACE, text="who am I?")
        message = self.next(types.Message)
        self.assertIsNone(message.from_user.wa_id)
        self.assertEqual((message.from_user.bsuid, message.from_user.username), (f"US.9{GRACE}", "grace"))
        sent = self.wa.send_message(f"US.9{GRACE}", "You are Grace.")
        status = self.next(types.MessageStatus, lambda s: s.id == sent.id)
        self.assertEqual((status.from_user.wa_id, status.from_user.bsuid), (None, f"US.9{GRACE}"))

    def test_batches_are_signed_and_read(self):
        before = len(self.sim.list("webhooks"))
        self.sim.tell("traffic", gather_ms=50, batch=8, shuffle=True, duplicate=0.3)
        for i in range(20):
            self.sim.tell("says", who=ADA, text=f"é {i}")
        self.next(types.Message)
        time.sleep(0.3)
        self.sim.tell("traffic")
        self.assertEqual(self.refused, [])
        self.assertEqual({w["status"] for w in self.sim.list("webhooks")[before:]}, {200})

    def test_a_wrong_signature_is_refused_by_pywa(self):
        before = len(self.refused)
        last = self.sim.tell("raw", body="{}", signature="sha256=" + "0" * 64)
        self.assertEqual((last["status"], len(self.refused)), (403, before + 1))
        self.refused.clear()


class Sending(Base):
    """pywa's client writes, and reads what becomes of it."""

    config = {"clock_held": True}

    def setUp(self):
        super().setUp()
        self.sim.tell("says", who=ADA, text="the window is open")

    def test_ladder_with_tracker(self):
        sent = self.wa.send_message(ADA, "Hello *there*", tracker="tok-1")
        self.message("Hello *there*")
        self.sim.tell("opens", who=ADA)
        for expected in (types.MessageStatusType.SENT, types.MessageStatusType.DELIVERED, types.MessageStatusType.READ):
            status = self.next(types.MessageStatus, lambda s: s.id == sent.id)
            self.assertEqual((status.status, status.tracker), (expected, "tok-1"))
            self.assertEqual((status.from_user.wa_id, status.error), (ADA, None))
            self.assertIsNotNone(status.pricing)

    def test_buttons_and_lists(self):
        buttons = [types.Button(title=t, callback_data=f"q:{t}") for t in ("Yes", "No")]
        sent = self.wa.send_message(ADA, "Go on?", buttons=buttons)
        self.message("Go on?")
        self.sim.tell("tap", who=ADA, on=sent.id, id="q:No")
        tapped = self.next(types.CallbackButton)
        self.assertEqual((tapped.data, tapped.title, tapped.reply_to_message.message_id), ("q:No", "No", sent.id))
        rows = [types.SectionRow(title=f"Row {i}", callback_data=f"r{i}", description="more") for i in range(3)]
        choices = types.SectionList(button_title="Choose", sections=[types.Section(title="All", rows=rows)])
        sent = self.wa.send_message(ADA, "Which row?", buttons=choices)
        self.message("Which row?")
        self.sim.tell("tap", who=ADA, on=sent.id, id="r1")
        tapped = self.next(types.CallbackSelection)
        self.assertEqual((tapped.data, tapped.title, tapped.description), ("r1", "Row 1", "more"))

    def test_template_opens_the_window(self):
        self.sim.tell("advance", seconds=86_400)
        cold = self.wa.send_message(ADA, "Too late")
        status = self.next(types.MessageStatus, lambda s: s.id == cold.id)
        self.assertEqual(status.status, types.MessageStatusType.FAILED)
        self.assertIsInstance(status.error, errors.ReEngagementMessage)
        from pywa.types.templates import BodyText, QuickReplyButton, TemplateLanguage

        params = [BodyText.params("research"), QuickReplyButton.params(callback_data="k7", index=0)]
        sent = self.wa.send_template(ADA, "agent_question", TemplateLanguage.ENGLISH_US, params)
        self.message("research has a question")
        self.sim.tell("tap", who=ADA, on=sent.id, id="k7")
        tapped = self.next(types.CallbackButton)
        self.assertEqual((tapped.data, tapped.title), ("k7", "Show it"))
        warm = self.wa.send_message(ADA, "In time")
        self.assertEqual(self.message("In time")["id"], warm.id)

    def test_errors_are_the_classes_pywa_has_for_them(self):
        kinds = {
            100: errors.WhatsAppError, 190: errors.AuthorizationError, 368: errors.TemporarilyBlocked,
            80007: errors.RateLimitIssues, 130429: errors.RateLimitHit, 131016: errors.ServiceUnavailable,
            131026: errors.MessageUndeliverable, 131031: errors.AccountLocked, 131048: errors.SpamRateLimitHit,
            131051: errors.UnsupportedMessageType, 131056: errors.TooManyMessages,
        }
        for code, kind in kinds.items():
            self.sim.tell("fault", fault={"code": code}, times=1)
            with self.assertRaises(kind, msg=str(code)) as caught:
                self.wa.send_message(ADA, "x")
            self.assertEqual(caught.exception.code, code)
            self.assertTrue(caught.exception.fbtrace_id)

    def test_unreachable(self):
        self.sim.tell("reachable", who="15550009999", on=False)
        sent = self.wa.send_message("15550009999", "Anybody?")
        status = self.next(types.MessageStatus, lambda s: s.id == sent.id)
        self.assertEqual((status.status, status.error.code), (types.MessageStatusType.FAILED, 131026))
        self.assertIsNone(status.from_user.bsuid)

    def test_mark_as_read_and_typing(self):
        sent = self.sim.tell("says", who=ADA, text="see this")
        self.assertTrue(self.wa.mark_message_as_read(sent["id"]))
        self.assertTrue(self.wa.indicate_typing(sent["id"]))
        mine = [m for m in self.sim.list("messages") if m["id"] == sent["id"]]
        self.assertEqual(mine[0]["stage"], "read")

    def test_pair_limit(self):
        with self.assertRaises(errors.TooManyMessages):
            for i in range(46):
                self.wa.send_message(ADA, f"burst {i}")
        sent = [m for m in self.sim.list("messages") if m["text"].startswith("burst")]
        self.assertEqual(len(sent), 45)

    def test_lookups(self):
        number = self.wa.get_business_phone_number()
        self.assertEqual((number.id, number.display_phone_number), (self.sim.facts["phone_number_id"], "+15550783881"))


if __name__ == "__main__":
    unittest.main()
