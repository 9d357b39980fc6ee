//! Recursive deletes and their kin: what they reach, as far as text tells.

use super::{
    find,
    here::Here,
    line::Place,
    protect,
    word::{GLOB, UNKNOWN, Word},
};
use crate::policy::path;

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

/// What `program`, or a program that is not literal, would delete.
pub(super) fn harm(place: &Place, here: &Here, program: Option<&str>, arguments: &[Word]) -> Harm {
    let (reach, targets) = match program {
        // Any program may stand behind a word that is not literal: it is taken for the worst.
        None | Some("rm" | "srm") => match recursive(arguments, &["recursive"], "rR") {
            true => (Reach::Tree, operands(arguments)),
            false if program.is_none() => return Harm::default(),
            false => (Reach::Files, operands(arguments)),
        },
        Some("shred" | "unlink") => (Reach::Files, operands(arguments)),
        Some("chmod" | "chown" | "chgrp") if recursive(arguments, &["recursive"], "R") => {
            (Reach::Rights, operands(arguments).split_off(1.min(operands(arguments).len())))
        }
        Some("chmod" | "chown" | "chgrp") => return Harm::default(),
        Some("mv") => {
            let mut targets = operands(arguments);
            targets.pop();
            (Reach::Move, targets)
        }
        Some("find") if arguments.iter().any(|word| word.value == "-delete") => {
            (Reach::Contents, find::starts(arguments))
        }
        Some("rsync") if arguments.iter().any(|word| word.value.starts_with("--del")) => (
            Reach::Contents,
            operands(arguments).last().filter(|word| !word.contains(':')).into_iter().copied().collect(),
        ),
        Some("git") if arguments.iter().any(|word| word.value == "clean") => {
            let at = arguments.iter().position(|word| word.value == "-C");
            (Reach::Contents, vec![at.and_then(|at| arguments.get(at + 1)).map_or(".", |word| &word.value)])
        }
        Some(_) => return Harm::default(),
    };
    let mut harm = Harm::default();
    for target in targets {
        note(&mut harm, place, here, target, reach);
    }
    harm
}

fn note(harm: &mut Harm, place: &Place, here: &Here, target: &str, reach: Reach) {
    let shown = target.replace(UNKNOWN, "…").replace(GLOB, "*");
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

fn recursive(arguments: &[Word], long: &[&str], short: &str) -> bool {
    let mut options = arguments
        .iter()
        .take_while(|word| word.value != "--")
        .filter(|word| word.value.starts_with('-') || word.value.starts_with(UNKNOWN));
    options.any(|word| match word.value.strip_prefix("--") {
        Some(name) => !name.is_empty() && long.iter().any(|long| long.starts_with(name)),
        None if word.value.starts_with(UNKNOWN) => {
            word.raw.starts_with('$') && arguments.len() > 1 && !word.raw.contains('/')
        }
        None => word.value.contains(|c| short.contains(c)),
    })
}

fn operands(arguments: &[Word]) -> Vec<&str> {
    let end = arguments.iter().position(|word| word.value == "--").unwrap_or(arguments.len());
    let before = arguments.iter().take(end).filter(|word| !word.value.starts_with('-'));
    before.chain(arguments.iter().skip(end + 1)).map(|word| word.value.as_str()).collect()
}
