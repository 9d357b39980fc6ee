//! Finds forms in a text that is read in one way.

use std::ops::Range;

use super::{
    forms::SecretForm,
    view::{MoreInput, NextSymbol, TextEncoding},
};

/// The forms of one view. It keeps no copy of them, and is made in a time that hangs on how many they are.
pub(super) struct FormFinder {
    view: TextEncoding,
    /// Forms by their text: those with a common beginning are neighbours, the shorter before the longer. No two are the same.
    forms: Vec<SecretForm>,
    /// Decoding of every byte with which a form begins: most bytes of an output are done with then.
    firsts: [Option<u8>; 256],
    /// A bit for the symbols with which each form begins, at [`place_of`] them, and few others: most places where forms could
    /// begin are done with then.
    heads: Vec<u64>,
}

/// Number of symbols that decide whether to look closer. No form has fewer.
const HEAD: usize = 4;

/// Forms that begin at one position of a text.
#[derive(Default)]
pub(super) struct FormMatch<'a> {
    /// End of the longest form that does, and its replacement.
    pub(super) whole: Option<(usize, &'a str)>,
    /// True if it could be the beginning of a longer one, if more text comes.
    pub(super) open: bool,
}

impl FormFinder {
    /// Creates a finder of `forms`, which are those of one encoding, sorted and no two the same.
    pub(super) fn for_forms(forms: &[SecretForm], view: TextEncoding) -> Self {
        let (mut begins, mut heads) = ([false; 256], vec![0; (forms.len() / 4 + 1).next_power_of_two()]);
        for form in forms {
            let text = form.text.as_bytes();
            let (word, bit) = place_of(text.iter().copied().take(HEAD), heads.len());
            heads[word] |= bit;
            begins[usize::from(text[0])] = true;
        }
        let mut firsts = [None; 256];
        for byte in 0..=u8::MAX {
            firsts[usize::from(byte)] = view.decode_symbol(byte).filter(|symbol| begins[usize::from(*symbol)]);
        }
        Self { view, forms: forms.to_vec(), firsts, heads }
    }

    /// Returns the number of forms.
    pub(super) const fn len(&self) -> usize {
        self.forms.len()
    }

    /// Returns the forms that begin at `at`.
    pub(super) fn match_at(&self, text: &[u8], at: usize, then: MoreInput) -> FormMatch<'_> {
        let Some(first) = self.firsts[usize::from(text[at])] else { return FormMatch::default() };
        let (mut head, mut end) = ([first; HEAD], at + 1);
        for place in &mut head[1..] {
            match self.view.next(text, end, then) {
                NextSymbol::Symbol(symbol, behind) => (*place, end) = (symbol, behind),
                NextSymbol::Break => return FormMatch::default(),
                NextSymbol::End => return self.follow_forms(first, text, at + 1, then),
            }
        }
        let (word, bit) = place_of(head, self.heads.len());
        if self.heads[word] & bit == 0 {
            return FormMatch::default();
        }
        self.follow_forms(first, text, at + 1, then)
    }

    /// Follows `text` after its symbol `first` for as long as a form matches.
    fn follow_forms(&self, first: u8, text: &[u8], behind: usize, then: MoreInput) -> FormMatch<'_> {
        let (mut symbol, mut end, mut depth) = (first, behind, 0);
        let (mut range, mut whole) = (0..self.forms.len(), None);
        loop {
            range = self.narrow_range(range, depth, symbol);
            depth += 1;
            // Of those that are left it is the shortest.
            if let Some(form) = self.forms[range.clone()].first()
                && form.text.len() == depth
            {
                whole = Some((end, form.shown.as_ref()));
                range.start += 1;
            }
            if range.is_empty() {
                return FormMatch { whole, open: false };
            }
            match self.view.next(text, end, then) {
                NextSymbol::Symbol(next, behind) => (symbol, end) = (next, behind),
                NextSymbol::Break => return FormMatch { whole, open: false },
                NextSymbol::End => return FormMatch { whole, open: then == MoreInput::Perhaps },
            }
        }
    }

    /// Returns the forms of `range` that have `symbol` at `depth`. They have the same before it, and all are longer.
    fn narrow_range(&self, range: Range<usize>, depth: usize, symbol: u8) -> Range<usize> {
        let forms = &self.forms[range.clone()];
        let has = |form: &SecretForm| form.text.as_bytes()[depth];
        // Mostly one form is left after a few symbols.
        if forms.first().map(has) == Some(symbol) && forms.last().map(has) == Some(symbol) {
            return range;
        }
        let from = forms.partition_point(|form| has(form) < symbol);
        let until = forms.partition_point(|form| has(form) <= symbol);
        range.start + from..range.start + until
    }
}

/// Returns the index in `words`, a power of two, of the bit of a head, and that bit.
fn place_of(head: impl IntoIterator<Item = u8>, words: usize) -> (usize, u64) {
    let number = head.into_iter().fold(0_u64, |number, symbol| number << 8 | u64::from(symbol));
    // By a number that spreads them; the upper bits are spread best.
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((spread as usize / 64) & (words - 1), 1 << (spread % 64))
}
