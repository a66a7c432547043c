//! Record batches built by hand, with any field forced.

use bytes::Bytes;

/// A record batch of format v2; what is `None` is computed from the values.
///
/// ```text
/// 0 base offset  8 length  12 leader epoch  16 magic  17 crc  21 attributes
/// 23 last offset delta  27 base timestamp  35 max timestamp  43 producer id
/// 51 epoch  53 base sequence  57 record count  61 records
/// ```
#[derive(Clone)]
pub struct Batch {
    /// Must be 0 in a request.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub length: Option<i32>,
    /// 2, or what a test wants.
    pub magic: i8,
    /// The checksum; computed when `None`.
    pub crc: Option<u32>,
    /// Bits 0 to 2 compression, 4 transactional, 5 control.
    pub attributes: i16,
    /// Number of values less one when `None`.
    pub last_offset_delta: Option<i32>,
    /// Time of the first record.
    pub base_timestamp: i64,
    /// From one record to the next.
    pub spacing_ms: i64,
    /// Time of the last record when `None`.
    pub max_timestamp: Option<i64>,
    /// Producer id, −1 for none.
    pub producer: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Sequence of the first record.
    pub sequence: i32,
    /// Number of values when `None`.
    pub count: Option<i32>,
    /// One value a record; keys are null.
    pub values: Vec<Vec<u8>>,
    /// What follows the header instead of the encoded values.
    pub payload: Option<Vec<u8>>,
}

/// The attribute bit of a transactional batch.
pub const TRANSACTIONAL: i16 = 0x10;
/// The attribute bit of a control batch.
pub const CONTROL: i16 = 0x20;
/// A time in 2023 that every batch of the tests carries unless it says otherwise.
pub const TIMESTAMP: i64 = 1_700_000_000_000;

impl Batch {
    /// A batch of `values` that a correct idempotent producer would send.
    pub fn of<V: Into<Vec<u8>>>(
        producer: i64,
        epoch: i16,
        sequence: i32,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self {
            base_offset: 0,
            length: None,
            magic: 2,
            crc: None,
            attributes: 0,
            last_offset_delta: None,
            base_timestamp: TIMESTAMP,
            spacing_ms: 0,
            max_timestamp: None,
            producer,
            epoch,
            sequence,
            count: None,
            values: values.into_iter().map(Into::into).collect(),
            payload: None,
        }
    }

    /// The batch as the wire carries it.
    pub fn bytes(&self) -> Bytes {
        let values = i32::try_from(self.values.len()).unwrap();
        let mut checked = Vec::new();
        checked.extend(self.attributes.to_be_bytes());
        checked.extend(self.last_offset_delta.unwrap_or(values - 1).to_be_bytes());
        checked.extend(self.base_timestamp.to_be_bytes());
        checked.extend(self.greatest_timestamp().to_be_bytes());
        checked.extend(self.producer.to_be_bytes());
        checked.extend(self.epoch.to_be_bytes());
        checked.extend(self.sequence.to_be_bytes());
        checked.extend(self.count.unwrap_or(values).to_be_bytes());
        match &self.payload {
            Some(payload) => checked.extend(payload),
            None => {
                for (delta, value) in self.values.iter().enumerate() {
                    let delta = i64::try_from(delta).unwrap();
                    record(&mut checked, delta, delta * self.spacing_ms, value);
                }
            }
        }
        let crc = self.crc.unwrap_or_else(|| crc32c::crc32c(&checked));
        let length = i32::try_from(checked.len() + 9).unwrap();
        let mut batch = Vec::new();
        batch.extend(self.base_offset.to_be_bytes());
        batch.extend(self.length.unwrap_or(length).to_be_bytes());
        batch.extend((-1_i32).to_be_bytes());
        batch.extend(self.magic.to_be_bytes());
        batch.extend(crc.to_be_bytes());
        batch.extend(checked);
        batch.into()
    }

    /// The max timestamp of its header.
    pub fn greatest_timestamp(&self) -> i64 {
        let steps = i64::try_from(self.values.len()).unwrap() - 1;
        let last = self.base_timestamp + steps.max(0) * self.spacing_ms;
        self.max_timestamp.unwrap_or(last)
    }
}

