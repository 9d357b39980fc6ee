//! Resource use of the gateway under load, second by second.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    bench::resident_bytes,
    load::tally::{ActivityKind, LoadTally},
};

/// One look at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GaugeSample {
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
pub(crate) async fn sample_until_over(process: u32, every: Duration, tally: Arc<LoadTally>) -> Vec<GaugeSample> {
    let mut looks = Vec::new();
    while !tally.is_over() {
        match take_sample(process, &tally) {
            Ok(look) => looks.push(look),
            Err(error) => {
                tally.record_failure(format!("cannot read the state of the gateway: {error:#}"));
                return looks;
            }
        }
        tokio::time::sleep(every).await;
    }
    looks
}

fn take_sample(process: u32, tally: &LoadTally) -> anyhow::Result<GaugeSample> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the process has ended")?;
    // After the name, which may hold anything: the 12th and 13th are ticks in user mode and in the kernel, 100 a second.
    let (_, fields) = stat.rsplit_once(')').context("unexpected form of /proc/PID/stat")?;
    let ticks: u32 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    Ok(GaugeSample {
        at: tally.elapsed().as_secs_f64(),
        memory: resident_bytes(process)?,
        processor: f64::from(ticks) / 100.0,
        descriptors: std::fs::read_dir(format!("/proc/{process}/fd"))?.count(),
        allowed: tally.activity_count(ActivityKind::Allowed),
        answered: tally.activity_count(ActivityKind::Answered),
        frames: tally.frames.load(Ordering::Relaxed),
    })
}

/// Returns the relative growth of memory between the end of the first third, when all clients are connected, and the end.
pub(crate) fn memory_growth(looks: &[GaugeSample]) -> Option<f64> {
    let third = looks.len() / 3;
    let middle = |looks: &[GaugeSample]| {
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
        let looks = |memory: &[u64]| -> Vec<GaugeSample> {
            let look = |memory: &u64| GaugeSample {
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
            assert_eq!(memory_growth(&looks(&memory)), want, "{memory:?}");
        }
    }
}
