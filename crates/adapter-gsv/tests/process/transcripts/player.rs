//! Plays a transcript against a gateway of its own: the frames of peers, and every frame to them.
//!
//! | line | means |
//! |---|---|
//! | `= file PATH "TEXT"`, `= set PATH VALUE` | before what follows a file is there; a setting has a value |
//! | `= say TEXT`, `= refuse STATUS TEXT`, `= call ID NAME ARGUMENTS` | what the model says next, in the place of what it did not say yet |
//! | `= hold`, `= release` | the model's next words wait for the second |
//! | `+ NAME line`, `client`, `node TOOL…`, `channel NETWORK` | a peer comes, connected in its mode under its name |
//! | `- NAME` | it goes |
//! | `NAME > METHOD PARAMS` | it asks |
//! | `NAME < PAYLOAD`, `NAME ! CODE MESSAGE` | how the first of its requests that is not answered yet is answered |
//! | `NAME * EVENT PAYLOAD` | the next event of this name that it is sent |
//! | `NAME ~ FRAME`, `NAME = FRAME` | it sends just this; the next answer is just this |
//! | `NAME | CODE REASON` | it is closed |
//!
//! A line that begins with a space continues the line before; `
//! ` in a message is a line break. `"$name"` matches any value and
//! the same from then on, `"$_"` any value. At the end no frame may be left that no line has.

use std::collections::{BTreeMap, VecDeque};

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, Latch,
    gsv::{GsvPeer, GsvSocketEvent, connect_params, node_params},
    provider::{ProviderReply, ReplyPart, call_part, error_reply, text_part, text_reply},
};
use serde_json::{Value, json};

/// Answer to a request of a transcript.
#[derive(Debug)]
pub(super) struct TranscriptOutcome {
    pub(super) method: String,
    /// Code and message, if it was an error.
    pub(super) error: Option<String>,
}

/// Peer with the frames to it that were not read.
struct TranscriptPeer {
    peer: GsvPeer,
    /// Requests that are not answered yet: id and method.
    open: VecDeque<(Value, String)>,
    answers: VecDeque<Value>,
    events: VecDeque<Value>,
    ended: Option<GsvSocketEvent>,
}

impl TranscriptPeer {
    fn read_frame(&mut self) {
        assert_eq!(self.ended, None, "it is closed");
        match self.peer.read_frame() {
            GsvSocketEvent::Frame(frame) if frame["type"] == "res" => self.answers.push_back(frame),
            GsvSocketEvent::Frame(frame) => self.events.push_back(frame),
            ended => self.ended = Some(ended),
        }
    }

    /// Returns the first unread event of a name. Those of other names may come in any order.
    fn event(&mut self, name: &str) -> Value {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["event"] == *name) {
                return self.events.remove(at).unwrap();
            }
            self.read_frame();
        }
    }

    fn answer(&mut self) -> Value {
        while self.answers.is_empty() {
            self.read_frame();
        }
        self.answers.pop_front().unwrap()
    }

    /// Returns the answer to a request, whatever came before.
    fn answer_to(&mut self, id: &Value) -> Value {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer["id"] == *id) {
                return self.answers.remove(at).unwrap();
            }
            self.read_frame();
        }
    }
}

struct TranscriptFixture {
    scene: GatewayFixture,
    gateway: GatewayServer,
    seats: BTreeMap<String, TranscriptPeer>,
    names: BTreeMap<String, Value>,
    /// Replies of the model, which are sent when the lines about it are over.
    replies: Vec<ProviderReply>,
    held: Option<Latch>,
    request_count: u64,
    outcomes: Vec<TranscriptOutcome>,
}

/// Plays a transcript to its end.
pub(super) fn play(script: &str) -> Vec<TranscriptOutcome> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, line) in script.lines().enumerate() {
        match line.strip_prefix(' ') {
            Some(more) => lines.last_mut().unwrap().1.push_str(more.trim_start()),
            None if line.is_empty() || line.starts_with('#') => {}
            None => lines.push((number + 1, line.to_owned())),
        }
    }
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut stage = TranscriptFixture {
        scene,
        gateway,
        seats: BTreeMap::new(),
        names: BTreeMap::new(),
        replies: Vec::new(),
        held: None,
        request_count: 0,
        outcomes: Vec::new(),
    };
    for (number, line) in lines {
        stage.line(&line).unwrap_or_else(|wrong| panic!("line {number}: {line}\n{wrong}"));
    }
    stage.nothing_else();
    stage.outcomes
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn parse_value(text: &str) -> Value {
    if text.is_empty() { json!({}) } else { serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}")) }
}

