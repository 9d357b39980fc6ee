//! One simple command: the texts that rules see, and what it would harm.

use super::{
    cwd::PossibleCwd,
    dataflow::{self, FlowSigns},
    declarations, delete, disk, git,
    globs::GlobForm,
    line::{CommandAnalysis, LineAnalysis, Place},
    narrow_words, options,
    programs::{
        base_name, changes_meaning, is_dangerous_in_environment, is_dangerous_variable, is_idle, is_interpreter,
        is_setting,
    },
    protect,
    runners::reads_commands,
    spellings,
    stdin::is_database_session,
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::action_class::ActionClass as Class;

/// Reason for a text that cannot be determined.
pub(super) const DISGUISE: &str = "hides what it says in $'…'";

/// The most that the forms of the commands of one line come to, in bytes.
const MOST_SPELLED: usize = 1 << 22;

/// Selects whether rules must cover a command, or the command that it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoverNeed {
    /// Rules must cover it.
    Needed,
    /// It adds nothing to what it wraps.
    Wrapper,
    /// It is only perhaps a command: for deny rules and the floor.
    Perhaps,
}

/// Notes in `line` the forms and effects of `argv` with `assignments`.
pub(super) fn note_command(
    line: &mut LineAnalysis,
    place: &Place,
    here: &PossibleCwd,
    assignments: &[ShellWord],
    argv: &[ShellWord],
    cover: CoverNeed,
) {
    let reads = is_read_only(argv);
    let mut simple = analyze_command(place, here, assignments, argv, cover);
    line.spelled += simple.forms.iter().map(String::len).sum::<usize>();
    if line.spelled > MOST_SPELLED {
        line.note_opaque("a line with more paths than are looked at");
        line.note_floor("is too involved to be judged");
        simple.forms.truncate(1);
    }
    if simple.is_needed() {
        simple.narrow = narrow_words::of_command(place, here, assignments, argv, reads);
    }
    line.commands.push(simple);
    let program = argv.first().and_then(ShellWord::as_literal).map(base_name);
    let arguments: Vec<&str> = argv.iter().skip(1).map(|word| word.value.as_str()).collect();
    if assignments.iter().chain(argv).any(|word| word.disguised) {
        line.note_floor(DISGUISE);
    }
    if cover != CoverNeed::Perhaps {
        note_words(line, assignments, argv, program);
    }
    if cover == CoverNeed::Needed {
        note_program(line, argv, program, &arguments);
    }
    line.met = line.met.merged_with(program.map(FlowSigns::of_program).unwrap_or_default());
    if !reads {
        protect::note_written(line, place, here, argv);
    }
    protect::note_whole(line, place, here, argv);
    let note_carried = if dataflow::only_says(argv) { protect::note_output_words } else { protect::note_carried };
    note_carried(line, place, here, argv.get(1..).unwrap_or_default());
    protect::note_read(line, place, here, argv.get(1..).unwrap_or_default());
    protect::note_read(line, place, here, assignments);
    let harm = delete::delete_effect(place, here, program, assignments, &argv[usize::from(!argv.is_empty())..]);
    if let Some(path) = harm.protected {
        line.note_protected(path);
    }
    let on_disk = || {
        let most = argv.iter().map(|word| word.perhaps.len()).max().unwrap_or(0);
        let tried = |at: usize| -> Vec<&str> {
            argv.iter().skip(1).map(|word| word.perhaps.get(at).unwrap_or(&word.value).as_str()).collect()
        };
        // An unknown variable may be empty.
        let without: Vec<String> = arguments.iter().map(|text| text.replace(UNKNOWN, "")).collect();
        disk::disk_harm(program, here, &without.iter().map(String::as_str).collect::<Vec<_>>())
            .or_else(|| (0..most).find_map(|at| disk::disk_harm(program, here, &tried(at))))
    };
    if let Some(reason) = harm.floor.or_else(on_disk) {
        line.note_floor(reason);
    }
}

