//! Judges a shell command line by every simple command in it, without running or expanding anything.
//!
//! It must not know rules or grants, only what a line is made of: its [`Line`] says which texts a rule is matched against, what keeps an allow rule from covering it,
//! and what it would destroy. Where it cannot tell, it says so, and nobody but a person or a bare `*` lets that pass.
#![warn(missing_docs)]

mod action_class;
mod analyze;
mod awk;
mod calls;
mod carried;
mod classes;
mod containers;
mod context;
mod cut;
mod declared;
mod delete;
mod descriptors;
mod disk;
mod feed;
pub mod files;
mod find;
pub mod fnmatch;
mod git;
mod grammar;
mod here;
mod here_documents;
mod limits;
mod line;
mod line_classes;
mod loops;
mod narrow;
pub mod narrow_path;
pub mod obeyed;
mod option_words;
mod options;
pub mod path;
mod path_globs;
pub mod path_style;
mod perhaps;
mod posix;
mod programs;
mod protect;
mod roundabout;
mod runners;
mod runs;
pub mod secret;
mod sed;
mod shell;
mod simple;
mod spelled;
mod unwrap;
mod variables;
mod walk;
mod wild;
mod word;

pub use self::{
    action_class::ActionClass,
    analyze::{analyze, analyze_call, patterns, plain_form},
    context::{MachinePaths, ShellCall, ShellContext, Start},
    line::{Finds, Line, Piece, Simple, UNPARSABLE},
    line_classes::{Classes, classes_of},
    perhaps::NO_COMMAND,
    programs::grants_interpreter,
    shell::{Foreign, Machine, Shell, is_shell_in_rules},
    wild::Wild,
};