impl TranscriptFixture {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (who, rest) = split_word(line);
        if who != "=" && !self.replies.is_empty() {
            self.scene.provider.script_replies(self.replies.drain(..));
        }
        match who {
            "=" => self.happens(rest),
            "+" => self.comes(rest),
            "-" => drop(self.seats.remove(rest)),
            _ => {
                let (mark, rest) = split_word(rest);
                let rest = self.named(rest);
                let mut seat = self.seats.remove(who).ok_or("nobody is called so")?;
                let done = self.speaks(&mut seat, mark, &rest);
                self.seats.insert(who.to_owned(), seat);
                done?;
            }
        }
        Ok(())
    }

    /// Returns the text with the values of its names.
    fn named(&self, text: &str) -> String {
        // Longer names first: one may begin with another.
        let mut names: Vec<(&String, &Value)> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names.into_iter().fold(text.to_owned(), |text, (name, known)| {
            let bare = known.as_str().map_or_else(|| known.to_string(), str::to_owned);
            text.replace(&format!("\"${name}\""), &known.to_string()).replace(&format!("${name}"), &bare)
        })
    }

    fn happens(&mut self, line: &str) {
        let (what, rest) = split_word(line);
        let reply = match what {
            "file" => {
                let (path, text) = split_word(rest);
                let path = self.scene.folder.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                return std::fs::write(path, parse_value(text).as_str().unwrap()).unwrap();
            }
            "set" => {
                let (path, to) = split_word(rest);
                let mut client = GsvPeer::connect_client(&self.gateway, "who-sets");
                client.expect_ok("config.set", json!({ "path": path, "value": parse_value(to) }));
                return;
            }
            "release" => return self.held.take().unwrap().open(),
            "say" => text_reply(rest),
            "refuse" => {
                let (status, why) = split_word(rest);
                error_reply(status.parse().unwrap(), why)
            }
            "call" => {
                let (id, rest) = split_word(rest);
                let (name, arguments) = split_word(rest);
                ProviderReply::new(vec![call_part(id, name, &parse_value(arguments))])
            }
            "hold" => {
                let latch = self.held.insert(Latch::default()).clone();
                ProviderReply::new(vec![ReplyPart::Until(latch), text_part("at last")])
            }
            _ => panic!("what is {what}?"),
        };
        self.replies.push(reply);
    }

    fn comes(&mut self, line: &str) {
        let (name, rest) = split_word(line);
        let (mode, rest) = split_word(rest);
        let mut params = match mode {
            "line" | "client" => connect_params("client", name),
            "node" => node_params(name, &rest.split(' ').collect::<Vec<_>>()),
            "channel" => connect_params("channel", name),
            _ => panic!("what is {mode}?"),
        };
        if mode == "channel" {
            params["client"]["channel"] = rest.into();
        }
        let mut peer = GsvPeer::open_connection(&self.gateway);
        if mode != "line" {
            peer.expect_ok("connect", params);
        }
        let seat = TranscriptPeer {
            peer,
            open: VecDeque::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            ended: None,
        };
        self.seats.insert(name.to_owned(), seat);
    }

    fn speaks(&mut self, seat: &mut TranscriptPeer, mark: &str, rest: &str) -> Result<(), String> {
        match mark {
            ">" => {
                let (method, params) = split_word(rest);
                self.request_count += 1;
                let id = json!(format!("request-{}", self.request_count));
                seat.peer
                    .send_frame(json!({ "type": "req", "id": id, "method": method, "params": parse_value(params) }));
                seat.open.push_back((id, method.to_owned()));
                Ok(())
            }
            "<" | "!" => {
                let (id, method) = seat.open.pop_front().ok_or("nothing was asked")?;
                let (want, error) = if mark == "<" {
                    (json!({ "type": "res", "id": id, "ok": true, "payload": parse_value(rest) }), None)
                } else {
                    let (code, message) = split_word(rest);
                    let message = message.replace("\\n", "\n");
                    let error = json!({ "code": code.parse::<i32>().unwrap(), "message": message });
                    (json!({ "type": "res", "id": id, "ok": false, "error": error }), Some(rest.to_owned()))
                };
                let got = seat.answer_to(&id);
                self.outcomes.push(TranscriptOutcome { method, error });
                self.same(&want, &got)
            }
            "*" => {
                let (event, payload) = split_word(rest);
                let mut got = seat.event(event);
                if let Some(seq) = got.as_object_mut().unwrap().remove("seq") {
                    assert!(seq.is_u64() && event == "chat", "{got}");
                }
                self.same(&json!({ "type": "evt", "event": event, "payload": parse_value(payload) }), &got)
            }
            "~" => {
                seat.peer.send_frame(rest);
                Ok(())
            }
            "=" => {
                let got = seat.answer();
                self.same(&parse_value(rest), &got)
            }
            "|" => {
                let (code, reason) = split_word(rest);
                while seat.ended.is_none() {
                    seat.read_frame();
                }
                let want = GsvSocketEvent::Closed(code.parse().unwrap(), reason.to_owned());
                (seat.ended.as_ref() == Some(&want)).then_some(()).ok_or_else(|| format!("it came to {:?}", seat.ended))
            }
            _ => Err(format!("what is {mark}?")),
        }
    }

    fn same(&mut self, want: &Value, got: &Value) -> Result<(), String> {
        if self.fits(want, got) { Ok(()) } else { Err(format!("wanted {want}\ncame   {got}")) }
    }

    fn fits(&mut self, want: &Value, got: &Value) -> bool {
        match (want, got) {
            (Value::String(text), _) if text == "$_" => true,
            (Value::String(text), _) if text.starts_with('$') => {
                self.names.entry(text[1..].to_owned()).or_insert_with(|| got.clone()) == got
            }
            (Value::Array(wants), Value::Array(gots)) => {
                wants.len() == gots.len() && wants.iter().zip(gots).all(|(want, got)| self.fits(want, got))
            }
            (Value::Object(wants), Value::Object(gots)) => {
                let mut each = wants.iter().map(|(name, want)| gots.get(name).is_some_and(|got| self.fits(want, got)));
                let all = each.all(|is_so| is_so);
                all && wants.len() == gots.len()
            }
            _ => want == got,
        }
    }

    /// Checks that connected peers got no frame that the transcript does not have.
    fn nothing_else(&mut self) {
        for (name, seat) in &mut self.seats {
            assert!(seat.open.is_empty(), "{name} waits for an answer to {:?}", seat.open);
            if seat.ended.is_some() {
                continue;
            }
            let id = json!("nothing-else");
            seat.peer.send_frame(json!({ "type": "req", "id": id, "method": "nothing.else" }));
            let last = seat.answer_to(&id);
            assert!([101, 404].map(Value::from).contains(&last["error"]["code"]), "{last}");
            assert_eq!((&seat.answers, &seat.events), (&VecDeque::new(), &VecDeque::new()), "{name} was told more");
        }
    }
}