/// Reports whether `argv` is a command that only reads.
pub(super) fn is_read_only(argv: &[ShellWord]) -> bool {
    let arguments: Vec<&str> = argv.iter().skip(1).map(|word| word.value.as_str()).collect();
    let program = argv.first().and_then(ShellWord::as_literal).map(base_name);
    program.is_some_and(|program| options::only_reads(program, &arguments))
}

fn note_words(line: &mut LineAnalysis, assignments: &[ShellWord], argv: &[ShellWord], program: Option<&str>) {
    for word in assignments.iter().chain(argv) {
        if let Some(why) = word.opaque {
            line.note_opaque(why);
        }
    }
    let assigned = assignments.iter().map(|word| word.value.as_str());
    let assigned = assigned.filter(|text| !is_of_read(declarations::assigned_name(text), program));
    let is_own = argv.is_empty() || program == Some("read");
    for text in assigned.chain(declarations::declared_assignments(program, argv.get(1..).unwrap_or_default())) {
        let name = declarations::assigned_name(text);
        let is_dangerous = if is_own { is_dangerous_variable(name) } else { is_dangerous_in_environment(name) };
        if !name.is_empty() && is_dangerous && !is_idle(text) {
            line.note_opaque(declarations::assignment_reason(name));
            line.classes.insert(Class::BashMutating);
        }
    }
}

/// Reports whether an assignment before `read` only sets how it cuts its words.
fn is_of_read(name: &str, program: Option<&str>) -> bool {
    name == "IFS" && program == Some("read")
}

fn note_program(line: &mut LineAnalysis, argv: &[ShellWord], program: Option<&str>, arguments: &[&str]) {
    let Some(program) = program else {
        if !argv.is_empty() {
            line.note_opaque("a command that is not literal");
        }
        return;
    };
    if changes_meaning(program) && !(program == "set" && only_ends_earlier(arguments)) {
        line.note_opaque(format!("the builtin {program}"));
    }
    if options::run_something(program, argv.get(1..).unwrap_or_default()) {
        line.note_opaque(format!("an option of {program} that runs or writes something else"));
    }
    if is_interpreter(program) && evaluates_text(program, arguments) {
        line.note_opaque(format!("a text that {program} runs"));
    }
    if line.is_input_open && line.reads_input.is_none() && obeys_input(program, arguments) {
        line.reads_input = Some(program.to_owned());
    }
}

/// Reports whether a program, called like this, reads its commands from its input.
fn obeys_input(program: &str, arguments: &[&str]) -> bool {
    const INPUTS: [&str; 5] = ["-", "/dev/stdin", "/dev/fd/0", "/dev/tty", "/proc/self/fd/0"];
    let mut operands = arguments.iter().filter(|word| !word.starts_with('-') || **word == "-");
    let first = operands.next();
    if program == "ssh" {
        return !has_remote_command(arguments);
    }
    let is_session = arguments.iter().any(|word| matches!(*word, "-i" | "-s" | "--login"));
    let is_shell = is_interpreter(program) || reads_commands(program);
    let has_text =
        evaluates_text(program, arguments) && (first.is_some() || arguments.iter().any(|word| is_inline(word)));
    is_database_session(program, arguments)
        || is_shell
            && (is_session
                || first.is_some_and(|word| INPUTS.contains(word))
                || first.is_none() && !has_text && evaluates_text(program, arguments))
}

/// Reports whether an option holds the text that an interpreter runs.
fn is_inline(word: &str) -> bool {
    ["-c", "-e", "-E", "-p", "-r", "-m"].iter().any(|option| word.starts_with(option))
        || ["--eval", "--print"].iter().any(|option| word.starts_with(option))
}

/// Reports whether `ssh` runs a command on the other machine, and no shell of its own.
fn has_remote_command(arguments: &[&str]) -> bool {
    /// Options with a value in the next word.
    const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";
    let (mut operands, mut words) = (0, arguments.iter());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            // Without a command, or only asked for something.
            Some("N" | "V" | "G") => return true,
            Some(letters) if letters.len() == 1 && WITH_VALUE.contains(letters) => drop(words.next()),
            Some(_) => {}
            None => operands += 1,
        }
    }
    operands > 1
}

