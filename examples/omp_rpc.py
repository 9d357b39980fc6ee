"""A client of `omp --mode rpc`: one JSON object a line, commands in on stdin, responses and events out on stdout."""

import json
import subprocess
import threading
import time


class Refused(Exception):
    """The answer to a command was `success: false`. The text is the program's own."""


class Rpc:
    """A running agent. `frames` holds everything that it wrote, in order."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.frames, self.sent, self.answered_dialogs = [], 0, 0
        self.changed, self.ended = threading.Condition(), False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            # Nothing but frames may be on stdout: a line that is no JSON is a frame that no test accepts.
            try:
                frame = json.loads(line)
            except ValueError:
                frame = {"type": "not JSON", "line": line.decode(errors="replace")}
            with self.changed:
                self.frames.append(frame)
                self.changed.notify_all()
            if frame.get("type") == "extension_ui_request":
                self._answer_dialog(frame)
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _answer_dialog(self, request):
        """Says yes. A real host would show the title and the message to a person."""
        answer = {"type": "extension_ui_response", "id": request["id"]}
        if request["method"] == "confirm":
            answer["confirmed"] = True
        elif request["method"] == "select":
            answer["value"] = request["options"][0]
        elif request["method"] in ("input", "editor"):
            answer["cancelled"] = True
        else:
            return
        self.answered_dialogs += 1
        self.write(json.dumps(answer))

    def write(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, command, /, **fields):
        """Sends a command and returns its id at once."""
        self.sent += 1
        name = f"req_{self.sent}"
        self.write(json.dumps({"id": name, "type": command, **fields}))
        return name

    def ask(self, command, /, **fields):
        """Sends a command and returns the `data` of its answer."""
        since = self.mark()
        return self.answer(self.send(command, **fields), since)

    def answer(self, name, since=0):
        """The `data` of the answer to the command called `name`."""
        frame = self.wait(
            lambda frame: frame["type"] == "response" and frame.get("id") == name, since, f"the answer to {name}"
        )
        if not frame["success"]:
            raise Refused(frame["error"])
        return frame.get("data")

    def mark(self):
        """Where the frames that come from now on begin."""
        with self.changed:
            return len(self.frames)

    def wait(self, wanted, since, what, seconds=60):
        """The first frame behind `since` that is `wanted`."""
        until, at = time.monotonic() + seconds, since
        with self.changed:
            while True:
                for frame in self.frames[at:]:
                    if wanted(frame):
                        return frame
                at = len(self.frames)
                if self.ended:
                    raise EOFError(f"the agent ended before {what}")
                if not self.changed.wait(until - time.monotonic()):
                    raise TimeoutError(f"no sign of {what} in {seconds} s")

    def wait_for(self, kind, since, /, **fields):
        """The first frame of a type behind `since` with these fields."""
        fields["type"] = kind
        return self.wait(lambda frame: fields.items() <= frame.items(), since, f"{kind} {fields}")

    def since(self, mark, kind=None):
        """The frames behind `mark`, of one type if it is given."""
        with self.changed:
            return [frame for frame in self.frames[mark:] if kind in (None, frame["type"])]

    def run(self, message, /, **fields):
        """Prompts, waits for the end of the run and returns all of its frames."""
        since = self.mark()
        self.ask("prompt", message=message, **fields)
        self.wait_for("agent_end", since)
        return self.since(since)

    def close(self):
        """Closes stdin, which ends the agent, and returns its exit code."""
        self.process.stdin.close()
        return self.process.wait(timeout=30)
