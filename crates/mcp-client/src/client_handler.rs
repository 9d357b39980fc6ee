//! The client as servers see it: no sampling, no roots, and questions to people only during a call.
//!
//! It must not send requests.

use std::sync::Arc;

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
        ErrorCode, ErrorData, FormElicitationCapability, Implementation, ProtocolVersion, UrlElicitationCapability,
    },
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;

use crate::{connection_monitor::ConnectionMonitor, elicitation::Elicitation, questions::QuestionAsker};

/// The client as one server sees it.
pub(crate) struct LimitedClient {
    monitor: Arc<ConnectionMonitor>,
    /// Asks people; none if nobody can be asked.
    asker: Option<Arc<dyn QuestionAsker>>,
}

impl LimitedClient {
    pub(crate) fn new(monitor: Arc<ConnectionMonitor>, asker: Option<Arc<dyn QuestionAsker>>) -> Self {
        Self { monitor, asker: asker.filter(|asker| asker.is_ready()) }
    }

    async fn ask_people(
        &self,
        asker: &dyn QuestionAsker,
        request: ElicitRequestParams,
        context: &RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let (calls, cancel) = (self.monitor.open_calls(), CancellationToken::new());
        let elicitation = Elicitation { calls: &calls, asker, cancel: &cancel };
        let asking = elicitation.run(request);
        tokio::pin!(asking);
        let answer = tokio::select! {
            biased;
            answer = &mut asking => answer,
            () = context.ct.cancelled() => {
                cancel.cancel();
                asking.await
            }
            // Nobody needs the answer any more.
            () = self.monitor.wait_idle() => {
                cancel.cancel();
                asking.await
            }
            () = self.monitor.wait_closed() => {
                cancel.cancel();
                asking.await
            }
        };
        answer.map_err(|flaw| ErrorData::invalid_params(flaw, None))
    }
}

impl ClientHandler for LimitedClient {
    #[expect(deprecated, reason = "servers of all supported versions may request it")]
    async fn create_message(
        &self,
        _params: rmcp::model::CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        let text = "sampling is refused: this client gives servers no access to its models";
        Err(ErrorData::new(ErrorCode::INVALID_REQUEST, text, None))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        match &self.asker {
            Some(asker) => Box::pin(self.ask_people(&**asker, request, &context)).await,
            // A decline would be the answer of a person.
            None => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("countersign", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if self.asker.is_some() {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            let asked = ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::new());
            capabilities.elicitation = Some(asked);
        }
        ClientConfig::new(capabilities, implementation).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
