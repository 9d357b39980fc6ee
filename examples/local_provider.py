"""A model provider on loopback that speaks OpenAI's streaming chat completions and follows a script.

A script maps the text of a prompt to turns; a turn is a list of what the model does in one answer:

    {"Say hello.": [[Say("Hello.")]], "Make a file.": [[Call("write", path="a", content="b")], [Say("Done.")]]}

Which turn it is follows from how many answers stand behind the prompt in the request, so the provider remembers nothing
of a conversation and survives whatever its client does to it. A request for a prompt without a script (a compaction's, for
one) gets FALLBACK.
"""

import http.server
import json
import select
import threading

FALLBACK = "A summary: files were written, read, edited and run; long answers were given; nothing is open."


class Say:
    """Text, sent in pieces of `size` characters."""

    def __init__(self, text, size=12):
        self.text, self.size = text, size

    def deltas(self, _request, _index):
        for start in range(0, len(self.text), self.size):
            yield {"content": self.text[start : start + self.size]}


class Call:
    """A tool call whose arguments arrive in two pieces."""

    def __init__(self, name, **arguments):
        self.name, self.arguments = name, arguments

    def deltas(self, request, index):
        arguments = dict(self.arguments)
        for tool in request.get("tools", []):
            function = tool["function"]
            if function["name"] == self.name:
                # What else the tool insists on, a model would fill in: here it can only be text.
                for required in function["parameters"].get("required", []):
                    arguments.setdefault(required, "as the script says")
        text = json.dumps(arguments)
        middle = len(text) // 2
        head = {"index": index, "id": f"call_{len(request['messages'])}_{index}", "type": "function"}
        yield {"tool_calls": [{**head, "function": {"name": self.name, "arguments": text[:middle]}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": text[middle:]}}]}


class Pause:
    """Silence until `released`, or until the client hangs up, which sets `hung_up`."""

    def __init__(self):
        self.reached, self.released, self.hung_up = threading.Event(), threading.Event(), threading.Event()

    def hold(self, connection):
        self.reached.set()
        while not self.released.wait(0.02):
            if select.select([connection], [], [], 0)[0] and not connection.recv(1):
                self.hung_up.set()
                raise ConnectionAbortedError
        return ()


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


class LocalProvider:
    """Serves `scripts` on a free port from start to close. `requests` holds every request's body, in order."""

    def __init__(self, scripts):
        self.scripts, self.requests = scripts, []
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if not self.path.endswith("/chat/completions"):
                    self.send_error(404)
                    return
                provider.answer(self, json.loads(body))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def prompts_of(self, request):
        """The texts of a request's user messages."""
        return [text_of(message) for message in request["messages"] if message["role"] == "user"]

    def turn(self, request):
        messages = request["messages"]
        asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
        script = self.scripts.get(text_of(messages[asked[-1]])) if asked else None
        if script is None:
            return [Say(FALLBACK)]
        answered = sum(message["role"] == "assistant" for message in messages[asked[-1] :])
        return script[min(answered, len(script) - 1)]

    def answer(self, handler, request):
        self.requests.append(request)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True
        turn = self.turn(request)
        try:
            self.stream(handler, request, turn)
        except (ConnectionError, BrokenPipeError):
            pass

    def stream(self, handler, request, turn):
        head = {"id": "local", "object": "chat.completion.chunk", "created": 0, "model": request["model"]}

        def event(**fields):
            handler.wfile.write(f"data: {json.dumps({**head, **fields})}\n\n".encode())
            handler.wfile.flush()

        written, calls = 0, 0
        for action in turn:
            if isinstance(action, Pause):
                action.hold(handler.connection)
                continue
            for delta in action.deltas(request, calls):
                event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
                written += len(json.dumps(delta))
            calls += isinstance(action, Call)
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}])
        read, written = len(json.dumps(request["messages"])) // 4, written // 4
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        event(choices=[], usage=usage)
        handler.wfile.write(b"data: [DONE]\n\n")
