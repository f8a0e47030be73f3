"""Messages judged three times: by slack_sdk's own models, by the stand-in, and (payloads.test.mjs) by the types of @slack/types.

Reads payloads/*.json, docs/cards/slack-*.json, and *.json of the folder ASKD_PAYLOADS: `{"text", "blocks"}` each, or a list of such;
or `{"view"}` of a modal.
"""

import glob
import json
import os
import unittest

from slack_sdk import WebClient
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View

from stand_in import CHANNEL, StandIn


def payloads():
    here, own = os.path.dirname(__file__), os.environ.get("ASKD_PAYLOADS")
    patterns = [os.path.join(here, "payloads", "*.json"), os.path.join(here, "../../docs/cards/slack-*.json")]
    for pattern in patterns + ([os.path.join(own, "*.json")] if own else []):
        for path in sorted(glob.glob(pattern)):
            with open(path, encoding="utf-8") as file:
                loaded = json.load(file)
            for index, payload in enumerate(loaded if isinstance(loaded, list) else [loaded]):
                yield f"{os.path.basename(path)}[{index}]", payload


class Payloads(StandIn):
    def test_slack_sdk_and_the_stand_in_accept_them(self):
        web = WebClient(token=self.slack["bot_token"], base_url=self.slack["api_url"] + "/")
        for name, payload in payloads():
            with self.subTest(name):
                if "view" in payload:
                    View(**payload["view"]).to_dict()  # validates
                    self.models_accept(payload["view"]["blocks"])
                    continue
                self.models_accept(payload["blocks"])
                posted = web.chat_postMessage(channel=CHANNEL, text=payload["text"], blocks=payload["blocks"])
                self.models_accept(posted["message"]["blocks"])

    def models_accept(self, blocks):
        for block in Block.parse_all(blocks):
            self.assertIsInstance(block, Block)
            block.to_dict()  # validates


if __name__ == "__main__":
    unittest.main()
