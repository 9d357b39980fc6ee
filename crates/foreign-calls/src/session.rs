//! Sessions in which programs of others make requests.

use countersign_core::{
    engine::{Command, CommandError, ResidencyScope},
    id::SessionId,
    session::{self, SessionSetting, Settings as SessionSettings},
};
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::Protocol;

/// Opens a session in the folder `cwd`, or gives an open one these settings.
///
/// # Errors
/// [`OwnerError`] if that cannot be recorded.
pub async fn open_session(
    requests: &CommandSource,
    protocol: Protocol,
    id: &SessionId,
    name: &str,
    cwd: &str,
    settings: SessionSettings,
) -> Result<(), OwnerError> {
    let open = session::Command::Open {
        cwd: cwd.to_owned(),
        name: Some(name.to_owned()),
        parent: None,
        door: Some(protocol.name().to_owned()),
        settings: Box::new(settings.clone()),
    };
    match requests.send_command(Command::Session(id.clone(), open)).await {
        Ok(_) => return Ok(()),
        Err(OwnerError::Refusal(CommandError::SessionExists(_))) => {}
        Err(error) => return Err(error),
    }
    // A setting that has not changed is no fact: otherwise each start would record one for every session.
    let (known, wanted) = (id.clone(), settings.clone());
    let differs = requests.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        engine.state().session(&known).is_none_or(|session| *session.settings() != wanted)
    });
    let (differs, _) = differs.await.ok_or(OwnerError::Closed)?;
    if differs {
        let set = session::Command::Set { setting: SessionSetting::All(Box::new(settings)), entry: None };
        requests.send_command(Command::Session(id.clone(), set)).await?;
    }
    Ok(())
}
