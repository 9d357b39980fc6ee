#!/usr/bin/env python3
"""Drives `countersign omp --mode rpc` through a working day and prints what it saw.

    python3 examples/omp_host.py [path to countersign]

Everything it expects stands in the protocol's founding document, the RPC reference of omp. It needs no key and no network:
the model is a script (local_provider.py), the agent directory and the working folder are temporary. It ends with 0 only if
everything was as the document says.
"""

import os
import pathlib
import shutil
import sys
import tempfile

from local_provider import Call, LocalProvider, Pause, Say
from omp_rpc import Refused, Rpc

LONG = "All work and no play makes a long answer. " * 2600

slow, endless, last = Pause(), Pause(), Pause()

SCRIPTS = {
    "Say hello.": [[Say("Hello from the local model.")]],
    "Make a greeting and run it.": [
        [Say("First the file. "), Call("write", path="greeting.sh", content="echo hello\n")],
        [Call("read", path="greeting.sh")],
        [Call("edit", path="greeting.sh", old_text="hello", new_text="good evening")],
        [Call("bash", command="sh greeting.sh")],
        [Say("It says good evening.")],
    ],
    "Do two things.": [
        [
            Call("bash", command="while [ ! -e go ]; do sleep 0.05; done; echo first"),
            Call("bash", command="touch second-ran"),
        ],
        [Say("This is never said: somebody steers.")],
    ],
    "Leave the second one.": [[Say("Left it.")]],
    "Talk slowly.": [[Say("I begin "), slow, Say("and I end.")]],
    "And then?": [[Say("Then this.")]],
    "Talk for ever.": [[Say("I begin and "), endless, Say("never end.")]],
    "Talk for ever once more.": [[Say("I begin again and "), last, Say("never end.")]],
    "Something else instead.": [[Say("Something else.")]],
    "Write a long answer.": [[Say(LONG, size=4000)]],
    "Write another long answer.": [[Say(LONG, size=4000)]],
    "Where were we?": [[Say("Behind a compaction.")]],
    "Are you back?": [[Say("I am back.")]],
}

MODELS = """\
providers:
  local:
    baseUrl: {base_url}
    auth: none
    api: openai-completions
    models:
      - {{ id: small-1, name: Small One, contextWindow: 128000, maxTokens: 64000 }}
"""


class Report:
    """Prints what was seen, and remembers what was not as it should be."""

    def __init__(self):
        self.wrong = []

    def scene(self, title):
        print(f"\n{title}")

    def saw(self, what):
        print(f"      {what}")

    def check(self, holds, rule):
        print(f"  {'ok' if holds else 'NO'}  {rule}")
        if not holds:
            self.wrong.append(rule)

    def refused(self, agent, rule, command, /, **fields):
        try:
            agent.ask(command, **fields)
            self.check(False, rule)
        except Refused as refusal:
            self.check(True, f"{rule}: {refusal}")


def kinds(frames):
    """The types of `frames` with repetitions counted."""
    seen = []
    for frame in frames:
        if seen and seen[-1][0] == frame["type"]:
            seen[-1][1] += 1
        else:
            seen.append([frame["type"], 1])
    return " · ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in seen)


def streamed(frames):
    """The text that came in deltas."""
    events = [frame["assistantMessageEvent"] for frame in frames if frame["type"] == "message_update"]
    return "".join(event["delta"] for event in events if event["type"] == "text_delta")


def count(frames, kind):
    return sum(frame["type"] == kind for frame in frames)


def first_prompt(report, agent, _provider):
    report.scene("A first prompt")
    agent.ask("set_model", provider="local", modelId="small-1")
    agent.ask("set_auto_compaction", enabled=False)
    state = agent.ask("get_state")
    report.saw(f"session {state['sessionId']}, model {state['model']['provider']}/{state['model']['id']}")
    report.check(
        (state["steeringMode"], state["followUpMode"], state["interruptMode"])
        == ("one-at-a-time", "one-at-a-time", "immediate"),
        "the queues have their documented defaults",
    )
    report.check(not state["isStreaming"] and not state["isCompacting"], "the agent is idle")
    report.check(not state["autoCompactionEnabled"], "set_auto_compaction shows in the state")
    frames = agent.run("Say hello.")
    report.saw(kinds(frames))
    report.check(frames[0]["type"] == "response", "the acknowledgement comes first")
    report.check(streamed(frames) == "Hello from the local model.", "the deltas make up the text")
    report.check((count(frames, "agent_start"), count(frames, "agent_end")) == (1, 1), "one run began and ended")
    report.check(
        [message["role"] for message in frames[-1]["messages"]] == ["user", "assistant"],
        "agent_end holds the messages of the run",
    )
    said = agent.ask("get_last_assistant_text")["text"]
    report.check(said == "Hello from the local model.", "get_last_assistant_text agrees")


