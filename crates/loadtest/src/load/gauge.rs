//! What the gateway takes while the load is on it, second by second.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    bench::resident_bytes,
    load::tally::{Row, Tally},
};

/// One look at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Look {
    /// Seconds since the load began.
    pub(crate) at: f64,
    /// Resident memory, in bytes.
    pub(crate) memory: u64,
    /// Processor time so far, in seconds, of all its threads.
    pub(crate) processor: f64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
    /// Calls that rules allowed, answers, and frames at watchers so far.
    pub(crate) allowed: usize,
    pub(crate) answered: usize,
    pub(crate) frames: u64,
}

/// Looks until the load is over.
pub(crate) async fn watch(process: u32, every: Duration, tally: Arc<Tally>) -> Vec<Look> {
    let mut looks = Vec::new();
    while !tally.is_over() {
        match look(process, &tally) {
            Ok(look) => looks.push(look),
            Err(error) => {
                tally.wrong(format!("the gateway cannot be looked at: {error:#}"));
                return looks;
            }
        }
        tokio::time::sleep(every).await;
    }
    looks
}

fn look(process: u32, tally: &Tally) -> anyhow::Result<Look> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("it is gone")?;
    // Behind the name, which may hold anything: the 12th and 13th are ticks in user mode and in the kernel, 100 a second.
    let (_, fields) = stat.rsplit_once(')').context("no stat")?;
    let ticks: u32 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    Ok(Look {
        at: tally.elapsed().as_secs_f64(),
        memory: resident_bytes(process)?,
        processor: f64::from(ticks) / 100.0,
        descriptors: std::fs::read_dir(format!("/proc/{process}/fd"))?.count(),
        allowed: tally.count(Row::Allowed),
        answered: tally.count(Row::Answered),
        frames: tally.frames.load(Ordering::Relaxed),
    })
}

/// By what part of itself memory grew between the end of the first third, when everybody is there, and the end.
pub(crate) fn growth(looks: &[Look]) -> Option<f64> {
    let third = looks.len() / 3;
    let middle = |looks: &[Look]| {
        let mut memory: Vec<u64> = looks.iter().map(|look| look.memory).collect();
        memory.sort_unstable();
        memory.get(memory.len() / 2).copied()
    };
    let tenth = (looks.len() / 10).max(1);
    let begun = middle(looks.get(third..third + tenth)?)?;
    let ended = middle(looks.get(looks.len().checked_sub(tenth)?..)?)?;
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are below 2^52")]
    let part = ended as f64 / begun as f64 - 1.0;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_leaves_out_the_first_third() {
        let looks = |memory: &[u64]| -> Vec<Look> {
            let look = |memory: &u64| Look {
                at: 0.0,
                memory: *memory,
                processor: 0.0,
                descriptors: 0,
                allowed: 0,
                answered: 0,
                frames: 0,
            };
            memory.iter().map(look).collect()
        };
        for (memory, want) in [
            (vec![10, 50, 100, 100, 100, 100], Some(0.0)),
            (vec![10, 50, 100, 110, 130, 150], Some(0.5)),
            (vec![], None),
        ] {
            assert_eq!(growth(&looks(&memory)), want, "{memory:?}");
        }
    }
}
