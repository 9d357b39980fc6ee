//! Input that a pipeline feeds to a shell, if it is written out in the line.

use brush_parser::ast;

use super::{
    options::{leaves_database, sqlite_runs_more},
    programs::{SHELLS, base_name},
    runners::reads_commands,
    unwrap::is_known,
    word::{self, KnownVariables, ShellWord},
};

/// Returns the texts that a shell among `commands` would read: here-documents, here-strings, and what `echo` and `printf` say into it.
pub(super) fn texts_for_a_shell(commands: &[ast::Command]) -> Vec<String> {
    let any_shell = |command: &ast::Command| reader_position(&raw_words(command)).is_some();
    if !commands.iter().any(any_shell) {
        return Vec::new();
    }
    let echoed = commands.iter().filter(|_| commands.len() > 1).filter_map(echoed_text);
    echoed.chain(commands.iter().flat_map(document_texts)).filter(|text| !text.is_empty()).collect()
}

/// Returns the position among `words` of a program that reads commands of the shell: a shell, or a program that reads a file in its place.
fn reader_position(words: &[String]) -> Option<usize> {
    let is_source = |word: &String| matches!(plain_text(word).as_str(), "." | "source");
    let is_shell = |word: &String| SHELLS.contains(&base_name(&plain_text(word)));
    words.first().filter(|word| is_source(word)).map(|_| 0).or_else(|| words.iter().position(is_shell))
}

/// Reports whether a shell among `commands` reads commands that are not written out in the line: of a pipe, a process or a text that is
/// expanded.
pub(super) fn reads_unknown(commands: &[ast::Command]) -> bool {
    commands.iter().enumerate().any(|(at, command)| {
        let words = raw_words(command);
        let Some(from) = reader_position(&words) else { return false };
        let rest: Vec<String> = words[from + 1..].iter().map(|word| plain_text(word)).collect();
        let substituted = process_substitutions(command);
        if rest.is_empty() && !substituted.is_empty() {
            return !substituted.into_iter().all(is_plainly_said);
        }
        let is_input =
            |word: &String| word.starts_with('-') || word.starts_with("/dev/stdin") || word.starts_with("/dev/fd/");
        let is_text = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        let input = command_items(command).filter_map(input_redirect).next();
        let is_text_given = matches!(input, Some(ast::IoRedirect::HereDocument(..) | ast::IoRedirect::HereString(..)));
        let is_fed = is_text_given || input.is_none() && at > 0;
        is_fed && rest.iter().all(is_input) && !rest.iter().any(is_text) && !is_written_out(commands, at)
    })
}

/// Returns the processes whose output a command gets as a file among its words.
fn process_substitutions(command: &ast::Command) -> Vec<&ast::SubshellCommand> {
    let process = |item| match item {
        &ast::CommandPrefixOrSuffixItem::ProcessSubstitution(ast::ProcessSubstitutionKind::Read, ref process) => {
            Some(process)
        }
        ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..)
        | ast::CommandPrefixOrSuffixItem::IoRedirect(_)
        | ast::CommandPrefixOrSuffixItem::Word(_)
        | ast::CommandPrefixOrSuffixItem::AssignmentWord(..) => None,
    };
    command_items(command).filter_map(process).collect()
}

fn process_pipelines(process: &ast::SubshellCommand) -> impl Iterator<Item = &ast::Pipeline> {
    process.list.0.iter().flat_map(|item| &item.0).map(|(_, pipeline)| pipeline)
}

/// Reports whether a process only prints its words.
fn is_plainly_said(process: &ast::SubshellCommand) -> bool {
    process_pipelines(process).all(|pipeline| pipeline.seq.iter().all(is_plain_echo))
}

