//! Reads the agent directory: where it is, its settings, its models and their keys.
//!
//! It must not know any door, the engine or a provider's wire: it turns files and an environment into plain values.

pub mod environment;
pub mod keys;
pub mod load_error;
pub mod models_file;
pub mod names;
pub mod persist;
pub mod place;
pub mod restrictions;
pub mod roster;
mod sandbox;
mod section;
mod setting_names;
pub mod settings;
pub mod wildcard;

pub use environment::Environment;
pub use keys::Keys;
pub use load_error::LoadError;
pub use models_file::ModelsFile;
pub use persist::{Change, persist};
pub use place::{AgentDir, Product};
pub use restrictions::Restrictions;
pub use roster::{Choice, Roster};
pub use settings::Settings;
