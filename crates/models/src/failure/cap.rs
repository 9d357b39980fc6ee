//! A smaller cap of the answer, after a refusal that says that the cap is too large.
//!
//! It must not know a wire: it looks for the numbers in the text of the error, whose wording differs by provider. By the
//! words next to it a number is the prompt, the sum of prompt and cap, the window or a limit.

use serde_json::Value;

/// Names of the cap in the words of the providers, letters only.
const NAMES: [&str; 15] = [
    "maxtoken",
    "maxcompletion",
    "maxoutput",
    "maxnew",
    "maxtotaltoken",
    "maximumtoken",
    "maximumoutput",
    "outputtoken",
    "completiontoken",
    "inthecompletion",
    "forthecompletion",
    "intheoutput",
    "orcompletion",
    "modeltokenlimit",
    "numpredict",
];

/// Words of a refusal whose number is the least and not the most.
const TOO_SMALL: [&str; 7] =
    ["greater than", "at least", "below minimum", "below the minimum", "too small", "too low", "expected a value >="];

/// Words of a refusal whose number is the most.
const TOO_LARGE: [&str; 11] = [
    "too large",
    "too high",
    "too long",
    "less than",
    "lower than",
    "at most",
    "exceed",
    "maximum",
    "range",
    "reduce",
    "<=",
];

/// The least that an answer is worth asking for.
const LEAST: u64 = 16;

/// Smaller numbers are no limits of answers: positions, versions, ends of ranges.
const LEAST_LIMIT: u64 = 256;

/// Returns the cap for one more request, if `body` refuses a request with the cap `requested` because that is too large. `None` if
/// it says something else, or if the prompt alone is too long.
pub(crate) fn smaller_cap(status: u16, body: &str, requested: u64) -> Option<u64> {
    let words = error_texts(body).to_lowercase();
    let letters: String = words.chars().filter(char::is_ascii_alphanumeric).collect();
    let has = |any: &[&str]| any.iter().any(|word| words.contains(word));
    let is_about = NAMES.iter().any(|name| letters.contains(name)) && (has(&TOO_LARGE) || !has(&TOO_SMALL));
    if !matches!(status, 400 | 413 | 422) || !is_about {
        return None;
    }
    let numbers: Vec<_> = find_numbers(&words).into_iter().filter(|number| number.value != u64::from(status)).collect();
    let values = || numbers.iter().map(|number| number.value);
    let cap = match prompt_length(&numbers, requested) {
        Some(prompt) => {
            // The sum of both is among the numbers too, and is no limit.
            let sum = prompt.saturating_add(requested);
            let limit = values().filter(|value| *value < sum && *value >= requested.min(prompt)).max();
            let room = limit.and_then(|limit| limit.checked_sub(prompt));
            room.filter(|room| *room < requested && *room > 0)
                .unwrap_or_else(|| if limit <= Some(prompt) { 0 } else { requested / 2 })
        }
        // Without any number in it a refusal is about something else.
        None => {
            let below = |kind: NumberKind| {
                let of_kind = numbers.iter().filter(move |number| number.kind == kind).map(|number| number.value);
                of_kind.filter(|value| *value < requested && *value >= LEAST_LIMIT).max()
            };
            // The window holds the prompt as well, of which nothing is known.
            let limit = below(NumberKind::Limit).or_else(|| below(NumberKind::Window).map(|window| window / 2));
            limit.or_else(|| values().any(|value| value == requested).then_some(requested / 2))?
        }
    };
    (cap >= LEAST && cap < requested).then_some(cap)
}

/// Returns a provider's text: that of an error without the names and numbers next to it.
fn error_texts(body: &str) -> String {
    let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(body.trim()) else {
        return body.to_owned();
    };
    let mut text = String::new();
    add_texts(&value, &mut text);
    text
}

