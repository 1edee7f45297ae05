//! Labels: keys with values that owners give things, to find them again.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How many labels one thing has.
pub const MAX_LABELS: usize = 32;
/// The longest key of a label, in bytes.
pub const MAX_LABEL_KEY_BYTES: usize = 63;
/// The longest value of a label, in bytes.
pub const MAX_LABEL_VALUE_BYTES: usize = 255;

/// The labels of one thing: at most [`MAX_LABELS`] valid keys with valid values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// A label cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The key is invalid.
    #[error(
        "a label's key has 1 to {MAX_LABEL_KEY_BYTES} letters, digits, dots, slashes, dashes and underscores, the first \
         a letter or digit: {0:?} is none"
    )]
    Key(String),
    /// The value of this key is invalid.
    #[error("a label's value has at most {MAX_LABEL_VALUE_BYTES} bytes and no control character: that of {0} is none")]
    Value(String),
    /// There are too many labels.
    #[error("a thing has at most {MAX_LABELS} labels: leave some out")]
    TooMany,
    /// The value is missing.
    #[error("give a label as KEY=VALUE: {0:?} has no equals sign")]
    NoValue(String),
}

fn check_key(key: &str) -> Result<(), LabelError> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    let is_valid = key.len() <= MAX_LABEL_KEY_BYTES
        && key.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && key.bytes().all(is_inner);
    if is_valid { Ok(()) } else { Err(LabelError::Key(key.chars().take(MAX_LABEL_KEY_BYTES).collect())) }
}

fn check(key: &str, value: &str) -> Result<(), LabelError> {
    check_key(key)?;
    if value.len() > MAX_LABEL_VALUE_BYTES || value.chars().any(char::is_control) {
        return Err(LabelError::Value(key.to_owned()));
    }
    Ok(())
}

impl Labels {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Gives a key this value.
    ///
    /// # Errors
    /// The key or the value is invalid, or there are too many labels; nothing has changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LabelError> {
        check(key, value)?;
        if self.0.len() >= MAX_LABELS && !self.0.contains_key(key) {
            return Err(LabelError::TooMany);
        }
        self.0.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelError;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, LabelError> {
        if labels.len() > MAX_LABELS {
            return Err(LabelError::TooMany);
        }
        labels.iter().try_for_each(|(key, value)| check(key, value))?;
        Ok(Self(labels))
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

impl fmt::Display for Labels {
    /// `a=1, b=2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// One label with its value, as `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| LabelError::NoValue(text.chars().take(MAX_LABEL_KEY_BYTES).collect()))?;
        check(key, value)?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

/// What things are chosen by: a key with a value (`KEY=VALUE`), or a key with any value (`KEY`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector {
    /// The key.
    pub key: String,
    /// The value; `None`: any.
    pub value: Option<String>,
}

impl LabelSelector {
    /// Whether a thing with these labels is chosen.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        labels.get(&self.key).is_some_and(|found| self.value.as_deref().is_none_or(|wanted| wanted == found))
    }
}

impl FromStr for LabelSelector {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        match text.split_once('=') {
            Some(_) => text.parse().map(|Label { key, value }| Self { key, value: Some(value) }),
            None => check_key(text).map(|()| Self { key: text.to_owned(), value: None }),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_and_valid() {
        let read = |json: &str| serde_json::from_str::<Labels>(json).map_err(|error| error.to_string());
        let labels = read(r#"{"sallyport.dev/cluster":"prod","a":""}"#).unwrap();
        assert_eq!(
            (labels.get("sallyport.dev/cluster"), labels.get("a"), labels.get("b")),
            (Some("prod"), Some(""), None)
        );
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"a":"","sallyport.dev/cluster":"prod"}"#);
        assert_eq!(labels.to_string(), "a=, sallyport.dev/cluster=prod");
        for key in ["", ".a", "a b", "ä", "a\n", &"k".repeat(64)] {
            let error = read(&format!("{{{key:?}:\"v\"}}")).unwrap_err();
            assert!(error.contains("a label's key has 1 to 63"), "{key:?}: {error}");
        }
        assert!(read(&format!("{{\"k\":\"{}\"}}", "v".repeat(256))).unwrap_err().contains("that of k is none"));
        assert!(read(r#"{"k":"a\u0000"}"#).unwrap_err().contains("no control character"));
        let mut many = Labels::default();
        (0..MAX_LABELS).for_each(|number| many.set(&format!("k{number}"), "v").unwrap());
        assert_eq!(many.set("one-more", "v"), Err(LabelError::TooMany));
        many.set("k0", "other").unwrap();
        many.remove("k1");
        many.set("one-more", "v").unwrap();
        let json = serde_json::to_string(&(0..33).map(|n| (format!("k{n}"), "v")).collect::<BTreeMap<_, _>>()).unwrap();
        assert!(read(&json).unwrap_err().contains("at most 32 labels"));
    }

    #[test]
    fn a_selector_has_a_key_and_maybe_a_value() {
        let labels = serde_json::from_str::<Labels>(r#"{"env":"prod","team":"a=b"}"#).unwrap();
        let matches = |text: &str| text.parse::<LabelSelector>().unwrap().matches(&labels);
        assert!(matches("env") && matches("env=prod") && matches("team=a=b"));
        assert!(!matches("env=") && !matches("env=production") && !matches("en") && !matches("team=a"));
        assert_eq!("env=prod".parse::<LabelSelector>().unwrap().to_string(), "env=prod");
        assert!("=prod".parse::<LabelSelector>().is_err() && "".parse::<LabelSelector>().is_err());
        assert_eq!("env".parse::<Label>(), Err(LabelError::NoValue("env".to_owned())));
    }
}
