//! Results of guided runs: inputs that reach code which no other reaches, kept for later runs. A line each, the shortest first.

use base64::{DecodeError, Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};

/// Largest input that is kept, in bytes. Longer ones reach little that shorter ones do not.
const LONGEST: usize = 2 << 10;

/// Most bytes that are kept of one target.
const MOST: usize = 64 << 10;

/// Parses a file of kept inputs.
///
/// # Errors
/// A line that is no base64.
pub(super) fn parse_inputs(text: &str) -> Result<Vec<Vec<u8>>, DecodeError> {
    text.lines().map(|line| BASE64.decode(line)).collect()
}

/// Returns the file of those of `inputs` that are kept.
pub(super) fn format_inputs(mut inputs: Vec<Vec<u8>>) -> String {
    inputs.retain(|input| !input.is_empty() && input.len() <= LONGEST);
    inputs.sort_by(|left, right| (left.len(), left).cmp(&(right.len(), right)));
    inputs.dedup();
    let mut room = MOST;
    let kept = inputs.iter().take_while(|input| {
        let fits = input.len() <= room;
        room = room.saturating_sub(input.len());
        fits
    });
    kept.map(|input| BASE64.encode(input) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, MOST, format_inputs, parse_inputs};

    #[test]
    fn the_shortest_are_kept_once_each_as_far_as_there_is_room() {
        let inputs = vec![vec![7; 9], vec![], vec![0, 255, 10], vec![7; 9], vec![1; LONGEST + 1]];
        assert_eq!(parse_inputs(&format_inputs(inputs)), Ok(vec![vec![0, 255, 10], vec![7; 9]]));
        let many: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte; LONGEST]).collect();
        assert_eq!(parse_inputs(&format_inputs(many)).unwrap().len(), MOST / LONGEST);
        assert_eq!((format_inputs(Vec::new()), parse_inputs("")), (String::new(), Ok(Vec::new())));
        assert!(parse_inputs("a\n").is_err());
    }
}
