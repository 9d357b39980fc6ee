//! Plays a transcript, and compares or rewrites its frames.

use std::collections::BTreeSet;

use countersign_tools::exec::ExecLauncher;

use super::{
    fixture::{PlaybackFixture, QUIET, START},
    placeholders::PlaceholderMap,
    reply::ScriptedReplies,
    script::{ExpectedFrame, LineKind, ScriptLine},
};

/// Number of a line, and the problem there.
type LineProblem = (usize, String);

/// Plays a transcript up to the first line with a problem.
pub(super) fn check_script(script: &[ScriptLine], launcher: ExecLauncher) -> Result<(), LineProblem> {
    let mut play = TranscriptPlayer::new(launcher).map_err(|problem| (1, problem))?;
    let mut lines = script.iter().peekable();
    // Adapters whose next expected frame may follow any others.
    let mut gaps: BTreeSet<&String> = BTreeSet::new();
    // Frames that come between others.
    let mut between: Vec<(&String, &String)> = Vec::new();
    while let Some(line) = lines.next() {
        let at = |problem: String| (line.number, problem);
        if !matches!(line.kind, LineKind::Expect(..) | LineKind::Remark) {
            play.expect_rest(&mut between).map_err(at)?;
        }
        match &line.kind {
            LineKind::Expect(name, ExpectedFrame::Frame(expected)) => {
                let skips = gaps.remove(name);
                loop {
                    let came = play.next_frame(name).map_err(|problem| at(missing_frame(expected, &problem)))?;
                    if came == *expected {
                        break;
                    }
                    if !remove_expected(&mut between, name, &came) && !skips {
                        return Err(at(frame_difference(expected, &came, &play.following_frames(name))));
                    }
                }
            }
            LineKind::Expect(name, ExpectedFrame::Anywhere(expected)) => between.push((name, expected)),
            LineKind::Expect(name, ExpectedFrame::Anything) => drop(gaps.insert(name)),
            LineKind::Expect(name, ExpectedFrame::AnyOrder(first)) => {
                let mut expected_frames = vec![first];
                while let Some(ScriptLine { kind: LineKind::Expect(_, ExpectedFrame::AnyOrder(more)), .. }) =
                    lines.next_if(|line| is_any_order(line, name))
                {
                    expected_frames.push(more);
                }
                while !expected_frames.is_empty() {
                    let came =
                        play.next_frame(name).map_err(|problem| at(missing_frame(expected_frames[0], &problem)))?;
                    match expected_frames.iter().position(|frame| **frame == came) {
                        Some(index) => drop(expected_frames.remove(index)),
                        None if remove_expected(&mut between, name, &came) => {}
                        None => {
                            return Err(at(frame_difference(expected_frames[0], &came, &play.following_frames(name))));
                        }
                    }
                }
            }
            _ => play.execute_line(line).map_err(at)?,
        }
    }
    let last = script.last().map_or(1, |line| line.number);
    let end = |problem: String| (last, problem);
    play.expect_rest(&mut between).map_err(end)?;
    if !gaps.is_empty() {
        return Err(end("the gap must be followed by a frame".to_owned()));
    }
    play.fixture.close_inputs().map_err(end)?;
    for name in play.fixture.adapter_names() {
        if let Some(frame) = play.fixture.next_frame(&name).map_err(end)? {
            let frame = play.placeholders.replace_in_frame(&frame).map_err(end)?;
            return Err(end(format!(
                "more frames came than the transcript has:\n  {frame}{}",
                play.following_frames(&name)
            )));
        }
        play.fixture.adapter_outcome(&name).map_err(end)?.map_err(end)?;
    }
    match play.fixture.model.replies_left() {
        0 => Ok(()),
        left => Err(end(format!("the model received no request for its last {left} replies"))),
    }
}

fn is_any_order(line: &ScriptLine, of: &str) -> bool {
    matches!(&line.kind, LineKind::Expect(name, ExpectedFrame::AnyOrder(_)) if name == of)
}

/// Removes a frame of those that come between others. Reports whether it was one of them.
fn remove_expected(between: &mut Vec<(&String, &String)>, name: &str, came: &str) -> bool {
    let index = between.iter().position(|(of, expected)| *of == name && *expected == came);
    index.map(|index| between.remove(index)).is_some()
}

fn missing_frame(expected: &str, problem: &str) -> String {
    format!("{problem}\n  expected  {expected}")
}

