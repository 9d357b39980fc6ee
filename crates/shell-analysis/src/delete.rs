//! Recursive deletes and their kin: what they reach, as far as text tells.

mod targets;

use super::{
    cwd::PossibleCwd,
    line::Place,
    protect,
    word::{GLOB, ShellWord, UNKNOWN, shown_text},
};
use crate::path;

/// Effect of a command that deletes.
#[derive(Debug, Default)]
pub(super) struct DeleteEffect {
    pub(super) floor: Option<String>,
    pub(super) protected: Option<String>,
}

/// Effect of a program on its targets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeleteReach {
    /// It takes the whole tree away.
    Tree,
    /// It takes away what the folder holds.
    Contents,
    /// It changes owner or mode of the whole tree.
    Rights,
    /// It takes the whole tree elsewhere.
    Move,
    /// It takes away single files; only wildcards far off matter.
    Files,
}

/// Returns the deletions by `program`, or by a program that is not literal, with `assignments` in its environment.
pub(super) fn delete_effect(
    place: &Place,
    here: &PossibleCwd,
    program: Option<&str>,
    assignments: &[ShellWord],
    arguments: &[ShellWord],
) -> DeleteEffect {
    let targets = match program {
        // A word that is not literal may be any program: the worst is assumed.
        None => targets::of_rm(arguments, false),
        Some("trash" | "trash-put") => targets::of_trash(arguments),
        Some("rm" | "srm") => targets::of_rm(arguments, true),
        Some("tar" | "gtar" | "bsdtar") => targets::of_archive(arguments, "--remove-files"),
        Some("zip") => targets::of_archive(arguments, "-m"),
        Some("shred" | "unlink" | "truncate") => targets::of_files(arguments),
        Some(program @ ("chmod" | "chown" | "chgrp" | "chattr" | "setfacl")) => targets::of_rights(program, arguments),
        Some("mv") => targets::of_mv(arguments),
        Some("find") => targets::of_find(arguments),
        Some("rsync") => targets::of_rsync(arguments),
        Some("git") => targets::of_git(assignments, arguments),
        Some(_) => return DeleteEffect::default(),
    };
    let mut harm = DeleteEffect::default();
    for (reach, target) in &targets {
        note_target(&mut harm, place, here, target, *reach);
    }
    harm
}

fn note_target(harm: &mut DeleteEffect, place: &Place, here: &PossibleCwd, target: &str, reach: DeleteReach) {
    let shown = shown_text(target);
    let what = match reach {
        DeleteReach::Tree | DeleteReach::Contents | DeleteReach::Files => "deletes",
        DeleteReach::Rights => "changes the rights of",
        DeleteReach::Move => "moves",
    };
    if target.contains(UNKNOWN) || (here.is_unknown() && !target.starts_with('/')) {
        let matters = match reach {
            DeleteReach::Tree | DeleteReach::Contents => true,
            DeleteReach::Rights | DeleteReach::Move => target.starts_with(UNKNOWN),
            // Of a machine whose home is not known, all that lies there may be meant.
            DeleteReach::Files => place.home.is_none() && target.starts_with(UNKNOWN) && target.contains(GLOB),
        };
        if matters {
            harm.floor.get_or_insert_with(|| format!("{what} {shown}, and nobody can tell what that is"));
        }
        return;
    }
    for dir in here.possible_dirs() {
        let target = DeleteTarget::new(dir, target, reach);
        for root in &place.protected {
            // The working folder may hold a file of ours; a command that means it names it, and the folder itself is checked by the floor.
            let named = path::is_within(&target.certain, root) && !path::is_within(&target.certain, &place.cwd);
            let emptied = named && (!target.glob || protect::leads_to_protected(place, here, &target.resolved));
            if emptied && reach != DeleteReach::Files {
                harm.protected.get_or_insert_with(|| root.clone());
            }
        }
        if target.is_beyond(place, reach) {
            harm.floor.get_or_insert_with(|| format!("{what} {shown}, beyond the working folder"));
        }
    }
}

/// Target of a word.
struct DeleteTarget {
    resolved: String,
    /// The part before the first wildcard, which is certain.
    certain: String,
    glob: bool,
    /// A wildcard after a dot, which may mean the parent.
    climbs: bool,
    /// Only what the folder holds, not the folder.
    contents: bool,
}

impl DeleteTarget {
    fn new(dir: &str, text: &str, reach: DeleteReach) -> Self {
        let resolved = path::resolve(dir, text);
        let glob = resolved.contains(GLOB);
        let certain: Vec<&str> = resolved.split('/').skip(1).take_while(|part| !part.contains(GLOB)).collect();
        let certain = format!("/{}", certain.join("/"));
        let climbs = resolved
            .split('/')
            .any(|part| part.contains(GLOB) && part.starts_with('.') && part[1..].starts_with([GLOB, '.']));
        Self { resolved, certain, glob, climbs, contents: glob || reach == DeleteReach::Contents }
    }

    fn is_beyond(&self, place: &Place, reach: DeleteReach) -> bool {
        let certain = self.certain.as_str();
        let holds = |inner: &str| path::is_within(certain, inner);
        // A folder above all homes is never a working folder.
        let above = |home: &str| home != place.cwd && path::is_within(&place.cwd, home);
        let working = place.cwd != "/" && !place.home.as_deref().is_some_and(above);
        let inside = working && path::is_within(&place.cwd, certain);
        let is_cwd = certain == place.cwd;
        // Under a temporary folder nothing is lost, but the folder itself is shared by all users.
        let temporary = place.temporary.iter().any(|root| path::is_within(root, certain) && certain != root);
        let holds_home = (!is_cwd || self.contents) && place.home.as_deref().is_some_and(holds);
        if self.climbs {
            return true;
        }
        match reach {
            DeleteReach::Tree => !temporary && !(inside && (self.contents || !is_cwd)) || holds_home,
            DeleteReach::Contents => !temporary && !inside || holds_home,
            DeleteReach::Rights | DeleteReach::Move => {
                let top = certain.matches('/').count() == 1 && !inside && !temporary;
                let moved = reach == DeleteReach::Move && is_cwd && !self.contents;
                top || moved || holds_home || (holds(&place.cwd) && !is_cwd)
            }
            DeleteReach::Files => self.glob && !inside && !temporary,
        }
    }
}
