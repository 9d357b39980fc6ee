//! Servers that a gateway depends on: services, providers of models, and the messenger.

use std::net::Ipv4Addr;

use countersign_config::Config;
use countersign_gateway::checkup::{self, KeyCheck};
use countersign_node_client::{connect_error::CertificateFault, is_loopback};
use countersign_runtime::services::HealthFailure;
use countersign_telegram::{BotChatKind, BotCheck, BotCheckError};
use tokio_tungstenite::tungstenite::http::Uri;

use super::DoctorCheck;
use crate::audit::block_on;

/// How a gateway gets a trusted CA.
const TRUST: &str = "add its CA to those of the system, or name a file with all trusted CAs in SSL_CERT_FILE in the environment of \
                     `serve`";

/// Checks all of them. Nothing is reported if they cannot be contacted at all.
pub(super) fn check_servers(config: &Config) -> Vec<DoctorCheck> {
    let reached = block_on(async {
        let (services, messenger) = (checkup::check_services(config).await, checkup::check_messenger(config).await);
        Ok((services, messenger, checkup::check_keys(config).await))
    });
    let Ok((services, messenger, keys)) = reached else { return Vec::new() };
    let provider = |(name, found): (String, Result<KeyCheck, String>)| {
        let base = config.providers.get(&name).and_then(|provider| provider.base_url.as_deref());
        check_provider(&name, found, base.is_some_and(is_own_server))
    };
    let mut checks: Vec<DoctorCheck> = keys.into_iter().map(provider).collect();
    for (name, health) in services.unwrap_or_default() {
        let check = format!("service {name}");
        checks.push(match health {
            Ok(()) => DoctorCheck::ok(&check, "healthy"),
            Err(problem) => DoctorCheck::fix(&check, problem.to_string(), service_advice(&name, &problem)),
        });
    }
    checks.push(match messenger {
        None => DoctorCheck::note("messenger", "none: approvers use the console and `countersign gates`"),
        Some(Ok(found)) => check_messenger(config, &found),
        Some(Err(unfit)) => DoctorCheck::fix("messenger", unfit.to_string(), messenger_advice(&unfit)),
    });
    checks
}

/// Returns the advice about a server whose certificate is refused; `key` is that of its address. `None` for any other failure.
pub(super) fn certificate_advice(problem: &str, key: &str) -> Option<String> {
    let fault = CertificateFault::from_text(problem)?;
    Some(format!("{}: {}; or correct {key}", fault.description(), fault.advice(TRUST)))
}

/// Returns the advice about an unhealthy service.
fn service_advice(name: &str, problem: &HealthFailure) -> String {
    match problem {
        HealthFailure::Refused(_) => format!(
            "set a valid credential in services.{name}.auth, or in the variable that it names in the environment of `serve`"
        ),
        HealthFailure::Answered { .. } => {
            format!("correct services.{name}: url, health.path or health.expect_status")
        }
        HealthFailure::Unreachable(why) => certificate_advice(why, &format!("services.{name}.url"))
            .unwrap_or_else(|| format!("start the service, or correct services.{name}.url or the network connection")),
        HealthFailure::Misconfigured(_) => format!("correct services.{name}"),
    }
}

/// Returns the advice about a messenger that cannot show cards.
fn messenger_advice(unfit: &BotCheckError) -> String {
    let usual = match unfit {
        BotCheckError::Bot(_) => "check messenger.telegram.token and api_url, and the network connection",
        BotCheckError::Chat { .. } => {
            "add the bot to the chat, or send it a message first; then check messenger.telegram.chat_id"
        }
    };
    certificate_advice(&unfit.to_string(), "messenger.telegram.api_url").unwrap_or_else(|| usual.to_owned())
}

/// Checks the messenger in which a bot shows cards.
fn check_messenger(config: &Config, found: &BotCheck) -> DoctorCheck {
    let shown = format!("@{} shows cards in {:?}", found.bot, found.chat);
    let topic = config.telegram.as_ref().and_then(|telegram| telegram.message_thread_id);
    match (found.kind, topic) {
        (BotChatKind::Plain, None) => DoctorCheck::ok("messenger", shown),
        (BotChatKind::Forum, None) => DoctorCheck::note(
            "messenger",
            format!(
                "{shown}, in its General topic, which must be open; messenger.telegram.message_thread_id selects another"
            ),
        ),
        (BotChatKind::Forum, Some(topic)) => DoctorCheck::ok("messenger", format!("{shown}, in the topic {topic}")),
        (BotChatKind::Plain, Some(topic)) => DoctorCheck::warn(
            "messenger",
            format!("{shown}, which has no topics: it shows them in the chat itself, not in topic {topic}"),
            "remove messenger.telegram.message_thread_id, or turn topics on in the chat",
        ),
    }
}