/// Describes the difference of two frames, and the frames after it.
fn frame_difference(expected: &str, came: &str, more: &str) -> String {
    let same = expected.chars().zip(came.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(30);
    let part = |text: &str| text.chars().skip(from).take(90).collect::<String>();
    format!(
        "another frame came\n  expected  {expected}\n  came      {came}\n  they differ from character {same}:\n    expected  {}\n    came      {}{more}",
        part(expected),
        part(came)
    )
}

/// Plays a transcript and returns it with the frames that came. Correct frames stay as they were written.
pub(super) fn update_script(script: &[ScriptLine], launcher: ExecLauncher) -> Result<String, LineProblem> {
    let mut play = TranscriptPlayer::new(launcher).map_err(|problem| (1, problem))?;
    let mut text = String::new();
    let mut rest = script;
    loop {
        let is_frame = |line: &ScriptLine| matches!(line.kind, LineKind::Expect(..));
        let next = rest.iter().position(|line| !matches!(line.kind, LineKind::Remark) && !is_frame(line));
        let (part, behind) = rest.split_at(next.unwrap_or(rest.len()));
        let last = part.iter().rposition(is_frame).map_or(0, |last| last + 1);
        let (frames, remarks) = part.split_at(last);
        let at = |problem: String| (part.first().map_or(1, |line| line.number), problem);
        let came = play.drain_frames(QUIET).map_err(at)?;
        if frames_fit(frames, &came) {
            frames.iter().for_each(|line| push_line(&mut text, &line.text));
        } else {
            let kept = frames.iter().filter(|line| !is_frame(line));
            kept.for_each(|line| push_line(&mut text, &line.text));
            came.iter().for_each(|(name, frame)| push_line(&mut text, &format!("{name}< {frame}")));
        }
        remarks.iter().for_each(|line| push_line(&mut text, &line.text));
        let Some((line, behind)) = behind.split_first() else { return Ok(text) };
        let at = |problem: String| (line.number, problem);
        if let LineKind::Refused(name, expected) = &line.kind
            && expected != "..."
        {
            let problem = play.start_error(name).map_err(at)?;
            push_line(&mut text, &format!("{name}! {problem}"));
        } else {
            push_line(&mut text, &line.text);
            play.execute_line(line).map_err(at)?;
        }
        rest = behind;
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Reports whether the frames match the lines.
fn frames_fit(lines: &[ScriptLine], came: &[(String, String)]) -> bool {
    let mut expected_lines = lines.iter().filter_map(|line| match &line.kind {
        LineKind::Expect(_, ExpectedFrame::Anywhere(_)) => None,
        LineKind::Expect(name, expected) => Some((name, expected)),
        _ => None,
    });
    let mut came: Vec<&(String, String)> = came.iter().collect();
    for line in lines {
        let LineKind::Expect(name, ExpectedFrame::Anywhere(expected)) = &line.kind else { continue };
        let Some(index) = came.iter().position(|(of, frame)| of == name && frame == expected) else { return false };
        came.remove(index);
    }
    let mut came = came.into_iter().peekable();
    let mut loose: Vec<&str> = Vec::new();
    let mut skips = false;
    loop {
        let next = expected_lines.next();
        if !loose.is_empty() && !matches!(next, Some((_, ExpectedFrame::AnyOrder(_)))) {
            while !loose.is_empty() {
                let Some((_, frame)) = came.next() else { return false };
                let Some(index) = loose.iter().position(|expected| expected == frame) else { return false };
                loose.remove(index);
            }
        }
        match next {
            None => return skips || came.next().is_none(),
            Some((_, ExpectedFrame::Anything)) => skips = true,
            Some((_, ExpectedFrame::AnyOrder(frame) | ExpectedFrame::Anywhere(frame))) => loose.push(frame),
            Some((name, ExpectedFrame::Frame(frame))) => {
                let is_it = |found: &&(String, String)| found.0 == *name && found.1 == *frame;
                let found = if std::mem::take(&mut skips) { came.find(is_it) } else { came.next().filter(is_it) };
                if found.is_none() {
                    return false;
                }
            }
        }
    }
}

/// Transcript that is being played.
struct TranscriptPlayer {
    fixture: PlaybackFixture,
    placeholders: PlaceholderMap,
    replies: ScriptedReplies,
}

impl TranscriptPlayer {
    fn new(launcher: ExecLauncher) -> Result<Self, String> {
        let fixture = PlaybackFixture::new(launcher).map_err(|error| error.to_string())?;
        let placeholders = PlaceholderMap::new(&fixture.root_path().display().to_string(), START);
        Ok(Self { fixture, placeholders, replies: ScriptedReplies::default() })
    }

    fn next_frame(&mut self, name: &str) -> Result<String, String> {
        self.fixture.open_adapter(name)?;
        match self.fixture.next_frame(name)? {
            Some(frame) => self.placeholders.replace_in_frame(&frame),
            None => Err("the adapter has ended".to_owned()),
        }
    }

    /// Returns every frame that came meanwhile, up to so many beats without a frame, by its names.
    /// Reads the frames that were to come between others and have not come yet.
    fn expect_rest(&mut self, between: &mut Vec<(&String, &String)>) -> Result<(), String> {
        while let Some((name, expected)) = between.first().copied() {
            let came = self.next_frame(name).map_err(|problem| missing_frame(expected, &problem))?;
            if !remove_expected(between, name, &came) {
                return Err(frame_difference(expected, &came, &self.following_frames(name)));
            }
        }
        Ok(())
    }

    fn drain_frames(&mut self, quiet: u32) -> Result<Vec<(String, String)>, String> {
        let frames = self.fixture.drain_frames(quiet);
        frames.into_iter().map(|(name, frame)| Ok((name, self.placeholders.replace_in_frame(&frame)?))).collect()
    }

    /// Returns the reason why an adapter did not open.
    fn start_error(&mut self, name: &str) -> Result<String, String> {
        self.fixture.open_adapter(name)?;
        match self.fixture.adapter_outcome(name)? {
            Ok(()) => Err("the adapter opened".to_owned()),
            Err(problem) => Ok(self.placeholders.replace_in_text(&problem)),
        }
    }

    /// Returns the frames after one, for a person to read.
    fn following_frames(&mut self, name: &str) -> String {
        let frames = self.drain_frames(1).unwrap_or_default().into_iter().filter(|(from, _)| from == name);
        let frames: Vec<String> = frames.take(6).map(|(_, frame)| format!("\n  then came {frame}")).collect();
        frames.concat()
    }

    /// Executes a line that is no frame.
    fn execute_line(&mut self, line: &ScriptLine) -> Result<(), String> {
        match &line.kind {
            LineKind::Remark | LineKind::Expect(..) => Ok(()),
            LineKind::Model(text) if text == "goes on" => {
                if self.replies.go_on() {
                    Ok(())
                } else {
                    Err("the model has no pause".to_owned())
                }
            }
            LineKind::Model(text) if text == "was asked" => self.fixture.wait_for_model(),
            LineKind::Model(text) => {
                let reply = self.replies.parse_reply(text)?;
                self.fixture.model.push_reply(reply);
                Ok(())
            }
            LineKind::File(path, content) => {
                let path = self.fixture.root_path().join(path);
                let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
                let content = self.placeholders.restore_ids(content);
                folder.and_then(|()| std::fs::write(&path, content)).map_err(|error| error.to_string())
            }
            LineKind::KeepSessions => {
                self.fixture.keeps_sessions = true;
                Ok(())
            }
            LineKind::Speaks(product) => {
                self.fixture.product = *product;
                Ok(())
            }
            LineKind::Flags(name, flags) => {
                self.fixture
                    .flags
                    .insert(name.clone(), flags.iter().map(|flag| self.placeholders.restore_ids(flag)).collect());
                Ok(())
            }
            LineKind::Send(name, text) => {
                let text = self.placeholders.restore_ids(text);
                self.fixture.send_line(name, &text)
            }
            LineKind::Refused(name, problem) => {
                let came = self.start_error(name)?;
                if problem == "..." || came == *problem { Ok(()) } else { Err(format!("the error is {came:?}")) }
            }
            LineKind::Clock(by) => self.fixture.advance_time(*by),
            LineKind::Appears(path) => self.fixture.wait_for_file(path),
            LineKind::Restart => self.fixture.restart_process(),
            LineKind::End => self.fixture.close_inputs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_tools::exec::ExecLauncher;

    use super::{check_script, update_script};
    use crate::transcript::script::parse_script;

    /// Returns a launcher for tests without commands.
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
            ("one too many", ASKED.to_owned(), 1, "more frames came"),
            ("one of a group", format!("{ASKED}{ASKED}<~ {ANSWER}\n<~ {other}\n"), 3, "another frame came"),
            ("one between others", format!("{ASKED}<? {other}\n< {ANSWER}\n"), 3, "expected  "),
            ("a gap without an end", format!("{again}< ...\n"), 3, "must be followed by a frame"),
            ("a reply that nobody asked for", format!("model says \"x\"\n{again}"), 3, "its last 1 replies"),
        ] {
            let (at, problem) = check_script(&parse_script(&text).unwrap(), launcher()).unwrap_err();
            assert!(at == number && problem.contains(words), "{case}: {at}: {problem}");
        }
    }

    #[test]
    fn frames_in_any_order_and_gaps_are_as_good_as_what_they_stand_for() {
        let second = ASKED.replace(":1", ":2");
        let answers = [ANSWER.to_owned(), ANSWER.replace(":1", ":2")];
        for frames in [
            format!("<~ {}\n<~ {}\n", answers[1], answers[0]),
            format!("<? {}\n< {}\n", answers[1], answers[0]),
            format!("<? {}\n< {}\n", answers[0], answers[1]),
            format!("< ...\n< {}\n", answers[1]),
            format!("< {}\n< {}\n", answers[0], answers[1]),
        ] {
            let text = format!("{ASKED}{second}{frames}");
            assert_eq!(check_script(&parse_script(&text).unwrap(), launcher()), Ok(()), "{frames}");
        }
    }

    #[test]
    fn an_update_writes_what_came_and_keeps_what_was_right() {
        let wrong = format!("# Why.\n{ASKED}< {{}}\n\n# Further.\n{ASKED}<~   {ANSWER}\n");
        let right = format!("# Why.\n{ASKED}< {ANSWER}\n\n# Further.\n{ASKED}<~   {ANSWER}\n");
        assert_eq!(update_script(&parse_script(&wrong).unwrap(), launcher()), Ok(right));
    }
}