/// Returns the texts that a command within another would read, or one that hands its input on: those of a group around a shell, of a
/// process at the other end of a redirection, and of another machine's shell or another user's.
pub(super) fn texts_for_another(commands: &[ast::Command]) -> Vec<String> {
    let mut texts = Vec::new();
    for command in commands {
        let hands_on = match command {
            ast::Command::Compound(compound, _) => names_shell(&compound.to_string()),
            ast::Command::Simple(_) => {
                raw_words(command).first().is_some_and(|name| reads_commands(base_name(&plain_text(name))))
            }
            ast::Command::Function(_) | ast::Command::ExtendedTest(..) => false,
        };
        if hands_on {
            let is_table = raw_words(command).first().is_some_and(|name| base_name(name) == "crontab");
            texts.extend(
                document_texts(command).into_iter().map(|text| if is_table { without_times(&text) } else { text }),
            );
            texts.extend(commands.iter().filter(|_| commands.len() > 1).filter_map(echoed_text));
        }
        if reader_position(&raw_words(command)).is_some() {
            let said_there = process_substitutions(command).into_iter().flat_map(process_pipelines);
            texts.extend(said_there.flat_map(|pipeline| &pipeline.seq).filter_map(echoed_text));
        }
        for (kind, process) in redirected_processes(command) {
            match kind {
                ast::IoFileRedirectKind::Read if names_shell(&command.to_string()) => {
                    let pipelines = process.list.0.iter().flat_map(|item| &item.0).map(|(_, pipeline)| pipeline);
                    texts.extend(pipelines.flat_map(|pipeline| &pipeline.seq).filter_map(echoed_text));
                }
                _ if names_shell(&process.list.to_string()) => texts.extend(echoed_text(command)),
                _ => {}
            }
        }
    }
    texts
}

/// Clients of databases that read commands on their input, some of which run programs or leave the database: each with whether it reads
/// its input at all when it is called with these words, and whether a text has such a command.
const DATABASES: [(&str, ReadsInput, EscapeCheck); 4] = [
    ("sqlite3", sqlite_reads_input, sqlite_runs_more),
    ("psql", |words| !names_commands(words, "cf", &["--command", "--file"]), leaves_database),
    ("mysql", |words| !names_commands(words, "e", &["--execute"]), leaves_database),
    ("mariadb", |words| !names_commands(words, "e", &["--execute"]), leaves_database),
];
type ReadsInput = fn(&[String]) -> bool;
type EscapeCheck = fn(&str) -> bool;

/// Reports whether an option gives the commands in place of the input: a letter of `short`, in a group too, or one of `long`.
fn names_commands(words: &[String], short: &str, long: &[&str]) -> bool {
    let is_short =
        |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains(|letter| short.contains(letter));
    let is_long = |word: &str| long.contains(&word.split('=').next().unwrap_or(word));
    // A file may be the input itself.
    let is_input = |word: &str| word == "-" || word.ends_with("=-") || word.ends_with("f-") || word.contains("/dev/");
    let words: Vec<String> = words.iter().map(|word| plain_text(word)).collect();
    words.iter().any(|word| is_short(word) || is_long(word)) && !words.iter().any(|word| is_input(word))
}

/// Reports whether the line says from where a command reads, and that nothing can be written there later.
pub(super) fn gives_input(command: &ast::Command) -> bool {
    command_redirects(command).into_iter().any(replaces_input)
}

/// Reports whether a redirection puts a text or a file in the place of the input: no terminal, and none of the shell's own open files.
fn replaces_input(redirect: &ast::IoRedirect) -> bool {
    let is_input = |number: &Option<ast::IoFd>| number.is_none_or(|number| number == 0);
    match redirect {
        ast::IoRedirect::HereDocument(number, _) | ast::IoRedirect::HereString(number, _) => is_input(number),
        ast::IoRedirect::File(number, kind, ast::IoFileRedirectTarget::Filename(word)) => {
            let reads = matches!(kind, ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::ReadAndWrite);
            let is_device =
                |path: &str| path != "/dev/null" && path.split('/').any(|part| matches!(part, "dev" | "proc"));
            reads && is_input(number) && scanned(&word.value).as_literal().is_some_and(|path| !is_device(path))
        }
        ast::IoRedirect::File(
            number,
            ast::IoFileRedirectKind::DuplicateInput,
            ast::IoFileRedirectTarget::Duplicate(word),
        ) => is_input(number) && word.value == "-",
        ast::IoRedirect::File(..) | ast::IoRedirect::OutputAndError(..) => false,
    }
}

/// Reports whether `program` is the client of a database that reads commands on its input when it is called with `arguments`.
pub(super) fn is_database_session(program: &str, arguments: &[&str]) -> bool {
    let words: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    DATABASES.iter().any(|(name, reads_input, _)| *name == program && reads_input(&words))
}