def tools(report, agent, folder):
    report.scene("Tools on real files")
    frames = agent.run("Make a greeting and run it.")
    ends = [frame for frame in frames if frame["type"] == "tool_execution_end"]
    for end in ends:
        text = "".join(part.get("text", "") for part in end["result"]["content"]).strip().splitlines()
        report.saw(f"{end['toolName']}: {text[0] if text else '(nothing)'}")
    report.check([end["toolName"] for end in ends] == ["write", "read", "edit", "bash"], "four tools ran, in order")
    report.check(not any(end.get("isError") for end in ends), "none of them failed")
    report.check((folder / "greeting.sh").read_text() == "echo good evening\n", "the file was written and edited")
    report.check("good evening" in str(ends[-1]["result"]), "bash ran what was written")
    report.check(count(frames, "turn_end") == 5, "five turns in one run")
    report.saw(f"dialogs answered: {agent.answered_dialogs}")


def steering(report, agent, provider, folder):
    report.scene("Steering while a tool runs")
    since = agent.mark()
    agent.ask("prompt", message="Do two things.")
    agent.wait_for("tool_execution_start", since, toolName="bash")
    agent.ask("steer", message="Leave the second one.")
    report.check(agent.ask("get_state")["queuedMessageCount"] == 1, "the message is queued, and the state says so")
    (folder / "go").touch()
    agent.wait_for("agent_end", since)
    frames = agent.since(since)
    results = [str(frame["result"]) for frame in frames if frame["type"] == "tool_execution_end"]
    report.check("first" in results[0], "the running tool ended normally")
    report.check(not (folder / "second-ran").exists(), "the other call was left out")
    report.check(provider.prompts_of(provider.requests[-1])[-1] == "Leave the second one.", "the model read it")
    report.check(streamed(frames).endswith("Left it.") and count(frames, "agent_end") == 1, "all in the same run")


def follow_up(report, agent, provider):
    report.scene("Prompts while the model talks")
    since = agent.mark()
    agent.ask("prompt", message="Talk slowly.")
    slow.reached.wait(30)
    agent.wait_for("message_update", since)
    report.check(agent.ask("get_state")["isStreaming"], "the state says that it is streaming")
    report.refused(agent, "a prompt that names no queue fails", "prompt", message="Me too!")
    agent.ask("prompt", message="And then?", streamingBehavior="followUp")
    report.check(agent.ask("get_state")["queuedMessageCount"] == 1, "with followUp it is queued")
    slow.released.set()
    agent.wait_for("agent_end", since)
    frames = agent.since(since)
    report.check(streamed(frames) == "I begin and I end.Then this.", "it was answered after the turn")
    report.check(count(frames, "agent_end") == 1, "in the same run")
    report.check("Me too!" not in provider.prompts_of(provider.requests[-1]), "what failed never reached the model")


def abort(report, agent):
    report.scene("Abort")
    since = agent.mark()
    agent.ask("prompt", message="Talk for ever.")
    endless.reached.wait(30)
    agent.ask("abort")
    agent.wait_for("agent_end", since)
    report.check(endless.hung_up.wait(10), "the connection to the model was closed")
    report.check(not agent.ask("get_state")["isStreaming"], "the agent is idle again")
    since = agent.mark()
    agent.ask("prompt", message="Talk for ever once more.")
    last.reached.wait(30)
    between = agent.mark()
    agent.ask("abort_and_prompt", message="Something else instead.")
    agent.wait(lambda frame: frame["type"] == "agent_end" and "Something else." in str(frame), between, "the new run")
    report.check(last.hung_up.wait(10), "abort_and_prompt ended the run before")
    report.check(streamed(agent.since(between)).endswith("Something else."), "and the new prompt was answered")


def mistakes(report, agent):
    report.scene("Mistakes")
    since = agent.mark()
    agent.write("{this is no JSON")
    parse = agent.wait_for("response", since, command="parse")
    report.check(not parse["success"] and "id" not in parse, f"a malformed line is answered: {parse['error']}")
    since = agent.mark()
    agent.write('{"id": "x", "type": "make_coffee"}')
    unknown = agent.wait_for("response", since, command="make_coffee")
    report.check(not unknown["success"] and "id" not in unknown, f"an unknown command too: {unknown['error']}")
    report.refused(agent, "a model that is not there", "set_model", provider="local", modelId="none")
    report.refused(agent, "an empty name", "set_session_name", name="  ")
    agent.write('{"type": "extension_ui_response", "id": "nobody asked", "confirmed": true}')
    report.check(agent.ask("get_state") is not None, "and the agent lives")


