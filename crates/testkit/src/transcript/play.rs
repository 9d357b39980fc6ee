//! Plays a transcript, and compares or rewrites its frames.

use std::collections::BTreeSet;

use countersign_tools::exec::ExecLauncher;

use super::{
    names::Names,
    reply::Replies,
    script::{Expected, Kind, Line},
    stage::{QUIET, START, Stage},
};

/// A line's number and what is wrong there.
type Problem = (usize, String);

/// Plays a transcript up to the first line that is not as it should be.
pub(super) fn check(script: &[Line], launcher: ExecLauncher) -> Result<(), Problem> {
    let mut play = Play::new(launcher).map_err(|problem| (1, problem))?;
    let mut lines = script.iter().peekable();
    // The doors of which any frames may come before the next that is told.
    let mut gaps: BTreeSet<&String> = BTreeSet::new();
    while let Some(line) = lines.next() {
        let at = |problem: String| (line.number, problem);
        match &line.kind {
            Kind::Expect(name, Expected::Frame(expected)) => {
                let mut came = play.next(name).map_err(|problem| at(missing(expected, &problem)))?;
                if gaps.remove(name) {
                    while came != *expected {
                        came = play.next(name).map_err(|problem| at(missing(expected, &problem)))?;
                    }
                }
                if came != *expected {
                    return Err(at(differs(expected, &came, &play.more(name))));
                }
            }
            Kind::Expect(name, Expected::Anything) => drop(gaps.insert(name)),
            Kind::Expect(name, Expected::AnyOrder(first)) => {
                let mut wanted = vec![first];
                while let Some(Line { kind: Kind::Expect(_, Expected::AnyOrder(more)), .. }) =
                    lines.next_if(|line| is_any_order(line, name))
                {
                    wanted.push(more);
                }
                while !wanted.is_empty() {
                    let came = play.next(name).map_err(|problem| at(missing(wanted[0], &problem)))?;
                    match wanted.iter().position(|frame| **frame == came) {
                        Some(index) => drop(wanted.remove(index)),
                        None => return Err(at(differs(wanted[0], &came, &play.more(name)))),
                    }
                }
            }
            _ => play.act(line).map_err(at)?,
        }
    }
    let last = script.last().map_or(1, |line| line.number);
    let end = |problem: String| (last, problem);
    if !gaps.is_empty() {
        return Err(end("a frame must follow that ends the gap".to_owned()));
    }
    play.stage.end().map_err(end)?;
    for name in play.stage.names() {
        if let Some(frame) = play.stage.next(&name).map_err(end)? {
            let frame = play.names.of(&frame).map_err(end)?;
            return Err(end(format!("more came than the transcript says:\n  {frame}{}", play.more(&name))));
        }
        play.stage.outcome(&name).map_err(end)?.map_err(end)?;
    }
    match play.stage.model.replies_left() {
        0 => Ok(()),
        left => Err(end(format!("the model was not asked for its last {left} replies"))),
    }
}

fn is_any_order(line: &Line, of: &str) -> bool {
    matches!(&line.kind, Kind::Expect(name, Expected::AnyOrder(_)) if name == of)
}

fn missing(expected: &str, problem: &str) -> String {
    format!("{problem}\n  expected  {expected}")
}

