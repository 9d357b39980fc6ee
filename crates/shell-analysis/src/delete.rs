//! Recursive deletes and their kin: what they reach, as far as text tells.

mod targets;

use super::{
    here::Here,
    line::Place,
    protect,
    word::{GLOB, UNKNOWN, Word, shown},
};
use crate::path;

/// What a command would delete.
#[derive(Debug, Default)]
pub(super) struct Harm {
    pub(super) floor: Option<String>,
    pub(super) protected: Option<String>,
}

/// How a program treats what it is pointed at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
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

/// What `program`, or a program that is not literal, would delete with `assignments` in its environment.
pub(super) fn harm(
    place: &Place,
    here: &Here,
    program: Option<&str>,
    assignments: &[Word],
    arguments: &[Word],
) -> Harm {
    let targets = match program {
        // Any program may stand behind a word that is not literal: it is taken for the worst.
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
        Some(_) => return Harm::default(),
    };
    let mut harm = Harm::default();
    for (reach, target) in &targets {
        note(&mut harm, place, here, target, *reach);
    }
    harm
}

fn note(harm: &mut Harm, place: &Place, here: &Here, target: &str, reach: Reach) {
    let shown = shown(target);
    let what = match reach {
        Reach::Tree | Reach::Contents | Reach::Files => "deletes",
        Reach::Rights => "changes the rights of",
        Reach::Move => "moves",
    };
    if target.contains(UNKNOWN) || (here.is_unknown() && !target.starts_with('/')) {
        let matters = match reach {
            Reach::Tree | Reach::Contents => true,
            Reach::Rights | Reach::Move => target.starts_with(UNKNOWN),
            // Of a machine whose home is not known, all that lies there may be meant.
            Reach::Files => place.home.is_none() && target.starts_with(UNKNOWN) && target.contains(GLOB),
        };
        if matters {
            harm.floor.get_or_insert_with(|| format!("{what} {shown}, and nobody can tell what that is"));
        }
        return;
    }
    for dir in here.dirs() {
        let target = Target::new(dir, target, reach);
        for root in &place.protected {
            // The working folder may hold a file of ours; whoever means it names it, and the folder itself is the floor's business.
            let named = path::is_within(&target.certain, root) && !path::is_within(&target.certain, &place.cwd);
            let emptied = named && (!target.glob || protect::leads(place, here, &target.resolved));
            if emptied && reach != Reach::Files {
                harm.protected.get_or_insert_with(|| root.clone());
            }
        }
        if target.is_beyond(place, reach) {
            harm.floor.get_or_insert_with(|| format!("{what} {shown}, beyond the working folder"));
        }
    }
}

/// What a word points at.
struct Target {
    resolved: String,
    /// The part before the first wildcard, which is certain.
    certain: String,
    glob: bool,
    /// A wildcard after a dot, which may mean the parent.
    climbs: bool,
    /// Only what the folder holds, not the folder.
    contents: bool,
}

impl Target {
    fn new(dir: &str, text: &str, reach: Reach) -> Self {
        let resolved = path::resolve(dir, text);
        let glob = resolved.contains(GLOB);
        let certain: Vec<&str> = resolved.split('/').skip(1).take_while(|part| !part.contains(GLOB)).collect();
        let certain = format!("/{}", certain.join("/"));
        let climbs = resolved
            .split('/')
            .any(|part| part.contains(GLOB) && part.starts_with('.') && part[1..].starts_with([GLOB, '.']));
        Self { resolved, certain, glob, climbs, contents: glob || reach == Reach::Contents }
    }

    fn is_beyond(&self, place: &Place, reach: Reach) -> bool {
        let certain = self.certain.as_str();
        let holds = |inner: &str| path::is_within(certain, inner);
        // A folder above everybody's is nobody's working folder.
        let above = |home: &str| home != place.cwd && path::is_within(&place.cwd, home);
        let working = place.cwd != "/" && !place.home.as_deref().is_some_and(above);
        let inside = working && path::is_within(&place.cwd, certain);
        let is_cwd = certain == place.cwd;
        // Under a temporary folder nothing is lost, but the folder itself is everybody's.
        let temporary = place.temporary.iter().any(|root| path::is_within(root, certain) && certain != root);
        let holds_home = (!is_cwd || self.contents) && place.home.as_deref().is_some_and(holds);
        if self.climbs {
            return true;
        }
        match reach {
            Reach::Tree => !temporary && !(inside && (self.contents || !is_cwd)) || holds_home,
            Reach::Contents => !temporary && !inside || holds_home,
            Reach::Rights | Reach::Move => {
                let top = certain.matches('/').count() == 1 && !inside && !temporary;
                let moved = reach == Reach::Move && is_cwd && !self.contents;
                top || moved || holds_home || (holds(&place.cwd) && !is_cwd)
            }
            Reach::Files => self.glob && !inside && !temporary,
        }
    }
}
