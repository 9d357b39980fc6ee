//! An owner with a scripted model and one session.

use std::{path::Path, sync::Arc, time::Duration};

use countersign_core::{
    engine::{Command, Resume, Rules},
    gate::{self, Answer, Scope},
    id::{GateId, PrincipalId, SessionId},
    message::{Message, Summary},
    policy::{self, Posture, Surroundings},
    session::{self, ModelRef, Said, Settings, WhenBusy},
    tool::Spec,
};
use countersign_runtime::{
    Chosen, Clock, Handle, Host, Lane, Options, Source, Summaries,
    models::{demo, scripted::Scripted},
    store::AnyLog,
    system_dice,
    tools::{self, Registry},
};
use serde_json::json;

struct Room(Scripted);

impl Host for Room {
    fn model(&self, _: &ModelRef) -> Result<Chosen, String> {
        Ok(Chosen { entry: Arc::new(demo::entry()), key: None, model: Arc::new(self.0.clone()) })
    }

    fn tools(&self, _: &SessionId) -> Arc<Registry> {
        Arc::new(Registry::standard())
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&Spec]) -> String {
        String::new()
    }

    fn context(&self, _: &SessionId, cwd: &str) -> tools::Context {
        let launcher = tools::exec::Launcher::new(Path::new("/bin/false"));
        let environment = tools::Environment::clean([]);
        tools::Context::new(cwd.into(), tools::Roots::whole([]), environment, tools::Shells::new(launcher))
    }

    fn summaries(&self, _: &[Message], _: &[Message], _: Option<&Summary>, _: Option<&str>) -> Summaries {
        Summaries { system: String::new(), history: None, turn: None, details: json!({}) }
    }

    fn join_summary(&self, history: &str, _: Option<&str>, _: &serde_json::Value) -> String {
        history.to_owned()
    }
}

pub(crate) async fn open(log: impl Into<AnyLog>, model: &Scripted, posture: Posture, resume: Resume) -> Handle {
    open_idle(log, model, posture, resume, None).await
}

/// An owner that lets go of sessions after they were `idle` for so long.
pub(crate) async fn open_idle(
    log: impl Into<AnyLog>,
    model: &Scripted,
    posture: Posture,
    resume: Resume,
    idle: Option<Duration>,
) -> Handle {
    open_at(Clock::system(), log, model, posture, resume, idle).await
}

/// An owner to whom time comes from `clock`.
pub(crate) async fn open_at(
    clock: Clock,
    log: impl Into<AnyLog>,
    model: &Scripted,
    posture: Posture,
    resume: Resume,
    idle: Option<Duration>,
) -> Handle {
    let host = Arc::new(Room(model.clone()));
    let merge = Duration::from_millis(50);
    let options = Options { rules: rules(posture), resume, clock, dice: system_dice(), host, merge, idle };
    Handle::open(log.into(), options).await.unwrap()
}

pub(crate) fn name() -> SessionId {
    SessionId::new("s")
}

pub(crate) fn to_session(command: session::Command) -> Command {
    Command::Session(name(), command)
}

/// Rules without a line of a file.
pub(crate) fn rules(posture: Posture) -> Rules {
    Rules {
        compiled: policy::compile(Vec::new()).unwrap(),
        posture,
        contract: None,
        surroundings: Surroundings::default(),
        people: gate::People::default(),
    }
}

pub(crate) async fn begin(owner: &Handle, cwd: &Path) -> Source {
    let model = ModelRef { provider: "demo".into(), id: "demo".into(), context_window: 200_000, max_tokens: 4096 };
    let settings = Box::new(Settings { model: Some(model), ..Settings::default() });
    let requests = owner.source(Lane::Request);
    let cwd = cwd.display().to_string();
    let opened = session::Command::Open { cwd, name: None, parent: None, door: None, settings };
    requests.ask(to_session(opened)).await.unwrap();
    requests
}

pub(crate) fn prompt() -> Command {
    let said = Said { content: r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#.into(), tokens: 1 };
    to_session(session::Command::Prompt { said, with: Vec::new(), when_busy: WhenBusy::FollowUp })
}

pub(crate) fn allow(gate: GateId) -> Command {
    let by = PrincipalId::new("host");
    Command::Gate(gate::Command::Answer { gate, answer: Answer::Allow(Scope::Once), by, key: None })
}

/// Asks until `what` gives something. Each look waits for the owner, so this is no sleep.
pub(crate) async fn eventually<T: Send + 'static>(
    owner: &Handle,
    what: impl Fn(&countersign_core::engine::Engine) -> Option<T> + Clone + Send + 'static,
) -> T {
    let requests = owner.source(Lane::Request);
    let look = async {
        loop {
            if let Some((Some(found), _)) = requests.read(what.clone()).await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.expect("it does not come about")
}

pub(crate) async fn pending(owner: &Handle) -> GateId {
    eventually(owner, |engine| engine.state().pending_gates().next().map(|gate| gate.id())).await
}

pub(crate) async fn at_rest(owner: &Handle) {
    eventually(owner, |engine| engine.state().session(&name()).filter(|session| session.is_at_rest()).map(|_| ()))
        .await;
}