/// Reports whether the arguments of `set` only say when a line ends, or that it is shown: no word means something else by it.
fn only_ends_earlier(arguments: &[&str]) -> bool {
    let mut is_name = false;
    let mut harmless = |word: &&str| {
        if is_name {
            is_name = false;
            return matches!(*word, "pipefail" | "errexit" | "nounset" | "xtrace" | "errtrace");
        }
        is_name = word.ends_with('o');
        let letters = word.strip_prefix(['-', '+']).unwrap_or_default();
        !letters.is_empty()
            && letters.chars().all(|letter| "euxEo".contains(letter))
            && letters.matches('o').count() <= 1
    };
    !arguments.is_empty() && arguments.iter().all(&mut harmless) && !is_name
}

/// Reports whether an interpreter is handed its program as text, by option or on its input.
fn evaluates_text(program: &str, arguments: &[&str]) -> bool {
    const INLINE: [&str; 9] = ["-c", "-e", "-E", "-p", "-r", "-m", "--eval", "--print", "-"];
    // Modules of Python that are programs of their own, and run no text of their arguments.
    const MODULES: &str =
        "pytest unittest mypy ruff black isort flake8 pylint pyright coverage tox nox build venv pip json.tool";
    let is_program = |module: &&str| MODULES.split_ascii_whitespace().any(|known| known == *module);
    if program.starts_with("py") && matches!(arguments, ["-m", module, ..] if is_program(module)) {
        return false;
    }
    // Alone these tell something, or do nothing.
    if arguments.is_empty() && matches!(program, "env" | "time" | "command" | "builtin" | "exec" | "xargs" | "nohup") {
        return false;
    }
    let first = arguments.iter().find(|word| !word.starts_with('-'));
    let options = arguments.iter().take_while(|word| word.starts_with('-'));
    let inline = |word: &str| {
        INLINE.iter().any(|option| {
            if option.len() == 2 { word.starts_with(option) } else { word == *option || word.starts_with("--eval=") }
        }) || word.starts_with("--print=")
    };
    let only_asks = matches!(arguments, ["--version" | "-V" | "-v" | "--help" | "-h"]);
    !only_asks && (first.is_none() || options.into_iter().any(|word| inline(word)))
}

