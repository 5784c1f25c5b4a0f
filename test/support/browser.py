"""Chromium without a window, driven over its DevTools protocol by the standard library: pages are opened, clicked and
typed into as a user would, and what they report on the console is kept. Messages are JSON on two pipes, each ended by a
zero byte."""

import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

KEYS = {"Enter": (13, "\r"), " ": (32, " "), "Escape": (27, ""), "Tab": (9, ""), "Home": (36, ""), "End": (35, ""),
        "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")}
PATIENCE_S = 60


def find_browser():
    for name in (os.environ.get("OPS_DEBUG_BROWSER"), "chromium", "chromium-headless-shell", "google-chrome", "chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class BrowserError(RuntimeError):
    pass


class Browser:
    """One process with one page at a time. Use as a context."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="ops-debug-browser-", ignore_cleanup_errors=True)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # The protocol's ends are the descriptors 3 and 4; the shell moves them there.
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.errors = open(pathlib.Path(self.profile.name) / "stderr", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"', "browser", *command],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        os.close(theirs_in)
        os.close(theirs_out)
        self.input, self.output = ours_in, ours_out
        self.unread = b""
        self.count = 0
        self.session = None
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", of_page=False)
            self.process.wait(timeout=10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        os.close(self.output)
        self.errors.close()
        self.profile.cleanup()

    def _receive(self, deadline):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.input, 1 << 16) if ready else b""
            if not part:
                self.errors.seek(0)
                what = "does not answer" if not ready else "ended"
                raise BrowserError(f"the browser {what}; it said:\n{self.errors.read()[-3000:]}")
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def call(self, method, of_page=True, **parameters):
        """The result of a protocol command; events that come meanwhile are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if of_page and self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if "method" in answer:
                self.events.append(answer)
            elif answer.get("id") == self.count:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def wait_for(self, event, condition=lambda parameters: True):
        deadline = time.monotonic() + PATIENCE_S
        seen = 0
        while True:
            for message in self.events[seen:]:
                if message["method"] == event and condition(message["params"]):
                    return message["params"]
            seen = len(self.events)
            self.events.append(self._receive(deadline))

    def open(self, path, width=1200, height=900, dark=False):
        """Opens a file in a new page, returns after its `load` event and the first picture."""
        self.session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank", of_page=False)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, of_page=False)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.set_theme("dark" if dark else "light")
        self.events = []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self

    def set_theme(self, theme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def evaluate(self, expression):
        """The value of a JavaScript expression, as JSON can carry it; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {json.dumps(answer['exceptionDetails'])[:2000]}")
        return answer["result"].get("value")

    def complaints(self):
        """Errors and warnings of the page since it was opened: exceptions, console, violations of its policy."""
        self.evaluate("0")  # what was said before has now arrived
        found = []
        for message in self.events:
            parameters = message["params"]
            if message["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:1000])
            elif message["method"] == "Runtime.consoleAPICalled":
                if parameters["type"] in ("error", "warning", "assert"):
                    found.append(json.dumps(parameters["args"])[:1000])
            elif message["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def requests(self):
        """What the page asked for since it was opened, itself included."""
        self.evaluate("0")
        sent = [message["params"] for message in self.events if message["method"] == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]

    def click(self, selector, at=(0.5, 0.5)):
        """A click of the mouse into an element, `at` in shares of its width and height."""
        x, y = self.move_mouse(selector, at)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move_mouse(self, selector, at):
        x, y = self.point_of(selector, at)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def point_of(self, selector, at):
        box = self.evaluate(
            f"""(() => {{
              const element = document.querySelector({json.dumps(selector)});
              if (!element) return null;
              element.scrollIntoView({{block: 'center'}});
              const box = element.getBoundingClientRect();
              return [box.x, box.y, box.width, box.height];
            }})()""")
        if box is None:
            raise BrowserError(f"the page has no {selector}")
        return box[0] + at[0] * box[2], box[1] + at[1] * box[3]

    def press(self, *keys):
        for key in keys:
            code, text = KEYS.get(key, (ord(key.upper()[0]), key))
            event = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
