//! Chance that a seed repeats.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from).max(1)
    }

    /// An index below `end`.
    pub fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.between(0, end)).unwrap()
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

/// One number for many, so that what befalls a request does not depend on
/// what befell others before it.
pub fn hash(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0, |seed, part| Rng::new(seed ^ part).next())
}
