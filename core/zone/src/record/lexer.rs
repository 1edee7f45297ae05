//! Words of master files (RFC 1035 section 5.1): strings in quotes, comments, and entries over several lines.

/// A word as it stands in the text. Escapes are kept, because names and strings read them differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, without the quotes around it.
    pub(super) text: String,
    /// It was in quotes.
    pub(super) is_quoted: bool,
}

/// An entry: a record or a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The line on which it begins, from 1 on.
    pub(super) line: usize,
    /// It begins with a blank: its name is that of the entry before.
    pub(super) has_no_owner: bool,
    pub(super) words: Vec<Word>,
}

/// The entries of a text, one by one.
pub(super) struct Entries<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
}

impl<'a> Entries<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), line: 1 }
    }

    /// Reads up to the end of the line, or of the lines in parentheses. `None`: the text is over.
    fn entry(&mut self) -> Option<Result<Entry, String>> {
        self.rest.peek()?;
        let mut entry = Entry {
            line: self.line,
            has_no_owner: self.rest.peek().is_some_and(|c| c.is_ascii_whitespace()),
            words: Vec::new(),
        };
        let mut depth = 0_u32;
        while let Some(c) = self.rest.next() {
            match c {
                '\n' => {
                    self.line += 1;
                    if depth == 0 {
                        return Some(Ok(entry));
                    }
                }
                c if c.is_ascii_whitespace() => {}
                ';' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '(' => depth += 1,
                ')' if depth == 0 => return Some(Err("a parenthesis closes that was not opened".to_owned())),
                ')' => depth -= 1,
                '"' => match self.quoted() {
                    Some(text) => entry.words.push(Word { text, is_quoted: true }),
                    None => return Some(Err("a quote does not end on its line".to_owned())),
                },
                c => match self.word(c) {
                    Some(text) => entry.words.push(Word { text, is_quoted: false }),
                    None => return Some(Err("a quote does not end on its line".to_owned())),
                },
            }
        }
        if depth > 0 {
            return Some(Err("a parenthesis is not closed".to_owned()));
        }
        Some(Ok(entry))
    }

    /// The text up to the closing quote.
    fn quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.rest.next_if(|c| *c != '\n')? {
                '"' => return Some(text),
                '\\' => text.extend(['\\', self.rest.next_if(|c| *c != '\n')?]),
                c => text.push(c),
            }
        }
    }

    /// A word that begins with this character. It may have a part in quotes, as `alpn="h2,h3"` has.
    fn word(&mut self, first: char) -> Option<String> {
        let mut text = String::new();
        let mut next = Some(first);
        while let Some(c) = next {
            text.push(c);
            match c {
                '\\' => text.extend(self.rest.next_if(|c| *c != '\n')),
                '"' => {
                    text.push_str(&self.quoted()?);
                    text.push('"');
                }
                _ => {}
            }
            next = self.rest.next_if(|c| !c.is_ascii_whitespace() && !matches!(c, ';' | '(' | ')'));
        }
        Some(text)
    }
}

/// Entries with words; faults with their line.
impl Iterator for Entries<'_> {
    type Item = Result<Entry, (usize, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.line;
            match self.entry()? {
                Ok(entry) if entry.words.is_empty() => {}
                Ok(entry) => return Some(Ok(entry)),
                Err(reason) => {
                    // Nothing after a fault is to be trusted.
                    self.rest = "".chars().peekable();
                    return Some(Err((line, reason)));
                }
            }
        }
    }
}

impl Word {
    /// The bytes of a string, without its escapes.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, String> {
        let (mut bytes, mut rest) = (Vec::with_capacity(self.text.len()), self.text.as_bytes());
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'\\' {
                bytes.push(*byte);
                continue;
            }
            match after {
                [a, b, c, next @ ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
                    let digit = |byte: &u8| u16::from(byte - b'0');
                    let value = digit(a) * 100 + digit(b) * 10 + digit(c);
                    bytes.push(u8::try_from(value).map_err(|_| format!("the escape \\{value} stands for no byte"))?);
                    rest = next;
                }
                [escaped, next @ ..] => {
                    bytes.push(*escaped);
                    rest = next;
                }
                [] => return Err("a backslash at the end escapes nothing".to_owned()),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let entries: Result<Vec<Entry>, _> = Entries::new(text).collect();
        entries.unwrap().into_iter().map(|entry| entry.words.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn entries_have_lines_quotes_and_comments() {
        let text =
            "a 60 TXT ( \"one ; two\" ; comment \"odd\n  \"three\" ) ; end\n\n  ; nothing\n\tb alpn=\"h2,h3\" x\\;y\n";
        assert_eq!(words(text), [vec!["a", "60", "TXT", "one ; two", "three"], vec!["b", "alpn=\"h2,h3\"", "x\\;y"]]);
        let entries: Vec<Entry> = Entries::new(text).map(Result::unwrap).collect();
        assert_eq!((entries[0].line, entries[0].has_no_owner), (1, false));
        assert_eq!((entries[1].line, entries[1].has_no_owner), (5, true));
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let bytes = |text: &str| Word { text: text.to_owned(), is_quoted: true }.bytes();
        assert_eq!(bytes("a\\\"b\\059\\\\\\255").unwrap(), b"a\"b;\\\xff");
        assert!(bytes("\\256").is_err() && bytes("a\\").is_err());
    }

    #[test]
    fn faults_have_their_line() {
        for text in ["a\nb (\nc", "a\nb )", "a\nb \"c\nd\"", "a\nb x=\"c"] {
            let error = Entries::new(text).find_map(Result::err);
            assert_eq!(error.map(|(line, _)| line), Some(2), "{text}");
        }
    }
}
