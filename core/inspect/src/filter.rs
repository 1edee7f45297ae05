//! The language of filters: `path:/hook status:5xx -method:GET header:name=value body:text duration:>100ms words`.

use crate::{
    answer::Summary,
    decode::decode,
    message::{Exchange, Message},
};

/// The longest filter, in bytes.
const MAX_FILTER_BYTES: usize = 1_024;
/// How much of an encoded body is decoded for a search, in bytes.
const MAX_SEARCHED_BYTES: usize = 1024 * 1024;

/// A filter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is too long.
    #[error("The filter is longer than {MAX_FILTER_BYTES} bytes.")]
    Long,
    /// A status is none.
    #[error("{0:?} is no status: use 404, 5xx or >=400.")]
    Status(String),
    /// A number with a unit is none.
    #[error("{0:?} is no bound: use >100ms, <2s or >=1s for durations, and >10kb for sizes.")]
    Bound(String),
}

/// A filter: all its terms must match.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    terms: Vec<(bool, Term)>,
}

#[derive(Debug, Clone)]
enum Term {
    Word(String),
    Path(String),
    Method(String),
    Status(u16, u16),
    Header(String, Option<String>),
    Body(Vec<u8>),
    Text(fn(&Exchange) -> Option<String>, String),
    /// Microseconds.
    Duration(u64, u64),
    /// Bytes.
    Size(u64, u64),
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A value is none of its key.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(FilterError::Long);
        }
        let terms = words(text).into_iter().map(|word| {
            let (is_wanted, word) = match word.strip_prefix('-') {
                Some(rest) if !rest.is_empty() => (false, rest.to_owned()),
                _ => (true, word),
            };
            Ok((is_wanted, Term::parse(&word)?))
        });
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    /// Whether an exchange is selected.
    #[must_use]
    pub fn matches(&self, exchange: &Exchange) -> bool {
        self.terms.iter().all(|(is_wanted, term)| term.matches(exchange) == *is_wanted)
    }
}

/// The words of a filter; quotes hold spaces together.
fn words(text: &str) -> Vec<String> {
    let (mut found, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        match letter {
            '"' => (is_quoted, is_word) = (!is_quoted, true),
            _ if letter.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut is_word) {
                    found.push(std::mem::take(&mut word));
                }
            }
            _ => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        found.push(word);
    }
    found.retain(|word| !word.is_empty());
    found
}

impl Term {
    fn parse(word: &str) -> Result<Self, FilterError> {
        let Some((key, value)) = word.split_once(':') else { return Ok(Self::Word(word.to_lowercase())) };
        let lower = value.to_lowercase();
        let text = |of: fn(&Exchange) -> Option<String>| Ok(Self::Text(of, lower.clone()));
        match key.to_ascii_lowercase().as_str() {
            "path" => Ok(Self::Path(lower)),
            "method" => Ok(Self::Method(value.to_ascii_uppercase())),
            "status" => status(value).ok_or_else(|| FilterError::Status(value.to_owned())),
            "header" => Ok(match value.split_once('=') {
                Some((name, value)) => Self::Header(name.to_ascii_lowercase(), Some(value.to_lowercase())),
                None => Self::Header(lower, None),
            }),
            "body" => Ok(Self::Body(value.as_bytes().to_vec())),
            "person" | "identity" => text(|exchange| exchange.identity.clone()),
            "rule" => text(|exchange| exchange.rule.clone()),
            "edge" => text(|exchange| exchange.source.edge.clone()),
            "socket" => text(|exchange| exchange.source.socket.clone()),
            "client" => text(|exchange| exchange.source.client.clone()),
            "host" => text(|exchange| Some(exchange.host.clone())),
            "id" => text(|exchange| exchange.request_id.clone()),
            "state" => text(|exchange| word_of(&Summary::from(exchange).state)),
            "protocol" => text(|exchange| word_of(&Summary::from(exchange).protocol)),
            "duration" => bound(value, &[("ms", 1_000), ("us", 1), ("s", 1_000_000), ("", 1_000)])
                .map(|(from, to)| Self::Duration(from, to))
                .ok_or_else(|| FilterError::Bound(value.to_owned())),
            "size" => bound(value, &[("kb", 1_024), ("mb", 1_048_576), ("b", 1), ("", 1)])
                .map(|(from, to)| Self::Size(from, to))
                .ok_or_else(|| FilterError::Bound(value.to_owned())),
            // Addresses and times have colons too.
            _ => Ok(Self::Word(word.to_lowercase())),
        }
    }

