//! Keys of providers: which are there, and where one belongs.

use countersign_protocol::{
    gjc::state::{LoginProvider, LoginProviders},
    omp::{OmpRequestId, OmpResponse},
};

use crate::adapter::OmpAdapter;

/// Lists the providers with known keys. There is no login here: keys are in the environment and in files.
pub(super) fn login_providers(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    let roster = adapter.store.common.roster.lock();
    let provider = |name: String| LoginProvider {
        authenticated: roster.credential(&name).is_some(),
        available: false,
        id: name.clone(),
        name,
    };
    let providers = roster.provider_names().into_iter().map(provider).collect();
    drop(roster);
    adapter.write_frame(&OmpResponse::success(id, "get_login_providers", &LoginProviders { providers }));
}

/// Says where the key of a provider belongs.
pub(super) fn login_to_provider(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, provider: String) {
    let is_known = adapter.store.common.roster.lock().provider_names().contains(&provider);
    let problem = if is_known {
        let models = adapter.store.common.folder.models_paths()[0].display().to_string();
        format!("{provider} takes a key and no login: set its variable in the environment, or apiKey in {models}")
    } else {
        format!("Unknown OAuth provider: {provider}")
    };
    adapter.write_frame(&OmpResponse::failure(id, "login", problem));
}
