//! A smaller cap of the answer, behind a refusal that says that the cap is too large.
//!
//! It must not know a wire: it looks for the numbers in the text of the error, whose wording differs by provider.

/// Names of the cap, in the words of the providers.
const NAMES: [&str; 9] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxoutputtokens",
    "max_new_tokens",
    "in the completion",
    "in the output",
    "output tokens",
    "completion tokens",
];

/// The least that an answer is worth asking for.
const LEAST: u64 = 16;

/// Smaller numbers are no limits of answers: positions, versions, ends of ranges.
const LEAST_LIMIT: u64 = 256;

/// The cap to ask for once more, if `body` refuses a request with the cap `asked` because that is too large. `None` if
/// it says something else, or if the prompt alone is too long.
pub(crate) fn smaller_cap(status: u16, body: &str, asked: u64) -> Option<u64> {
    let words = body.to_lowercase();
    if !matches!(status, 400 | 413 | 422) || !NAMES.iter().any(|name| words.contains(name)) {
        return None;
    }
    let numbers = numbers(&words);
    let values = || numbers.iter().map(|number| number.value);
    let cap = match numbers.iter().find(|number| number.is_prompt).map(|number| number.value) {
        Some(prompt) => {
            // The sum of both is among the numbers too, and is no limit.
            let limit = values().filter(|value| *value != prompt + asked && *value >= asked.min(prompt)).max();
            let room = limit.and_then(|limit| limit.checked_sub(prompt));
            room.filter(|room| *room < asked && *room > 0)
                .unwrap_or_else(|| if limit <= Some(prompt) { 0 } else { asked / 2 })
        }
        // Without any number in it a refusal is about something else.
        None => {
            let limit = values().filter(|value| *value < asked && *value >= LEAST_LIMIT).max();
            limit.or_else(|| values().any(|value| value == asked).then_some(asked / 2))?
        }
    };
    (cap >= LEAST && cap < asked).then_some(cap)
}

struct Number {
    value: u64,
    /// Whether the words around it say that it is the length of the prompt.
    is_prompt: bool,
}

fn numbers(words: &str) -> Vec<Number> {
    let mut numbers = Vec::new();
    let mut from = 0;
    while let Some(start) = words[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let end = end_of_number(words, start);
        let digits: String = words[start..end].chars().filter(char::is_ascii_digit).collect();
        let is_named = words[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if let (Ok(value), false) = (digits.parse(), is_named) {
            numbers.push(Number { value, is_prompt: is_prompt(&words[..start], &words[end..]) });
        }
        from = end;
    }
    numbers
}

/// Where the number that begins at `start` ends. A comma belongs to it if exactly three digits follow.
fn end_of_number(words: &str, start: usize) -> usize {
    let digits = |from: usize| words[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = start + digits(start);
    while words[end..].starts_with(',') && digits(end + 1) == 3 {
        end += 4;
    }
    end
}

/// Whether a number between these words counts the prompt.
fn is_prompt(before: &str, after: &str) -> bool {
    let after: String = after.chars().take(28).collect();
    let after = after.split([',', '.', '(', ')', ';']).next().unwrap_or_default();
    let before: String = before.chars().rev().take(24).collect::<String>().chars().rev().collect();
    let counts = after.contains("input") || after.contains("prompt") || after.contains("in the messages");
    let is_sum = after.trim_start().starts_with("+ ");
    let is_told =
        before.contains("prompt contains") || before.contains("prompt has") || before.contains("input length");
    (counts || is_sum || is_told) && !after.contains("output") && !after.contains("completion")
}

#[cfg(test)]
mod tests {
    use super::smaller_cap;

    #[test]
    fn a_refusal_that_is_about_the_cap_says_how_much_is_left() {
        for (case, body, asked, want) in [
            (
                "openai",
                "This model's maximum context length is 32768 tokens. However, you requested 33000 tokens (232 in the messages, 32768 in the completion). Please reduce the length of the messages or completion.",
                32768,
                Some(32536),
            ),
            (
                "vllm",
                "'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 32768 tokens and your request has 23 input tokens (32768 > 32768 - 23).",
                32768,
                Some(32745),
            ),
            (
                "anthropic",
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
                21333,
                Some(11760),
            ),
            (
                "openrouter",
                "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (7232 of text input, 32768 in the output).",
                32768,
                Some(25536),
            ),
            (
                "tgi",
                "`inputs` tokens + `max_new_tokens` must be <= 32768. Given: 10 `inputs` tokens and 32768 `max_new_tokens`",
                32768,
                Some(32758),
            ),
            (
                "a limit of the answer",
                "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
                100_000,
                Some(16384),
            ),
            ("a range without a space", "max_tokens must be in [1,8192]", 16384, Some(8192)),
            ("a number in groups", "max_tokens: 100,000 > 64,000, which is the maximum", 100_000, Some(64_000)),
            ("a range", "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 16384, Some(8192)),
            (
                "google",
                "maxOutputTokens value of 100000 but the supported range is from 1 to 65537",
                100_000,
                Some(65537),
            ),
            ("no number but the cap", "max_tokens 4096 does not fit", 4096, Some(2048)),
            (
                "the prompt alone",
                "This model's maximum context length is 8192 tokens. However, you requested 12192 tokens (10192 in the messages, 2000 in the completion).",
                2000,
                None,
            ),
            ("another name", "Unsupported parameter: 'max_tokens' is not supported with this model.", 4096, None),
            ("another matter", "tools.0.name: bad 12", 4096, None),
        ] {
            assert_eq!(smaller_cap(400, body, asked), want, "{case}");
            assert_eq!(smaller_cap(500, body, asked), None, "{case}");
        }
    }
}