fn add_texts(value: &Value, text: &mut String) {
    const NAMES_OF_ERRORS: [&str; 6] = ["id", "code", "type", "status", "param", "url"];
    match value {
        // A gateway passes on the error of its provider as it came.
        Value::String(more) => {
            text.push_str(&error_texts(more));
            text.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, text)),
        Value::Object(members) => {
            let is_name = |name: &str| NAMES_OF_ERRORS.iter().any(|last| name.rsplit('_').next() == Some(last));
            members.iter().filter(|(name, _)| !is_name(name)).for_each(|(_, value)| add_texts(value, text));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the length of the prompt: the sum of its stated parts, or the rest of the sum after the cap.
fn prompt_length(numbers: &[TextNumber], requested: u64) -> Option<u64> {
    let of = |kind: NumberKind| numbers.iter().filter(move |number| number.kind == kind).map(|number| number.value);
    let mut parts: Vec<u64> = of(NumberKind::Prompt).collect();
    parts.sort_unstable();
    parts.dedup();
    let sum = parts.into_iter().reduce(u64::saturating_add);
    sum.or_else(|| of(NumberKind::Sum).filter_map(|sum| sum.checked_sub(requested)).find(|prompt| *prompt > 0))
}

/// Meaning of a number according to the words around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberKind {
    /// The length of the prompt, or of a part of it.
    Prompt,
    /// The length of prompt and answer together.
    Sum,
    /// The length of the window.
    Window,
    /// Anything else: a limit, or the cap itself.
    Limit,
}

struct TextNumber {
    value: u64,
    kind: NumberKind,
}

fn find_numbers(words: &str) -> Vec<TextNumber> {
    let mut numbers = Vec::new();
    let mut from = 0;
    while let Some(start) = words[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let end = end_of_number(words, start);
        let digits: String = words[start..end].chars().filter(char::is_ascii_digit).collect();
        // A number within a word is part of a name or an id.
        let is_named = words[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
            || words[end..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if let (Ok(value), false) = (digits.parse::<u64>(), is_named) {
            let (before, after) = (&words[..start], &words[end..]);
            // The end of a range that is not part of it.
            let is_beyond = after.trim_start_matches(['`', '\'', ' ']).starts_with("(exclusive)");
            numbers.push(TextNumber {
                value: value - u64::from(is_beyond && value > 0),
                kind: number_kind(before, after),
            });
        }
        from = end;
    }
    numbers
}

/// Returns the end of the number that begins at `start`. A comma belongs to it if exactly three digits follow.
fn end_of_number(words: &str, start: usize) -> usize {
    let digits = |from: usize| words[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = start + digits(start);
    while words[end..].starts_with(',') && digits(end + 1) == 3 {
        end += 4;
    }
    end
}

/// Returns the meaning of a number between these words.
fn number_kind(before: &str, after: &str) -> NumberKind {
    let after: String = after.chars().take(28).collect();
    let after = after.split([',', '.', '(', ')', ';', ':', '\n']).next().unwrap_or_default();
    let before: String = before.chars().rev().take(24).collect::<String>().chars().rev().collect();
    let counts = after.contains("input") || after.contains("prompt") || after.contains("in the messages");
    let is_sum = after.trim_start().starts_with("+ ");
    let is_told =
        before.contains("prompt contains") || before.contains("prompt has") || before.contains("input length");
    let is_answer = after.contains("output") || after.contains("completion");
    let is_both =
        ["requested", "requested about", "total of", "total of at least", "current length is", "total_tokens"];
    let before_it = before.trim_end_matches([' ', ':', '(', '=', '`']);
    if (counts || is_sum || is_told) && !is_answer {
        NumberKind::Prompt
    } else if is_both.iter().any(|words| before_it.ends_with(words)) && !is_answer {
        NumberKind::Sum
    } else if before.contains("context") || before.contains("max_seq") || after.contains("context") {
        NumberKind::Window
    } else {
        NumberKind::Limit
    }
}

#[cfg(test)]
mod tests {
    use super::smaller_cap;

    #[test]
    fn a_refusal_that_is_about_the_cap_says_how_much_is_left() {
        for (case, body, requested, want) in [
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
            (
                "vllm, with the sum",
                "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens.",
                65535,
                Some(65534),
            ),
            (
                "openrouter, with tools",
                r#"{"error":{"message":"This endpoint's maximum context length is 204800 tokens. However, you requested about 205432 tokens (81684 of text input, 3748 of tool input, 120000 in the output). Please reduce the length of either one","code":400}}"#,
                120_000,
                Some(119_368),
            ),
            (
                "sglang",
                "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 40000 tokens: 7232 tokens from the input messages and 32768 tokens for the completion.",
                32768,
                Some(25536),
            ),
            (
                "kimi",
                "Invalid request: Your request exceeded model token limit: 8192 (requested: 8500)",
                4096,
                Some(3788),
            ),
            ("kimi, the prompt alone", "Your request exceeded model token limit: 8192 (requested: 13000)", 4096, None),
            (
                "cerebras",
                "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
                4096,
                Some(3288),
            ),
            (
                "siliconflow",
                r#"{"code":20015,"message":"max_total_tokens (32800) must be less than or equal to max_seq_len (32768)","data":null}"#,
                32000,
                Some(31968),
            ),
            (
                "together",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80 `inputs` tokens and 4096 `max_new_tokens`",
                4096,
                Some(4017),
            ),
            (
                "groq",
                r#"{"error":{"message":"`max_completion_tokens` must be less than or equal to `16384`, the maximum value for `max_completion_tokens` is less than the `context_window` for this model","type":"invalid_request_error","param":"max_completion_tokens"}}"#,
                32768,
                Some(16384),
            ),
            (
                "groq, by model",
                "max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000",
                32768,
                Some(8000),
            ),
            (
                "qwen",
                r#"{"error":{"code":"invalid_parameter_error","message":"<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 300]"},"id":"1234","request_id":"7000"}"#,
                8192,
                Some(300),
            ),
            (
                "mistral",
                r#"{"object":"error","message":{"detail":[{"type":"less_than_equal","loc":["body","max_tokens"],"msg":"Input should be less than or equal to 2048","input":100000,"ctx":{"le":2048}}]},"type":"invalid_request_error","code":"3051"}"#,
                100_000,
                Some(2048),
            ),
            (
                "mistral, both",
                "Prompt contains 30 tokens, and max_tokens=32768 is too large for model with 32768 maximum context length",
                32768,
                Some(32738),
            ),
            (
                "mistral, the prompt alone",
                "Prompt contains 39024 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                4096,
                None,
            ),
            (
                "bedrock",
                "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
                8192,
                Some(4096),
            ),
            (
                "google, the end of the range",
                "Unable to submit request because it has a maxOutputTokens value of 65536 but the supported range is from 1 (inclusive) to 65536 (exclusive). Update the value and try again.",
                65536,
                Some(65535),
            ),
            (
                "doubao",
                "The parameter `max_tokens` specified in the request are not valid: integer above maximum value, expected a value <= 12288, but got 32768 instead. Request id: 021742abc",
                32768,
                Some(12288),
            ),
            (
                "cohere",
                "too many tokens: max tokens must be less than or equal to 4096, current value 5000",
                5000,
                Some(4096),
            ),
            ("zhipu", "max_tokens参数非法：取值范围 [1,4095]", 8192, Some(4095)),
            ("a window and a limit", "max_tokens must be at most 8192 (context length 32768)", 65536, Some(8192)),
            ("a window alone", "max_tokens 65536 exceeds the context length of 32768", 65536, Some(16384)),
            (
                "anthropic, by model",
                "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
                64000,
                Some(8192),
            ),
            (
                "a gateway",
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"max_tokens must be in [1, 2048]\",\"code\":3051}}"}}}"#,
                4096,
                Some(2048),
            ),
            (
                "a code of an error",
                r#"{"error":{"message":"max_tokens 4096 does not fit","code":400}}"#,
                4096,
                Some(2048),
            ),
            ("a least value", "max_tokens (4096) must be greater than thinking.budget_tokens (8192)", 4096, None),
            (
                "lm studio, the prompt alone",
                "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough.",
                4096,
                None,
            ),
            (
                "llama.cpp, the prompt alone",
                r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
                512,
                None,
            ),
        ] {
            assert_eq!(smaller_cap(400, body, requested), want, "{case}");
            assert_eq!(smaller_cap(500, body, requested), None, "{case}");
        }
    }
}
