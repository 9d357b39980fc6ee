//! Judges a shell command line by every simple command in it, without running or expanding anything.
//!
//! It must not know rules or grants, only the structure of a line: its [`LineAnalysis`] has the texts against which a rule is matched, the
//! reasons that keep an allow rule from covering it, and the harm that it would do. Uncertain results are marked, and only an approver or a
//! bare `*` lets them pass.
#![warn(missing_docs)]

mod action_class;
mod analyze;
mod awk;
mod call_graph;
mod classes;
mod containers;
mod context;
mod cwd;
mod dataflow;
mod declarations;
mod delete;
mod descriptors;
mod disk;
pub mod files;
mod find;
pub mod fnmatch;
mod git;
mod globs;
mod grammar;
mod here_documents;
mod limits;
mod line;
mod line_classes;
mod loops;
mod maybe_shell;
pub mod narrow_path;
mod narrow_words;
pub mod obeyed_files;
mod option_words;
mod options;
pub mod path;
mod path_aliases;
mod path_globs;
pub mod path_style;
mod posix;
mod programs;
mod protect;
mod run_target;
mod runners;
pub mod secret;
mod sed;
mod shell;
mod simple_command;
mod spellings;
mod stdin;
mod tokenizer;
mod unwrap;
mod variables;
mod walk;
mod word;

pub use self::{
    action_class::ActionClass,
    analyze::{allow_patterns, analyze, analyze_call, plain_form, reads_open_input},
    context::{MachinePaths, ShellCall, ShellContext, StartFolder},
    globs::GlobForm,
    line::{CommandAnalysis, LineAnalysis, LinePart, RuleFinder, UNPARSABLE},
    line_classes::{LineClasses, classes_of},
    maybe_shell::NO_COMMAND,
    programs::grants_interpreter,
    shell::{ForeignTool, ShellInput, ShellMachine, is_shell_in_rules},
};
