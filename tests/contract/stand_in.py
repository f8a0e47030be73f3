"""Starts the stand-in of Slack for one test class, and plays people in it by the page's own interface.

Binds 127.0.0.1 only. ASKD_BIN names the binary.
"""

import faulthandler
import json
import os
import subprocess
import unittest
import urllib.parse
import urllib.request

ALICE, CHANNEL = "U0ALICE", "C0AGENTS"


class StandIn(unittest.TestCase):
    """A test class with a fresh stand-in."""

    options: list = ["--pace", "0"]

    @classmethod
    def setUpClass(cls):
        # Slack's client hung once in hundreds of runs: then it says where, and the run fails.
        faulthandler.dump_traceback_later(120, exit=True)
        binary = os.environ["ASKD_BIN"]
        cls.process = subprocess.Popen(
            [binary, "sim", "slack", *cls.options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        cls.slack = json.loads(cls.process.stdout.readline())

    @classmethod
    def tearDownClass(cls):
        cls.process.stdin.close()
        cls.process.wait(timeout=10)
        cls.process.stdout.close()
        faulthandler.cancel_dump_traceback_later()

    def person(self, what, /, **fields):
        """Posts to the page's interface."""
        request = urllib.request.Request(
            f"{self.slack['url']}/page/{what}",
            data=json.dumps({"user": ALICE, "channel": CHANNEL, **fields}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def seen(self, user=ALICE, channel=CHANNEL):
        """What this person sees in the channel."""
        query = urllib.parse.urlencode({"channel": channel, "user": user})
        with urllib.request.urlopen(f"{self.slack['url']}/page/state?{query}", timeout=10) as response:
            return json.load(response)["messages"]
