//! Charts, drawn here: they load nothing.

use maud::{Markup, html};

use super::history::VerdictCounts;

/// Renders bars by day, with the outcomes of calls.
pub(super) fn day_chart(days: &[(String, VerdictCounts)]) -> Markup {
    const HEIGHT: u64 = 120;
    const STEP: usize = 26;
    let most = days.iter().map(|(_, counts)| counts.total_count()).max().unwrap_or(0).max(1);
    let width = days.len().max(1) * STEP + 34;
    let total: u64 = days.iter().map(|(_, counts)| counts.total_count()).sum();
    html! {
        svg.chart viewBox={ "0 0 " (width) " 150" } width=(width) role="img" aria-label={ (total) " decisions in " (days.len()) " days; the table below has the numbers" } {
            line.axis x1="30" y1="125" x2=(width) y2="125" {}
            text.tick x="26" y="128" text-anchor="end" { "0" }
            text.tick x="26" y="12" text-anchor="end" { (most) }
            @for (at, (day, counts)) in days.iter().enumerate() {
                @let x = 32 + at * STEP;
                @for (class, y, height) in stacked_parts(counts, most, HEIGHT) {
                    rect.(class) x=(x) y=(y + 5) width="20" height=(height) {}
                }
                @if at % 3 == days.len().saturating_sub(1) % 3 { text.tick x=(x + 10) y="142" text-anchor="middle" { (day.get(5..).unwrap_or(day)) } }
            }
        }
    }
}

/// Renders one horizontal bar with the outcomes of calls.
pub(super) fn share_bar(counts: &VerdictCounts) -> Markup {
    let all = counts.total_count().max(1);
    let mut at = 0;
    let mut parts = Vec::new();
    for (name, class, of) in VerdictCounts::BARS {
        let wide = of(counts) * 200 / all;
        parts.push((name, class, at, wide));
        at += wide;
    }
    html! {
        svg.share viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true" {
            @for (_, class, x, wide) in &parts { @if *wide > 0 { rect.(class) x=(x) y="0" width=(wide) height="10" {} } }
        }
    }
}

/// Renders the legend of the colours.
pub(super) fn chart_legend() -> Markup {
    html! { ul.legend { @for (name, class, _) in VerdictCounts::BARS { li { svg width="12" height="12" aria-hidden="true" { rect.(class) width="12" height="12" rx="2" {} } " " (name) } } } }
}

/// Returns the parts of one bar from the bottom: class, top and height. Every part is large enough to be seen.
fn stacked_parts(counts: &VerdictCounts, most: u64, height: u64) -> Vec<(&'static str, u64, u64)> {
    let mut top = height;
    let mut parts = Vec::new();
    for (_, class, of) in VerdictCounts::BARS {
        let count = of(counts);
        if count == 0 {
            continue;
        }
        let tall = (count * height / most).max(2).min(top);
        top -= tall;
        parts.push((class, top, tall));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{VerdictCounts, stacked_parts};

    #[test]
    fn a_bar_has_a_part_for_each_count_that_is_there() {
        let counts = VerdictCounts { rule: 50, refused_by_person: 1, ..VerdictCounts::default() };
        assert_eq!(stacked_parts(&counts, 100, 120), [("b-rule", 60, 60), ("b-noperson", 58, 2)]);
    }
}
