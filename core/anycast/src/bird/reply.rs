//! Replies on the control socket: lines with a number of four digits, and lines that go on with the last number.

use std::collections::VecDeque;

/// The longest line of a reply, in bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// The longest reply, in bytes.
pub const MAX_REPLY_BYTES: usize = 8 << 20;
/// The most replies that wait to be taken.
const MAX_WAITING: usize = 16;
/// The longest text of an error that is passed on, in characters.
const MAX_SENTENCE: usize = 300;

/// A line of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyLine {
    /// The number: 0 to 999 is success, to 1999 a row, to 2999 a heading, 8000 to 8999 a failure, 9000 and more a
    /// mistake in the command.
    pub code: u16,
    /// The text after the number.
    pub text: String,
}

/// A whole reply. Its last line says how it went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The lines, at least one.
    pub lines: Vec<ReplyLine>,
}

/// Why a reply cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line is too long.
    #[error("a line of BIRD is longer than {MAX_LINE_BYTES} bytes")]
    LongLine,
    /// The reply is too long.
    #[error("a reply of BIRD is longer than {MAX_REPLY_BYTES} bytes")]
    LongReply,
    /// More replies than questions.
    #[error("BIRD sends more than {MAX_WAITING} replies that nobody asked for")]
    TooMany,
    /// No number, and no line before.
    #[error("BIRD sends a line without a number: {0:?}")]
    NoNumber(String),
    /// BIRD refuses.
    #[error("BIRD answers {0}: {1}")]
    Refused(u16, String),
    /// The configuration is wrong.
    #[error("{0}")]
    File(FileError),
    /// A row cannot be read.
    #[error("a row of BIRD is not understood: {0:?}")]
    Row(String),
    /// More rows than there may be.
    #[error("BIRD shows more than {0} {1}")]
    TooManyRows(usize, &'static str),
}

/// A mistake in a configuration, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}{}", hint(.message))]
pub struct FileError {
    /// The file.
    pub file: String,
    /// The line, from one.
    pub line: u32,
    /// The column, from one.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

/// What to do about mistakes that the other parts of an operator's file make.
fn hint(message: &str) -> &'static str {
    if message.contains("Kernel device protocol already defined") {
        " (remove `protocol device` from the file that includes this one: this one has it)"
    } else {
        ""
    }
}

/// What BIRD says to `configure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigureAnswer {
    /// The new configuration holds.
    Done,
    /// The new configuration is on its way: protocols still stop.
    InProgress,
    /// It follows once the one before is done.
    Queued,
    /// The check found nothing wrong.
    Checked,
    /// The change stays.
    Confirmed,
    /// There was nothing to confirm or to undo.
    Nothing,
}

/// Reads replies from the bytes of a control socket.
#[derive(Debug, Default)]
pub struct ReplyReader {
    line: Vec<u8>,
    reply: Reply,
    reply_bytes: usize,
    done: VecDeque<Reply>,
}

impl ReplyReader {
    /// Takes bytes.
    ///
    /// # Errors
    /// The bytes are no replies: the connection is of no use any more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            if self.line.len() + text.len() > MAX_LINE_BYTES {
                return Err(ReplyError::LongLine);
            }
            self.line.extend_from_slice(text);
            if is_whole {
                let line = std::mem::take(&mut self.line);
                self.take_line(&String::from_utf8_lossy(&line))?;
            }
        }
        Ok(())
    }

    /// The next whole reply.
    pub fn take(&mut self) -> Option<Reply> {
        self.done.pop_front()
    }

    fn take_line(&mut self, line: &str) -> Result<(), ReplyError> {
        // Lines of the log, which a terminal may ask for.
        if line.starts_with('+') {
            return Ok(());
        }
        self.reply_bytes += line.len() + 1;
        if self.reply_bytes > MAX_REPLY_BYTES {
            return Err(ReplyError::LongReply);
        }
        if let Some(rest) = line.strip_prefix(' ') {
            let last = self.reply.lines.last().ok_or_else(|| no_number(line))?;
            let code = last.code;
            self.reply.lines.push(ReplyLine { code, text: rest.to_owned() });
            return Ok(());
        }
        let (code, is_last, text) = split(line).ok_or_else(|| no_number(line))?;
        self.reply.lines.push(ReplyLine { code, text: text.to_owned() });
        if is_last {
            if self.done.len() == MAX_WAITING {
                return Err(ReplyError::TooMany);
            }
            self.done.push_back(std::mem::take(&mut self.reply));
            self.reply_bytes = 0;
        }
        Ok(())
    }
}

fn no_number(line: &str) -> ReplyError {
    ReplyError::NoNumber(line.chars().take(64).collect())
}

/// The number, whether the line is the last one, and the text.
fn split(line: &str) -> Option<(u16, bool, &str)> {
    let digits = line.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_last = match line.as_bytes().get(4) {
        None | Some(b' ') => true,
        Some(b'-') => false,
        Some(_) => return None,
    };
    Some((digits.parse().ok()?, is_last, line.get(5..).unwrap_or_default()))
}

impl Reply {
    /// The last line.
    #[must_use]
    pub fn last(&self) -> (u16, &str) {
        self.lines.last().map_or((0, ""), |line| (line.code, line.text.as_str()))
    }

