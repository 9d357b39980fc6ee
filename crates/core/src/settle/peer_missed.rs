//! A call that waited for its peer for as long as it may is given up. Nothing of it was sent.

use super::Docket;
use crate::{
    call::End,
    engine::{Branch, Context, Fact, texts},
};

pub(super) fn rule(docket: Docket<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let call = docket.calls().find(|call| call.until.is_some_and(|until| until <= context.now))?;
    let mut branch = Branch::new(docket.session);
    docket.end_call(&mut branch, call, End::Failed, texts::PEER_AWAY, context);
    Some(branch.finish())
}
