"""The stand-in's page in a real Chromium: a person fills a form, clicks, replies, and sees the message change."""

import os
import threading
import unittest

from slack_sdk import WebClient
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

from browser import CHROMIUM, Browser
from stand_in import CHANNEL, StandIn
from test_slack_sdk import card, plain

MODAL = {
    "type": "modal",
    "title": plain("Your own answer"),
    "submit": plain("Send"),
    "blocks": [
        {
            "type": "input",
            "block_id": "o",
            "label": plain("Answer"),
            "element": {"type": "plain_text_input", "action_id": "t", "multiline": True},
        }
    ],
}


@unittest.skipUnless(CHROMIUM, "no Chromium here")
class Page(StandIn):
    def setUp(self):
        self.web = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")
        self.app = SocketModeClient(app_token=self.slack["app_token"], web_client=WebClient(base_url=self.slack["api_url"] + "/"))
        self.got, self.arrived = [], threading.Condition()
        self.app.socket_mode_request_listeners.append(self.listen)
        self.app.connect()
        self.browser = Browser()

    def tearDown(self):
        self.browser.close()
        self.app.close()

    def listen(self, client, request):
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        if request.type != "interactive":
            return
        payload = request.payload
        with self.arrived:
            self.got.append(payload)
            self.arrived.notify_all()
        if payload["type"] == "view_submission":
            return
        if payload["actions"][0]["action_id"] == "other":
            self.web.views_open(trigger_id=payload["trigger_id"], view=MODAL)
            return
        text = f"Answered: *{payload['actions'][0]['action_id']}* by <@{payload['user']['id']}>"
        self.web.chat_update(channel=payload["channel"]["id"], ts=payload["message"]["ts"], text=text, blocks=[])

    def test_a_person_answers_a_form(self):
        browser = self.browser
        ts = self.web.chat_postMessage(channel=CHANNEL, text="pick", blocks=card())["ts"]
        browser.open(f"{self.slack['url']}/?user=U0BOB&channel={CHANNEL}")
        message = f'[data-ts="{ts}"]'
        browser.click(f"{message} .option:nth-of-type(2) input[type=radio]")
        browser.click(f"{message} input[type=checkbox]")
        browser.click(f"{message} input.field")
        browser.type("naïve <@U0ALICE> \N{GRINNING FACE}")
        if shots := os.environ.get("ASKD_SHOTS"):
            browser.screenshot(f"{shots}/slack-form.png")
        browser.click(f"{message} .button.primary")
        changed = browser.wait(f"(t=>t?.includes('Answered') && t)(document.querySelector('{message} .content')?.innerText)")
        self.assertTrue(changed.startswith("Answered: a0 by @bob"), changed)
        payload = self.got[0]
        values = payload["state"]["values"]
        self.assertEqual(payload["user"]["id"], "U0BOB")
        self.assertEqual(values["q1"]["r"]["selected_option"]["value"], "1")
        self.assertEqual([option["value"] for option in values["q2"]["c"]["selected_options"]], ["0"])
        self.assertEqual(values["q3"]["t"]["value"], "naïve <@U0ALICE> \N{GRINNING FACE}")
        self.assertEqual(browser.complaints, [])

    def test_enter_sends_the_text(self):
        browser = self.browser
        ts = self.web.chat_postMessage(channel=CHANNEL, text="pick", blocks=card())["ts"]
        browser.open(f"{self.slack['url']}/?user=U0ALICE&channel={CHANNEL}")
        browser.click(f'[data-ts="{ts}"] input.field')
        browser.type("mine")
        browser.press_enter()
        with self.arrived:
            self.assertTrue(self.arrived.wait_for(lambda: self.got, 5))
        self.assertEqual((self.got[0]["actions"][0]["action_id"], self.got[0]["actions"][0]["value"]), ("t", "mine"))

    def test_a_modal_is_filled_and_sent(self):
        browser = self.browser
        other = {"type": "button", "action_id": "other", "text": plain("Other...")}
        self.web.chat_postMessage(channel=CHANNEL, text="pick", blocks=[{"type": "actions", "elements": [other]}])
        browser.open(f"{self.slack['url']}/?user=U0BOB&channel={CHANNEL}")
        browser.click(".actions .button")
        browser.click("dialog[open] textarea")
        browser.type("something else")
        if shots := os.environ.get("ASKD_SHOTS"):
            browser.screenshot(f"{shots}/slack-modal.png")
        browser.click("dialog[open] .button.primary")
        browser.wait("!document.querySelector('dialog[open]')")
        submitted = next(payload for payload in self.got if payload["type"] == "view_submission")
        self.assertEqual(submitted["view"]["state"]["values"]["o"]["t"]["value"], "something else")
        self.assertEqual(submitted["user"]["id"], "U0BOB")

    def test_injections_would_be_seen(self):
        browser = self.browser
        text = "<script>x</script> <!channel> <@U0BOB> <https://evil.example|your bank> &lt;!here&gt;"
        ts = self.web.chat_postMessage(channel=CHANNEL, text=text)["ts"]
        browser.open(f"{self.slack['url']}/?user=U0ALICE&channel={CHANNEL}")
        find = lambda selector: f"[...document.querySelectorAll('[data-ts=\"{ts}\"] {selector}')].map(e=>e.innerText).join()"  # noqa: E731
        self.assertEqual(browser.wait(find(".mention")), "@channel,@bob")
        self.assertEqual(browser.run(find("a")), "your bank")
        self.assertEqual(browser.run(find("script")), "")
        self.assertIn("<!here>", browser.run(find(".content")))


if __name__ == "__main__":
    unittest.main()