    /// The whole reply, if BIRD did what was asked.
    ///
    /// # Errors
    /// BIRD refused.
    pub fn into_success(self) -> Result<Self, ReplyError> {
        let (code, text) = self.last();
        if code < 8000 {
            return Ok(self);
        }
        Err(match file_error(text) {
            Some(error) if code == 8002 => ReplyError::File(error),
            _ => ReplyError::Refused(code, text.chars().take(MAX_SENTENCE).collect()),
        })
    }

    /// What BIRD says to `configure` and its forms.
    ///
    /// # Errors
    /// BIRD refused, or the configuration is wrong.
    pub fn configure_answer(self) -> Result<ConfigureAnswer, ReplyError> {
        let reply = self.into_success()?;
        let (code, text) = reply.last();
        match code {
            3 => Ok(ConfigureAnswer::Done),
            4 => Ok(ConfigureAnswer::InProgress),
            5 => Ok(ConfigureAnswer::Queued),
            18 => Ok(ConfigureAnswer::Confirmed),
            19 => Ok(ConfigureAnswer::Nothing),
            20 => Ok(ConfigureAnswer::Checked),
            _ => Err(ReplyError::Refused(code, text.chars().take(MAX_SENTENCE).collect())),
        }
    }
}

/// Reads `FILE:LINE:COLUMN MESSAGE`.
fn file_error(text: &str) -> Option<FileError> {
    let (place, message) = text.split_once(' ')?;
    let (rest, column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    let cut = |text: &str| text.chars().take(MAX_SENTENCE).collect();
    Some(FileError {
        file: cut(file),
        line: line.parse().ok()?,
        column: column.parse().ok()?,
        message: cut(message.trim()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(text: &str) -> Vec<Reply> {
        let mut reader = ReplyReader::default();
        // One byte after another: pieces of lines are put together.
        text.bytes().for_each(|byte| reader.feed(&[byte]).unwrap());
        std::iter::from_fn(|| reader.take()).collect()
    }

    #[test]
    fn lines_become_replies() {
        let found = replies("0001 BIRD 2.0.12 ready.\n1007-Table x:\n +a\n+2026 log\n  b\n1008-\tType\n0000\n");
        assert_eq!(found.len(), 2);
        let lines: Vec<(u16, &str)> = found[1].lines.iter().map(|line| (line.code, line.text.as_str())).collect();
        assert_eq!(lines, [(1007, "Table x:"), (1007, "+a"), (1007, " b"), (1008, "\tType"), (0, "")]);
    }

    #[test]
    fn answers_to_configure_are_told_apart() {
        let answer = |text: &str| replies(text).remove(0).configure_answer();
        let read = "0002-Reading configuration from x\n";
        assert_eq!(answer(&format!("{read}0003 Reconfigured\n")).unwrap(), ConfigureAnswer::Done);
        assert_eq!(
            answer(&format!("{read}0022-Undo scheduled in 30 s\n0004 Reconfiguration in progress\n")).unwrap(),
            ConfigureAnswer::InProgress
        );
        assert_eq!(answer("0005 Reconfiguration already in progress\n").unwrap(), ConfigureAnswer::Queued);
        assert_eq!(answer("0018 Reconfiguration confirmed\n").unwrap(), ConfigureAnswer::Confirmed);
        assert_eq!(answer("0019 Nothing to do\n").unwrap(), ConfigureAnswer::Nothing);
        assert_eq!(answer(&format!("{read}0020 Configuration OK\n")).unwrap(), ConfigureAnswer::Checked);
        let error = answer(&format!("{read}8002 /etc/b:ird.conf:1:20 syntax error, unexpected X\n")).unwrap_err();
        assert_eq!(error.to_string(), "/etc/b:ird.conf:1:20: syntax error, unexpected X");
        let error = answer("8002 /etc/bird.conf:6:10 Kernel device protocol already defined\n").unwrap_err();
        assert!(error.to_string().contains("remove `protocol device`"), "{error}");
        let error = answer("8002 /x.conf: No such file or directory\n").unwrap_err();
        assert_eq!(error.to_string(), "BIRD answers 8002: /x.conf: No such file or directory");
        let error = answer("0006 Reconfiguration ignored, shutting down\n").unwrap_err();
        assert_eq!(error.to_string(), "BIRD answers 6: Reconfiguration ignored, shutting down");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let refused = |bytes: &[u8]| ReplyReader::default().feed(bytes).unwrap_err();
        assert!(matches!(refused(b" goes on\n"), ReplyError::NoNumber(_)));
        for bad in ["hello\n", "00\n", "00x1 a\n", "0001_a\n", "\n", "00\u{e9}1 x\n"] {
            assert!(matches!(refused(bad.as_bytes()), ReplyError::NoNumber(_)), "{bad:?}");
        }
        assert_eq!(refused(&vec![b'0'; MAX_LINE_BYTES + 1]), ReplyError::LongLine);
        let mut reader = ReplyReader::default();
        let line = format!("1007-{}\n", "x".repeat(60_000));
        let result = (0..200).find_map(|_| reader.feed(line.as_bytes()).err());
        assert_eq!(result, Some(ReplyError::LongReply));
        assert_eq!(refused("0000\n".repeat(17).as_bytes()), ReplyError::TooMany);
    }
}