/// Reports whether a server of models at `url` is on this machine or in its own network, where an operator can start it.
fn is_own_server(url: &str) -> bool {
    let Some(host) = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)) else { return false };
    let is_private = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_private());
    is_loopback(&host) || is_private || !host.contains(['.', ':']) || host.ends_with(".local")
}

/// Checks the key of a provider of models by the provider's answer. `is_own` means that an operator can start the server.
fn check_provider(name: &str, found: Result<KeyCheck, String>, is_own: bool) -> DoctorCheck {
    let check = format!("provider {name}");
    match found {
        Ok(KeyCheck::Taken) => DoctorCheck::ok(&check, "accepts the API key"),
        Ok(KeyCheck::Unknown(status)) => {
            DoctorCheck::note(&check, format!("the list of models returned {status}; API key not verified"))
        }
        Ok(KeyCheck::Refused(status)) => {
            let advice = format!(
                "set a valid key in providers.{name}.api_key, or in the variable that it names in the environment of \
                 `serve`"
            );
            DoctorCheck::fix(&check, format!("rejects the key of providers.{name}.api_key ({status})"), advice)
        }
        Err(problem) => {
            let key = format!("providers.{name}.base_url");
            let advice = certificate_advice(&problem, &key).unwrap_or_else(|| match is_own {
                true => format!("start it, or correct {key}"),
                false => format!("check the network connection, a proxy in the environment, and {key}"),
            });
            DoctorCheck::fix(&check, format!("cannot be reached: {problem}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_runtime::services::HealthFailure;
    use countersign_telegram::BotCheckError;

    use super::{check_provider, is_own_server, messenger_advice, service_advice};

    #[test]
    fn a_refused_certificate_reads_otherwise_than_a_server_that_is_down() {
        for (reason, want) in [
            ("UnknownIssuer", "not signed by a trusted CA: add its CA to those of the system"),
            ("BadSignature", "if its CA was renewed, add its CA to those of the system"),
            ("Other(OtherError(CaUsedAsEndEntity))", "create it with basicConstraints=CA:FALSE, and add its CA"),
            ("certificate expired: verification time 9 (UNIX)", "its certificate has expired: renew it"),
        ] {
            let problem = format!("invalid peer certificate: {reason}");
            let of_service = service_advice("s", &HealthFailure::Unreachable(problem.clone()));
            let of_messenger = messenger_advice(&BotCheckError::Bot(problem.clone()));
            let of_provider = check_provider("p", Err(problem), true).advice.unwrap();
            for (advice, key) in [
                (of_service, "services.s.url"),
                (of_messenger, "messenger.telegram.api_url"),
                (of_provider, "providers.p.base_url"),
            ] {
                assert!(
                    advice.contains(want) && advice.ends_with(&format!("; or correct {key}")),
                    "{reason}: {advice}"
                );
            }
        }
        let down = service_advice("s", &HealthFailure::Unreachable("Connection refused".to_owned()));
        assert!(down.starts_with("start the service"), "{down}");
    }

    #[test]
    fn a_server_that_can_be_started_is_told_from_one_of_somebody_else() {
        for (url, is_own) in [
            ("http://127.0.0.1:11434/v1", true),
            ("http://[::1]:8000", true),
            ("http://localhost:8000/v1", true),
            ("http://192.168.1.7/v1", true),
            ("http://ollama:11434", true),
            ("http://box.local/v1", true),
            ("https://api.anthropic.com", false),
            ("https://203.0.113.7/v1", false),
            ("no url", false),
        ] {
            assert_eq!(is_own_server(url), is_own, "{url}");
            let found = check_provider("p", Err("refused".to_owned()), is_own);
            assert_eq!(found.advice.is_some_and(|advice| advice.starts_with("start it")), is_own, "{url}");
        }
    }
}
