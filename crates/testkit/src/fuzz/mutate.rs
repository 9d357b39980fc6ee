//! Makes inputs from those that are kept: the same seed gives the same.

/// Longest input that mutations make.
const LONGEST: usize = 64 * 1024;

/// Words of JSON, the format of nearly every target.
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "true",
    "-0",
    "1e999",
    "18446744073709551616",
    "\"\"",
    "\\u0000",
    "\\ud800",
];

/// Random numbers of a seed.
pub(super) struct FuzzRng(u64);

impl FuzzRng {
    /// Creates the generator of one input, so that it can be made again without those before it.
    pub(super) fn new(seed: u64, input: u64) -> Self {
        let mut rng = Self((seed ^ input.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        // Neighbouring states give neighbouring first numbers.
        for _ in 0..4 {
            rng.next_number();
        }
        rng
    }

    fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number from 0 up to and without `end`, 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next_number() % end).unwrap_or_default()
    }

    fn random_byte(&mut self) -> u8 {
        self.next_number().to_le_bytes()[0]
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Returns a random range of something with this `length`, mostly short.
    fn random_range(&mut self, length: usize) -> std::ops::Range<usize> {
        let longest = 1 << self.below(12);
        let start = self.below(length);
        start..(start + 1 + self.below(longest)).min(length)
    }
}

/// Returns one of the corpus after some changes, at least one.
pub(super) fn mutate_input(corpus: &[Vec<u8>], words: &[&str], rng: &mut FuzzRng) -> Vec<u8> {
    let mut input = corpus[rng.below(corpus.len())].clone();
    let changes = 1 << rng.below(6);
    for _ in 0..changes {
        apply_change(&mut input, corpus, words, rng);
        input.truncate(LONGEST);
    }
    input
}

fn apply_change(input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str], rng: &mut FuzzRng) {
    let at = rng.below(input.len());
    let piece = rng.random_range(input.len());
    match rng.below(11) {
        0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
        1 if !input.is_empty() => input[at] = rng.random_byte(),
        2 => input.insert(at, rng.random_byte()),
        3 => drop(input.drain(piece)),
        4 => {
            let copy = input[piece].to_vec();
            input.splice(at..at, copy);
        }
        5 => {
            let copy = input[piece].to_vec();
            let times = rng.below(64);
            input.splice(at..at, copy.repeat(times));
        }
        6 => input.truncate(at),
        7 => {
            let other = &corpus[rng.below(corpus.len())];
            let from = rng.below(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        8 => {
            let other = &corpus[rng.below(corpus.len())];
            let piece_of_other = rng.random_range(other.len());
            input.splice(piece, other[piece_of_other].iter().copied());
        }
        9 => drop(input.splice(at..at, rng.pick(words).bytes())),
        _ => {
            let from = if rng.below(2) == 0 { words } else { JSON };
            drop(input.splice(piece, rng.pick(from).bytes()));
        }
    }
}