/// A message set of format 0 or 1 with one message.
pub fn legacy_message_set(magic: i8, value: &[u8]) -> Bytes {
    let mut checked = vec![magic.to_be_bytes()[0], 0];
    if magic == 1 {
        checked.extend(TIMESTAMP.to_be_bytes());
    }
    checked.extend((-1_i32).to_be_bytes());
    checked.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
    checked.extend(value);
    let mut set = 0_i64.to_be_bytes().to_vec();
    set.extend(u32::try_from(checked.len() + 4).unwrap().to_be_bytes());
    set.extend(crc32(&checked).to_be_bytes());
    set.extend(checked);
    set.into()
}

/// A batch that a broker gave back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Offset of its first record.
    pub offset: i64,
    /// Its attributes.
    pub attributes: i16,
    /// Its producer id.
    pub producer: i64,
    /// Its producer epoch.
    pub epoch: i16,
    /// Sequence of its first record.
    pub sequence: i32,
    /// Last offset delta plus one.
    pub count: i32,
    /// The checksum the broker stored.
    pub crc: u32,
    /// What follows the 61 bytes of the header.
    pub payload: Vec<u8>,
}

impl Stored {
    /// The values of its records; for uncompressed batches only.
    pub fn values(&self) -> Vec<Vec<u8>> {
        assert_eq!(self.attributes & 7, 0, "a compressed batch is opaque here");
        let mut rest = self.payload.as_slice();
        let mut values = Vec::new();
        while !rest.is_empty() {
            let length = usize::try_from(unzigzag(&mut rest)).unwrap();
            let (mut record, after) = rest.split_at(length);
            rest = after;
            record = &record[1..];
            unzigzag(&mut record);
            unzigzag(&mut record);
            let key = usize::try_from(unzigzag(&mut record)).unwrap_or(0);
            record = &record[key..];
            let value = usize::try_from(unzigzag(&mut record)).unwrap_or(0);
            values.push(record[..value].to_vec());
        }
        values
    }
}

/// Cuts what a Fetch answered into its complete batches.
pub fn stored(mut records: &[u8]) -> Vec<Stored> {
    let mut batches = Vec::new();
    while records.len() >= 61 {
        let end = 12 + usize::try_from(i32_at(records, 8)).unwrap();
        if records.len() < end {
            break;
        }
        let (batch, rest) = records.split_at(end);
        batches.push(Stored {
            offset: i64_at(batch, 0),
            attributes: i16_at(batch, 21),
            producer: i64_at(batch, 43),
            epoch: i16_at(batch, 51),
            sequence: i32_at(batch, 53),
            count: i32_at(batch, 23) + 1,
            crc: u32::from_be_bytes(batch[17..21].try_into().unwrap()),
            payload: batch[61..].to_vec(),
        });
        records = rest;
    }
    batches
}

fn record(batch: &mut Vec<u8>, delta: i64, delta_ms: i64, value: &[u8]) {
    let mut body = vec![0];
    zigzag(&mut body, delta_ms);
    zigzag(&mut body, delta);
    zigzag(&mut body, -1);
    zigzag(&mut body, i64::try_from(value.len()).unwrap());
    body.extend(value);
    zigzag(&mut body, 0);
    zigzag(batch, i64::try_from(body.len()).unwrap());
    batch.extend(body);
}

fn zigzag(to: &mut Vec<u8>, value: i64) {
    let mut rest = u64::from_ne_bytes(((value << 1) ^ (value >> 63)).to_ne_bytes());
    while rest >= 0x80 {
        to.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    to.push(u8::try_from(rest).unwrap());
}

fn unzigzag(from: &mut &[u8]) -> i64 {
    let mut raw = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first().unwrap();
        *from = rest;
        raw |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    i64::from_ne_bytes((raw >> 1).to_ne_bytes()) ^ -i64::from_ne_bytes((raw & 1).to_ne_bytes())
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}