    fn matches(&self, exchange: &Exchange) -> bool {
        match self {
            Self::Word(word) => has_word(exchange, word),
            Self::Path(path) => exchange.target.to_lowercase().contains(path),
            Self::Method(method) => exchange.method.eq_ignore_ascii_case(method),
            Self::Status(from, to) => exchange.status.is_some_and(|status| (*from..=*to).contains(&status)),
            Self::Header(name, value) => messages(exchange).any(|message| has_field(message, name, value.as_deref())),
            Self::Body(text) => messages(exchange).any(|message| has_body(message, text)) || has_frame(exchange, text),
            Self::Text(of, wanted) => of(exchange).is_some_and(|found| found.to_lowercase().contains(wanted)),
            Self::Duration(from, to) => exchange.duration_us.is_some_and(|took| (*from..=*to).contains(&took)),
            Self::Size(from, to) => {
                let response = exchange.response.as_ref().map_or(0, |response| response.body.passed);
                (*from..=*to).contains(&(exchange.request.body.passed + response))
            }
        }
    }
}

fn word_of(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

fn messages(exchange: &Exchange) -> impl Iterator<Item = &Message> {
    std::iter::once(&exchange.request).chain(&exchange.response)
}

fn has_field(message: &Message, name: &str, value: Option<&str>) -> bool {
    message.fields.iter().any(|field| {
        field.name.eq_ignore_ascii_case(name) && value.is_none_or(|value| field.text().to_lowercase().contains(value))
    })
}

fn has_body(message: &Message, text: &[u8]) -> bool {
    let encoding = message.encoding();
    if encoding.is_empty() {
        return has_bytes(&message.body.bytes, text);
    }
    has_bytes(&decode(&encoding, &message.body.bytes, MAX_SEARCHED_BYTES).bytes, text)
}

fn has_frame(exchange: &Exchange, text: &[u8]) -> bool {
    exchange.frames.iter().any(|frame| has_bytes(&frame.data, text))
}

/// Whether the text is there, in either case of ASCII letters.
fn has_bytes(bytes: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else { return !bytes.is_empty() };
    if memchr::memmem::find(bytes, text).is_some() {
        return true;
    }
    memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), bytes)
        .any(|at| bytes.get(at..at + text.len()).is_some_and(|found| found.eq_ignore_ascii_case(text)))
}

fn has_word(exchange: &Exchange, word: &str) -> bool {
    let status = exchange.status.map(|status| status.to_string()).unwrap_or_default();
    let texts = [&exchange.target, &exchange.method, &exchange.host, &status];
    let known = [
        &exchange.identity,
        &exchange.rule,
        &exchange.request_id,
        &exchange.source.edge,
        &exchange.source.socket,
        &exchange.source.client,
        &exchange.refused,
    ];
    texts.into_iter().chain(known.into_iter().flatten()).any(|text| text.to_lowercase().contains(word))
        || messages(exchange).any(|message| {
            message.fields.iter().any(|field| {
                field.name.to_ascii_lowercase().contains(word) || field.text().to_lowercase().contains(word)
            }) || has_body(message, word.as_bytes())
        })
        || has_frame(exchange, word.as_bytes())
}

fn status(value: &str) -> Option<Term> {
    let lower = value.to_ascii_lowercase();
    if let Some(class) = lower.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=9).contains(class))?;
        return Some(Term::Status(class * 100, class * 100 + 99));
    }
    if let Some((from, to)) = lower.split_once('-') {
        return Some(Term::Status(from.parse().ok()?, to.parse().ok()?));
    }
    let (from, to) = bound(&lower, &[("", 1)])?;
    Some(Term::Status(u16::try_from(from).ok()?, u16::try_from(to).unwrap_or(u16::MAX)))
}

/// The range of `>100ms`, `<=2s` or `5`, in the smallest unit.
fn bound(value: &str, units: &[(&str, u64)]) -> Option<(u64, u64)> {
    let digits = value.trim_start_matches(['<', '>', '=']);
    let operator = &value[..value.len() - digits.len()];
    let lower = digits.to_ascii_lowercase();
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((lower.strip_suffix(unit)?, *scale)))?;
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a bound that people write; casts of floats saturate"
    )]
    let number = (number * scale as f64) as u64;
    match operator {
        ">" => Some((number.saturating_add(1), u64::MAX)),
        ">=" => Some((number, u64::MAX)),
        "<" => Some((0, number.checked_sub(1)?)),
        "<=" => Some((0, number)),
        "" | "=" => Some((number, number)),
        _ => None,
    }
}
