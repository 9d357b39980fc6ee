use countersign_core::{
    message::StopReason,
    session::{SessionSetting, Settings, WhenBusy},
};

use super::{from, only};
use crate::{
    stage::open,
    states::{calling, idle, thinking},
};

#[test]
fn an_open_turn_asks_the_model_once() {
    let told = idle().prompt(WhenBusy::Refuse);
    assert_eq!(only(&told, "run asked"), "run asked");
    let told = calling(["write"]).end(0);
    assert_eq!(only(&told, "run asked"), "run asked");
}

#[test]
fn each_question_to_the_model_has_a_number_of_its_own() {
    let mut stage = thinking(open());
    let epoch = |stage: &crate::stage::Stage| stage.engine.state().run(stage.run()).unwrap().epoch();
    assert_eq!(epoch(&stage), 1);
    stage.want([crate::stage::wanted("write", "a")]);
    stage.end(0);
    assert_eq!(epoch(&stage), 2);
    stage.answer(StopReason::Stop, Vec::new(), None);
    stage.prompt(WhenBusy::Refuse);
    assert_eq!(epoch(&stage), 1, "another run");
}

#[test]
fn nobody_is_asked_while_the_process_closes() {
    let mut stage = calling(["write"]);
    stage.engine.quiesce();
    assert_eq!(from(&stage.end(0), "run"), "run turn_closed, run turn_opened");
}

#[test]
fn a_run_without_a_model_fails() {
    let mut stage = calling(["write"]);
    stage.set(SessionSetting::All(Box::<Settings>::default()));
    assert_eq!(from(&stage.end(0), "run"), "run turn_closed, run turn_opened, run ended failed");
}
