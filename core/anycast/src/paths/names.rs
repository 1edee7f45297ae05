//! Names of networks.

use std::collections::HashMap;

use super::relations::number_of;

/// The most names that are read.
pub const MAX_NAMES: usize = 500_000;
/// The longest name, in characters; longer ones are cut.
const MAX_NAME: usize = 60;

/// Names of networks by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AsNames(HashMap<u32, String>);

/// A text is no list of names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// A line.
    #[error("line {0} is no name of a network: use lines such as AS3356 LUMEN")]
    Line(usize),
    /// Too many.
    #[error("there are more than {MAX_NAMES} names")]
    TooMany,
}

impl AsNames {
    /// Reads lines of a number, with or without `AS`, and a name. `#` begins a remark.
    ///
    /// # Errors
    /// The first line that is another.
    pub fn parse(text: &str) -> Result<Self, NamesError> {
        let mut names = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line.split_once([' ', '\t']);
            let number = parts.and_then(|(number, _)| number_of(number.strip_prefix("AS").unwrap_or(number)));
            let (Some(number), Some((_, name))) = (number, parts) else { return Err(NamesError::Line(index + 1)) };
            if names.len() == MAX_NAMES {
                return Err(NamesError::TooMany);
            }
            // Names are printed: nothing in them moves a cursor.
            let name: String = name.trim().chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect();
            names.insert(number, name);
        }
        Ok(Self(names))
    }

    /// A network in words, such as `AS3356 (LUMEN)`.
    #[must_use]
    pub fn label(&self, number: u32) -> String {
        match self.0.get(&number) {
            Some(name) if !name.is_empty() => format!("AS{number} ({name})"),
            _ => format!("AS{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let names = AsNames::parse("# x\nAS3356 LUMEN, US\n209\tQwest\u{1b}[2J\n").unwrap();
        assert_eq!(names.label(3356), "AS3356 (LUMEN, US)");
        assert_eq!(names.label(209), "AS209 (Qwest[2J)");
        assert_eq!(names.label(1), "AS1");
        for bad in ["3356", "ASx y", "x 1"] {
            assert_eq!(AsNames::parse(bad), Err(NamesError::Line(1)), "{bad}");
        }
    }
}