/// Both frames, where they part, and what came behind.
fn differs(expected: &str, came: &str, more: &str) -> String {
    let same = expected.chars().zip(came.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(30);
    let part = |text: &str| text.chars().skip(from).take(90).collect::<String>();
    format!(
        "another frame came\n  expected  {expected}\n  came      {came}\n  they part at character {same}:\n    expected  {}\n    came      {}{more}",
        part(expected),
        part(came)
    )
}

/// Plays a transcript and gives it back with the frames that came. What was right stays as it was written.
pub(super) fn update(script: &[Line], launcher: ExecLauncher) -> Result<String, Problem> {
    let mut play = Play::new(launcher).map_err(|problem| (1, problem))?;
    let mut text = String::new();
    let mut rest = script;
    loop {
        let is_frame = |line: &Line| matches!(line.kind, Kind::Expect(..));
        let next = rest.iter().position(|line| !matches!(line.kind, Kind::Remark) && !is_frame(line));
        let (part, behind) = rest.split_at(next.unwrap_or(rest.len()));
        let last = part.iter().rposition(is_frame).map_or(0, |last| last + 1);
        let (frames, remarks) = part.split_at(last);
        let at = |problem: String| (part.first().map_or(1, |line| line.number), problem);
        let came = play.rest(QUIET).map_err(at)?;
        if fits(frames, &came) {
            frames.iter().for_each(|line| push(&mut text, &line.text));
        } else {
            let kept = frames.iter().filter(|line| !is_frame(line));
            kept.for_each(|line| push(&mut text, &line.text));
            came.iter().for_each(|(name, frame)| push(&mut text, &format!("{name}< {frame}")));
        }
        remarks.iter().for_each(|line| push(&mut text, &line.text));
        let Some((line, behind)) = behind.split_first() else { return Ok(text) };
        let at = |problem: String| (line.number, problem);
        if let Kind::Refused(name, said) = &line.kind
            && said != "..."
        {
            let problem = play.refusal(name).map_err(at)?;
            push(&mut text, &format!("{name}! {problem}"));
        } else {
            push(&mut text, &line.text);
            play.act(line).map_err(at)?;
        }
        rest = behind;
    }
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Whether these are the frames that the lines say.
fn fits(lines: &[Line], came: &[(String, String)]) -> bool {
    let mut wanted = lines.iter().filter_map(|line| match &line.kind {
        Kind::Expect(name, expected) => Some((name, expected)),
        _ => None,
    });
    let mut came = came.iter().peekable();
    let mut loose: Vec<&str> = Vec::new();
    let mut skips = false;
    loop {
        let next = wanted.next();
        if !loose.is_empty() && !matches!(next, Some((_, Expected::AnyOrder(_)))) {
            while !loose.is_empty() {
                let Some((_, frame)) = came.next() else { return false };
                let Some(index) = loose.iter().position(|wanted| wanted == frame) else { return false };
                loose.remove(index);
            }
        }
        match next {
            None => return skips || came.next().is_none(),
            Some((_, Expected::Anything)) => skips = true,
            Some((_, Expected::AnyOrder(frame))) => loose.push(frame),
            Some((name, Expected::Frame(frame))) => {
                let is_it = |found: &&(String, String)| found.0 == *name && found.1 == *frame;
                let found = if std::mem::take(&mut skips) { came.find(is_it) } else { came.next().filter(is_it) };
                if found.is_none() {
                    return false;
                }
            }
        }
    }
}

/// A transcript under way.
struct Play {
    stage: Stage,
    names: Names,
    replies: Replies,
}

impl Play {
    fn new(launcher: ExecLauncher) -> Result<Self, String> {
        let stage = Stage::new(launcher).map_err(|error| error.to_string())?;
        let names = Names::new(&stage.root().display().to_string(), START);
        Ok(Self { stage, names, replies: Replies::default() })
    }

    fn next(&mut self, name: &str) -> Result<String, String> {
        self.stage.open(name)?;
        match self.stage.next(name)? {
            Some(frame) => self.names.of(&frame),
            None => Err("the door has ended".to_owned()),
        }
    }

    /// Everything that came meanwhile, up to so many beats without a frame, by its names.
    fn rest(&mut self, quiet: u32) -> Result<Vec<(String, String)>, String> {
        let frames = self.stage.rest(quiet);
        frames.into_iter().map(|(name, frame)| Ok((name, self.names.of(&frame)?))).collect()
    }

    /// Why a door did not open.
    fn refusal(&mut self, name: &str) -> Result<String, String> {
        self.stage.open(name)?;
        match self.stage.outcome(name)? {
            Ok(()) => Err("the door opened".to_owned()),
            Err(problem) => Ok(self.names.of_text(&problem)),
        }
    }

    /// What came behind a frame, for a person to read.
    fn more(&mut self, name: &str) -> String {
        let frames = self.rest(1).unwrap_or_default().into_iter().filter(|(from, _)| from == name);
        let frames: Vec<String> = frames.take(6).map(|(_, frame)| format!("\n  then came {frame}")).collect();
        frames.concat()
    }

    /// Does what a line says that is no frame.
    fn act(&mut self, line: &Line) -> Result<(), String> {
        match &line.kind {
            Kind::Remark | Kind::Expect(..) => Ok(()),
            Kind::Model(text) if text == "goes on" => {
                if self.replies.go_on() {
                    Ok(())
                } else {
                    Err("the model has no pause".to_owned())
                }
            }
            Kind::Model(text) if text == "was asked" => self.stage.asked(),
            Kind::Model(text) => {
                let reply = self.replies.read(text)?;
                self.stage.model.push_reply(reply);
                Ok(())
            }
            Kind::File(path, content) => {
                let path = self.stage.root().join(path);
                let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
                let content = self.names.back(content);
                folder.and_then(|()| std::fs::write(&path, content)).map_err(|error| error.to_string())
            }
            Kind::KeepSessions => {
                self.stage.keeps_sessions = true;
                Ok(())
            }
            Kind::Speaks(product) => {
                self.stage.product = *product;
                Ok(())
            }
            Kind::Flags(name, flags) => {
                self.stage.flags.insert(name.clone(), flags.iter().map(|flag| self.names.back(flag)).collect());
                Ok(())
            }
            Kind::Send(name, text) => {
                let text = self.names.back(text);
                self.stage.send(name, &text)
            }
            Kind::Refused(name, problem) => {
                let came = self.refusal(name)?;
                if problem == "..." || came == *problem { Ok(()) } else { Err(format!("it says {came:?}")) }
            }
            Kind::Clock(by) => self.stage.advance(*by),
            Kind::Appears(path) => self.stage.appears(path),
            Kind::Restart => self.stage.restart(),
            Kind::End => self.stage.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_tools::exec::ExecLauncher;

    use super::{check, update};
    use crate::transcript::script::read;

    /// Nothing here runs a command.
    fn launcher() -> ExecLauncher {
        ExecLauncher::new(Path::new("/bin/false"))
    }

    const ASKED: &str = "> {\"id\":1,\"type\":\"get_last_assistant_text\"}\n";
    const ANSWER: &str = r#"{"id":1,"type":"response","command":"get_last_assistant_text","success":true,"data":{}}"#;

    #[test]
    fn the_first_line_that_is_not_so_is_named_with_what_came() {
        let other = ANSWER.replace("true", "false");
        let again = format!("{ASKED}< {ANSWER}\n");
        for (case, text, number, words) in [
            ("another", format!("{ASKED}< {other}\n"), 2, "success\":false,"),
            ("another, and what came", format!("{ASKED}< {other}\n"), 2, ANSWER),
            ("one too many", ASKED.to_owned(), 1, "more came"),
            ("one of a group", format!("{ASKED}{ASKED}<~ {ANSWER}\n<~ {other}\n"), 3, "another frame came"),
            ("a gap without an end", format!("{again}< ...\n"), 3, "a frame must follow"),
            ("a reply that nobody asked for", format!("model says \"x\"\n{again}"), 3, "its last 1 replies"),
        ] {
            let (at, problem) = check(&read(&text).unwrap(), launcher()).unwrap_err();
            assert!(at == number && problem.contains(words), "{case}: {at}: {problem}");
        }
    }

    #[test]
    fn frames_in_any_order_and_gaps_are_as_good_as_what_they_stand_for() {
        let second = ASKED.replace(":1", ":2");
        let answers = [ANSWER.to_owned(), ANSWER.replace(":1", ":2")];
        for frames in [
            format!("<~ {}\n<~ {}\n", answers[1], answers[0]),
            format!("< ...\n< {}\n", answers[1]),
            format!("< {}\n< {}\n", answers[0], answers[1]),
        ] {
            let text = format!("{ASKED}{second}{frames}");
            assert_eq!(check(&read(&text).unwrap(), launcher()), Ok(()), "{frames}");
        }
    }

    #[test]
    fn an_update_writes_what_came_and_keeps_what_was_right() {
        let wrong = format!("# Why.\n{ASKED}< {{}}\n\n# Further.\n{ASKED}<~   {ANSWER}\n");
        let right = format!("# Why.\n{ASKED}< {ANSWER}\n\n# Further.\n{ASKED}<~   {ANSWER}\n");
        assert_eq!(update(&read(&wrong).unwrap(), launcher()), Ok(right));
    }
}