fn analyze_command(
    place: &Place,
    here: &PossibleCwd,
    assignments: &[ShellWord],
    argv: &[ShellWord],
    cover: CoverNeed,
) -> CommandAnalysis {
    let tool = place.tool.as_str();
    let join = |words: &[String]| words.join(" ");
    let prefix: Vec<String> = assignments.iter().map(ShellWord::normal_form).collect();
    let normal: Vec<String> = argv.iter().map(ShellWord::normal_form).collect();
    let plain: Vec<String> = argv.iter().map(|word| word.plain_text().to_owned()).collect();
    let mut forms = Vec::new();
    let as_test = as_test(argv);
    let tested: Vec<Vec<String>> =
        as_test.iter().map(|argv| argv.iter().map(|word| word.plain_text().to_owned()).collect()).collect();
    let supposed = supposed_words(argv);
    let respelled = spellings::other_spellings(place, here, argv);
    let spelled = respelled.iter().map(|argv| argv.iter().map(|word| word.plain_text().to_owned()).collect());
    let spelled: Vec<Vec<String>> = spelled.collect();
    for words in [&normal, &plain].into_iter().chain(&tested).chain(&supposed).chain(&spelled) {
        forms.push(join(&[prefix.as_slice(), words.as_slice()].concat()));
        if !prefix.is_empty() && !argv.is_empty() {
            forms.push(join(words));
        }
        if let Some((program, rest)) = words.split_first() {
            forms.push(join(&[&[base_name(program).to_owned()], rest].concat()));
            if base_name(program) == "git" {
                forms.extend(git::plain_forms(rest));
            }
            // Each command of git is a program too.
            if let Some(command) = base_name(program).strip_prefix("git-") {
                forms.push(join(&[&["git".to_owned(), command.to_owned()], rest].concat()));
            }
        }
    }
    // A command that sets no variable that matters to a program needs no rule of its own.
    let program = argv.first().and_then(ShellWord::as_literal);
    let is_own = |word: &&ShellWord| !adds_nothing(&word.value, program);
    let is_only_set = argv.is_empty() && !assignments.iter().any(|word| is_own(&word));
    let sets = assignments
        .iter()
        .filter(|_| is_only_set)
        .map(|word| declarations::assigned_name(&word.value).to_owned())
        .collect();
    let own: Vec<ShellWord> = assignments.iter().filter(|word| argv.is_empty() || is_own(word)).cloned().collect();
    let wrap = |texts: Vec<String>| {
        let mut texts: Vec<String> = texts.into_iter().map(|text| format!("{tool}({text})")).collect();
        texts.sort();
        texts.dedup();
        texts
    };
    let mut all = Vec::new();
    if cover == CoverNeed::Needed {
        for argv in std::iter::once(argv).chain(as_test.as_deref()) {
            // The target of a path must be covered as well as the written form.
            let tidied = spellings::normalised_argv(argv);
            let all_of = |assignments: &[ShellWord]| {
                let tidied = tidied.iter().flat_map(|argv| covering_texts(assignments, argv));
                wrap(covering_texts(assignments, argv).into_iter().chain(tidied).collect())
            };
            all.push(all_of(assignments));
            all.extend((own.len() < assignments.len()).then(|| all_of(&own)));
        }
    }
    let shown = forms.first().cloned();
    let mut forms = wrap(forms);
    if let Some(at) = shown.and_then(|shown| forms.iter().position(|form| *form == format!("{tool}({shown})"))) {
        forms.swap(0, at);
    }
    let begun = begun_forms(tool, argv);
    let wild =
        respelled.iter().map(Vec::as_slice).chain([argv]).flat_map(|argv| GlobForm::from_argv(tool, argv)).collect();
    CommandAnalysis { forms, covers: all, narrow: Vec::new(), begun, wild, sets, wrapped: Vec::new() }
}

/// The most words of a command in the arguments of another one that are compared in full. Of a longer one the beginning counts.
const MOST_COMPARED: usize = 16;

/// Returns a command of its own for the arguments of a program that may be a wrapper: what it may run, for deny rules.
pub(super) fn wrapped_analysis(tool: &str, commands: &[&[ShellWord]]) -> CommandAnalysis {
    let mut found = CommandAnalysis::default();
    for argv in commands {
        let Some(program) = argv.first().and_then(ShellWord::as_literal) else { continue };
        let (argv, is_whole) = (&argv[..argv.len().min(MOST_COMPARED)], argv.len() <= MOST_COMPARED);
        let rest: Vec<String> = argv[1..].iter().map(|word| word.plain_text().to_owned()).collect();
        let arguments: String = rest.iter().flat_map(|word| [" ", word.as_str()]).collect();
        // Another path is a file that it works on, not a program.
        let name = if program.starts_with('/') { base_name(program) } else { program };
        let mut texts = vec![format!("{program}{arguments}")];
        texts.extend((name != program).then(|| format!("{name}{arguments}")));
        if let Some(command) = name.strip_prefix("git-") {
            texts.push(format!("git {command}{arguments}"));
        }
        if name == "git" {
            texts.extend(git::plain_forms(&rest));
        }
        let forms = texts.into_iter().map(|text| format!("{tool}({text}"));
        if is_whole {
            found.wrapped.extend(forms.map(|form| format!("{form})")));
        } else {
            found.begun.extend(forms);
        }
        found.begun.extend(begun_forms(tool, argv));
    }
    found
}

/// Returns `[ … ]` in the words of `test`, which is the same.
fn as_test(argv: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let (first, rest) = argv.split_first()?;
    let (last, words) = rest.split_last()?;
    (first.as_literal() == Some("[") && last.as_literal() == Some("]"))
        .then(|| [&[ShellWord::from_text("test")], words].concat())
}

