//! Times in rules: moments, weekly windows, and time zones.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil::Weekday, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::zones;

const MINUTES_PER_DAY: u16 = 24 * 60;
const MINUTES_PER_WEEK: u16 = 7 * MINUTES_PER_DAY;
/// Characters of an invalid text that its error repeats.
const MAX_QUOTED_CHARS: usize = 64;

/// The text is not a time of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// An unknown time zone.
    #[error("{0:?} is not a known time zone: give its IANA name, such as Europe/Zurich or UTC")]
    Zone(String),
    /// An invalid time of day.
    #[error("{0:?} is not a time of day: give hours and minutes, such as 08:30; 24:00 is the end of the day")]
    Clock(String),
    /// An invalid day of the week.
    #[error("{0:?} is not a day of the week: use mon, tue, wed, thu, fri, sat and sun")]
    Day(String),
    /// An invalid moment.
    #[error("{0:?} is not a moment: give date, time and offset (RFC 3339), such as 2027-03-01T08:00:00+01:00")]
    Moment(String),
}

fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

macro_rules! text_in_json {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}
text_in_json!(Zone);
text_in_json!(Clock);
text_in_json!(Day);
text_in_json!(Moment);

/// A time zone of the built-in IANA database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The local minute of the week, from Monday at midnight; `None` for times outside of the calendar. Around clock
    /// changes some minutes never occur, and some occur twice.
    pub(crate) fn minute_of_week(&self, unix: i64) -> Option<u16> {
        let there = self.0.to_datetime(Timestamp::from_second(unix).ok()?);
        let day = u16::from(there.weekday().to_monday_zero_offset().unsigned_abs());
        let minute = u16::from(there.hour().unsigned_abs()) * 60 + u16::from(there.minute().unsigned_abs());
        Some(day * MINUTES_PER_DAY + minute)
    }
}

impl FromStr for Zone {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        zones::find(text).map(Self).ok_or_else(|| TimeError::Zone(quoted(text)))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A time of day in minutes since midnight, 0 to 1440.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(u16);

impl FromStr for Clock {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let refused = || TimeError::Clock(quoted(text));
        let number = |digits: &str, bytes: usize| {
            let is_plain = (1..=bytes).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u16>().ok().filter(|_| is_plain)
        };
        let (hours, minutes) = text.split_once(':').ok_or_else(refused)?;
        let hours = number(hours, 2).ok_or_else(refused)?;
        let minutes = number(minutes, 2).filter(|_| minutes.len() == 2).ok_or_else(refused)?;
        let is_time = (hours < 24 && minutes < 60) || (hours == 24 && minutes == 0);
        is_time.then_some(Self(hours * 60 + minutes)).ok_or_else(refused)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// A day of the week, written `mon` to `sun`; full English names are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day(Weekday);

const DAYS: [(&str, &str); 7] = [
    ("mon", "monday"),
    ("tue", "tuesday"),
    ("wed", "wednesday"),
    ("thu", "thursday"),
    ("fri", "friday"),
    ("sat", "saturday"),
    ("sun", "sunday"),
];

impl Day {
    /// Every day, starting with Monday.
    #[must_use]
    pub fn all() -> [Self; 7] {
        use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
        [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday].map(Self)
    }

    fn number(self) -> u16 {
        u16::from(self.0.to_monday_zero_offset().unsigned_abs())
    }
}

impl FromStr for Day {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let is_called =
            |(short, long): (&str, &str)| text.eq_ignore_ascii_case(short) || text.eq_ignore_ascii_case(long);
        let found = Self::all().into_iter().zip(DAYS).find(|(_, names)| is_called(*names));
        found.map(|(day, _)| day).ok_or_else(|| TimeError::Day(quoted(text)))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DAYS[usize::from(self.number())].0)
    }
}

/// A moment, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Timestamp);

impl Moment {
    /// Seconds since 1970 (UTC).
    #[must_use]
    pub fn unix(self) -> i64 {
        self.0.as_second()
    }
}

impl FromStr for Moment {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let refused = || TimeError::Moment(quoted(text));
        let moment: Timestamp = text.parse().map_err(|_| refused())?;
        Timestamp::from_second(moment.as_second()).map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A weekly window: from one time of day until before another, on some days. A window that ends at or before its start
/// continues into the next day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The days on which it starts; every day if absent.
    #[serde(default = "every_day", skip_serializing_if = "is_every_day")]
    pub days: Vec<Day>,
    /// Its start, inclusive.
    #[serde(default = "midnight")]
    pub from: Clock,
    /// Its end, exclusive.
    #[serde(default = "end_of_day")]
    pub to: Clock,
}

fn every_day() -> Vec<Day> {
    Day::all().to_vec()
}

fn is_every_day(days: &[Day]) -> bool {
    *days == Day::all()
}

fn midnight() -> Clock {
    Clock(0)
}

fn end_of_day() -> Clock {
    Clock(MINUTES_PER_DAY)
}

impl Window {
    /// Whether it contains no minute.
    pub(crate) fn is_empty(&self) -> bool {
        self.days.is_empty() || self.from == self.to || self.from.0 == MINUTES_PER_DAY
    }
}

/// Minutes of the week, as sorted, disjoint ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Minutes(Box<[(u16, u16)]>);

impl Minutes {
    /// The minutes of all these windows.
    pub(crate) fn of(windows: &[Window]) -> Self {
        let mut ranges = Vec::new();
        for window in windows.iter().filter(|window| !window.is_empty()) {
            let overnight = if window.to <= window.from { MINUTES_PER_DAY } else { 0 };
            for day in &window.days {
                let first = day.number() * MINUTES_PER_DAY + window.from.0;
                let end = day.number() * MINUTES_PER_DAY + window.to.0 + overnight;
                ranges.push((first, end.min(MINUTES_PER_WEEK)));
                // A window that starts on Sunday may end on Monday.
                if end > MINUTES_PER_WEEK {
                    ranges.push((0, end - MINUTES_PER_WEEK));
                }
            }
        }
        ranges.sort_unstable();
        let mut apart: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, end) in ranges {
            match apart.last_mut() {
                Some((_, last)) if first <= *last => *last = end.max(*last),
                _ => apart.push((first, end)),
            }
        }
        Self(apart.into_boxed_slice())
    }

    /// Whether the minute is included.
    pub(crate) fn contains(&self, minute: u16) -> bool {
        let at = self.0.partition_point(|(_, end)| *end <= minute);
        self.0.get(at).is_some_and(|(first, _)| *first <= minute)
    }

    /// Whether all minutes of the week are included.
    pub(crate) fn is_everything(&self) -> bool {
        *self.0 == [(0, MINUTES_PER_WEEK)]
    }

    /// Whether all minutes of the other set are included.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(first, end)| self.0.iter().any(|(from, to)| from <= first && end <= to))
    }
}
