//! What is in force beside what was decided: compiled rules and where they apply.

use crate::{
    digest::Digest,
    gate::People,
    policy::{Compiled, Contract, Posture, Surroundings},
};

/// The rules of this process. They come from files and flags, not from the log; the log holds their digest.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The compiled rules.
    pub compiled: Compiled,
    /// What holds where no rule says anything.
    pub posture: Posture,
    /// What an unattended run may do; absent where people are about.
    pub contract: Option<Contract>,
    /// What judging needs to know of the machine: folders that nobody may write to, the home folder.
    pub surroundings: Surroundings,
    /// Whose identities are whose.
    pub people: People,
}

impl Rules {
    /// Of the compiled rules.
    pub fn digest(&self) -> Digest {
        self.compiled.digest()
    }
}