/// Reports whether an assignment before a command has no part that its rule has to name: how `read` cuts its words, or a harmless variable.
fn adds_nothing(assignment: &str, program: Option<&str>) -> bool {
    is_of_read(declarations::assigned_name(assignment), program) || is_setting(assignment)
}

/// Returns the possible texts of a command, if words of it are only known when the line runs: without the unknown parts, and with each
/// possible value as far as the line shows.
fn supposed_words(argv: &[ShellWord]) -> Vec<Vec<String>> {
    if argv.iter().all(|word| word.as_literal().is_some()) {
        return Vec::new();
    }
    let most = argv.iter().map(|word| word.perhaps.len()).max().unwrap_or(0);
    let known = |text: &str| text.replace(UNKNOWN, "").replace(GLOB, "*");
    let tried = |at: Option<usize>| -> Vec<String> {
        let one = |word: &ShellWord| match at.and_then(|at| word.perhaps.get(at)) {
            Some(text) => known(text),
            None => known(&word.value),
        };
        argv.iter().map(one).filter(|text| !text.is_empty()).collect()
    };
    std::iter::once(None).chain((0..most).map(Some)).map(tried).filter(|words| !words.is_empty()).collect()
}

/// Returns the beginnings of a command, as written and by base name, up to the part that is only known when the line runs. None if all of
/// it is known.
pub(super) fn begun_forms(tool: &str, argv: &[ShellWord]) -> Vec<String> {
    if argv.iter().all(|word| !word.value.contains(UNKNOWN) || word.settled) {
        return git::sets_alias(argv).then(|| format!("{tool}(git ")).into_iter().collect();
    }
    let Some(at) = argv.iter().position(|word| word.value.contains(UNKNOWN)) else { return Vec::new() };
    let mut words: Vec<String> = argv[..at].iter().map(|word| word.plain_text().to_owned()).collect();
    let last = argv[at].value.split(UNKNOWN).next().unwrap_or_default();
    words.push(last.replace(GLOB, "*"));
    let mut begun = vec![words.join(" ")];
    if let Some((program, rest)) = words.split_first().filter(|(_, rest)| !rest.is_empty()) {
        begun.push([&[base_name(program).to_owned()], rest].concat().join(" "));
        if base_name(program) == "git" {
            // A quoted text is one word: the command after the value of an option is known.
            let whole: Vec<String> = argv[1..].iter().map(|word| word.value.clone()).collect();
            let forms = if argv[at].splits { git::plain_forms(rest) } else { git::plain_forms(&whole) };
            let cut = |form: String| form.split_once(UNKNOWN).map(|(begun, _)| begun.to_owned());
            begun.extend(match argv[at].splits {
                true => forms,
                false => forms.into_iter().filter_map(cut).collect(),
            });
        }
    }
    begun.sort();
    begun.dedup();
    begun.into_iter().map(|text| format!("{tool}({text}")).collect()
}

/// Returns the texts that allow rules must cover: expanded parts must fall under a `*` of theirs, however long they turn out to be.
fn covering_texts(assignments: &[ShellWord], argv: &[ShellWord]) -> Vec<String> {
    let text = |instead: &str| {
        let words = assignments.iter().chain(argv).map(|word| match word.as_literal() {
            Some(_) => word.normal_form(),
            None => word.value.replace([UNKNOWN, GLOB], instead),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let raw =
        assignments.iter().chain(argv).any(|word| word.as_literal().is_none() && !word.value.contains([UNKNOWN, GLOB]));
    let mut texts = vec![text("\u{1}\u{2}\u{3}"), text("")];
    if raw {
        // A known expansion such as `~/x`: its text counts, and so does that it may have been set otherwise.
        texts.push(assignments.iter().chain(argv).map(ShellWord::normal_form).collect::<Vec<_>>().join(" "));
    }
    texts
}