fn sqlite_reads_input(words: &[String]) -> bool {
    const FLAGS: &str =
        "-header -noheader -csv -json -line -list -column -markdown -batch -readonly -box -table -html -tabs -quote";
    let is_flag = |word: &&String| FLAGS.split_ascii_whitespace().any(|flag| flag == word.as_str());
    let (options, operands): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with('-'));
    operands.len() < 2 || !options.iter().all(is_flag)
}

/// Returns the client of a database that reads commands on its input which may run a program, or which are not written out.
pub(super) fn database_client(commands: &[ast::Command]) -> Option<&'static str> {
    let may_be_told = |(name, reads_input, leaves): &(&str, ReadsInput, EscapeCheck)| {
        commands.iter().enumerate().any(|(at, command)| {
            let words = raw_words(command);
            // It is the program itself, or one that another runs.
            let may_run = |word: &String| is_known(base_name(&plain_text(word))) || *name == "sqlite3";
            let own = words.iter().position(|word| base_name(&plain_text(word)) == *name);
            let own = own.filter(|at| *at == 0 || words.first().is_some_and(may_run)).map(|own| &words[own + 1..]);
            // After a sign that ends a command which another runs come no words of its own.
            let is_end = |word: &&String| matches!(plain_text(word).as_str(), ";" | "+");
            let own = own.map(|words| &words[..words.iter().take_while(|word| !is_end(word)).count()]);
            let is_fed = at > 0 || command_redirects(command).into_iter().any(is_input_redirect);
            match command {
                ast::Command::Simple(_) if is_fed && own.is_some_and(reads_input) => {
                    let before = at.checked_sub(1).and_then(|before| echoed_text(&commands[before]));
                    let mut texts = document_texts(command).into_iter().chain(before);
                    !is_written_out(commands, at) || texts.any(|text| leaves(&text))
                }
                ast::Command::Compound(compound, _) if is_fed => compound.to_string().contains(name),
                ast::Command::Simple(_)
                | ast::Command::Compound(..)
                | ast::Command::Function(_)
                | ast::Command::ExtendedTest(..) => false,
            }
        })
    };
    DATABASES.iter().find(|database| may_be_told(database)).map(|(name, ..)| *name)
}

/// Returns the commands of a table of `crontab`.
fn without_times(table: &str) -> String {
    let command = |line: &str| line.split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
    table.lines().map(command).collect::<Vec<_>>().join("\n")
}

/// Reports whether a text has a word that is a shell's name.
fn names_shell(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    text.split(|c| !is_name(c)).any(|word| SHELLS.contains(&word) || reads_commands(word))
}

/// Returns the processes that a command's redirections read or write.
fn redirected_processes(command: &ast::Command) -> Vec<(&ast::IoFileRedirectKind, &ast::SubshellCommand)> {
    let found = command_redirects(command).into_iter().filter_map(|redirect| match redirect {
        ast::IoRedirect::File(_, kind, ast::IoFileRedirectTarget::ProcessSubstitution(_, process)) => {
            Some((kind, process))
        }
        ast::IoRedirect::File(..)
        | ast::IoRedirect::HereDocument(..)
        | ast::IoRedirect::HereString(..)
        | ast::IoRedirect::OutputAndError(..) => None,
    });
    found.collect()
}

/// Returns the redirections of a command, those around a group too.
fn command_redirects(command: &ast::Command) -> Vec<&ast::IoRedirect> {
    let around = match command {
        ast::Command::Compound(_, around) => around.as_ref(),
        ast::Command::Simple(_) | ast::Command::Function(_) | ast::Command::ExtendedTest(..) => None,
    };
    let own = command_items(command).filter_map(|item| match item {
        ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => Some(redirect),
        ast::CommandPrefixOrSuffixItem::Word(_)
        | ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
        | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
    });
    around.into_iter().flat_map(|around| &around.0).chain(own).collect()
}

/// Returns the output of `echo` and `printf`.
pub(super) fn echoed_text(command: &ast::Command) -> Option<String> {
    let words = raw_words(command);
    let echoes = words.first().is_some_and(|name| matches!(base_name(&plain_text(name)), "echo" | "printf"));
    echoes.then(|| words[1..].iter().map(|word| plain_text(word).replace("\\n", "\n")).collect::<Vec<_>>().join(" "))
}

