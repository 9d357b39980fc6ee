use countersign_core::{
    message::StopReason,
    session::{SessionSetting, Settings, WhenBusy},
};

use super::{facts_from, facts_with};
use crate::{
    engine_fixture::open_rules,
    states::{calling, idle, thinking},
};

#[test]
fn an_open_turn_asks_the_model_once() {
    let outcome = idle().send_prompt(WhenBusy::Refuse);
    assert_eq!(facts_with(&outcome, "run asked"), "run asked");
    let outcome = calling(["write"]).end_call(0);
    assert_eq!(facts_with(&outcome, "run asked"), "run asked");
}

#[test]
fn each_question_to_the_model_has_a_number_of_its_own() {
    let mut stage = thinking(open_rules());
    let epoch =
        |stage: &crate::engine_fixture::EngineFixture| stage.engine.state().run(stage.current_run()).unwrap().epoch();
    assert_eq!(epoch(&stage), 1);
    stage.request_calls([crate::engine_fixture::tool_call("write", "a")]);
    stage.end_call(0);
    assert_eq!(epoch(&stage), 2);
    stage.answer(StopReason::Stop, Vec::new(), None);
    stage.send_prompt(WhenBusy::Refuse);
    assert_eq!(epoch(&stage), 1, "another run");
}

#[test]
fn no_model_request_starts_while_the_process_closes() {
    let mut stage = calling(["write"]);
    stage.engine.quiesce();
    assert_eq!(facts_from(&stage.end_call(0), "run"), "run turn_closed, run turn_opened");
}

#[test]
fn a_run_without_a_model_fails() {
    let mut stage = calling(["write"]);
    stage.change_setting(SessionSetting::All(Box::<Settings>::default()));
    assert_eq!(facts_from(&stage.end_call(0), "run"), "run turn_closed, run turn_opened, run ended failed");
}
