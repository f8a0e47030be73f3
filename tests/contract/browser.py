"""A headless Chromium, driven by its own debugging protocol: real clicks, real typing, screenshots. Knows nothing of what it shows."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

import websocket

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-address=127.0.0.1", "--remote-debugging-port=0",
]  # fmt: skip


class Browser:
    """One browser with one page. Close it."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.mkdtemp(prefix="askd-browser-")
        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"], stderr=subprocess.PIPE, text=True
        )
        port = None
        for line in self.process.stderr:
            if match := re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
                port = match.group(1)
                break
        self.count, self.complaints = 0, []
        self.socket = websocket.create_connection(self._page(port), timeout=20, suppress_origin=True)
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        self.size(width, height)

    def _page(self, port):
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10) as response:
            return next(tab for tab in json.load(response) if tab["type"] == "page")["webSocketDebuggerUrl"]

    def command(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            said = json.loads(self.socket.recv())
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(said["params"])
            if said.get("id") == self.count:
                return said.get("result", said)

    def size(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def open(self, url):
        self.command("Page.navigate", url=url)

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return result.get("result", {}).get("value")

    def wait(self, script, seconds=5):
        """Waits until the expression is true; yields its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.03)
        raise AssertionError(f"never true: {script}")

    def click(self, selector):
        """A real click in the middle of the element."""
        place = (
            f"(()=>{{const e=document.querySelector({json.dumps(selector)});if(!e)return null;"
            "e.scrollIntoView({block:'center'});const b=e.getBoundingClientRect();return [b.x+b.width/2,b.y+b.height/2]})()"
        )
        x, y = self.wait(place)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.command("Input.insertText", text=text)

    def press_enter(self):
        for kind in ("rawKeyDown", "char", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.socket.shutdown()
        self.process.terminate()
        self.process.wait(timeout=10)
        self.process.stderr.close()
        shutil.rmtree(self.profile, ignore_errors=True)