def shell(report, agent):
    report.scene("The host's own commands")
    agent.ask("bash", command="cd /; colour=blue")
    result = agent.ask("bash", command="pwd; echo $colour; exit_with() { return 3; }; exit_with")
    report.saw(" · ".join(result["output"].split()))
    report.check(result["output"].split() == ["/", "blue"], "one shell keeps its folder and its variables")
    report.check(result["exitCode"] == 3, "the exit code is told")
    name = agent.send("bash", command="sleep 600")
    agent.ask("abort_bash")
    report.check(agent.answer(name)["cancelled"], "abort_bash ends a command that runs")
    agent.ask("set_session_name", name="A working day")
    report.check(agent.ask("get_state")["sessionName"] == "A working day", "the session has a name")


def compaction(report, agent, provider):
    report.scene("Compaction")
    agent.run("Write a long answer.")
    agent.run("Write another long answer.")
    before = agent.ask("get_state")["messageCount"]
    result = agent.ask("compact", customInstructions="Keep the names of files.")
    after = agent.ask("get_state")["messageCount"]
    report.saw(f"{before} messages became {after}: {result['summary'].splitlines()[0][:70]}")
    report.check(after < before, "the context is smaller")
    frames = agent.run("Where were we?")
    report.check(streamed(frames) == "Behind a compaction.", "the talk goes on")
    report.check("Say hello." not in provider.prompts_of(provider.requests[-1]), "the model no longer reads the start")


def branch(report, agent, provider):
    report.scene("A branch")
    messages = agent.ask("get_branch_messages")["messages"]
    chosen = next(message for message in messages if message["text"] == "Make a greeting and run it.")
    before = agent.ask("get_state")
    agent.ask("branch", entryId=chosen["entryId"])
    state = agent.ask("get_state")
    report.saw(f"from {len(messages)} prompts back to {state['messageCount']} messages")
    report.check(state["messageCount"] == 2, "the branch holds what was said before the chosen message")
    report.check(state["sessionFile"] != before["sessionFile"], "it has a file of its own")
    agent.run("And then?")
    prompts = provider.prompts_of(provider.requests[-1])
    report.check(prompts[-2:] == ["Say hello.", "And then?"], "the model reads the branch only")
    report.refused(agent, "a branch from nowhere", "branch", entryId="nowhere")


def resume(report, start, agent, provider):
    report.scene("A restart")
    before, said = agent.ask("get_state"), agent.ask("get_messages")["messages"]
    report.check(agent.close() == 0, "closing stdin ends the agent with 0")
    agent = start("--continue")
    state = agent.ask("get_state")
    report.check(state["sessionId"] == before["sessionId"], "--continue finds the session")
    report.check(agent.ask("get_messages")["messages"] == said, "nothing that was said is missing")
    frames = agent.run("Are you back?")
    report.check(streamed(frames) == "I am back.", "and the talk goes on")
    report.check("Say hello." in provider.prompts_of(provider.requests[-1]), "with its history")
    agent.ask("new_session")
    report.check(agent.ask("get_state")["messageCount"] == 0, "new_session begins with nothing")
    report.check(agent.close() == 0, "and the agent ends with 0 once more")


def drive(binary, root):
    report, provider = Report(), LocalProvider(SCRIPTS)
    agent_folder, folder = root / "agent", root / "work"
    agent_folder.mkdir()
    folder.mkdir()
    (agent_folder / "models.yml").write_text(MODELS.format(base_url=provider.base_url))
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "PI_CODING_AGENT_DIR": str(agent_folder)}
    started = []

    def start(*flags):
        agent = Rpc([binary, "omp", "--mode", "rpc", *flags], cwd=folder, env=environment)
        started.append(agent)
        return agent

    try:
        agent = start()
        first_prompt(report, agent, provider)
        tools(report, agent, folder)
        steering(report, agent, provider, folder)
        follow_up(report, agent, provider)
        abort(report, agent)
        mistakes(report, agent)
        shell(report, agent)
        compaction(report, agent, provider)
        branch(report, agent, provider)
        resume(report, start, agent, provider)
        odd = [frame["line"] for agent in started for frame in agent.since(0, "not JSON")]
        report.check(not odd, "stdout carried nothing but frames")
    except (Refused, EOFError, TimeoutError, KeyError) as error:
        report.check(False, f"the day ended early: {type(error).__name__}: {error}")
    finally:
        for agent in started:
            agent.process.kill()
        provider.close()
    return report.wrong


def main():
    beside = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "countersign"
    if not beside.exists():
        beside = shutil.which("countersign") or beside
    binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("COUNTERSIGN_BIN", beside)
    binary = pathlib.Path(binary).resolve()
    if not binary.is_file():
        sys.exit(f"{binary} is not there: cargo build --release, or name the binary")
    with tempfile.TemporaryDirectory(prefix="countersign-example-") as root:
        wrong = drive(str(binary), pathlib.Path(root).resolve())
    print("\nEverything was as the document says." if not wrong else f"\n{len(wrong)} not as the document says.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