/// Reports whether what `commands[at]` reads on its input is written out in the line, all of it and nothing else, so that
/// [`texts_for_a_shell`] has it: a here-document or here-string that expands nothing, or a plain `echo` before it.
pub(super) fn is_written_out(commands: &[ast::Command], at: usize) -> bool {
    let inputs: Vec<&ast::IoRedirect> =
        commands.get(at).into_iter().flat_map(command_items).filter_map(input_redirect).collect();
    match inputs.as_slice() {
        [] => at.checked_sub(1).and_then(|before| commands.get(before)).is_some_and(is_plain_echo),
        [ast::IoRedirect::HereDocument(_, document)] => {
            !document.requires_expansion || !document.doc.value.contains(['$', '`', '\\'])
        }
        [ast::IoRedirect::HereString(_, word)] => is_literal(&word.value),
        [..] => false,
    }
}

/// Returns a redirection of what a command reads.
fn input_redirect(item: &ast::CommandPrefixOrSuffixItem) -> Option<&ast::IoRedirect> {
    let ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) = item else { return None };
    is_input_redirect(redirect).then_some(redirect)
}

/// Reports whether a redirection is of the input of a command.
fn is_input_redirect(redirect: &ast::IoRedirect) -> bool {
    let writes = matches!(
        redirect,
        ast::IoRedirect::OutputAndError(..)
            | ast::IoRedirect::File(
                _,
                ast::IoFileRedirectKind::Write
                    | ast::IoFileRedirectKind::Append
                    | ast::IoFileRedirectKind::Clobber
                    | ast::IoFileRedirectKind::DuplicateOutput,
                _
            )
    );
    !writes
}

/// Returns true for an `echo` that says its words and nothing more.
fn is_plain_echo(command: &ast::Command) -> bool {
    let words = raw_words(command);
    let redirects = command_items(command).any(|item| !matches!(item, ast::CommandPrefixOrSuffixItem::Word(_)));
    let [name, rest @ ..] = words.as_slice() else { return false };
    let says = |raw: &String| is_literal(raw) && !plain_text(raw).contains('\\') && !plain_text(raw).starts_with('-');
    name == "echo" && !redirects && rest.iter().all(says)
}

fn is_literal(raw: &str) -> bool {
    scanned(raw).as_literal().is_some()
}

fn plain_text(raw: &str) -> String {
    scanned(raw).approximate_text()
}

fn scanned(raw: &str) -> ShellWord {
    word::scan_word(raw, KnownVariables { home: None, cwd: None, tried: &[] })
}

fn command_items(command: &ast::Command) -> impl Iterator<Item = &ast::CommandPrefixOrSuffixItem> {
    let simple = match command {
        ast::Command::Simple(simple) => Some(simple),
        ast::Command::Compound(..) | ast::Command::Function(_) | ast::Command::ExtendedTest(..) => None,
    };
    simple.into_iter().flat_map(|simple| {
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        prefix.chain(simple.suffix.iter().flat_map(|suffix| &suffix.0))
    })
}

fn raw_words(command: &ast::Command) -> Vec<String> {
    let name = match command {
        ast::Command::Simple(simple) => simple.word_or_name.as_ref().map(|name| name.value.clone()),
        ast::Command::Compound(..) | ast::Command::Function(_) | ast::Command::ExtendedTest(..) => None,
    };
    let rest = command_items(command).filter_map(|item| match item {
        ast::CommandPrefixOrSuffixItem::Word(word) => Some(word.value.clone()),
        ast::CommandPrefixOrSuffixItem::IoRedirect(_)
        | ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
        | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
    });
    name.into_iter().chain(rest).collect()
}

/// Returns the here-documents and here-strings of a command, those of a group too.
pub(super) fn document_texts(command: &ast::Command) -> Vec<String> {
    let texts = command_redirects(command).into_iter().filter_map(|redirect| match redirect {
        ast::IoRedirect::HereDocument(_, document) => Some(document.doc.value.clone()),
        ast::IoRedirect::HereString(_, word) => Some(plain_text(&word.value)),
        ast::IoRedirect::File(..) | ast::IoRedirect::OutputAndError(..) => None,
    });
    texts.collect()
}
