//! Changes of inputs, the same every time.

/// Makes inputs of others.
pub struct Mutator {
    random: Random,
    len_max: usize,
}

/// xorshift: enough to choose with.
pub struct Random(u64);

impl Random {
    /// The numbers that this name stands for.
    pub fn of(name: &str) -> Self {
        // FNV-1a
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    pub fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

impl Mutator {
    pub fn new(name: &str, len_max: usize) -> Self {
        Self {
            random: Random::of(name),
            len_max,
        }
    }

    /// One of the inputs, changed up to four times.
    pub fn next(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.random.below(inputs.len())].clone();
        for _ in 0..=self.random.below(4) {
            self.change(&mut input, inputs);
        }
        input.truncate(self.len_max);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        const ENDS: [&[u8]; 8] = [
            &[0],
            &[0xff],
            &[0x7f, 0xff],
            &[0x80, 0],
            &[0x7f, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0, 0, 0, 1],
        ];
        let random = &mut self.random;
        let at = random.below(input.len() + 1);
        let to = (at + random.below(9)).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.byte(),
            2 => {
                let end = ENDS[random.below(ENDS.len())];
                let over = (at + end.len()).min(input.len());
                input.splice(at..over, end.iter().copied());
            }
            3 => {
                let count = 1 + random.below(8);
                input.splice(at..at, random.bytes(count));
            }
            4 => drop(input.drain(at..to)),
            5 => {
                let again = input[at..to].to_vec();
                input.splice(at..at, again);
            }
            6 => {
                let other = &inputs[random.below(inputs.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.truncate(at),
        }
    }
}
