//! Random numbers of a seed.

/// Generator: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct SplitMixRng(u64);

impl SplitMixRng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next_number(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to and without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next_number() % end
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_number().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next_number().to_le_bytes());
        bytes
    }
}
