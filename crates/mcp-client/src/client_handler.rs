//! The client as servers see it: no sampling, no roots, and questions to people only during a call.
//!
//! It must not send requests.

use std::sync::Arc;

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
        ElicitationAction, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation,
        ProtocolVersion, UrlElicitationCapability,
    },
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection_monitor::ConnectionMonitor,
    elicitation::{ELICITATION, Elicitation, request_flaw},
    questions::QuestionAsker,
};

/// Method of a request to the models of a client.
const SAMPLING: &str = "sampling/createMessage";
const SAMPLING_REFUSED: &str = "sampling is refused: this client gives servers no access to its models";

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
        Err(ErrorData::new(ErrorCode::INVALID_REQUEST, SAMPLING_REFUSED, None))
    }

    /// Refuses a request of an unknown method, or one whose parameters have not the form of its method.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match request.method.as_str() {
            ELICITATION => ErrorData::invalid_params(request_flaw(request.params.as_ref()), None),
            SAMPLING => ErrorData::new(ErrorCode::INVALID_REQUEST, SAMPLING_REFUSED, None),
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
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
