//! Decisions read from the bytes of an input, so that an engine which changes bytes changes decisions.

/// What is left of an input. Where nothing is, every decision is the first of its kind.
#[derive(Clone)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `end`, which is one of 1 to 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// True once in `times`.
    pub fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Small numbers, the ends of each width, or any.
    pub fn number(&mut self) -> i64 {
        const ENDS: [i64; 10] = [
            -1,
            i64::MAX,
            i64::MIN,
            i32::MAX as i64,
            i32::MIN as i64,
            i16::MAX as i64,
            i16::MIN as i64,
            1 << 16,
            i8::MAX as i64,
            i8::MIN as i64,
        ];
        match self.byte() {
            small @ 0..200 => small.into(),
            end @ 200..240 => ENDS[usize::from(end) % ENDS.len()],
            _ => i64::from_be_bytes(self.array()),
        }
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// Up to `most` bytes; fewer where the input has no more.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = self.below(most + 1).min(self.0.len());
        self.exactly(count)
    }

    fn exactly(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// A text that is not empty, now and then one whose length takes two bytes, or with letters of two.
    pub fn text(&mut self) -> String {
        let letters = ["a", "kafka", "topic-7", ".", "é", "-"];
        let count = match self.byte() {
            255 => 130,
            count => 1 + usize::from(count) % 3,
        };
        (0..count).map(|_| self.of(&letters)).collect()
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
