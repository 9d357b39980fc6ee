//! What went wrong in programs of this kind, tried here: each class of fault on every door that it can come through, with the
//! real binary. [`classes`] has the table of all of them, those that other tests show among them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod approved_files;
mod browsers;
mod canaries;
mod classes;
mod door_table;
mod foreign_folders;
mod hidden;
mod modes;
mod names;
mod own_children;
mod secrets;
mod shell_forms;
mod stage;
mod way_out;
