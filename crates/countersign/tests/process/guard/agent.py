#!/usr/bin/env python3
"""An agent with the hooks of Claude Code: asks a model for one call, asks its hooks about it, and runs it.

Source: docs/protocol/hooks.md, The hook, which lists the failures of a hook that let the call run.
"""

import json
import os
import subprocess
import sys
import urllib.request

VERSION = "@VERSION@"
OBEYS = "@OBEYS@" == "yes"


def ask_model(messages):
    body = {"model": "m", "stream": True, "tools": [{"name": "Bash"}], "messages": messages}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    call, text = None, ""
    for line in urllib.request.urlopen(request).read().decode().splitlines():
        if not line.startswith("data: "):
            continue
        event = json.loads(line[6:])
        block = event.get("content_block", {})
        delta = event.get("delta", {})
        if block.get("type") == "tool_use":
            call = {"id": block["id"], "name": block["name"], "text": json.dumps(block["input"]) if block.get("input") else ""}
        if delta.get("type") == "input_json_delta":
            call["text"] += delta["partial_json"]
        text += delta.get("text", "")
    return call, text


def refusal(call, arguments):
    path = os.path.join(os.environ["HOME"], ".claude", "settings.json")
    if not OBEYS or not os.path.exists(path):
        return None
    settings = json.load(open(path))
    given = {"session_id": "fake", "cwd": os.getcwd(), "hook_event_name": "PreToolUse", "tool_name": call["name"],
             "tool_input": arguments, "tool_use_id": call["id"]}
    for entry in settings.get("hooks", {}).get("PreToolUse", []):
        for hook in entry["hooks"]:
            ended = subprocess.run(["sh", "-c", hook["command"]], input=json.dumps(given), capture_output=True, text=True)
            if ended.returncode == 2 or (ended.returncode != 0 and hook.get("onFailure") == "block"):
                return ended.stderr
            try:
                decided = json.loads(ended.stdout)["hookSpecificOutput"]
            except (ValueError, KeyError):
                continue
            if decided.get("permissionDecision") == "deny":
                return decided.get("permissionDecisionReason", "denied")
    return None


if "--version" in sys.argv:
    print(f"{VERSION} (Claude Code)")
    sys.exit(0)
prompt = sys.argv[sys.argv.index("-p") + 1]
messages = [{"role": "user", "content": prompt}]
call, _ = ask_model(messages)
arguments = json.loads(call["text"])
refused = refusal(call, arguments)
if refused is None:
    ran = subprocess.run(["sh", "-c", arguments["command"]], capture_output=True, text=True)
    result = ran.stdout or "done"
else:
    result = refused
messages.append({"role": "assistant", "content": [{"type": "tool_use", "id": call["id"], "name": "Bash", "input": arguments}]})
messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": result}]})
print(ask_model(messages)[1])
