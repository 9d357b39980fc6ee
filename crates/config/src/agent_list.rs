//! Agents of a configuration while it is read. Ids and tokens are unique, and checking one costs the same however many there are.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
};

use secrecy::{ExposeSecret as _, SecretString};

use super::settings::AgentConfig;

/// Agents that were read so far.
#[derive(Default)]
pub(super) struct AgentList {
    agents: Vec<AgentConfig>,
    ids: HashSet<String>,
    /// Places of agents by the hashes of their tokens. The tokens themselves stay in one place.
    by_token: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
}

/// Reason why an agent was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentConflict {
    /// Another agent has this id.
    Id,
    /// Another agent has this token.
    Token,
}

impl AgentList {
    /// Adds an agent.
    ///
    /// # Errors
    /// [`AgentConflict`] if another agent has its id or its token.
    pub(super) fn add_agent(&mut self, id: String, token: SecretString) -> Result<(), AgentConflict> {
        if self.ids.contains(&id) {
            return Err(AgentConflict::Id);
        }
        let places = self.by_token.entry(self.hasher.hash_one(token.expose_secret())).or_default();
        let has_token = |place: &usize| {
            #[cfg(test)]
            tests::COMPARED.set(tests::COMPARED.get() + 1);
            self.agents[*place].token.expose_secret() == token.expose_secret()
        };
        if places.iter().any(has_token) {
            return Err(AgentConflict::Token);
        }
        places.push(self.agents.len());
        self.ids.insert(id.clone());
        self.agents.push(AgentConfig { id, token });
        Ok(())
    }

    /// Returns the agents in the order of their addition.
    pub(super) fn into_agents(self) -> Vec<AgentConfig> {
        self.agents
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Number of compared tokens.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn ids_and_tokens_are_unique() {
        let mut list = AgentList::default();
        for (id, token, want) in [
            ("a", "one", Ok(())),
            ("a", "two", Err(AgentConflict::Id)),
            ("b", "one", Err(AgentConflict::Token)),
            ("b", "two", Ok(())),
        ] {
            assert_eq!(list.add_agent(id.to_owned(), token.into()), want, "{id} {token}");
        }
        let ids: Vec<String> = list.into_agents().into_iter().map(|agent| agent.id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn tokens_are_compared_with_almost_none_of_the_others_however_many_there_are() {
        for count in [10, 1_000, 100_000] {
            let mut list = AgentList::default();
            COMPARED.set(0);
            for number in 0..count {
                assert_eq!(list.add_agent(format!("a{number}"), format!("token {number}").into()), Ok(()));
            }
            // Two of a hundred thousand hashes of 64 bits are equal once in a billion runs.
            assert!(COMPARED.get() <= 1, "{} were compared with {count} agents", COMPARED.get());
        }
    }
}
