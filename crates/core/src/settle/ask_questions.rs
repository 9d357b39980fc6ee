//! A call that a person runs: its questions are asked one after the other, and the answers are its result.

mod answer_result;
mod question_arguments;

use self::{answer_result::AnsweredQuestion, question_arguments::PersonQuestion};
use super::OpenCalls;
use crate::{
    call::{self, Call, CallEnd, CallPhase, Executor},
    decision::{BranchBuilder, DecisionContext, Event, Fact, texts},
    digest::Digest,
    gate::{self, Fallback},
    id::GateId,
    message::{MessageBlock, StoredMessage, ToolResult},
    run,
    session::NoAnswerRule,
};

pub(super) fn due_facts(scene: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = scene.open_calls().find(|call| {
        *call.executor() == Executor::Person
            && matches!(call.phase(), CallPhase::Started { .. })
            && scene.view.state.gate_of(call.id()).is_none_or(|gate| !gate.is_pending())
    })?;
    let mut branch = BranchBuilder::new(scene.session);
    let read = scene
        .view
        .admitted
        .call_content(call.id())
        .and_then(|content| Some((content, question_arguments::parse_questions(content)?)));
    let Some((content, questions)) = read else {
        scene.end_call(&mut branch, call, CallEnd::Failed, "Not asked: the questions cannot be read.", context);
        return Some(branch.into_facts());
    };
    if let Some(problem) = question_arguments::find_problem(&questions) {
        let text = format!("Invalid arguments for {}:\n- {problem}", content.tool);
        scene.end_call(&mut branch, call, CallEnd::Failed, &text, context);
        return Some(branch.into_facts());
    }
    let gates = question_gates(scene, call);
    let asking = &scene.session.settings().asking;
    match (questions.get(gates.len()), &asking.nobody) {
        (Some(_), Some(nobody)) => {
            scene.end_call(&mut branch, call, CallEnd::Failed, nobody, context);
            if let Some(run) = scene.run.filter(|run| run.abort_state() == run::AbortState::No) {
                branch.push_event(Event::Run(run::Event::Aborting { run: run.id() }));
            }
        }
        (Some(question), None) => open_question(scene, &mut branch, call, question, context),
        (None, _) => {
            let of = |(question, gate): (&PersonQuestion, &GateId)| {
                let text = scene.view.admitted.answer_text(*gate);
                AnsweredQuestion::from_gate(question, scene.view.state.gate(*gate), text.map(|text| &**text))
            };
            let answers: Vec<AnsweredQuestion> = questions.iter().zip(&gates).map(of).collect();
            let (text, mut details) = answer_result::answers_result(asking.answer_format, &questions, &answers);
            if scene.run.is_none() {
                // The adapter reports it to the requester in its own words.
                details["text"] = text.into();
                let ended = call::Event::Ended { call: call.id(), end: CallEnd::Done { error: false }, entry: None };
                branch.push_with(Event::Call(ended), Some(details.to_string().into()));
                return Some(branch.into_facts());
            }
            let result = texts::encode_message(&StoredMessage::ToolResult(ToolResult {
                tool_call_id: content.tool_call_id.to_string(),
                tool_name: content.tool.to_string(),
                content: vec![MessageBlock::from_text(text)],
                details: Some(details),
                is_error: false,
                ..ToolResult::default()
            }));
            scene.end_call_with(&mut branch, call, CallEnd::Done { error: false }, result, context);
        }
    }
    Some(branch.into_facts())
}

fn open_question(
    scene: OpenCalls<'_>,
    branch: &mut BranchBuilder<'_>,
    call: &Call,
    question: &PersonQuestion,
    context: &mut DecisionContext,
) {
    let content = serde_json::to_string(&question.gate_content()).expect("content is plain data with text keys");
    let settings = scene.session.settings();
    let patience = settings.asking.for_kind(question.gate_content().sign_off(question.kind).unwrap_or(question.kind));
    let within = patience.within.unwrap_or(settings.clarify_timeout);
    let (stage, number) = scene.session.next_place(question.stage);
    let opened = gate::Event::Opened {
        gate: GateId::new(context.fresh.next_uuid(context.now)),
        kind: question.kind,
        ordinal: scene.view.state.next_ordinal(scene.session.id()),
        number,
        stage,
        run: scene.run.map(run::Run::id),
        call: Some(call.id()),
        subject: Digest::hash_bytes(content.as_bytes()),
        scopes: Vec::new(),
        deadline: Some(context.now + within),
        fallback: match patience.otherwise {
            NoAnswerRule::Nothing => Fallback::NoAnswer,
            NoAnswerRule::Default => question.default_choice().map_or(Fallback::NoAnswer, Fallback::Choice),
        },
        remind_at: patience.remind.filter(|remind| *remind < within).map(|remind| context.now + remind),
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}

/// Returns the gates of the call so far, in order.
fn question_gates(scene: OpenCalls<'_>, call: &Call) -> Vec<GateId> {
    let gates = scene.view.admitted.gates_of(call.id()).iter().copied();
    gates
        .filter(|gate| {
            scene
                .view
                .admitted
                .gate_content(*gate)
                .is_some_and(|shown| matches!(**shown, gate::GateContent::Question { .. }))
        })
        .collect()
}
