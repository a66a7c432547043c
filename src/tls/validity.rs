//! Between which times a certificate is valid: the one field of it that hapax
//! reads by itself, since rustls tells it only of certificates it refuses.
//!
//! ```text
//! Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer,
//!     Validity { notBefore, notAfter }, ... }, ... }           RFC 5280, 4.1
//! ```

use std::time::{Duration, SystemTime};

/// Between which times a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first.
    pub from: i64,
    /// The last.
    pub until: i64,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// That of a certificate; `None` where it cannot be read.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let mut whole = Der(certificate);
        let mut fields = Der(Der(whole.next(SEQUENCE)?).next(SEQUENCE)?);
        if fields.0.first() == Some(&VERSION) {
            fields.any()?;
        }
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            fields.any()?;
        }
        let mut times = Der(fields.next(SEQUENCE)?);
        Some(Self {
            from: times.time()?,
            until: times.time()?,
        })
    }

    /// The time in which all of a chain is valid.
    #[must_use]
    pub fn of_all<'c>(chain: impl IntoIterator<Item = &'c [u8]>) -> Option<Self> {
        let all = chain.into_iter().filter_map(Self::of);
        all.reduce(|one, other| Self {
            from: one.from.max(other.from),
            until: one.until.min(other.until),
        })
    }

    /// Whether it is still valid at a time; `None` where it is not yet.
    #[must_use]
    pub fn at(self, now: SystemTime) -> Option<bool> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        (self.from <= now).then_some(now <= self.until)
    }

    /// The last moment of it, to read.
    #[must_use]
    pub fn last_day(self) -> String {
        date(self.until)
    }

    /// Whether it ends within this time, or has ended.
    #[must_use]
    pub fn ends_within(self, span: Duration, now: SystemTime) -> bool {
        self.at(now + span) == Some(false)
    }
}

/// DER that is left to read.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// The content of the next element, which has this tag.
    fn next(&mut self, tag: u8) -> Option<&'d [u8]> {
        let (found, content) = self.any()?;
        (found == tag).then_some(content)
    }

    /// The next element: tag and content.
    fn any(&mut self) -> Option<(u8, &'d [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
                let length = bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The next element as a time, in seconds since 1970.
    fn time(&mut self) -> Option<i64> {
        let (tag, text) = self.any()?;
        let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let (year, rest) = text.split_at_checked(match tag {
            UTC_TIME => 2,
            GENERALIZED_TIME => 4,
            _ => return None,
        })?;
        let year: i64 = number(year)?;
        let year = match (tag, year) {
            // Two digits are of 1950 to 2049.
            (UTC_TIME, 50..) => 1900 + year,
            (UTC_TIME, _) => 2000 + year,
            _ => year,
        };
        if rest.len() != 10 {
            return None;
        }
        let part = |at: usize| number(rest.get(at..at + 2)?);
        let days = days_of(year, part(0)?, part(2)?)?;
        let seconds = part(4)? * 3600 + part(6)? * 60 + part(8)?;
        Some(days * DAY + seconds)
    }
}

fn number(digits: &str) -> Option<i64> {
    let digits = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    digits?.parse().ok()
}

const DAY: i64 = 86_400;
/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_ERA: i64 = 146_097;

/// Days from 1970 to a date. Years begin in March here, so that the day which
/// a leap year has more is their last.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(era * DAYS_OF_ERA + days - 719_468)
}

/// A time as a date, such as `2026-11-30 08:15:00 UTC`.
pub(super) fn date(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY) + 719_468;
    let era = days.div_euclid(DAYS_OF_ERA);
    let of_era = days.rem_euclid(DAYS_OF_ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(["hapax.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_times_of_a_certificate_are_read_from_it() {
        for (from, until, said) in [
            ((2026, 1, 1), (2027, 12, 31), ("2026-01-01", "2027-12-31")),
            // The second is a GeneralizedTime, the first a UTCTime of the last century.
            ((1999, 2, 28), (2050, 1, 1), ("1999-02-28", "2050-01-01")),
            ((2000, 2, 29), (4096, 1, 1), ("2000-02-29", "4096-01-01")),
        ] {
            let der = certificate(from, until);
            let validity = Validity::of(&der).unwrap();
            assert_eq!(date(validity.from), format!("{} 00:00:00 UTC", said.0));
            assert_eq!(date(validity.until), format!("{} 00:00:00 UTC", said.1));
        }
    }

    #[test]
    fn a_date_is_the_days_it_was_made_of() {
        assert_eq!(days_of(1970, 1, 1), Some(0));
        assert_eq!(days_of(2000, 3, 1), Some(11_017));
        assert_eq!(days_of(2026, 13, 1), None);
        assert_eq!(date(1_000_000_000), "2001-09-09 01:46:40 UTC");
        for days in (-200_000..200_000).step_by(17) {
            let text = date(days * DAY);
            let part = |from, to| number(&text[from..to]).unwrap();
            let again = days_of(part(0, 4), part(5, 7), part(8, 10));
            assert_eq!(again, Some(days), "{text}");
        }
    }

    #[test]
    fn of_a_chain_the_shortest_counts() {
        let leaf = certificate((2026, 3, 1), (2028, 1, 1));
        let ca = certificate((2020, 1, 1), (2027, 1, 1));
        let all = Validity::of_all([&*leaf, &*ca]).unwrap();
        assert_eq!(date(all.from), "2026-03-01 00:00:00 UTC");
        assert_eq!(date(all.until), "2027-01-01 00:00:00 UTC");
    }

    #[test]
    fn no_bytes_are_a_panic() {
        let der = certificate((2026, 1, 1), (2027, 1, 1));
        for end in 0..der.len().min(200) {
            assert_eq!(Validity::of(&der[..end]), None);
        }
        for at in 0..der.len() {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = byte;
                let _ = Validity::of(&changed);
            }
        }
    }
}
