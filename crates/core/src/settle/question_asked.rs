//! A call that a person runs: what it asks is asked one after the other, and the answers are its result.

mod told;
mod wanted;

use self::{told::Answered, wanted::Wanted};
use super::Scene;
use crate::{
    call::{Call, End, Executor, Phase},
    decision::{BranchBuilder, DecisionContext, Event, Fact, texts},
    digest::Digest,
    gate::{self, Fallback},
    id::GateId,
    message::{Block, Message, ToolResult},
    run,
    session::Otherwise,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = scene.calls().find(|call| {
        *call.executor() == Executor::Person
            && matches!(call.phase(), Phase::Started { .. })
            && scene.view.state.gate_of(call.id()).is_none_or(|gate| !gate.is_pending())
    })?;
    let mut branch = BranchBuilder::new(scene.session);
    let read = scene.view.admitted.call_content(call.id()).and_then(|content| Some((content, wanted::of(content)?)));
    let Some((content, wanted)) = read else {
        scene.end_call(&mut branch, call, End::Failed, "Not asked: the questions cannot be read.", context);
        return Some(branch.into_facts());
    };
    if let Some(problem) = wanted::problem(&wanted) {
        let text = format!("Invalid arguments for {}:\n- {problem}", content.tool);
        scene.end_call(&mut branch, call, End::Failed, &text, context);
        return Some(branch.into_facts());
    }
    let asked = asked(scene, call);
    let asking = &scene.session.settings().asking;
    match (wanted.get(asked.len()), &asking.nobody) {
        (Some(_), Some(nobody)) => {
            scene.end_call(&mut branch, call, End::Failed, nobody, context);
            if scene.run.abort() == run::Abort::No {
                branch.push_event(Event::Run(run::Event::Aborting { run: scene.run.id() }));
            }
        }
        (Some(wanted), None) => open(scene, &mut branch, call, wanted, context),
        (None, _) => {
            let of = |(wanted, gate): (&Wanted, &GateId)| {
                let text = scene.view.admitted.answer_text(*gate);
                Answered::of(wanted, scene.view.state.gate(*gate), text.map(|text| &**text))
            };
            let answers: Vec<Answered> = wanted.iter().zip(&asked).map(of).collect();
            let (text, details) = told::result(asking.told, &wanted, &answers);
            let said = texts::encode_message(&Message::ToolResult(ToolResult {
                tool_call_id: content.tool_call_id.to_string(),
                tool_name: content.tool.to_string(),
                content: vec![Block::text(text)],
                details: Some(details),
                is_error: false,
                ..ToolResult::default()
            }));
            scene.end_call_with(&mut branch, call, End::Done { error: false }, said, context);
        }
    }
    Some(branch.into_facts())
}

fn open(scene: Scene<'_>, branch: &mut BranchBuilder<'_>, call: &Call, wanted: &Wanted, context: &mut DecisionContext) {
    let content = serde_json::to_string(&wanted.content()).expect("content is plain data with text keys");
    let settings = scene.session.settings();
    let patience = settings.asking.of(wanted.content().sign_off(wanted.kind).unwrap_or(wanted.kind));
    let within = patience.within.unwrap_or(settings.clarify_timeout);
    let (stage, number) = scene.session.next_place(wanted.stage);
    let opened = gate::Event::Opened {
        gate: GateId::new(context.fresh.uuid(context.now)),
        kind: wanted.kind,
        ordinal: scene.view.state.next_ordinal(scene.session.id()),
        number,
        stage,
        run: Some(scene.run.id()),
        call: Some(call.id()),
        subject: Digest::of(content.as_bytes()),
        scopes: Vec::new(),
        deadline: Some(context.now + within),
        fallback: match patience.otherwise {
            Otherwise::Nothing => Fallback::NoAnswer,
            Otherwise::Default => wanted.default().map_or(Fallback::NoAnswer, Fallback::Choice),
        },
        remind_at: patience.remind.filter(|remind| *remind < within).map(|remind| context.now + remind),
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}

/// What the call has asked so far, in order.
fn asked(scene: Scene<'_>, call: &Call) -> Vec<GateId> {
    let gates = scene.view.admitted.gates_of(call.id()).iter().copied();
    gates
        .filter(|gate| {
            scene
                .view
                .admitted
                .gate_content(*gate)
                .is_some_and(|shown| matches!(**shown, gate::Content::Question { .. }))
        })
        .collect()
}
