//! Requests of one side that have no answer yet.

use std::collections::BTreeMap;

use crate::json_line::RequestId;

/// Open requests of one side, with what is known of each.
#[derive(Debug)]
pub(crate) struct OpenRequests<T>(BTreeMap<RequestId, T>);

impl<T> Default for OpenRequests<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> OpenRequests<T> {
    /// Adds a request. False if its id is that of another open one.
    pub(crate) fn insert(&mut self, id: RequestId, known: T) -> bool {
        if self.0.contains_key(&id) {
            return false;
        }
        self.0.insert(id, known);
        true
    }

    /// Takes a request out, when it is answered.
    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<T> {
        self.0.remove(id)
    }

    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.0.contains_key(id)
    }

    /// Takes out the ids of all.
    pub(crate) fn take_ids(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}
